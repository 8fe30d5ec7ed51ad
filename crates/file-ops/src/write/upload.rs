//! Uploaded content: it is whole, in the run's private directory, until the one call that writes it.
//!
//! The container lane cannot see the private directory. The host lane first copies content for it into `@state`, under a separate name,
//! and the guest removes the copy.
//!
//! The daemon has stored the content and compared its hash. It is hashed again while it is copied. The private directory is only trusted
//! as far as it can do no harm, and a request may name an upload with a different hash.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};

use jail::{
    AccessError, EntryName, Fill, Jail, Keeps, Mount, OpenError, OpenErrorKind, RegularFile, RelPath,
    Removal, SandboxPath,
};
use operations::{Digest, Reason, ToolFailure, UploadId, Uploaded};

use super::direct::{Block, Target};

const BLOCK: usize = 1024 * 1024;
/// Most entries of `@state` that are examined for leftovers.
const SWEPT: usize = 1_000;

/// Opens the uploaded content.
pub(super) fn open(jail: &Jail, uploaded: &Uploaded) -> Result<RegularFile, ToolFailure> {
    let gone = || {
        ToolFailure::new(Reason::NotFound, "the uploaded content is no longer there; upload it again")
            .with("upload_id", uploaded.id.as_str())
    };
    let found = match jail.private() {
        Some(private) => {
            let name = EntryName::new(uploaded.id.as_str().as_bytes()).ok_or_else(gone)?;
            private.file(Keeps::Uploads, &name)
        }
        None => match jail.readable(&uploaded.id.staged().ok_or_else(gone)?)?.open_file() {
            Err(AccessError::Open(OpenError { kind, .. })) => Err(kind),
            file => Ok(file?),
        },
    };
    match found {
        Ok(file) if file.meta.size == uploaded.size => Ok(file),
        Ok(_) => Err(ToolFailure::new(Reason::PreconditionFailed, not_as_said().to_string())),
        Err(OpenErrorKind::NotFound) => Err(gone()),
        Err(kind) => Err(ToolFailure::new(Reason::Internal, format!("the upload cannot be opened: {kind}"))),
    }
}

/// Writes the content into a new file, if it has the hash in the call.
pub(super) fn fill(file: File, uploaded: &Uploaded) -> Fill {
    let (mut file, sha256, size) = (Some(file), uploaded.sha256.clone(), uploaded.size);
    Fill::new(move |target| {
        let mut source = file.take().ok_or(ErrorKind::UnexpectedEof)?.take(size);
        let (mut digest, mut block) = (Digest::default(), Block::new(size));
        let mut target = Target::new(target, size);
        loop {
            let bytes = block.read(&mut source)?;
            if bytes.is_empty() {
                break;
            }
            digest.update(bytes);
            target.write(bytes)?;
        }
        if source.limit() == 0 && digest.hex() == sha256 { Ok(()) } else { Err(not_as_said()) }
    })
}

/// Compares an archive with the hash in the call.
pub(super) fn verify(mut file: &File, uploaded: &Uploaded) -> Result<(), ToolFailure> {
    let mut digest = Digest::default();
    let (mut block, mut left) = (vec![0; BLOCK], uploaded.size);
    let failed =
        |error: &io::Error| ToolFailure::new(Reason::Internal, format!("the upload cannot be read: {error}"));
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        let read = match file.read(&mut block[..most]) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(&error)),
        };
        digest.update(&block[..read]);
        left -= read as u64;
    }
    if left == 0 && digest.hex() == uploaded.sha256 {
        return Ok(());
    }
    Err(ToolFailure::new(Reason::PreconditionFailed, not_as_said().to_string()))
}

/// Removes the upload, which is no longer needed once its content is written.
pub(super) fn forget(jail: &Jail, uploaded: &Uploaded) {
    if let (Some(private), Some(name)) = (jail.private(), EntryName::new(uploaded.id.as_str().as_bytes())) {
        // If this fails, the daemon removes it.
        let _ = private.remove(Keeps::Uploads, &name);
    }
}

/// Removes the copy that was put into `@state` for the container lane, however the call ended.
pub fn remove_staged(jail: &Jail, id: &UploadId) {
    let Some(path) = id.staged() else { return };
    let removed = jail.writable(&path).ok().and_then(|location| location.removal().ok()).map(Removal::remove);
    // If this fails, it is removed with the run.
    drop(removed);
}

/// Removes all copies that were put into `@state` for a guest that has ended since.
///
/// `@state` may have any number of files: a leftover beyond [`SWEPT`] is removed with the run.
pub fn sweep_staged(jail: &Jail) {
    let top = SandboxPath::new(Mount::State, RelPath::root());
    let Some(directory) = jail.readable(&top).ok().and_then(|location| location.open_dir().ok()) else {
        return;
    };
    let Ok(entries) = directory.entries() else { return };
    let left = entries.take(SWEPT).flatten();
    let left: Vec<_> = left.filter_map(|entry| UploadId::of_staged(entry.name.as_str()?)).collect();
    for id in &left {
        remove_staged(jail, id);
    }
}

fn not_as_said() -> io::Error {
    let message = "the uploaded content does not have the size and SHA-256 of the call";
    io::Error::new(ErrorKind::InvalidData, message)
}
