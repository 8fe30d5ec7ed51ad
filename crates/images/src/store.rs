//! Refuses pushes with an engine whose images have other ids than their archives.
//!
//! An archive is compared by the digest of its configuration while it passes. Another id is found only after the engine has stored the
//! image, so the engine is asked before anything moves.

use containers::{ImageIds, ImageStore};
use executor::engine_refusal;
use operations::Reason;
use refusal::Refusal;

use crate::Images;

/// Setting of Docker Engine that gives it a store whose images can be pushed.
const OWN: &str = "`\"features\": { \"containerd-snapshotter\": false }` in its daemon.json";

impl Images {
    pub(super) async fn store(&self) -> Result<ImageStore, Refusal> {
        self.launcher.engine.image_store().await.map_err(engine_refusal)
    }
}

/// Refuses to import an image under an announced id into a store that would give it another one.
pub(super) fn takes_announced(store: &ImageStore) -> Result<(), Refusal> {
    let next = format!(
        "would store it under another id than the announced one; nothing was imported. Import the image from a file \
         (`docker save NAME | coffer image import - NAME`), or give the engine its own store ({OWN})"
    );
    by_configuration(store, &next)
}

/// Refuses to export an image from a store whose id is not that of the archive.
pub(super) fn gives_announced(store: &ImageStore) -> Result<(), Refusal> {
    let next = format!(
        "announces ids that its archives do not have. Push the image from an engine with its own store ({OWN}), where it was \
         built, imported or pulled"
    );
    by_configuration(store, &next)
}

fn by_configuration(store: &ImageStore, next: &str) -> Result<(), Refusal> {
    match store.ids {
        ImageIds::Configuration => Ok(()),
        ImageIds::Manifest => {
            let message = format!(
                "this engine has the containerd image store, which identifies images by their manifests, and {next}"
            );
            Err(Refusal::new(Reason::PreconditionFailed, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_with_a_store_that_identifies_images_by_their_manifests_is_refused() {
        let of = |ids| ImageStore { ids, directory: "/var/lib/docker".into() };
        for check in [takes_announced, gives_announced] {
            assert!(check(&of(ImageIds::Configuration)).is_ok());
            let refused = check(&of(ImageIds::Manifest)).unwrap_err();
            assert_eq!(refused.reason, Reason::PreconditionFailed);
            for part in ["containerd image store", "containerd-snapshotter", "own store"] {
                assert!(refused.message.contains(part), "{part}: {}", refused.message);
            }
        }
    }
}
