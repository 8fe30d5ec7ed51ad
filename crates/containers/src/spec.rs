//! The full description of a container, as a plain value.
//!
//! It is made only by [`crate::container_spec`]. The driver renders it for the engine and reads it back from the engine. Both directions
//! use this one form, so that [`crate::verify`] can compare them field by field. A field that is added here is compared automatically.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Visibility, on the other side, of mounts that are made later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Propagation {
    /// Mounts do not propagate. A mount inside the source is not carried along either.
    Private,
    /// Mounts that the host makes on the source later appear in the container, and never the other way.
    Slave,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountSpecError {
    /// The path is not UTF-8, which the engine's API requires, or not absolute.
    #[error("the source of a mount must be an absolute path in UTF-8")]
    BadSource,
    /// The path is not absolute and plain, or the container's own safety depends on it.
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
    /// Checks both paths. It does not look for `source` on the disk.
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

    /// Returns a directory of a run's writable root, mounted over the image's at `/NAME`.
    ///
    /// `None` if the image's directory has to stay: the container's own safety depends on it, the run has a mount there, or its name is not
    /// plain.
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

    /// Returns a read-only mount of one of the daemon's files on its fixed path.
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

/// The specification of a container. The fields are private to this crate, so that only the hardening function sets them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // as the engine has them
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
    /// Empty for a separate namespace, as in the next two fields.
    pub(crate) pid_namespace: String,
    pub(crate) uts_namespace: String,
    pub(crate) user_namespace: String,
    pub(crate) read_only_root: bool,
    pub(crate) no_new_privileges: bool,
    /// Seccomp profile as JSON.
    pub(crate) seccomp: String,
    pub(crate) capabilities_dropped: Vec<String>,
    /// Capabilities by the kernel's names, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) capabilities_added: Vec<String>,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_and_swap_bytes: u64,
    pub(crate) cpu_millis: u32,
    pub(crate) pids: u32,
    pub(crate) oom_score_adj: i32,
    /// Resource limits by name. Soft and hard limits are equal.
    pub(crate) limits: BTreeMap<String, u64>,
    pub(crate) masked_paths: Vec<String>,
    pub(crate) read_only_paths: Vec<String>,
    pub(crate) log_driver: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) log_options: BTreeMap<String, String>,
    /// True for a standard input that the engine's first client writes and closes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) open_input: bool,
    pub(crate) restart: String,
    /// True for the engine's own init. Cofferdam's init is the guest.
    pub(crate) engine_init: bool,
    pub(crate) stop_signal: String,
    pub(crate) stop_timeout_seconds: i64,
    pub(crate) health_check: String,
    /// Runtime, or `None` for the engine's default.
    pub(crate) runtime: Option<String>,
    /// Names of settings in force that no specification requests: devices, volumes, … Empty in a request.
    pub(crate) surplus: Vec<String>,
}

impl ContainerSpec {
    /// Returns the same container without mounts. It is never started and only shows its image.
    #[must_use]
    pub fn without_mounts(mut self) -> Self {
        self.mounts.clear();
        self.tmpfs.clear();
        self
    }

    /// Returns the identity of the hardening as 64 hexadecimal digits.
    ///
    /// It covers every field except those that differ from run to run: labels, and the mounts' sources on the host. Containers with equal
    /// digests are interchangeable. So the sources of files in `/etc` count, whose names have the digests of their content.
    pub fn digest(&self) -> String {
        let mut same = self.clone();
        same.labels.clear();
        for mount in &mut same.mounts {
            let name = mount.source.rsplit('/').next().filter(|_| mount.target.starts_with("/etc/"));
            mount.source = name.unwrap_or_default().to_owned();
        }
        // Struct fields keep their order and maps are sorted, so equal specs have equal bytes.
        let bytes = serde_json::to_vec(&same).unwrap_or_default();
        hex::encode(Sha256::digest(&bytes))
    }

    /// Returns the labels that the container will carry.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_mount_is_accepted_only_at_a_harmless_target() {
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
