//! `coffer image list`.

use clap::Args;
use wire::v1::{Image, ListImagesRequest};

use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::output::Output;
use crate::{quantity, time};

/// List the engine's images by name, and which profiles allow each.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer image list")]
pub struct List {}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let answer = client.images().list_images(quick(ListImagesRequest {})).await?.into_inner();
        context.ui.answer_and_talk(answer, |answer, page, talk| {
            render(&answer.images, &time::now(), page);
            if answer.images.is_empty() {
                talk.own("no images: create one with `coffer image import` or `coffer image build`\n");
            } else if answer.truncated {
                talk.own("there are more\n");
            }
        })
    }
}

fn render(images: &[Image], now: &wire::Timestamp, page: &mut Output) {
    if images.is_empty() {
        return;
    }
    let row = |image: &Image| {
        let id = image.image_id.strip_prefix("sha256:").unwrap_or(&image.image_id);
        let usable = match image.unusable.as_str() {
            "" => image.profiles.join(" "),
            why => format!("unusable: {why}"),
        };
        vec![
            image.reference.clone(),
            id.chars().take(12).collect(),
            quantity::bytes(image.size_bytes),
            time::span(image.created_at.as_ref(), Some(now)),
            usable,
        ]
    };
    page.table(&["IMAGE", "ID", "SIZE", "AGE", "PROFILES"], images.iter().map(row));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_an_image() {
        let image = Image {
            reference: "tools:1".into(),
            image_id: format!("sha256:{}", "ab".repeat(32)),
            size_bytes: 2048,
            created_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            profiles: vec!["open".into(), "harness".into()],
            unusable: String::new(),
        };
        let other = Image { unusable: "it declares volumes\n".into(), ..image.clone() };
        let mut page = Output::new(Look::PIPE);
        render(&[image, other], &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        let lines: Vec<&str> = page.as_str().lines().collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[1].contains("abababababab") && lines[1].ends_with("open harness"), "{lines:?}");
        assert!(lines[2].contains("unusable: it declares volumes"), "{lines:?}");
    }
}
