//! Reports the changes of an overlay, in the jail, and applies them to the directory beneath.
//!
//! An overlay keeps an agent's changes in a separate directory, in the kernel's notation:
//!
//! - a file, link or directory is part of the result, and hides the same name beneath;
//! - a character device 0:0 marks a deleted name;
//! - `user.overlay.opaque=y` on a directory hides everything beneath it.
//!
//! There are no redirects and no files that are only metadata: the daemon mounts without them. The agent's files are hostile all
//! the same, and so may be the files beneath. All code here works name by name on open directories, follows no link, and opens only
//! regular files and directories. It runs as the owner of the directory beneath, so that a layer can do nothing to it that its
//! owner could not.
//!
//! `/changes` is the layer, read-only. The directory beneath is `/source` when it is only read, and `/workspace` when changes are
//! applied to it.

mod accept;
mod judge;
mod measure;
mod names;
mod patch;
mod report;
mod walk;

pub(crate) use judge::{is_opaque, is_whiteout};

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use jail::{Dir, EntryName, Mount, OpenError, Root};
use prost::Message as _;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::stdio::stdin;
use thiserror::Error;

use host_launch::args::Since;

/// Most levels of directories that are entered.
const MAX_DEPTH: usize = 128;
/// Largest file in an answer, bytes.
const MOST_READ: u64 = 8192;

/// The reason why the changes could not be read or applied, fit for the caller.
#[derive(Debug, Error)]
pub(crate) enum LayerFailure {
    #[error("cannot open the layer: {0}")]
    Start(#[from] io::Error),
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("it is not a small regular file")]
    NoFile,
    #[error("nothing was applied: {0}")]
    Refused(String),
    #[error(
        "{applied} changes were applied, then this failed: {error}; the other changes are still there: fix the cause and accept again"
    )]
    Interrupted { applied: u64, error: OpenError },
}

/// Answers with the changes.
pub(crate) fn diff(since: Since, most: u32) -> Result<(), LayerFailure> {
    let (changes, beneath) = (open("/changes")?, open("/source")?);
    let report = report::report(&changes, &beneath, since, most)?;
    answer(&report.encode_to_vec())
}

/// Applies the changes, and answers with the result.
pub(crate) fn accept(since: Since, force: bool) -> Result<(), LayerFailure> {
    let (changes, beneath) = (open("/changes")?, open("/workspace")?);
    let done = accept::accept(&changes, &beneath, since, force)?;
    answer(&done.encode_to_vec())
}

/// Answers with the size of the files of a workspace.
pub(crate) fn measure() -> Result<(), LayerFailure> {
    let size_bytes = measure::measure(&open("/source")?);
    let measured = wire::v1::KeptWorkspace { size_bytes: Some(size_bytes), ..Default::default() };
    answer(&measured.encode_to_vec())
}

/// Answers with the content of a small file. Follows no link.
pub(crate) fn read(path: &str) -> Result<(), LayerFailure> {
    let refused = || LayerFailure::NoFile;
    let mut names = path.split('/').map(|name| EntryName::new(name.as_bytes()));
    let name = names.next_back().flatten().ok_or_else(refused)?;
    let mut directory = open("/source")?;
    for above in names {
        directory = directory.open_dir(&above.ok_or_else(refused)?)?;
    }
    let mut content = Vec::new();
    let file = directory.open_file(&name)?.file;
    file.take(MOST_READ + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MOST_READ {
        return Err(LayerFailure::NoFile);
    }
    answer(&content.encode_to_vec())
}

/// Creates the directory for reflogs, as git does with the first reflog.
pub(crate) fn make_logs() -> Result<(), LayerFailure> {
    match rustix::fs::mkdir("/workspace/logs", Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => answer(&[]),
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

fn open(at: &str) -> Result<Dir, LayerFailure> {
    // The mount's name makes no difference here: messages have relative paths only.
    Ok(Root::open(Mount::Project, Path::new(at))?.top()?)
}

/// Writes the answer. The daemon reads until the end of the channel.
pub(crate) fn answer(bytes: &[u8]) -> Result<(), LayerFailure> {
    let mut channel = std::fs::File::from(rustix::io::dup(stdin()).map_err(io::Error::from)?);
    Ok(channel.write_all(bytes)?)
}
