//! What a container is to be, as a plain value.
//!
//! Made only by [`crate::container_spec`]; rendered for the engine and read back from it by the driver. Both
//! directions have this one form, so that [`crate::verify`] can compare them field by field and a field that is
//! added here is compared without anybody remembering to.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How mounts made later on one side show up on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Propagation {
    /// Not at all. A mount inside the source is not carried along either.
    Private,
    /// What the host mounts on the source later appears in the container; never the other way.
    Slave,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountSpecError {
    /// The engine's API carries paths as JSON text.
    #[error("the source of a mount must be an absolute path in UTF-8")]
    BadSource,
    /// Not absolute and plain, or a place that the container's own safety depends on.
    #[error(
        "`{0}` cannot be mounted on: the target must be an absolute plain path outside /proc, /sys, /dev, /etc and /.cofferdam"
    )]
    BadTarget(String),
}

/// A host directory or file shown inside the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) read_only: bool,
    pub(crate) propagation: Propagation,
}

impl MountSpec {
    /// Checks both paths; `source` is not looked at on disk.
    pub fn new(
        source: &Path,
        target: &str,
        read_only: bool,
        propagation: Propagation,
    ) -> Result<Self, MountSpecError> {
        const OWN: [&str; 5] = ["/proc", "/sys", "/dev", "/etc", "/.cofferdam"];
        let plain = target.len() <= 255
            && target.strip_prefix('/').is_some_and(|rest| {
                rest.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
            });
        if !plain || OWN.iter().any(|own| Path::new(target).starts_with(own)) {
            return Err(MountSpecError::BadTarget(target.chars().take(255).collect()));
        }
        Ok(Self { source: utf8_absolute(source)?, target: target.to_owned(), read_only, propagation })
    }

    /// A directory of a run's writable root, over the image's at `/NAME`. `None`: that one stays as it is, because the
    /// container's own safety depends on it, the run has a mount there, or its name is no plain one.
    pub fn of_root(root: &Path, name: &str) -> Option<Self> {
        const KEPT: [&str; 8] = [".cofferdam", "dev", "pkg", "proc", "state", "sys", "tmp", "workspace"];
        let plain = |c: char| c.is_ascii_alphanumeric() || "._+@-".contains(c);
        let is_plain = name.len() <= 100 && name.chars().all(plain) && !matches!(name, "" | "." | "..");
        if !is_plain || KEPT.contains(&name) {
            return None;
        }
        let source = utf8_absolute(&root.join(name)).ok()?;
        let target = format!("/{name}");
        Some(Self { source, target, read_only: false, propagation: Propagation::Private })
    }

    /// A file of the daemon's own on its fixed place, read-only.
    pub(crate) fn own(source: &Path, target: &str) -> Result<Self, MountSpecError> {
        let source = utf8_absolute(source)?;
        Ok(Self { source, target: target.to_owned(), read_only: true, propagation: Propagation::Private })
    }

    pub fn target(&self) -> &str {
        &self.target
    }
}

fn utf8_absolute(path: &Path) -> Result<String, MountSpecError> {
    match path.to_str() {
        Some(text) if path.is_absolute() && !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(MountSpecError::BadSource),
    }
}

/// A container in full. The fields are private to this crate: only the hardening function sets them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub(crate) image: String,
    pub(crate) command: Vec<String>,
    pub(crate) user: String,
    pub(crate) working_dir: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) hostname: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) mounts: Vec<MountSpec>,
    pub(crate) tmpfs: BTreeMap<String, String>,
    pub(crate) network: String,
    pub(crate) ipc: String,
    pub(crate) cgroup_namespace: String,
    /// Empty is a namespace of its own; so for the next two.
    pub(crate) pid_namespace: String,
    pub(crate) uts_namespace: String,
    pub(crate) user_namespace: String,
    pub(crate) read_only_root: bool,
    pub(crate) no_new_privileges: bool,
    /// The profile itself, as JSON.
    pub(crate) seccomp: String,
    pub(crate) capabilities_dropped: Vec<String>,
    /// As the kernel names them, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) capabilities_added: Vec<String>,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_and_swap_bytes: u64,
    pub(crate) cpu_millis: u32,
    pub(crate) pids: u32,
    pub(crate) oom_score_adj: i32,
    /// Resource limits by name, soft and hard alike.
    pub(crate) limits: BTreeMap<String, u64>,
    pub(crate) masked_paths: Vec<String>,
    pub(crate) read_only_paths: Vec<String>,
    pub(crate) log_driver: String,
    pub(crate) restart: String,
    /// The engine's own init; ours is the guest.
    pub(crate) engine_init: bool,
    pub(crate) stop_signal: String,
    pub(crate) stop_timeout_seconds: i64,
    pub(crate) health_check: String,
    /// `None`: whatever the engine's default is.
    pub(crate) runtime: Option<String>,
    /// Settings in force that nobody asks for, by name: devices, volumes, … Asked for: none.
    pub(crate) surplus: Vec<String>,
}

impl ContainerSpec {
    /// The same with nothing mounted in it, for one that is never started: it shows its image.
    #[must_use]
    pub fn without_mounts(mut self) -> Self {
        self.mounts.clear();
        self.tmpfs.clear();
        self
    }

    /// The hardening's identity: 64 hexadecimal digits over every field except what differs from run to run
    /// (labels, and where on the host the mounts come from). Equal digests are interchangeable containers.
    pub fn digest(&self) -> String {
        let mut same = self.clone();
        same.labels.clear();
        for mount in &mut same.mounts {
            mount.source.clear();
        }
        // Struct fields keep their order and maps are sorted, so that equal specs have equal bytes.
        let bytes = serde_json::to_vec(&same).unwrap_or_default();
        hex::encode(Sha256::digest(&bytes))
    }

    /// The labels that the container will carry.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_mount_goes_only_where_it_can_do_no_harm() {
        let make = |target| MountSpec::new(Path::new("/srv/w"), target, false, Propagation::Private);
        for good in ["/workspace", "/pkg", "/state", "/workspace/vendor", "/devel"] {
            assert!(make(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/",
            "workspace",
            "/a/../etc",
            "/a/./b",
            "/a//b",
            "/a/",
            "/proc",
            "/proc/x",
            "/sys/fs",
            "/dev",
            "/etc/passwd",
            "/.cofferdam/guest",
        ] {
            assert_eq!(make(bad), Err(MountSpecError::BadTarget(bad.into())), "{bad}");
        }
        let of_root = |name| MountSpec::of_root(Path::new("/srv/root"), name);
        let usr = of_root("usr").unwrap();
        assert_eq!(
            (usr.source.as_str(), usr.target.as_str(), usr.read_only),
            ("/srv/root/usr", "/usr", false)
        );
        for kept in ["", ".", "..", "a/b", "a b", "proc", "sys", "dev", "tmp", "state", ".cofferdam"] {
            assert_eq!(of_root(kept), None, "{kept}");
        }
        let from = |source: &Path| MountSpec::new(source, "/workspace", false, Propagation::Private);
        assert_eq!(from(Path::new("relative")), Err(MountSpecError::BadSource));
        assert_eq!(from(Path::new(std::ffi::OsStr::from_bytes(b"/\xff"))), Err(MountSpecError::BadSource));
    }
}
