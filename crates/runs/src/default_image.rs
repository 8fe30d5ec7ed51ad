//! The default image: made of the host's busybox at the start, for runs whose profile and request name none.
//!
//! A host without a busybox may still have images for all its profiles. So the daemon starts without one and says so;
//! a run that needs the default image is refused, and the file is looked at again for the next one: once the operator
//! has installed it, runs start without the daemon being started again. So does one that the engine has pruned.

use std::path::PathBuf;
use std::sync::Arc;

use containers::{Busybox, DefaultImage, DefaultImageError, Engine, NoBusybox};
use executor::engine_refusal;
use operations::Reason;
use refusal::{Refusal, chain};
use tokio::sync::Mutex;

/// What an operator can do when there is no usable busybox.
const REMEDY: &str = "install the package busybox-static, or set default_image.busybox in the configuration, or name an image in the profile";

/// The default image, once it is made.
pub struct DefaultImageSource {
    engine: Arc<Engine>,
    busybox: PathBuf,
    made: Mutex<Option<DefaultImage>>,
}

/// Why there is no default image.
#[derive(Debug, thiserror::Error)]
pub enum NoDefaultImage {
    /// The file on the host. For operators: names its path.
    #[error("No static busybox at {}: {}; {}", .path.display(), chain(.why), REMEDY)]
    Busybox { path: PathBuf, why: NoBusybox },
    /// The engine, or what it has under the image's name.
    #[error("The default image cannot be made")]
    Image(#[source] DefaultImageError),
}

impl DefaultImageSource {
    pub fn new(engine: Arc<Engine>, busybox: PathBuf) -> Self {
        Self { engine, busybox, made: Mutex::default() }
    }

    /// The image, which is made now if it is not there yet.
    pub async fn get(&self) -> Result<DefaultImage, NoDefaultImage> {
        let mut made = self.made.lock().await;
        if let Some(image) = &*made {
            let facts = self.engine.image(&image.reference).await;
            let facts = facts.map_err(|error| NoDefaultImage::Image(error.into()))?;
            if facts.is_some_and(|facts| facts.id == *image.image.id()) {
                return Ok(image.clone());
            }
            tracing::warn!(image = %image.reference, "the engine has lost the default image, which is made again");
        }
        let path = self.busybox.clone();
        let busybox = tokio::task::block_in_place(|| read(path))?;
        let image = containers::ensure_default(self.engine.as_ref(), &busybox).await;
        let image = image.map_err(NoDefaultImage::Image)?;
        tracing::info!(image = %image.reference, busybox = image.busybox, "default image");
        Ok(made.insert(image).clone())
    }
}

/// Reads and judges the file of the configuration.
pub fn read(path: PathBuf) -> Result<Busybox, NoDefaultImage> {
    Busybox::read(&path).map_err(|why| NoDefaultImage::Busybox { path, why })
}

/// For whoever asked for a run: without the host's path, which is for the log.
impl From<NoDefaultImage> for Refusal {
    fn from(error: NoDefaultImage) -> Self {
        tracing::error!("{}", chain(&error));
        match error {
            NoDefaultImage::Busybox { why, .. } => Self::new(
                Reason::PreconditionFailed,
                format!(
                    "image: neither profile nor request names one, and this host has no static busybox for the default image \
                     ({why}): {REMEDY} or in the request"
                ),
            ),
            NoDefaultImage::Image(DefaultImageError::Engine(error)) => engine_refusal(error),
            NoDefaultImage::Image(error) => Self::internal("making the default image", &chain(&error)),
        }
    }
}
