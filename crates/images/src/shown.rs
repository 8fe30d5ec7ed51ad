//! Describes the images of the engine.

use containers::{ImageListing, ImageReference};
use executor::engine_refusal;
use futures_util::{StreamExt as _, stream};
use operations::Reason;
use refusal::Refusal;
use wire::v1;

use crate::Images;
use crate::name::short;

/// Maximum number of images in a list.
const LISTED: usize = 1_000;
/// Number of images that are inspected at the same time for a list.
const LOOKS: usize = 8;

impl Images {
    /// Returns the images that have a name, and true if there are more than one list holds.
    pub async fn list(&self) -> Result<(Vec<v1::Image>, bool), Refusal> {
        let mut found = self.launcher.engine.images().await.map_err(engine_refusal)?;
        let truncated = found.len() > LISTED;
        found.truncate(LISTED);
        let described = stream::iter(found).map(|listing| self.described(listing));
        let images: Vec<_> = described.buffered(LOOKS).collect().await;
        Ok((images.into_iter().collect::<Result<_, _>>()?, truncated))
    }

    pub(super) async fn shown(&self, reference: &ImageReference) -> Result<v1::Image, Refusal> {
        let gone = || Refusal::new(Reason::EngineUnavailable, "the image was removed meanwhile");
        let listing = self.listing(reference).await?.ok_or_else(gone)?;
        let facts = self.launcher.engine.image(reference).await.map_err(engine_refusal)?;
        if let Some(Ok(image)) = facts.map(|facts| facts.usable()) {
            // The launcher remembers a refusal, and `described` shows it.
            let _ = self.launcher.check_image(&image, reference).await;
        }
        self.described(listing).await
    }

    /// Returns the image that has this name.
    pub(super) async fn listing(&self, reference: &ImageReference) -> Result<Option<ImageListing>, Refusal> {
        let name = short(reference);
        let listed = self.launcher.engine.images().await.map_err(engine_refusal)?;
        Ok(listed.into_iter().find(|listing| short(&listing.reference) == name))
    }

    pub(super) async fn described(&self, listing: ImageListing) -> Result<v1::Image, Refusal> {
        let ImageListing { reference, id, size, created } = listing;
        let facts = self.launcher.engine.image(&reference).await.map_err(engine_refusal)?;
        let unusable = match facts.map(|facts| facts.usable()) {
            Some(Ok(image)) => self.launcher.starting.refused(image.id()).unwrap_or_default(),
            Some(Err(refused)) => refused.to_string(),
            None => "it was removed meanwhile".to_owned(),
        };
        let policy = self.policy.policy();
        let allows = |name: &&str| {
            let short = reference.as_str().strip_suffix(":latest");
            policy.profile(name).is_some_and(|profile| {
                [Some(reference.as_str()), short]
                    .into_iter()
                    .flatten()
                    .any(|name| profile.permits_image(Some(name)))
            })
        };
        Ok(v1::Image {
            profiles: policy.profile_names().filter(allows).map(str::to_owned).collect(),
            reference: reference.to_string(),
            image_id: id.to_string(),
            size_bytes: size,
            created_at: Some(wire::Timestamp { seconds: created, nanos: 0 }),
            unusable,
        })
    }
}
