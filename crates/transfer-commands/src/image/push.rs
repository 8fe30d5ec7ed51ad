//! `coffer image push`.

use clap::Args;
use cofferdam_client::Client;
use fleet_view::Fleet;
use wire::v1::export_image_response::Part as Came;
use wire::v1::import_image_header::Form;
use wire::v1::{
    ExportImageRequest, ExportImageResponse, Image, ImportImageHeader, ImportImageRequest, ListImagesRequest,
    import_image_request::Part as Sent,
};

use super::show::{find, is_named};
use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};
use crate::nodes::{Daemon, Nodes, Target};
use crate::push::{Arrived, Parcel, push, same};
use crate::relay::{Part, relay};

/// Copy an image to other daemons, through this client; prints a line for each.
///
/// The image keeps its name and its id. A daemon that has it under this name is left out, so an interrupted command can
/// be repeated. For operators, on the Unix socket of the source or with a certificate.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer --fleet=nodes.yaml image push tools:1")]
pub struct Push {
    /// The image: its name, or a unique beginning of its id.
    #[arg(value_name = "IMAGE")]
    image: String,
    #[command(flatten)]
    nodes: Nodes,
    /// Take the name from another image that has it at a target.
    ///
    /// IMAGE must be the name then: with an id the source would state it.
    #[arg(long)]
    replace: bool,
}

impl Push {
    /// Pushes from the daemon of `--endpoint` to the named ones.
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (source, targets) = self.nodes.connect(context, images).await?;
        let parcel = parcel(&source.has, &self.image, self.replace)?;
        push(context.ui, &parcel, &source, targets).await
    }

    /// Pushes from one node of a fleet to others.
    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        let is_chosen = self.nodes.has_source();
        let has_it = |images: &Vec<Image>| find(images, &self.image).is_ok();
        let (source, targets) = self.nodes.find(fleet, images, has_it).await?;
        let parcel = parcel(&source.has, &self.image, self.replace)?;
        if !is_chosen {
            is_one(&parcel.image, &source, &targets)?;
        }
        push(fleet.ui, &parcel, &source, targets).await
    }
}

/// Returns the image of the source that `named` names.
///
/// An image that is found by its id has the name that the source states. The source must not choose which image loses
/// its name at a target, so `replace` needs the name itself.
fn parcel(images: &[Image], named: &str, replace: bool) -> Result<ImageParcel, Failure> {
    let image = find(images, named)?.clone();
    if replace && !is_named(&image, named) {
        let message = format!(
            "`{named}` is an id or a part of one, and --replace needs the name that is taken at the targets"
        );
        return Err(Failure::usage(message).with_hint(format!("the source calls it {}", image.reference)));
    }
    Ok(ImageParcel { image, replace })
}

/// Refuses to choose between different images of one name.
fn is_one(image: &Image, source: &Daemon<Vec<Image>>, targets: &[Target<Vec<Image>>]) -> Result<(), Failure> {
    let mut reached = targets.iter().filter_map(|(_, target)| target.as_ref().ok());
    let other = reached.find(|node| {
        named(&node.has, &image.reference).is_some_and(|found| found.image_id != image.image_id)
    });
    other.map_or(Ok(()), |other| {
        let message = format!(
            "nodes {} and {} have different images with the name {}",
            source.name, other.name, image.reference
        );
        Err(Failure::usage(message).with_hint("say from which node it comes: --from N"))
    })
}

async fn images(client: &Client) -> Result<Vec<Image>, Failure> {
    Ok(client.images().list_images(quick(ListImagesRequest {})).await?.into_inner().images)
}

/// Returns the image that has exactly this name.
fn named<'i>(images: &'i [Image], reference: &str) -> Option<&'i Image> {
    images.iter().find(|image| image.reference == reference)
}

struct ImageParcel {
    image: Image,
    replace: bool,
}

impl Parcel for ImageParcel {
    type Has = Vec<Image>;

    fn name(&self) -> String {
        self.image.reference.clone()
    }

    fn present(&self, has: &Vec<Image>) -> Result<Option<String>, Failure> {
        match named(has, &self.image.reference) {
            Some(there) if there.image_id == self.image.image_id => Ok(Some(there.image_id.clone())),
            Some(there) if !self.replace => Err(Failure::failed(format!(
                "it has another image with the name {} ({}): --replace takes the name from that one",
                there.reference, there.image_id
            ))),
            _ => Ok(None),
        }
    }

    async fn copy(&self, from: &Client, to: &Client, at: impl Fn(u64)) -> Result<Arrived, Failure> {
        let request = ExportImageRequest { reference: self.image.reference.clone() };
        let export = from.images().export_image(request).await?.into_inner();
        let header = ImportImageHeader {
            reference: self.image.reference.clone(),
            form: Form::DockerArchive.into(),
            replace: self.replace,
            image_id: self.image.image_id.clone(),
        };
        let header = ImportImageRequest { part: Some(Sent::Header(header)) };
        let message = |piece: Option<Vec<u8>>| ImportImageRequest { part: piece.map(Sent::Piece) };
        let part = |came: ExportImageResponse| {
            Some(match came.part? {
                Came::Image(_) => Part::Begin,
                Came::Piece(piece) => Part::Piece(piece),
                Came::End(_) => Part::End,
            })
        };
        let mut images = to.images();
        let import = move |messages| async move { images.import_image(messages).await };
        let answer = relay(export, part, (header, message), import, at).await?;
        // A daemon that does not know the field of the announced id takes any image.
        let id = same("id", answer.image.unwrap_or_default().image_id, &self.image.image_id)?;
        Ok(Arrived { id, present: answer.present })
    }

    fn size(&self) -> u64 {
        self.image.size_bytes
    }
}

#[cfg(test)]
mod tests {
    use presentation::exit::Exit;

    use super::*;

    fn image(reference: &str, id: &str) -> Image {
        Image { reference: reference.into(), image_id: format!("sha256:{id}"), ..Image::default() }
    }

    #[test]
    fn only_a_name_of_the_command_line_is_taken_from_another_image() {
        let images = [image("prod:1", "cafe"), image("tools:latest", "bb")];
        let taken = |named: &str| parcel(&images, named, true).map(|parcel| parcel.image.reference);
        assert_eq!(taken("prod:1").unwrap(), "prod:1");
        assert_eq!(taken("tools").unwrap(), "tools:latest");
        // A source may state any name for an image of this id.
        for named in ["cafe", "sha256:cafe", "ca"] {
            let refused = taken(named).unwrap_err();
            assert!(refused.exit() == Exit::Usage && refused.to_string().contains("prod:1"), "{refused}");
            assert_eq!(parcel(&images, named, false).unwrap().image.reference, "prod:1");
        }
        assert_eq!(taken("dd").unwrap_err().exit(), Exit::Failed);
    }

    #[test]
    fn the_same_image_is_left_out_and_another_one_keeps_its_name() {
        let parcel = |replace| ImageParcel { image: image("tools:1", "aa"), replace };
        let present = |has: &[Image], replace| parcel(replace).present(&has.to_vec());
        assert_eq!(present(&[image("tools:1", "aa")], false).unwrap().as_deref(), Some("sha256:aa"));
        assert_eq!(present(&[image("tools:2", "aa")], false).unwrap(), None, "its name is missing");
        let other = [image("tools:1", "bb")];
        assert!(present(&other, false).unwrap_err().to_string().contains("--replace"));
        assert_eq!(present(&other, true).unwrap(), None);
    }
}
