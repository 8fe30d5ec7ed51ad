//! [`Engine`]: Docker Engine over its Unix socket. This is the only module that uses bollard.
//!
//! Every call is bounded in time and ends in an [`EngineError`] that says what was attempted.
//!
//! It works with API 1.41 (Docker 20.10) and later. Three habits of the client are guarded against. It pastes ids into URLs, so ids here
//! are checked types. It sets no limit on an upgraded connection, so every call here gets a deadline. It labels text outside of any frame
//! `Console`, which is never treated as stdout here.
//!
//! The archive endpoint (`docker cp`), known for container escapes, is used for one thing only: to find the type of a path in a container
//! that was never started. Such a container cannot change meanwhile, and no file is opened.

mod beside;
mod faults;
mod image_store;
mod images;
mod readback;
mod render;

pub use beside::ContainerInput;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::query_parameters::{
    ContainerArchiveInfoOptions, CreateContainerOptions, CreateImageOptions, ListContainersOptions,
    RemoveContainerOptions, RemoveImageOptions,
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};

use crate::engine::{
    ContainerListing, EngineError, EngineFacts, ImageFacts, ImportChanges, Inspection, Looked,
};
use crate::exec::{ErrorTail, ExecStream, Piece, StdoutReader};
use crate::ids::{ContainerId, ContainerName, Endpoint, ExecId, ImageId, ImageReference, RunUser};
use crate::spec::ContainerSpec;

/// Deadline of the question if the engine answers.
const PINGING: Duration = Duration::from_secs(4);
/// Deadline of calls that only read.
const ASKING: Duration = Duration::from_secs(15);
/// Deadline of calls that change something. Starting takes a third of a second on an idle host.
const CHANGING: Duration = Duration::from_secs(60);
/// Deadline of the import of an image.
const IMPORTING: Duration = Duration::from_secs(180);
/// Interval between two queries of an exec that has not started.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Interval between two queries of a container that is being removed.
const REMOVING: Duration = Duration::from_millis(20);

/// A Docker Engine. Cheap to clone; every call opens its own connection.
#[derive(Debug, Clone)]
pub struct Engine {
    client: Docker,
    endpoint: Endpoint,
    counts: Arc<Counts>,
}

/// Calls of all clones since the daemon's start.
#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
}

impl Engine {
    /// Prepares a client. It only checks that the socket exists; [`Engine::version`] is the first request.
    pub fn connect(endpoint: &Endpoint) -> Result<Self, EngineError> {
        let limit = IMPORTING.as_secs();
        let client = Docker::connect_with_unix(&endpoint.to_string(), limit, bollard::API_DEFAULT_VERSION)
            .map_err(|error| faults::translate("reach the engine", endpoint, error))?;
        Ok(Self { client, endpoint: endpoint.clone(), counts: Arc::default() })
    }

    /// Returns the number of calls that the engine answered, that failed, and that had no answer in time.
    pub fn counts(&self) -> [u64; 3] {
        let Counts { answered, failed, timed_out } = &*self.counts;
        [answered, failed, timed_out].map(|count| count.load(Ordering::Relaxed))
    }

    /// Waits until the engine no longer knows the container.
    async fn disappears(&self, id: &ContainerId) -> Result<(), EngineError> {
        let attempt = "see the container removed";
        let began = Instant::now();
        loop {
            let call = self.client.inspect_container(id.as_str(), None);
            if let Err(error) = self.within(ASKING, attempt, call).await {
                return gone_is_fine(Err(error));
            }
            if began.elapsed() >= CHANGING {
                return Err(EngineError::TimedOut { attempt, limit: CHANGING });
            }
            tokio::time::sleep(REMOVING).await;
        }
    }

    /// Runs a call with a deadline, and names it in the error.
    fn within<T>(
        &self,
        limit: Duration,
        attempt: &'static str,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> impl Future<Output = Result<T, EngineError>> + Send {
        // The client's futures have kilobytes, which would be in the future of every caller.
        let call = Box::pin(call);
        async move {
            let (count, answer) = match tokio::time::timeout(limit, call).await {
                Ok(Ok(answer)) => (&self.counts.answered, Ok(answer)),
                Ok(Err(Error::RequestTimeoutError)) | Err(_) => {
                    (&self.counts.timed_out, Err(EngineError::TimedOut { attempt, limit }))
                }
                Ok(Err(error)) => {
                    (&self.counts.failed, Err(faults::translate(attempt, &self.endpoint, error)))
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
            answer
        }
    }
}

/// Treats an object that no longer exists as removed.
fn gone_is_fine(result: Result<(), EngineError>) -> Result<(), EngineError> {
    match result {
        Err(EngineError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

impl Engine {
    /// Checks that the engine answers.
    pub async fn ping(&self) -> Result<(), EngineError> {
        self.within(PINGING, "reach the engine", self.client.ping()).await.map(drop)
    }

    pub async fn version(&self) -> Result<EngineFacts, EngineError> {
        let version = self.within(ASKING, "ask the engine's version", self.client.version()).await?;
        let info = self.within(ASKING, "ask the engine's settings", self.client.info()).await?;
        readback::engine_facts(version, info)
    }

    /// Looks an image up. `None` if the engine does not have it; it is never pulled.
    pub async fn image(&self, reference: &ImageReference) -> Result<Option<ImageFacts>, EngineError> {
        let attempt = "look up the image";
        match self.within(ASKING, attempt, self.client.inspect_image(reference.as_str())).await {
            Ok(image) => readback::image_facts(image).map(Some),
            Err(EngineError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an image of one layer from a root file system in tar form.
    pub async fn import_image(
        &self,
        rootfs_tar: Bytes,
        reference: &ImageReference,
        changes: &ImportChanges,
    ) -> Result<ImageFacts, EngineError> {
        let (repository, tag) = reference.repository_and_tag();
        let options = CreateImageOptions {
            from_src: Some("-".into()),
            repo: Some(repository.into()),
            tag: Some(tag.into()),
            changes: render::import_changes(changes),
            ..CreateImageOptions::default()
        };
        let progress = self.client.create_image(Some(options), Some(bollard::body_full(rootfs_tar)), None);
        let finished = progress.try_for_each(|_| std::future::ready(Ok(())));
        self.within(IMPORTING, "import the image", finished).await?;
        self.image(reference).await?.ok_or(EngineError::NotFound { attempt: "find the imported image" })
    }

    /// Removes an image and its tags. It is no error if the image does not exist.
    pub async fn remove_image(&self, id: &ImageId) -> Result<(), EngineError> {
        let options = RemoveImageOptions { force: true, ..RemoveImageOptions::default() };
        let call = self.client.remove_image(id.as_str(), Some(options), None);
        gone_is_fine(self.within(CHANGING, "remove the image", call).await.map(drop))
    }

    /// Makes a container without starting it. After [`EngineError::TimedOut`] it may exist: look for its name.
    pub async fn create(
        &self,
        spec: &ContainerSpec,
        name: &ContainerName,
    ) -> Result<ContainerId, EngineError> {
        let attempt = "create the container";
        let options = CreateContainerOptions {
            name: Some(name.as_str().to_owned()),
            ..CreateContainerOptions::default()
        };
        let call = self.client.create_container(Some(options), render::create_body(spec));
        let answer = self.within(CHANGING, attempt, call).await?;
        ContainerId::parse(&answer.id).map_err(|error| faults::malformed(attempt, &error))
    }

    pub async fn start(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.within(CHANGING, "start the container", self.client.start_container(id.as_str(), None)).await
    }

    /// Returns the type of a path in a container that was never started, without opening it. `None` if the path does not exist.
    pub async fn look(&self, id: &ContainerId, path: &str) -> Result<Option<Looked>, EngineError> {
        let options = ContainerArchiveInfoOptions { path: path.to_owned() };
        let call = self.client.get_container_archive_info(id.as_str(), Some(options));
        match self.within(ASKING, "look at a path of the image", call).await {
            Ok(found) => {
                let kind = readback::file_kind(found.file_mode);
                Ok(Some(Looked { kind, leads_to: found.link_target }))
            }
            Err(EngineError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `argv` in the container with its working directory at `/` and its streams attached.
    ///
    /// An accepted request does not mean that the program runs, and Docker 20.10 writes its own error ("OCI runtime exec failed…") to the
    /// program's stdout. Rely only on a greeting on `output`.
    pub async fn attach_exec(
        &self,
        id: &ContainerId,
        argv: &[String],
        user: RunUser,
    ) -> Result<ExecStream, EngineError> {
        let attempt = "start a program in the container";
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            // With a terminal the client would guess frame borders from the program's output.
            tty: Some(false),
            cmd: Some(argv.to_vec()),
            privileged: Some(false),
            user: Some(user.to_string()),
            // A path that the container controls would be exploitable: CVE-2024-21626.
            working_dir: Some("/".to_owned()),
            ..CreateExecOptions::default()
        };
        let created = self.within(CHANGING, attempt, self.client.create_exec(id.as_str(), options)).await?;
        let exec = ExecId::parse(&created.id).map_err(|error| faults::malformed(attempt, &error))?;
        match self.within(CHANGING, attempt, self.client.start_exec(exec.as_str(), None)).await? {
            StartExecResults::Attached { output, input } => {
                let errors = ErrorTail::default();
                let pieces = output.map(|piece| piece.map(sorted).map_err(std::io::Error::other));
                let output = Box::pin(StdoutReader::new(pieces, errors.clone()));
                Ok(ExecStream { input, output, errors, exec })
            }
            StartExecResults::Detached => {
                Err(EngineError::Malformed { attempt, what: "the engine did not attach the streams".into() })
            }
        }
    }

    /// Returns the host pid of an exec's first process once it has started, or [`EngineError::NotFound`] if it has ended.
    pub async fn exec_pid(&self, exec: &ExecId) -> Result<u32, EngineError> {
        let attempt = "find the program's process";
        let looking = async {
            loop {
                let answer = self.client.inspect_exec(exec.as_str()).await?;
                let pid = answer.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 1);
                match (answer.running.unwrap_or(false), pid, answer.exit_code) {
                    (true, Some(pid), _) => return Ok(Some(pid)),
                    (false, _, Some(_)) => return Ok(None),
                    // The program's first output can arrive before the engine records that it runs.
                    _ => tokio::time::sleep(LOOK_AGAIN).await,
                }
            }
        };
        self.within(ASKING, attempt, looking).await?.ok_or(EngineError::NotFound { attempt })
    }

    /// Waits until an exec's first process has ended. Returns its exit code, or 128 plus the number of the signal that ended it.
    pub async fn exec_ended(&self, exec: &ExecId) -> Result<i64, EngineError> {
        let looking = async {
            loop {
                let answer = self.client.inspect_exec(exec.as_str()).await?;
                match (answer.running, answer.exit_code) {
                    (Some(false), Some(code)) => return Ok(code),
                    _ => tokio::time::sleep(LOOK_AGAIN).await,
                }
            }
        };
        self.within(ASKING, "learn how the program ended", looking).await
    }

    /// Reads a container's state and the settings in force.
    pub async fn inspect(&self, id: &ContainerId) -> Result<Inspection, EngineError> {
        let call = self.client.inspect_container(id.as_str(), None);
        readback::inspection(self.within(ASKING, "inspect the container", call).await?)
    }

    /// Freezes every process of a container.
    pub async fn pause(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.within(CHANGING, "pause the container", self.client.pause_container(id.as_str())).await
    }

    pub async fn unpause(&self, id: &ContainerId) -> Result<(), EngineError> {
        self.within(CHANGING, "resume the container", self.client.unpause_container(id.as_str())).await
    }

    /// Kills a container if it runs, and removes it with its anonymous volumes. It is no error if the container does not exist.
    pub async fn remove(&self, id: &ContainerId) -> Result<(), EngineError> {
        let options = RemoveContainerOptions { force: true, v: true, link: false };
        let call = self.client.remove_container(id.as_str(), Some(options));
        match self.within(CHANGING, "remove the container", call).await {
            // Another client removes it already, such as a daemon that was killed since.
            Err(conflict @ EngineError::Conflict { .. }) => self.disappears(id).await.or(Err(conflict)),
            removed => gone_is_fine(removed),
        }
    }

    /// Returns all containers, running or not, that carry the label.
    pub async fn list(&self, label: &str, value: &str) -> Result<Vec<ContainerListing>, EngineError> {
        let filters = HashMap::from([("label".to_owned(), vec![format!("{label}={value}")])]);
        let options =
            ListContainersOptions { all: true, filters: Some(filters), ..ListContainersOptions::default() };
        let call = self.client.list_containers(Some(options));
        let rows = self.within(ASKING, "list the containers", call).await?;
        rows.into_iter().map(readback::listing).collect()
    }
}

fn sorted(piece: LogOutput) -> Piece {
    match piece {
        LogOutput::StdOut { message } => Piece::Stdout(message),
        // `Console` is text that the engine sends outside any frame.
        LogOutput::StdErr { message } | LogOutput::Console { message } | LogOutput::StdIn { message } => {
            Piece::Aside(message)
        }
    }
}
