//! `coffer image import`.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use wire::v1::import_image_header::Form;
use wire::v1::{ImportImageHeader, ImportImageRequest, import_image_request::Part};

use super::send::{copy, send};
use crate::client::Context;
use crate::failure::{Ended, Failure};

/// Import an image from a tar; prints the image's id.
///
/// The tar is what `docker save` writes for one image, or a root file system. It must not be compressed. Nothing is
/// ever pulled from a registry.
#[derive(Args, Debug)]
#[command(before_help = "Example: docker save tools:1 | coffer image import - tools:1")]
pub struct Import {
    /// The tar, or `-` for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the image, such as tools:1.
    #[arg(value_name = "NAME")]
    name: String,
    /// Format of the tar. Default: detected.
    #[arg(long, value_enum, value_name = "FORM")]
    form: Option<TarForm>,
    /// Take the name from another image that has it.
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TarForm {
    /// The archive: output of `docker save`.
    Docker,
    /// A root file system.
    Rootfs,
}

impl Import {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let form = match self.form {
            None => Form::Unspecified,
            Some(TarForm::Docker) => Form::DockerArchive,
            Some(TarForm::Rootfs) => Form::RootFilesystem,
        };
        let (mut input, size): (Box<dyn Read + Send>, u64) = if self.file.as_os_str() == "-" {
            (Box::new(io::stdin()), 0)
        } else {
            let file = File::open(&self.file)
                .map_err(|error| Failure::failed(format!("cannot open {}: {error}", self.file.display())))?;
            let size = file.metadata()?.len();
            (Box::new(file), size)
        };
        let client = context.connect().await?;
        let header = ImportImageHeader {
            reference: self.name,
            form: form.into(),
            replace: self.replace,
            image_id: String::new(),
        };
        let header = ImportImageRequest { part: Some(Part::Header(header)) };
        let bar = context.ui.bytes_bar();
        let message = |piece: Option<Vec<u8>>| ImportImageRequest { part: piece.map(Part::Piece) };
        let sending = send(header, message, move |output| {
            copy(&mut *input, output, |done| bar.at(done, size.max(done)))
        });
        let answer = client.images().import_image(sending.messages).await;
        sending.written.await.map_err(io::Error::other)??;
        let answer = answer?.into_inner();
        context.ui.answer_and_talk(answer, |answer, page, talk| {
            let image = answer.image.unwrap_or_default();
            page.word(&image.image_id).end_line();
            super::made(&image, talk);
        })
    }
}
