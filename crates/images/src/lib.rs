#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod export;
mod name;
mod passage;
mod shown;
mod space;
mod store;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use admission::Turns;
use audit::{Event, Kind};
use audit_service::AuditLog;
use containers::{
    BadTar, BuildNetwork, EngineError, ImageBuild, ImageId, ImageReference, TarForm, pass_archive,
    pass_context, pass_filesystem,
};
use disk_quotas::Quotas;
use executor::engine_refusal;
use identity::Principal;
use operations::Reason;
use parking_lot::Mutex;
use policy::InForce;
use refusal::{Refusal, chain};
use runs::Launcher;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use wire::v1;
use wire::v1::import_image_header::Form;

pub use export::Sender;
use name::{dockerfile, own_name, short};
pub use passage::Pieces;
use passage::{Passage, Passed};
use space::Space;

/// Maximum number of imports and builds at the same time.
const AT_ONCE: usize = 2;
/// Time that the check of a tar has to finish after the engine has, and that the engine has to report a timeout.
const SETTLING: Duration = Duration::from_secs(5);
/// Advice after an end in which the engine may have had the whole tar: it finishes then without a listener, too.
const LOOK: &str =
    "it may have been done already, so look at the images (`coffer image list`) before the next try";
/// Maximum number of exports at the same time, of which each principal has one. Each promises its space on the engine's disk.
const EXPORTS: usize = 3;

/// Limits for the import and the build of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageBounds {
    /// Maximum size of a tar, bytes.
    pub max_bytes: u64,
    pub timeout: Duration,
}

/// The images of the engine, for operators.
pub struct Images {
    launcher: Arc<Launcher>,
    audit: Arc<AuditLog>,
    quotas: Arc<Quotas>,
    policy: InForce,
    bounds: ImageBounds,
    slots: Semaphore,
    exports: Turns,
    /// Names that imports and builds are about to give.
    names: Mutex<BTreeSet<String>>,
}

/// A name that no other import or build gives meanwhile.
struct Taken<'a>(&'a Images, String);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.names.lock().remove(&self.1);
    }
}

/// Rule for a name that another image already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    New,
    Replace,
}

impl Images {
    pub fn new(
        launcher: Arc<Launcher>,
        (audit, quotas): (Arc<AuditLog>, Arc<Quotas>),
        policy: InForce,
        bounds: ImageBounds,
    ) -> Self {
        let (slots, exports) = (Semaphore::new(AT_ONCE), Turns::new(EXPORTS));
        Self { launcher, audit, quotas, policy, bounds, slots, exports, names: Mutex::default() }
    }

    /// Imports an image from a tar.
    pub async fn import(
        &self,
        principal: &Principal,
        header: v1::ImportImageHeader,
        pieces: Pieces,
        cancel: &CancellationToken,
    ) -> Result<v1::ImportImageResponse, Refusal> {
        let announced = announced(&header)?;
        let form = match header.form() {
            Form::Unspecified => announced.as_ref().map(|_| TarForm::DockerArchive),
            Form::DockerArchive => Some(TarForm::DockerArchive),
            Form::RootFilesystem => Some(TarForm::RootFilesystem),
        };
        let reference = own_name(&header.reference)?;
        let _slot = self.slot()?;
        let _taken = self.take(&reference)?;
        if self.has(&reference, announced.as_ref()).await? {
            let image = Some(self.shown(&reference).await?);
            return Ok(v1::ImportImageResponse { image, tar_sha256: String::new(), present: true });
        }
        let store = self.store().await?;
        if announced.is_some() {
            store::takes_announced(&store)?;
        }
        self.check_name(&reference, naming(header.replace)).await?;
        let event = || event(Kind::ImageImported, principal, &reference);
        self.record(event(), json!({ "phase": "begun" })).await?;

        let (name, wanted) = (reference.clone(), announced.clone());
        let space = Space::on(&self.quotas, &store.directory);
        let pieces = space.of_pieces(pieces);
        let passage =
            Passage::begin(pieces, form, self.bounds.max_bytes, move |form, input, output| match form {
                TarForm::DockerArchive => pass_archive(input, output, &name, wanted.as_ref()),
                TarForm::RootFilesystem => pass_filesystem(input, output),
            });
        let cancelled = passage.cancelled(cancel);
        let made = async {
            let (form, tar, passed) = passage.form().await.map_err(|bad| bad_tar(&bad))?;
            let limit = self.bounds.timeout;
            let given = match form {
                TarForm::DockerArchive => self.launcher.engine.load_image(tar, limit).await,
                TarForm::RootFilesystem => {
                    self.launcher.engine.import_filesystem(tar, &reference, limit).await
                }
            };
            settled(given, passed).await
        };
        let made = space.judge(in_time(made, self.bounds.timeout, cancelled).await);
        let passed = self.recorded(event, &reference, made).await?;
        let image = self.shown(&reference).await?;
        stored(&image, announced.as_ref())?;
        Ok(v1::ImportImageResponse { image: Some(image), tar_sha256: passed.sha256, present: false })
    }

    /// Lets the engine build an image, and sends the output of the build to `output`.
    pub async fn build(
        &self,
        principal: &Principal,
        header: v1::BuildImageHeader,
        pieces: Pieces,
        output: mpsc::Sender<String>,
        cancel: &CancellationToken,
    ) -> Result<v1::Image, Refusal> {
        let limit = match timestamp::duration_from_wire(&header.timeout.unwrap_or_default()) {
            Some(timeout) if timeout > self.bounds.timeout => {
                let most = self.bounds.timeout.as_secs();
                let message = format!("is above the daemon's limit of {most} seconds (images.timeout)");
                return Err(Refusal::invalid("timeout", message));
            }
            Some(timeout) => timeout,
            None if header.timeout.is_some() => {
                return Err(Refusal::invalid("timeout", "must be more than zero"));
            }
            None => self.bounds.timeout,
        };
        let build = ImageBuild {
            reference: own_name(&header.reference)?,
            dockerfile: dockerfile(header.dockerfile)?,
            network: if header.without_network { BuildNetwork::None } else { BuildNetwork::Engine },
        };
        let reference = &build.reference;
        let _slot = self.slot()?;
        let _taken = self.take(reference)?;
        self.check_name(reference, naming(header.replace)).await?;
        let space = Space::on(&self.quotas, &self.store().await?.directory);
        let event = || event(Kind::ImageBuilt, principal, reference);
        self.record(
            event(),
            json!({
                "phase": "begun", "dockerfile": build.dockerfile, "network": !header.without_network,
            }),
        )
        .await?;

        let form = Some(TarForm::RootFilesystem);
        let pieces = space.of_pieces(pieces);
        let passage = Passage::begin(pieces, form, self.bounds.max_bytes, |_, input, output| {
            pass_context(input, output)
        });
        let made = async {
            let (_, tar, passed) = passage.form().await.map_err(|bad| bad_tar(&bad))?;
            let given = self.launcher.engine.build_image(&build, tar, output, limit).await;
            settled(given, passed).await
        };
        let made = space.judge(in_time(made, limit, cancel.cancelled()).await);
        self.recorded(event, reference, made).await?;
        self.shown(reference).await
    }

    fn slot(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Refusal> {
        self.slots.try_acquire().map_err(|_| {
            Refusal::new(
                Reason::Overloaded,
                format!(
                    "{AT_ONCE} images are being imported or built, which is the limit: wait for one to finish"
                ),
            )
        })
    }

    /// Keeps other imports and builds from giving this name, so that none of them replaces the image unasked.
    fn take(&self, reference: &ImageReference) -> Result<Taken<'_>, Refusal> {
        let name = short(reference);
        if self.names.lock().insert(name.clone()) {
            return Ok(Taken(self, name));
        }
        Err(Refusal::new(
            Reason::Overloaded,
            format!("another image is being imported or built as {name}: try again when that has ended"),
        ))
    }

    /// Returns true if the name already belongs to the announced image.
    async fn has(&self, reference: &ImageReference, announced: Option<&ImageId>) -> Result<bool, Refusal> {
        let Some(announced) = announced else { return Ok(false) };
        let found = self.launcher.engine.image(reference).await.map_err(engine_refusal)?;
        Ok(found.is_some_and(|found| found.id == *announced))
    }

    async fn check_name(&self, reference: &ImageReference, naming: Naming) -> Result<(), Refusal> {
        self.audit.check()?;
        if naming == Naming::Replace {
            return Ok(());
        }
        match self.launcher.engine.image(reference).await.map_err(engine_refusal)? {
            None => Ok(()),
            Some(has) => Err(Refusal::new(
                Reason::AlreadyExists,
                format!("reference: the engine already has an image {reference}; set `replace` to give this name to the new image"),
            )
            .with("image_id", has.id.to_string())),
        }
    }

    async fn record(&self, event: Event, details: serde_json::Value) -> Result<(), Refusal> {
        self.audit.record(event.details(details)).await?;
        Ok(())
    }

    /// Records the end of an import or a build: the digest of the image, or the reason why there is none.
    async fn recorded(
        &self,
        event: impl Fn() -> Event,
        reference: &ImageReference,
        made: Result<Passed, Refusal>,
    ) -> Result<Passed, Refusal> {
        let found = match &made {
            Ok(_) => self.launcher.engine.image(reference).await.map_err(engine_refusal),
            Err(refusal) => Err(refusal.clone()),
        };
        let missing =
            || Refusal::new(Reason::EngineUnavailable, "the engine reported success but has no such image");
        match (made, found.and_then(|found| found.ok_or_else(missing))) {
            (Ok(passed), Ok(facts)) => {
                let details = json!({
                    "phase": "done", "image_id": facts.id.to_string(), "tar_sha256": passed.sha256, "tar_bytes": passed.bytes,
                });
                self.record(event().image(facts.id.to_string()), details).await?;
                Ok(passed)
            }
            (_, Err(refusal)) | (Err(refusal), _) => {
                let details =
                    json!({ "phase": "failed", "reason": refusal.reason.as_str(), "why": refusal.message });
                self.record(event(), details).await?;
                Err(refusal)
            }
        }
    }
}

/// Returns the identity that the image must have. `None`: any.
fn announced(header: &v1::ImportImageHeader) -> Result<Option<ImageId>, Refusal> {
    if header.image_id.is_empty() {
        return Ok(None);
    }
    if header.form() == Form::RootFilesystem {
        return Err(Refusal::invalid(
            "image_id",
            "is for an archive: a root file system has no identity yet",
        ));
    }
    let id = ImageId::parse(&header.image_id);
    id.map(Some).map_err(|_| Refusal::invalid("image_id", "is not `sha256:` and 64 hexadecimal digits"))
}

/// Refuses an image that the engine has stored under another id than the announced one.
fn stored(image: &v1::Image, announced: Option<&ImageId>) -> Result<(), Refusal> {
    match announced {
        Some(wanted) if wanted.as_str() != image.image_id => {
            let v1::Image { reference, image_id, .. } = image;
            let message = format!(
                "the archive had the image {wanted}, and {reference} is now {image_id}: this engine gives images other ids, as the \
                 containerd image store does, or another program has taken the name"
            );
            Err(Refusal::new(Reason::PreconditionFailed, message).with("image_id", image_id.clone()))
        }
        _ => Ok(()),
    }
}

fn naming(replace: bool) -> Naming {
    if replace { Naming::Replace } else { Naming::New }
}

fn event(kind: Kind, principal: &Principal, reference: &ImageReference) -> Event {
    Event::new(kind).principal(&principal.name).input(json!({ "reference": reference.as_str() }))
}

/// Ends an import or a build after its time limit, or when it is cancelled.
///
/// Otherwise a client that sends nothing, or that is gone, would keep it open.
async fn in_time(
    made: impl Future<Output = Result<Passed, Refusal>>,
    limit: Duration,
    cancelled: impl Future<Output = ()>,
) -> Result<Passed, Refusal> {
    tokio::select! {
        made = made => made,
        () = tokio::time::sleep(limit + SETTLING) => Err(Refusal::new(
            Reason::TimedOut,
            format!(
                "it was not done within {} seconds, and the engine was told to stop: {LOOK}",
                limit.as_secs()
            ),
        )),
        () = cancelled => Err(Refusal::new(
            Reason::Cancelled,
            format!(
                "the client disconnected or the daemon is stopping, and the engine was told to stop: {LOOK}"
            ),
        )),
    }
}

/// Combines the engine's result with the check of the tar.
///
/// A bad tar explains an error of the engine, so it is reported first. The engine's message is reported if it failed
/// before the tar was checked.
async fn settled(
    given: Result<(), EngineError>,
    passed: impl Future<Output = Result<Passed, BadTar>>,
) -> Result<Passed, Refusal> {
    match (given, tokio::time::timeout(SETTLING, passed).await) {
        (Err(error), Err(_) | Ok(Ok(_) | Err(BadTar::Io(_)))) => Err(refused(error)),
        (_, Ok(Err(bad))) => Err(bad_tar(&bad)),
        (Ok(()), Ok(Ok(passed))) => Ok(passed),
        (Ok(()), Err(_)) => Err(Refusal::new(Reason::Internal, "the tar was not checked to its end")),
    }
}

/// Returns the engine's message. Only operators see it, and they need it to correct a build.
fn refused(error: EngineError) -> Refusal {
    match error {
        EngineError::Api { attempt, status: 200 | 400 | 500, message } => {
            let message: String = message.trim().replace(char::is_control, " ");
            Refusal::new(Reason::PreconditionFailed, format!("the engine did not {attempt}: {message}"))
        }
        EngineError::TimedOut { attempt, limit } => Refusal::new(
            Reason::TimedOut,
            format!("the engine did not {attempt} within {} seconds and was told to stop", limit.as_secs()),
        ),
        error => engine_refusal(error),
    }
}

fn bad_tar(bad: &BadTar) -> Refusal {
    match bad {
        BadTar::Io(_) => {
            tracing::info!(error = %chain(bad), "a tar was not passed on completely");
            Refusal::new(Reason::Cancelled, "the tar is incomplete; the engine stored nothing")
        }
        BadTar::TooLong(most) => {
            Refusal::invalid("tar", format!("is longer than {most} bytes (images.max_size)"))
        }
        bad => Refusal::invalid("tar", bad),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_stored_under_another_id_is_not_the_announced_one() {
        let [wanted, other] = ["a", "b"].map(|digit| format!("sha256:{}", digit.repeat(64)));
        let image = |id: &str| v1::Image { image_id: id.to_owned(), ..Default::default() };
        let announced = ImageId::parse(&wanted).unwrap();
        assert!(stored(&image(&wanted), Some(&announced)).is_ok());
        assert!(stored(&image(&other), None).is_ok());
        let refused = stored(&image(&other), Some(&announced)).unwrap_err();
        assert!(refused.message.contains(&other), "{}", refused.message);
    }

    #[test]
    fn an_announced_identity_is_whole_and_of_an_archive() {
        let header = |image_id: &str, form: Form| v1::ImportImageHeader {
            image_id: image_id.to_owned(),
            form: form.into(),
            ..Default::default()
        };
        let id = format!("sha256:{}", "a".repeat(64));
        assert_eq!(announced(&header("", Form::RootFilesystem)).unwrap(), None);
        for form in [Form::Unspecified, Form::DockerArchive] {
            assert_eq!(announced(&header(&id, form)).unwrap().unwrap().as_str(), id);
        }
        assert!(announced(&header(&id, Form::RootFilesystem)).is_err());
        for bad in ["tools:1", "sha256:", &id[..70], &format!("{id}a"), "sha256:../version"] {
            assert!(announced(&header(bad, Form::Unspecified)).is_err(), "{bad}");
        }
    }
}
