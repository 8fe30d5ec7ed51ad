//! Companions: containers beside a run's, with the same hardening and the program of their image.

use std::path::Path;

use crate::engine::{ImageFacts, UsableImage};
use crate::hardening::{GUEST_PATH, LABEL_SPEC};
use crate::spec::{ContainerSpec, MountSpec, MountSpecError, Propagation};

/// Bytes of a companion's log that the engine keeps, in each of two files.
const LOG_FILE: &str = "1m";

/// The program that an image declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageProgram {
    /// Beginning of every command line.
    pub entrypoint: Vec<String>,
    /// Arguments that a container may replace.
    pub command: Vec<String>,
    /// Variables, each as `NAME=VALUE`.
    pub env: Vec<String>,
    /// Working directory; empty for `/`.
    pub directory: String,
}

impl ContainerSpec {
    /// Returns the specification of a companion with this hardening.
    ///
    /// Its first process waits for its program on standard input, so that no variable is in the description of the container. The engine
    /// keeps the end of its output, for the next daemon, too.
    #[must_use]
    pub fn of_companion(mut self) -> Self {
        self.command = vec![GUEST_PATH.to_owned(), "companion".to_owned()];
        self.open_input = true;
        "local".clone_into(&mut self.log_driver);
        self.log_options = [("max-size", LOG_FILE), ("max-file", "2"), ("compress", "false")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let digest = self.digest();
        self.labels.insert(LABEL_SPEC.to_owned(), digest);
        self
    }
}

impl ImageFacts {
    /// Returns the image for a companion, and the paths of its volumes. Each of them has to be mounted, because the engine would make a
    /// volume without a bound otherwise.
    pub fn usable_beside(&self) -> (UsableImage, Vec<String>) {
        // `/tmp` and `/dev/shm` are file systems in memory.
        let volumes = self.volumes.iter().map(|path| path.trim_end_matches('/'));
        let volumes = volumes.filter(|path| !matches!(*path, "/tmp" | "/dev/shm")).map(str::to_owned);
        (UsableImage::of(self), volumes.collect())
    }
}

impl MountSpec {
    /// Returns a directory within a writable root, mounted where it is already.
    ///
    /// No link may be on the way to it, neither on the host nor in the container.
    pub fn within_root(root: &Path, path: &str) -> Result<Self, MountSpecError> {
        let within = path.trim_start_matches('/');
        Self::new(&root.join(within), path, false, Propagation::Private)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardening::tests::facts;
    use crate::hardening::{Hardening, container_spec};

    #[test]
    fn a_companion_is_hardened_as_a_run_is() {
        let run = container_spec(&Hardening::default(), &facts()).unwrap();
        let mut companion = run.clone().of_companion();
        assert_eq!(companion.labels()[LABEL_SPEC], companion.digest());
        assert_ne!(companion.digest(), run.digest());
        assert_eq!(companion.command, [GUEST_PATH, "companion"]);
        assert_eq!((companion.log_driver.as_str(), companion.open_input), ("local", true));
        assert_eq!(companion.log_options["max-size"], "1m");
        // And nothing else differs.
        companion.command.clone_from(&run.command);
        companion.log_driver.clone_from(&run.log_driver);
        companion.log_options.clear();
        companion.open_input = false;
        companion.labels.clone_from(&run.labels);
        assert_eq!(companion, run);
    }

    #[test]
    fn volumes_of_an_image_are_left_to_be_mounted() {
        let image = ImageFacts {
            id: crate::ids::ImageId::parse(&format!("sha256:{}", "ab".repeat(32))).unwrap(),
            layers: Vec::new(),
            labels: std::collections::BTreeMap::new(),
            volumes: ["/data/", "/tmp", "/var/lib/db"].map(str::to_owned).to_vec(),
            directories: Vec::new(),
        };
        assert_eq!(image.usable_beside().1, ["/data", "/var/lib/db"]);
        assert!(image.usable().is_err(), "a run has none");
    }

    #[test]
    fn a_volume_is_a_directory_of_the_root() {
        let root = Path::new("/srv/mounts/x/root");
        let data = MountSpec::within_root(root, "/var/lib/data").unwrap();
        assert_eq!(
            (data.source.as_str(), data.target()),
            ("/srv/mounts/x/root/var/lib/data", "/var/lib/data")
        );
        assert!(!data.read_only);
        for bad in ["/", "data", "/etc/data", "/a/../etc", "/proc/x", "/.cofferdam/x"] {
            assert!(MountSpec::within_root(root, bad).is_err(), "{bad}");
        }
    }
}
