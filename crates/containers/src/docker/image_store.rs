//! The store in which the engine keeps its images.
//!
//! The name of a driver may be that of either store, so the type in its status decides.

use bollard::models::SystemInfo;

use super::{ASKING, Engine};
use crate::engine::{EngineError, ImageIds, ImageStore};

/// Beginning of the type of a driver that is a plugin of containerd. Its version follows.
const SNAPSHOTTER: &str = "io.containerd.snapshotter.";

impl Engine {
    /// Returns the store of the engine's images. It is asked for each time, because an engine may be restarted with another one.
    pub async fn image_store(&self) -> Result<ImageStore, EngineError> {
        let info = self.within(ASKING, "ask for the store of images", self.client.info()).await?;
        Ok(read(info))
    }
}

fn read(info: SystemInfo) -> ImageStore {
    let status = info.driver_status.unwrap_or_default();
    let is_containerd = status.iter().any(|row| match row.as_slice() {
        [key, value] => key == "driver-type" && value.starts_with(SNAPSHOTTER),
        _ => false,
    });
    let ids = if is_containerd { ImageIds::Manifest } else { ImageIds::Configuration };
    ImageStore { ids, directory: info.docker_root_dir.unwrap_or_default().into() }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_store_of_containerd_is_known_by_its_type_and_not_by_the_name_of_a_driver() {
        let store = |driver: &str, status: &[&[&str]]| {
            let rows = status.iter().map(|row| row.iter().map(ToString::to_string).collect());
            read(SystemInfo {
                driver: Some(driver.to_owned()),
                driver_status: Some(rows.collect()),
                docker_root_dir: Some("/var/lib/docker".to_owned()),
                ..SystemInfo::default()
            })
        };
        let containerd: &[&[&str]] = &[&["driver-type", "io.containerd.snapshotter.v1"]];
        for driver in ["overlayfs", "fuse-overlayfs", "btrfs"] {
            let found = store(driver, containerd);
            assert_eq!(found, ImageStore { ids: ImageIds::Manifest, directory: "/var/lib/docker".into() });
        }
        let own: [&[&[&str]]; 4] = [
            &[&["Backing Filesystem", "extfs"], &["Supports d_type", "true"]],
            &[&["Backing Filesystem", "io.containerd.snapshotter.v1"]],
            &[&["driver-type"], &[]],
            &[],
        ];
        for status in own {
            assert_eq!(store("overlay2", status).ids, ImageIds::Configuration, "{status:?}");
        }
        let silent = read(SystemInfo::default());
        assert_eq!(silent, ImageStore { ids: ImageIds::Configuration, directory: PathBuf::new() });
    }
}
