//! Checks images before their first run, and remembers the answers by digest.
//!
//! ```text
//!  first run of an image ─► its paths looked at ─► alone until one container of it has started ─► as many as there are turns
//!                                └──► IMAGE_UNUSABLE            └──► others refused after a while: ENGINE_UNAVAILABLE
//! ```
//!
//! An image may make the engine wait without end. So the first container of an image starts alone: one launch waits for the engine, and the
//! runs of other images do not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admission::FairTurns;
use containers::{
    Boundary, ContainerId, ContainerName, EngineError, Hardening, ImageFacts, ImageId, ImageReference,
    ImageRefused, UsableImage, check_image_paths,
};
use executor::engine_refusal;
use identity::RunId;
use operations::Reason;
use parking_lot::Mutex;
use refusal::{Refusal, chain};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, OwnedMutexGuard};

use super::Launcher;
use run_directories::resources::remove_container;

/// Advice to an operator about an image that is missing.
pub(super) const MISSING: &str = "an operator imports it with `coffer image import FILE NAME`, or builds it with `coffer image build DIRECTORY NAME`";
/// Advice to an operator about an image that no run may use.
const UNUSABLE: &str = "build it again without that, as with `coffer image build DIRECTORY NAME`";
/// Most images that are remembered. At this number all are forgotten, and each is checked again.
const MOST: usize = 1_000;
/// Time for which a launch waits until another launch has started the image's first container.
const FIRST: Duration = Duration::from_secs(10);

/// Starts of containers, and the answers about their images. The daemon has one.
#[derive(Default)]
pub struct ColdStarts {
    images: Mutex<BTreeMap<String, Arc<Known>>>,
    /// With more parallel starts the engine is no quicker. With fewer, the launches that came first are ready first.
    pub(super) turns: FairTurns,
}

#[derive(Default)]
struct Known {
    /// Bundles of certificates of an image that runs may use.
    paths: OnceCell<Result<Vec<&'static str>, ImageRefused>>,
    /// Held by the launch that starts the first container.
    first: Arc<AsyncMutex<()>>,
    has_started: AtomicBool,
}

impl ColdStarts {
    fn of(&self, image: &ImageId) -> Arc<Known> {
        let mut known = self.images.lock();
        if known.len() >= MOST && !known.contains_key(image.as_str()) {
            known.clear();
        }
        known.entry(image.as_str().to_owned()).or_default().clone()
    }

    /// Returns the reason that runs of the image are refused, if it has been checked and is refused.
    pub fn refused(&self, image: &ImageId) -> Option<String> {
        self.of(image).paths.get()?.as_ref().err().map(ToString::to_string)
    }

    /// Waits until a container of the image has been started, or it is this launch's turn to start the first one.
    pub(crate) async fn first(&self, image: &ImageId) -> Result<First, Refusal> {
        let known = self.of(image);
        if known.has_started.load(Ordering::Acquire) {
            return Ok(First { known, _alone: None });
        }
        let alone = tokio::time::timeout(FIRST, known.first.clone().lock_owned()).await.map_err(|_| {
            Refusal::new(
                Reason::EngineUnavailable,
                "image: the container engine does not answer for the first container of this image; try again later",
            )
        })?;
        // All launches that waited continue at the same time.
        let alone = Some(alone).filter(|_| !known.has_started.load(Ordering::Acquire));
        Ok(First { known, _alone: alone })
    }
}

/// A launch that may start a container of its image.
pub(crate) struct First {
    known: Arc<Known>,
    _alone: Option<OwnedMutexGuard<()>>,
}

impl First {
    /// Records that the container has started.
    pub(crate) fn started(self) {
        self.known.has_started.store(true, Ordering::Release);
    }
}

impl Launcher {
    /// Returns the image, and for the default image also the digest of its busybox.
    pub(crate) async fn image(
        &self,
        reference: Option<&ImageReference>,
    ) -> Result<(UsableImage, Option<String>), Refusal> {
        let Some(reference) = reference else {
            let made = self.default_image.get().await?;
            return Ok((made.image, Some(made.busybox)));
        };
        let Some(facts) = self.find_image(reference).await? else {
            let message =
                format!("image: the engine has no image {reference}, and nothing is pulled: {MISSING}");
            let refusal = Refusal::new(Reason::ImageMissing, message);
            return Err(refusal.with("image", reference.as_str()).with("hint", MISSING));
        };
        let usable = facts.usable().map_err(|refused| unusable(reference, &refused))?;
        let bundles = self.check_image(&usable, reference).await?;
        Ok((usable.with_bundles(bundles), None))
    }

    /// Asks the engine for the image that a request names, which the profile allows by this name.
    ///
    /// For a name that no image has, an engine takes the image whose id begins so, which the profile may not allow.
    pub(super) async fn find_image(&self, reference: &ImageReference) -> Result<Option<ImageFacts>, Refusal> {
        match reference.unabbreviated() {
            Some(whole) => self.engine.image(&whole).await.map_err(engine_refusal),
            None => Ok(None),
        }
    }

    /// Checks the paths of an image that an engine opens by itself, or mounts on. Does so once for each image.
    ///
    /// Returns the bundles of certificates that the image has.
    pub async fn check_image(
        &self,
        image: &UsableImage,
        reference: &ImageReference,
    ) -> Result<Vec<&'static str>, Refusal> {
        let known = self.starting.of(image.id());
        let checked = known.paths.get_or_try_init(|| self.look_at(image)).await?;
        checked.clone().map_err(|refused| unusable(reference, &refused))
    }

    async fn look_at(&self, image: &UsableImage) -> Result<Result<Vec<&'static str>, ImageRefused>, Refusal> {
        let made_as = RunId::new().to_string();
        let hardening = Hardening::default();
        let (user, guest) = (hardening.run_as.user(), self.guest.of(Boundary::HostKernel).to_owned());
        let spec = self.describe(&made_as, &hardening, image.clone(), user, Vec::new(), guest)?;
        let name = ContainerName::parse(&format!("cofferdam-{made_as}-image"))
            .map_err(|error| Refusal::internal("naming a container", &error))?;
        let made = self.engine.create(&spec.without_mounts(), &name).await;
        let container: ContainerId = made.map_err(|error| odd(error, "makes no container of it"))?;
        let checked = check_image_paths(self.engine.as_ref(), &container).await;
        remove_container(&self.engine, container).await;
        checked.map_err(|error| odd(error, "cannot look at its files"))
    }
}

/// Returns the refusal of an image that no run may use.
fn unusable(reference: &ImageReference, refused: &ImageRefused) -> Refusal {
    let refusal = Refusal::new(Reason::ImageUnusable, format!("image: {refused}"));
    refusal.with("image", reference.as_str()).with("hint", UNUSABLE)
}

/// Converts an error of the engine. An engine that answers, and refuses, does so because of the image.
fn odd(error: EngineError, what: &str) -> Refusal {
    match &error {
        EngineError::Api { .. } | EngineError::Malformed { .. } => {
            tracing::warn!(error = %chain(&error), "an image that the engine cannot use");
            Refusal::new(
                Reason::ImageUnusable,
                format!("image: the container engine {what}; see the daemon's log"),
            )
        }
        _ => engine_refusal(error),
    }
}
