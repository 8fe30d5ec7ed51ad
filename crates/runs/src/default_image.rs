//! The default image for runs whose profile and request name none. The daemon makes it from the host's busybox when it starts.
//!
//! A host without a busybox may still have images for all its profiles. So the daemon starts without the default image and logs that. A run
//! that needs the image is refused, and the next such run checks for the busybox again. Once the operator has installed it, runs start
//! without a restart of the daemon. An image that the engine has pruned is made again in the same way.

use std::path::PathBuf;
use std::sync::Arc;

use containers::{Busybox, DefaultImage, DefaultImageError, Engine, NoBusybox};
use executor::engine_refusal;
use operations::Reason;
use refusal::{Refusal, chain};
use tokio::sync::Mutex;

/// Advice to an operator whose host has no usable busybox.
const REMEDY: &str = "install the package busybox-static, or set default_image.busybox in the configuration, or name an image in the profile";

/// The default image, once it is made.
pub struct DefaultImageSource {
    engine: Arc<Engine>,
    busybox: PathBuf,
    made: Mutex<Option<DefaultImage>>,
}

/// Reason that there is no default image.
#[derive(Debug, thiserror::Error)]
pub enum NoDefaultImage {
    /// The host's file is missing or unusable. This message is for operators: it names the path.
    #[error("No static busybox at {}: {}; {}", .path.display(), chain(.why), REMEDY)]
    Busybox { path: PathBuf, why: NoBusybox },
    /// The engine failed, or has a wrong image under the default image's name.
    #[error("The default image cannot be made")]
    Image(#[source] DefaultImageError),
}

impl DefaultImageSource {
    pub fn new(engine: Arc<Engine>, busybox: PathBuf) -> Self {
        Self { engine, busybox, made: Mutex::default() }
    }

    /// Returns the image, and makes it first if the engine does not have it.
    pub async fn get(&self) -> Result<DefaultImage, NoDefaultImage> {
        // Each run asks the engine, and none waits for the answer of another one.
        let known = self.made.lock().await.clone();
        if let Some(image) = known
            && self.is_there(&image).await?
        {
            return Ok(image);
        }
        let mut made = self.made.lock().await;
        if let Some(image) = &*made {
            // Another run may have made it meanwhile.
            if self.is_there(image).await? {
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

    async fn is_there(&self, image: &DefaultImage) -> Result<bool, NoDefaultImage> {
        let facts = self.engine.image(&image.reference).await;
        let facts = facts.map_err(|error| NoDefaultImage::Image(error.into()))?;
        Ok(facts.is_some_and(|facts| facts.id == *image.image.id()))
    }
}

/// Reads and checks the busybox that the configuration names.
pub fn read(path: PathBuf) -> Result<Busybox, NoDefaultImage> {
    Busybox::read(&path).map_err(|why| NoDefaultImage::Busybox { path, why })
}

/// Converts for the client that asked for a run. The host's path goes only to the log.
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
