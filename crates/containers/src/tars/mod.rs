//! Tars on their way to the engine. They are read and written anew as a stream, so none has to fit into memory or onto a disk.
//!
//! ```text
//!  client's pieces ─► Walk: header by header ─► check: names, links, kinds ─► write: a header anew ─► engine's request
//!                              └── a member that is a layer: the same within it
//! ```
//!
//! The engine unpacks as root. So these are refused: members that are larger unpacked than they were here (compressed or sparse), names or
//! links that lead elsewhere, and members whose stated length is wrong. Two readers may disagree about an unusual tar. Such a tar is
//! refused, and no header from a client reaches the engine.

mod archive;
mod check;
mod header;
mod member;
mod meter;
mod pax;
mod walk;
mod write;

use std::io::{self, Read, Write};

use crate::ids::{ImageId, ImageReference};

pub use meter::Meter;

/// Reason why a tar is refused, for the operator who sent it.
#[derive(Debug, thiserror::Error)]
pub enum BadTar {
    #[error("it is not a tar archive: {0}")]
    NoTar(&'static str),
    #[error("it is truncated: it ends within {0}")]
    Cut(String),
    #[error("{0} is compressed, so its size unpacked is not known: decompress it first")]
    Compressed(String),
    #[error("{name}: {why}")]
    Member { name: String, why: &'static str },
    #[error("it is not an archive of one image: {0}")]
    NoArchive(&'static str),
    #[error(
        "it is the image {found}, and {wanted} was announced; if a layer was packed in another way than this daemon packs it, \
         import the image at its source with `coffer image import`, and push that one"
    )]
    AnotherImage { found: String, wanted: String },
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    /// Reading the input or writing the output failed.
    #[error("it could not be passed on")]
    Io(#[source] io::Error),
}

impl From<io::Error> for BadTar {
    fn from(error: io::Error) -> Self {
        let too_long = error.get_ref().and_then(|error| error.downcast_ref::<meter::TooLong>());
        match too_long {
            Some(meter::TooLong(most)) => Self::TooLong(*most),
            None => Self::Io(error),
        }
    }
}

/// Format of a tar from which an image is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TarForm {
    /// Archive of `docker save` with one image.
    DockerArchive,
    /// Root file system of an image.
    RootFilesystem,
}

/// Bytes from which the format is detected.
const HEAD: usize = 512;

/// Reads the beginning of a tar. Returns its format, judged by the first member, and the bytes that were read.
pub fn form_of(input: &mut impl Read) -> Result<(TarForm, Vec<u8>), BadTar> {
    let mut head = Vec::with_capacity(HEAD);
    input.take(HEAD as u64).read_to_end(&mut head)?;
    if archive::is_compressed(&head) {
        return Err(BadTar::Compressed("it".to_owned()));
    }
    let name = head.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_part = archive::is_part(name);
    Ok((if is_part { TarForm::DockerArchive } else { TarForm::RootFilesystem }, head))
}

/// Passes a root file system on, with headers written anew.
pub fn pass_filesystem(input: impl Read, output: impl Write) -> Result<(), BadTar> {
    check::pass(input, output, check::Links::Anywhere)
}

/// Passes the directory of a build on, with headers written anew. No link in it may lead out of it.
pub fn pass_context(input: impl Read, output: impl Write) -> Result<(), BadTar> {
    check::pass(input, output, check::Links::Within)
}

/// Passes an archive of one image on under this name alone, with layers written anew.
///
/// If `announced` is given, another image is refused. The manifest, without which the engine loads nothing, is not written then.
pub fn pass_archive(
    input: impl Read,
    output: impl Write,
    reference: &ImageReference,
    announced: Option<&ImageId>,
) -> Result<(), BadTar> {
    archive::pass(input, output, (reference, announced))
}

#[cfg(test)]
mod tests;
