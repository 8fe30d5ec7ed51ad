//! `coffer image show`.

use clap::Args;
use wire::v1::{Image, ListImagesRequest};

use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::{ids, quantity, time};

/// Show an image, and which profiles allow it.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer image show tools:1")]
pub struct Show {
    /// The image: its name, or a unique beginning of its id.
    #[arg(value_name = "IMAGE")]
    image: String,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let known = client.images().list_images(quick(ListImagesRequest {})).await?.into_inner().images;
        let image = find(&known, &self.image)?.clone();
        context.ui.answer(image, |image, page| render(&image, page))
    }
}

/// Returns the image of a name, with or without `:latest`, or else of an id that begins like this.
pub(super) fn find<'i>(images: &'i [Image], named: &str) -> Result<&'i Image, Failure> {
    const LIST: &str = "coffer image list";
    if let Some(image) = images.iter().find(|image| is_named(image, named)) {
        return Ok(image);
    }
    let part = named.strip_prefix("sha256:").unwrap_or(named).to_ascii_lowercase();
    if part.is_empty() || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
        let references: Vec<&str> = images.iter().map(|image| image.reference.as_str()).collect();
        return Err(Failure::failed(format!("there is no image `{named}`"))
            .with_hint(ids::meant(named, &references).unwrap_or_default())
            .and_hint(&format!("`{LIST}` shows them")));
    }
    let mut known: Vec<&str> = images.iter().map(digest).collect();
    known.sort_unstable();
    known.dedup();
    let found = ids::pick(known, &part, "image", LIST)?;
    images
        .iter()
        .find(|image| digest(image) == found)
        .ok_or_else(|| Failure::failed(format!("there is no image `{named}`")))
}

/// Returns true if this is the image's name, with or without `:latest`.
pub(super) fn is_named(image: &Image, named: &str) -> bool {
    image.reference == named || image.reference.strip_suffix(":latest") == Some(named)
}

fn digest(image: &Image) -> &str {
    image.image_id.strip_prefix("sha256:").unwrap_or(&image.image_id)
}

fn render(image: &Image, page: &mut Output) {
    page.facts(&[
        ("image", image.reference.clone()),
        ("id", image.image_id.clone()),
        ("size", quantity::bytes(image.size_bytes)),
        ("created", time::known(image.created_at.as_ref())),
        ("profiles", image.profiles.join(" ")),
        ("unusable", image.unusable.clone()),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;
    use presentation::exit::Exit;

    fn image(reference: &str, digit: &str) -> Image {
        Image {
            reference: reference.into(),
            image_id: format!("sha256:{}", digit.repeat(64)),
            size_bytes: 2048,
            profiles: vec!["open".into(), "harness".into()],
            ..Default::default()
        }
    }

    #[test]
    fn an_image_is_found_by_its_name_or_the_beginning_of_its_id() {
        let images = [image("tools:1", "a"), image("tools:latest", "a"), image("face:1", "b")];
        let name = |named: &str| find(&images, named).map(|image| image.reference.clone()).ok();
        for named in ["tools:1", "aaaa", "sha256:AAAA"] {
            assert_eq!(name(named).as_deref(), Some("tools:1"), "{named}");
        }
        assert_eq!(name("tools").as_deref(), Some("tools:latest"));
        assert_eq!(name("bbb").as_deref(), Some("face:1"));
        assert_eq!((name("cccc"), name(""), name("../x")), (None, None, None));
        let typo = find(&images, "tolos:1").unwrap_err();
        assert_eq!(typo.exit(), Exit::Failed);
        assert!(typo.to_string().contains("did you mean `tools:1`?"), "{typo}");
    }

    #[test]
    fn facts_of_an_image_are_shown() {
        let mut page = Output::new(Look::PIPE);
        render(&image("tools:1", "a"), &mut page);
        assert_eq!(
            page.as_str(),
            format!(
                "image     tools:1\nid        sha256:{}\nsize      2.0 KiB\nprofiles  open harness\n",
                "a".repeat(64)
            )
        );
    }
}
