//! Requests to a container engine, its answers and its errors, without a vendor's type.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;

use crate::ids::{ContainerId, ImageId, ImageReference};
use crate::spec::ContainerSpec;
use crate::user_map::UserMap;

/// Error of a call to the engine.
///
/// For operators only: its messages can name host paths, which agents must not see.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No process listens, or this process may not connect.
    #[error("no engine answers at {endpoint}: {mend}")]
    Unreachable {
        /// Address of the engine.
        endpoint: String,
        /// Advice for the operator.
        mend: &'static str,
        /// Error of the connection.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No such container, image or exec.
    #[error("cannot {attempt}: the engine has no such container, image or program")]
    NotFound { attempt: &'static str },
    /// The name is taken, or the container is in another state (paused, not running).
    #[error("cannot {attempt} in its present state: {message}")]
    Conflict {
        attempt: &'static str,
        /// Message of the engine, bounded.
        message: String,
    },
    #[error("cannot {attempt}: the engine answered {status}: {message}")]
    Api {
        attempt: &'static str,
        status: u16,
        /// Message of the engine, bounded.
        message: String,
    },
    /// No answer in time. The engine may still carry the request out.
    #[error("cannot {attempt}: no answer from the engine within {limit:?}")]
    TimedOut {
        attempt: &'static str,
        /// Time after which the call was given up.
        limit: Duration,
    },
    /// An answer that cannot be interpreted.
    #[error("cannot {attempt}: the engine's answer is malformed: {what}")]
    Malformed { attempt: &'static str, what: String },
}

/// The engine and its host, for `coffer doctor` and the start-up log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFacts {
    /// Version of the engine, such as `20.10.24+dfsg1`.
    pub engine_version: String,
    /// Newest API version that the engine supports.
    pub api_version: String,
    /// Version of runc, if the engine reports it.
    pub runc_version: Option<String>,
    /// Version of containerd, if the engine reports it.
    pub containerd_version: Option<String>,
    /// 1 (also for hybrid hosts) or 2.
    pub cgroup_version: u8,
    /// Storage driver, such as `overlay2`.
    pub storage_driver: String,
    /// Runtimes that a profile can name.
    pub runtimes: Vec<String>,
    /// Runtime that is used if a profile names none.
    pub default_runtime: String,
    /// Security options as the engine lists them: `name=seccomp,profile=default`, `name=rootless`, …
    pub security_options: Vec<String>,
    /// Processors that the engine sees. A container's limit cannot be higher.
    pub cpus: u32,
    /// Kernel release of the engine's host.
    pub kernel: String,
    /// Architecture, such as `x86_64`.
    pub architecture: String,
    /// Warnings of the engine itself.
    pub warnings: Vec<String>,
    /// User namespace of its containers. `None` if they have none, or if the engine does not report which host ids they use.
    pub user_map: Option<UserMap>,
}

impl EngineFacts {
    /// Returns true if the engine can apply a seccomp profile. Without it no container is safe to start.
    pub fn has_seccomp(&self) -> bool {
        self.has_security("seccomp")
    }

    /// Returns true if the engine runs without root. The host's mounts and cgroups are then out of reach.
    pub fn is_rootless(&self) -> bool {
        self.has_security("rootless")
    }

    /// Returns true if the engine gives its containers a user namespace.
    pub fn maps_users(&self) -> bool {
        self.has_security("userns")
    }

    fn has_security(&self, name: &str) -> bool {
        self.security_options
            .iter()
            .any(|option| option.split(',').any(|part| part.strip_prefix("name=") == Some(name)))
    }
}

/// Store in which the engine keeps its images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageStore {
    pub ids: ImageIds,
    /// Directory of the engine's files on its host. Empty if the engine does not report it.
    pub directory: PathBuf,
}

/// Origin of the ids that a store gives to images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageIds {
    /// Digest of the image's configuration, which an archive has as well.
    Configuration,
    /// Digest of a manifest that the store keeps or makes: the containerd image store.
    Manifest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// Identity by content.
    pub id: ImageId,
    /// Digests of the uncompressed layers, `sha256:…`, lowest first.
    pub layers: Vec<String>,
    /// Labels by key.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Paths that the image declares as volumes.
    pub volumes: Vec<String>,
    /// Directories in which the engine keeps the layers' files, topmost first. Empty if the engine does not report them.
    pub directories: Vec<PathBuf>,
}

/// Type of a file, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// Returns an addition for messages: a link is refused only because of its target.
fn leading(found: FileKind) -> &'static str {
    if found == FileKind::Link { " that leads to something else" } else { "" }
}

impl FileKind {
    /// Returns the name of the kind with its article.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Special => "a FIFO, a socket or a device",
        }
    }
}

/// The file at a path. Links are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    pub kind: FileKind,
    /// Last target of a link, as a path in the container. Empty if the file is no link.
    pub leads_to: String,
}

/// Reason why no run may use an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageRefused {
    /// The engine would open this path, or a mount there would fail.
    #[error("the image has {} at {path}{}, where {} has to be", .found.name(), leading(*.found), .wanted.name())]
    WrongKind { path: &'static str, found: FileKind, wanted: FileKind },
    /// The engine would make a writable volume for each of them, outside every limit.
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
    bundles: Vec<&'static str>,
}

impl UsableImage {
    pub(crate) fn of(facts: &ImageFacts) -> Self {
        Self { id: facts.id.clone(), directories: facts.directories.clone(), bundles: Vec::new() }
    }

    /// Returns the image's identity by content.
    pub fn id(&self) -> &ImageId {
        &self.id
    }

    /// Returns the directories of the layers' files, topmost first. Empty if the engine does not report them.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Returns the bundles of certificates that are known to be in the image, by their paths.
    pub fn bundles(&self) -> &[&'static str] {
        &self.bundles
    }

    /// Returns the image with the bundles that were found in it.
    #[must_use]
    pub fn with_bundles(self, bundles: Vec<&'static str>) -> Self {
        Self { bundles, ..self }
    }
}

impl ImageFacts {
    /// Refuses an image whose declarations would weaken a container's hardening.
    pub fn usable(&self) -> Result<UsableImage, ImageRefused> {
        if self.volumes.is_empty() {
            Ok(UsableImage::of(self))
        } else {
            Err(ImageRefused::DeclaresVolumes(self.volumes.clone()))
        }
    }
}

/// A tar that is streamed to the engine. An error in it ends the request, and the engine keeps nothing.
pub type TarStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// An image under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageListing {
    pub reference: ImageReference,
    pub id: ImageId,
    /// Size of its layers in bytes.
    pub size: u64,
    /// Time of creation that the image claims, in seconds since 1970.
    pub created: i64,
}

/// An image build that the engine is asked to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageBuild {
    /// Name of the resulting image.
    pub reference: ImageReference,
    /// Path of the Dockerfile in the directory.
    pub dockerfile: String,
    pub network: BuildNetwork,
}

/// Network for the programs of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildNetwork {
    /// The engine's default.
    Engine,
    None,
}

/// Configuration for an imported image.
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

/// State of a container, as the engine reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    pub id: ContainerId,
    pub state: ContainerState,
    /// Host pid of the first process while the container runs.
    pub host_pid: Option<u32>,
    /// Start time of the first process, as the engine writes it. A different value means that the container was started again.
    pub started_at: String,
    /// True if the kernel ended the container for lack of memory.
    pub oom_killed: bool,
    /// Settings in force, converted to the form of the request.
    pub in_force: ContainerSpec,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerListing {
    pub id: ContainerId,
    /// Name without the engine's leading slash.
    pub name: String,
    pub labels: std::collections::BTreeMap<String, String>,
}
