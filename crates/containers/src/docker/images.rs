//! Images that operators bring, streamed to the engine with a separate deadline.
//!
//! The engine ends a build whose connection is closed: it kills the build's container and removes it. So dropping the future ends the
//! build.

use std::io;
use std::time::Duration;

use bollard::models::BuildInfo;
use bollard::query_parameters::{
    BuildImageOptions, CreateImageOptions, ImportImageOptions, ListImagesOptions,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::sync::mpsc;

use super::{ASKING, Engine, faults, readback};
use crate::engine::{BuildNetwork, EngineError, ImageBuild, ImageListing, TarStream};
use crate::ids::{ImageId, ImageReference};

impl Engine {
    /// Loads an archive made by `docker save`, within this time.
    pub async fn load_image(&self, archive: TarStream, limit: Duration) -> Result<(), EngineError> {
        let attempt = "load the image";
        let client = self.client.clone().with_timeout(limit);
        let progress = client.import_image_stream(ImportImageOptions::default(), archive, None);
        let finished = progress.try_for_each(|_| std::future::ready(Ok(())));
        self.within(limit, attempt, finished).await
    }

    /// Returns the archive of an image, as `docker save` writes it, under no name. Dropping the stream ends it.
    ///
    /// The engine has `limit` to begin. The caller bounds the time of the whole stream. An image that is named by its id has no name in
    /// its archive, so none that changes meanwhile is in it.
    pub fn save_image(&self, id: &ImageId, limit: Duration) -> TarStream {
        let endpoint = self.endpoint.clone();
        let client = self.client.clone().with_timeout(limit);
        let archive = client.export_image(id.as_str());
        let named = move |error| io::Error::other(faults::translate("export the image", &endpoint, error));
        Box::pin(archive.map(move |part| part.map_err(&named)))
    }

    /// Makes an image of one layer from the tar of a root file system, within this time.
    pub async fn import_filesystem(
        &self,
        tar: TarStream,
        reference: &ImageReference,
        limit: Duration,
    ) -> Result<(), EngineError> {
        let (repository, tag) = reference.repository_and_tag();
        let options = CreateImageOptions {
            from_src: Some("-".into()),
            repo: Some(repository.into()),
            tag: Some(tag.into()),
            ..CreateImageOptions::default()
        };
        let client = self.client.clone().with_timeout(limit);
        let progress = client.create_image(Some(options), Some(bollard::body_try_stream(tar)), None);
        let finished = progress.try_for_each(|_| std::future::ready(Ok(())));
        self.within(limit, "import the image", finished).await
    }

    /// Builds an image from the tar of a directory, within this time, and sends the build's output. Dropping the future ends the build.
    pub async fn build_image(
        &self,
        build: &ImageBuild,
        context: TarStream,
        output: mpsc::Sender<String>,
        limit: Duration,
    ) -> Result<(), EngineError> {
        let options = BuildImageOptions {
            dockerfile: build.dockerfile.clone(),
            t: Some(build.reference.tagged()),
            networkmode: match build.network {
                BuildNetwork::Engine => None,
                BuildNetwork::None => Some("none".into()),
            },
            // Containers of the build are removed, also if it fails.
            rm: true,
            forcerm: true,
            ..BuildImageOptions::default()
        };
        let client = self.client.clone().with_timeout(limit);
        let said = client.build_image(options, None, Some(bollard::body_try_stream(context)));
        let finished = said.try_for_each(|said: BuildInfo| {
            let output = output.clone();
            async move {
                let text = said.stream.or(said.status).filter(|text| !text.is_empty());
                if let Some(text) = text {
                    // An error means that the receiver is gone, and the build is about to end.
                    let _ = output.send(text).await;
                }
                Ok(())
            }
        });
        self.within(limit, "build the image", finished).await
    }

    /// Returns all images that have a name, sorted by name.
    pub async fn images(&self) -> Result<Vec<ImageListing>, EngineError> {
        let call = self.client.list_images(None::<ListImagesOptions>);
        let rows = self.within(ASKING, "list the images", call).await?;
        let mut images: Vec<_> = rows.iter().flat_map(readback::named).collect();
        images.sort_by(|one: &ImageListing, other| one.reference.as_str().cmp(other.reference.as_str()));
        Ok(images)
    }
}
