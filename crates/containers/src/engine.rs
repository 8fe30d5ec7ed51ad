//! What Cofferdam asks of a container engine, in its own words.
//!
//! Every call is bounded in time and ends in an [`EngineError`] that says what was attempted. Nothing here names a
//! vendor's type, so that another engine, or one that fails on purpose in a test, is a second implementation.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::mpsc;

use crate::exec::ExecStream;
use crate::ids::{ContainerId, ContainerName, ExecId, ImageId, ImageReference, RunUser};
use crate::spec::ContainerSpec;
use crate::user_map::UserMap;

/// Why the engine did not do what it was asked. For operators: its messages can name host paths, which agents must not
/// see.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Nobody listens, or this process may not connect.
    #[error("no engine answers at {endpoint}: {mend}")]
    Unreachable {
        /// The address that was tried.
        endpoint: String,
        /// What an operator can do about it.
        mend: &'static str,
        /// What the connection failed with.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No such container, image or exec.
    #[error("cannot {attempt}: the engine knows no such container, image or program")]
    NotFound { attempt: &'static str },
    /// The name is taken, or the container is in another state (paused, not running).
    #[error("cannot {attempt} in its present state: {message}")]
    Conflict {
        attempt: &'static str,
        /// The engine's own words, bounded.
        message: String,
    },
    #[error("cannot {attempt}: the engine answered {status}: {message}")]
    Api {
        attempt: &'static str,
        status: u16,
        /// The engine's own words, bounded.
        message: String,
    },
    /// No answer in time. The engine may still be carrying the request out.
    #[error("cannot {attempt}: no answer from the engine within {limit:?}")]
    TimedOut {
        attempt: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// An answer that makes no sense.
    #[error("cannot {attempt}: the engine's answer is malformed: {what}")]
    Malformed { attempt: &'static str, what: String },
}

/// The engine and what it runs on, for `coffer doctor` and the start-up log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFacts {
    /// The engine's version, such as `20.10.24+dfsg1`.
    pub engine_version: String,
    /// The newest API version that it speaks.
    pub api_version: String,
    /// runc's version, where the engine tells it.
    pub runc_version: Option<String>,
    /// containerd's version, where the engine tells it.
    pub containerd_version: Option<String>,
    /// 1 (also for hybrid hosts) or 2.
    pub cgroup_version: u8,
    /// For example `overlay2`.
    pub storage_driver: String,
    /// The runtimes that a profile can name.
    pub runtimes: Vec<String>,
    /// The one that is used when none is named.
    pub default_runtime: String,
    /// As the engine lists them: `name=seccomp,profile=default`, `name=rootless`, …
    pub security_options: Vec<String>,
    /// Processors that the engine sees; a container's limit cannot be above them.
    pub cpus: u32,
    /// Kernel release of the engine's host.
    pub kernel: String,
    /// For example `x86_64`.
    pub architecture: String,
    /// What the engine warns of by itself.
    pub warnings: Vec<String>,
    /// The user namespace of its containers. Absent where they have none, or where the engine does not say whose ids they get.
    pub user_map: Option<UserMap>,
}

impl EngineFacts {
    /// True when the engine can apply a seccomp profile. Without it no container is safe to start.
    pub fn has_seccomp(&self) -> bool {
        self.has_security("seccomp")
    }

    /// True when the engine runs without root: mounts and cgroups of the host are then out of reach.
    pub fn is_rootless(&self) -> bool {
        self.has_security("rootless")
    }

    /// True when the engine gives its containers a user namespace.
    pub fn maps_users(&self) -> bool {
        self.has_security("userns")
    }

    fn has_security(&self, name: &str) -> bool {
        self.security_options
            .iter()
            .any(|option| option.split(',').any(|part| part.strip_prefix("name=") == Some(name)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// Its identity by content.
    pub id: ImageId,
    /// Digests of its uncompressed layers, `sha256:…`, lowest first.
    pub layers: Vec<String>,
    /// One label's value for each key that the image carries.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Paths that the image declares as volumes.
    pub volumes: Vec<String>,
    /// Where the engine keeps the files of its layers, topmost first. Empty: it does not say.
    pub directories: Vec<PathBuf>,
}

/// The type of a file, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// A link by itself may be in order.
fn leading(found: FileKind) -> &'static str {
    if found == FileKind::Link { " that leads to something else" } else { "" }
}

impl FileKind {
    /// With its article.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Special => "a FIFO, a socket or a device",
        }
    }
}

/// The file at a path. A link is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    pub kind: FileKind,
    /// The last target of a link, as the container's own path. Empty: it is no link.
    pub leads_to: String,
}

/// An image that no run may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageRefused {
    /// The engine would open it, or something could not be mounted there.
    #[error("the image has {} at {path}{}, where {} has to be", .found.name(), leading(*.found), .wanted.name())]
    WrongKind { path: &'static str, found: FileKind, wanted: FileKind },
    /// The engine would make a writable volume of its own for each of them, outside every limit.
    #[error(
        "the image declares volumes ({}), which would be writable and unlimited: use an image without VOLUME",
        .0.join(", ")
    )]
    DeclaresVolumes(Vec<String>),
}

/// An image that passed [`ImageFacts::usable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableImage {
    id: ImageId,
    directories: Vec<PathBuf>,
}

impl UsableImage {
    /// Its identity by content.
    pub fn id(&self) -> &ImageId {
        &self.id
    }

    /// Where the engine keeps the files of its layers, topmost first. Empty: it does not say.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }
}

impl ImageFacts {
    /// Refuses images that would weaken a container's hardening by what they declare.
    pub fn usable(&self) -> Result<UsableImage, ImageRefused> {
        if self.volumes.is_empty() {
            Ok(UsableImage { id: self.id.clone(), directories: self.directories.clone() })
        } else {
            Err(ImageRefused::DeclaresVolumes(self.volumes.clone()))
        }
    }
}

/// A tar on its way to the engine. An error in it ends the request, and the engine keeps nothing.
pub type TarStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// An image under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageListing {
    pub reference: ImageReference,
    pub id: ImageId,
    /// Bytes of its layers.
    pub size: u64,
    /// Seconds since 1970, as it says.
    pub created: i64,
}

/// What the engine is to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageBuild {
    /// The name that the image gets.
    pub reference: ImageReference,
    /// The Dockerfile in the directory.
    pub dockerfile: String,
    pub network: BuildNetwork,
}

/// The network that programs of a build have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildNetwork {
    /// The engine's default.
    Engine,
    None,
}

/// Configuration that an imported image gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportChanges {
    /// Labels; keys and values are `[A-Za-z0-9._:-]` only.
    pub labels: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    Created,
    Running,
    /// Frozen by the engine.
    Paused,
    /// Ended with this code.
    Exited(i64),
    /// Being removed, restarted, or broken.
    Other,
}

/// A container as the engine says it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    pub id: ContainerId,
    pub state: ContainerState,
    /// Host pid of its first process, while it runs.
    pub host_pid: Option<u32>,
    /// When its first process started, in the engine's own words: another value means that it was started again.
    pub started_at: String,
    /// True when the kernel ended it for want of memory.
    pub oom_killed: bool,
    /// The settings in force, read back into the form in which they were asked for.
    pub in_force: ContainerSpec,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerListing {
    pub id: ContainerId,
    /// Its name, without the engine's leading slash.
    pub name: String,
    pub labels: std::collections::BTreeMap<String, String>,
}

#[async_trait]
pub trait Engine: Send + Sync {
    async fn version(&self) -> Result<EngineFacts, EngineError>;

    /// Looks an image up; `None` when the engine does not have it. Nothing is ever pulled.
    async fn image(&self, reference: &ImageReference) -> Result<Option<ImageFacts>, EngineError>;

    /// Makes an image of one layer from a root file system in tar form.
    async fn import_image(
        &self,
        rootfs_tar: Bytes,
        reference: &ImageReference,
        changes: &ImportChanges,
    ) -> Result<ImageFacts, EngineError>;

    /// Makes the image of an archive of `docker save`, within this time.
    async fn load_image(&self, archive: TarStream, limit: Duration) -> Result<(), EngineError>;

    /// Makes an image of one layer from the tar of a root file system, within this time.
    async fn import_filesystem(
        &self,
        tar: TarStream,
        reference: &ImageReference,
        limit: Duration,
    ) -> Result<(), EngineError>;

    /// Builds an image from the tar of a directory, within this time, and tells what the build prints. Dropping the future ends
    /// the build.
    async fn build_image(
        &self,
        build: &ImageBuild,
        context: TarStream,
        output: mpsc::Sender<String>,
        limit: Duration,
    ) -> Result<(), EngineError>;

    /// All images that have a name, by name.
    async fn images(&self) -> Result<Vec<ImageListing>, EngineError>;

    /// Removes an image and its tags. One that is gone already is no error.
    async fn remove_image(&self, id: &ImageId) -> Result<(), EngineError>;

    /// Makes a container, without starting it. After [`EngineError::TimedOut`] it may exist: look for its name.
    async fn create(&self, spec: &ContainerSpec, name: &ContainerName) -> Result<ContainerId, EngineError>;

    async fn start(&self, id: &ContainerId) -> Result<(), EngineError>;

    /// Says what a container that was never started has at a path, without opening it. `None`: nothing is there.
    async fn look(&self, id: &ContainerId, path: &str) -> Result<Option<Looked>, EngineError>;

    /// Runs `argv` in the container with its working directory at `/` and its streams attached.
    ///
    /// That the engine accepted does not mean that the program runs, and Docker 20.10 writes its own complaint
    /// ("OCI runtime exec failed…") to the program's stdout. Believe a greeting on `output`, nothing else.
    async fn attach_exec(
        &self,
        id: &ContainerId,
        argv: &[String],
        user: RunUser,
    ) -> Result<ExecStream, EngineError>;

    /// Host pid of an exec's first process, once it has begun; [`EngineError::NotFound`] when it has ended.
    async fn exec_pid(&self, exec: &ExecId) -> Result<u32, EngineError>;

    /// Waits until an exec's first process has ended: its exit code, or 128 and the number of the signal that ended it.
    async fn exec_ended(&self, exec: &ExecId) -> Result<i64, EngineError>;

    /// Reads a container's state and the settings in force.
    async fn inspect(&self, id: &ContainerId) -> Result<Inspection, EngineError>;

    /// Freezes every process of a container.
    async fn pause(&self, id: &ContainerId) -> Result<(), EngineError>;

    async fn unpause(&self, id: &ContainerId) -> Result<(), EngineError>;

    /// Kills a container if it runs, and removes it with its anonymous volumes. One that is gone already is no error.
    async fn remove(&self, id: &ContainerId) -> Result<(), EngineError>;

    /// All containers, running or not, that carry the label.
    async fn list(&self, label: &str, value: &str) -> Result<Vec<ContainerListing>, EngineError>;
}
