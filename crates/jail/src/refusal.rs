//! Reasons why a path is refused before any open: a closed list with stable names.
//!
//! The text is for an agent. It repeats the agent's text, in part and escaped, and never a host path.

use thiserror::Error;

use crate::access::Access;
use crate::mount::Mount;
use crate::rel::{MAX_COMPONENT_BYTES, MAX_PATH_BYTES};

/// A path that is not permitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathRefusal {
    #[error("the path is empty; name a file or directory in @project, @pkg or @state")]
    Empty,
    /// The path begins with `@` and a name that is not a mount.
    #[error("{given}: unknown mount; paths begin with @project, @pkg or @state")]
    UnknownMount { given: String },
    /// An absolute path outside all mounts.
    #[error("{given}: absolute paths must be beneath /workspace, /pkg or /state")]
    AbsoluteOutside { given: String },
    /// A drive letter or a leading backslash.
    #[error("{given}: Windows paths are not understood; write @project/dir/file")]
    Windows { given: String },
    #[error("{mount}: the path contains a NUL byte")]
    NulByte {
        /// The mount in which the path begins.
        mount: Mount,
    },
    #[error("{mount}: `{path}` contains a `..` component; write the path without it")]
    ParentSegment {
        /// The mount in which the path begins.
        mount: Mount,
        /// The path beneath it.
        path: String,
    },
    #[error("{mount}: the path is longer than {MAX_PATH_BYTES} bytes")]
    PathTooLong {
        /// The mount in which the path begins.
        mount: Mount,
    },
    /// A component longer than [`MAX_COMPONENT_BYTES`].
    #[error("{mount}: a component of the path is longer than {MAX_COMPONENT_BYTES} bytes")]
    ComponentTooLong {
        /// The mount in which the path begins.
        mount: Mount,
    },
    #[error("{mount} is not mounted in this run")]
    NotMounted { mount: Mount },
    /// A write in a read-only mount.
    #[error("{path}: {mount} is read-only")]
    ReadOnlyMount { mount: Mount, path: String },
    /// A write to git's own files, or to a name that a file system treats as `.git`.
    #[error("{path}: git's own files are protected; use the git operation")]
    GitInternals { path: String },
    /// A read of git's hooks or configuration under a profile that guards them.
    #[error("{path}: git's hooks and configuration are not readable under this profile")]
    GitGuarded { path: String },
    /// A write or execution in `node_modules/.bin`.
    #[error("{path}: {access} in node_modules/.bin is refused")]
    PackageBinaries { path: String, access: Access },
    /// A write in the directory of the run's log.
    #[error("{path}: only the daemon writes in @state/logs; name another path")]
    RunLog { path: String },
    /// A system directory of the container, which belongs to the kernel or the daemon.
    #[error("{path}: /proc, /sys, /dev and /.cofferdam cannot be used as files")]
    System { path: String },
    /// A link in the container that leads into a mount, which has separate rules.
    #[error("{path}: a symlink leads into a mount; name the path there")]
    InMount { path: String },
    /// A path that the profile's rules deny.
    #[error("{path}: the profile's rules deny this path; use other files")]
    Denied { path: String },
    /// A path that the profile's rules ask about, and that the call did not name.
    #[error("{path}: a reviewer has to consent to this path; name it in the call, so that one is asked")]
    NeedsConsent { path: String },
    /// A name that is reserved for the temporary files of writes.
    #[error("{path}: names that begin with `.cofferdam-tmp-` are reserved")]
    ReservedName { path: String },
}

impl PathRefusal {
    /// Returns a stable, machine-readable reason.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Empty => "empty_path",
            Self::UnknownMount { .. } => "unknown_mount",
            Self::AbsoluteOutside { .. } => "absolute_path",
            Self::Windows { .. } => "windows_path",
            Self::NulByte { .. } => "nul_byte",
            Self::ParentSegment { .. } => "parent_segment",
            Self::PathTooLong { .. } => "path_too_long",
            Self::ComponentTooLong { .. } => "component_too_long",
            Self::NotMounted { .. } => "not_mounted",
            Self::ReadOnlyMount { .. } => "read_only_mount",
            Self::GitInternals { .. } => "git_internals",
            Self::GitGuarded { .. } => "git_guarded",
            Self::PackageBinaries { .. } => "package_binaries",
            Self::RunLog { .. } => "run_log",
            Self::System { .. } => "system_path",
            Self::InMount { .. } => "in_mount",
            Self::Denied { .. } => "path_denied",
            Self::NeedsConsent { .. } => "path_asks",
            Self::ReservedName { .. } => "reserved_name",
        }
    }

    /// Returns true if a profile's rules for paths refuse it.
    pub const fn is_by_rule(&self) -> bool {
        matches!(self, Self::Denied { .. } | Self::NeedsConsent { .. })
    }
}
