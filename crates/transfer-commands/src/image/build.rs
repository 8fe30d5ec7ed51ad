//! `coffer image build`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio_stream::StreamExt as _;
use wire::v1::{BuildImageHeader, BuildImageRequest, build_image_request::Part, build_image_response};

use super::context;
use super::send::send;
use crate::client::Context;
use crate::failure::{Ended, Failure};
use crate::time;

/// Have the engine build an image from a directory with a Dockerfile; prints the image's id.
///
/// Everything in the directory is sent; a .dockerignore is not read. The build has the network that the engine gives
/// it. Ctrl-C ends the build.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer image build ./tools tools:1")]
pub struct Build {
    /// The directory.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Name of the image, such as tools:1.
    #[arg(value_name = "NAME")]
    name: String,
    /// The Dockerfile's path in the directory. Default: Dockerfile.
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Take the name from another image that has it.
    #[arg(long)]
    replace: bool,
    /// End the build after this time, as in 10m. Default: the daemon's longest.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    timeout: Option<Duration>,
    /// Give the build no network at all.
    #[arg(long)]
    no_network: bool,
}

impl Build {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        if !self.directory.is_dir() {
            return Err(Failure::usage(format!("{} is not a directory", self.directory.display())));
        }
        let client = context.connect().await?;
        let header = BuildImageHeader {
            reference: self.name,
            dockerfile: self.file.unwrap_or_default(),
            replace: self.replace,
            timeout: self.timeout.map(wire::duration),
            without_network: self.no_network,
        };
        let header = BuildImageRequest { part: Some(Part::Header(header)) };
        let message = |piece: Option<Vec<u8>>| BuildImageRequest { part: piece.map(Part::Piece) };
        let directory = self.directory;
        let sending = send(header, message, move |output| context::write(&directory, output));
        let answer = client.images().build_image(sending.messages).await;
        let built = match answer {
            Ok(said) => follow(context, said.into_inner()).await,
            Err(status) => Err(status.into()),
        };
        sending.written.await.map_err(io::Error::other)??;
        let image = built?;
        context.ui.answer_and_talk(image, |image, page, talk| {
            page.word(&image.image_id).end_line();
            super::made(&image, talk);
        })
    }
}

/// Prints the output of the build, and returns the image at its end.
async fn follow(
    context: &Context,
    mut said: tonic::Streaming<wire::v1::BuildImageResponse>,
) -> Result<wire::v1::Image, Failure> {
    use build_image_response::Part;
    while let Some(response) = said.next().await {
        match response?.part {
            Some(Part::Output(text)) => {
                let mut page = context.ui.talk();
                page.block(&text);
                context.ui.say(&page);
            }
            Some(Part::Image(image)) => return Ok(image),
            None => {}
        }
    }
    Err(Failure::failed("the daemon ended the stream before the image was built: run the command again"))
}
