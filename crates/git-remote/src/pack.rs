//! The pack of a server, on its way into a repository. libgit2 checks and indexes it, and completes a thin one.

use std::io::Write as _;

use git2::{Odb, OdbPackwriter, Oid};

use crate::error::{RemoteError, shown};

/// Bytes of the header: a signature, a version and the number of objects (gitformat-pack(5)).
const HEADER: usize = 12;
const SIGNATURE: &[u8] = b"PACK\0\0\0\x02";
/// Most objects of a pack. libgit2 takes memory for each before it has come.
const MOST: u32 = 5_000_000;

/// A pack that is being received.
pub(crate) struct Pack<'o> {
    odb: &'o Odb<'o>,
    writer: OdbPackwriter<'o>,
    header: Vec<u8>,
    objects: u32,
}

impl<'o> Pack<'o> {
    pub(crate) fn begin(odb: &'o Odb<'o>) -> Result<Self, RemoteError> {
        Ok(Self { odb, writer: odb.packwriter()?, header: Vec::new(), objects: 0 })
    }

    /// Takes the next bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), RemoteError> {
        if self.header.len() < HEADER {
            let wanted = bytes.len().min(HEADER - self.header.len());
            let (begin, rest) = bytes.split_at(wanted);
            self.header.extend_from_slice(begin);
            if self.header.len() < HEADER {
                return Ok(());
            }
            let number = self.header.strip_prefix(SIGNATURE).and_then(|rest| rest.first_chunk());
            let number = number.copied().map(u32::from_be_bytes);
            self.objects = number.ok_or_else(|| RemoteError::Pack("it has no valid header".to_owned()))?;
            if self.objects > MOST {
                return Err(RemoteError::Pack(format!("it has more than {MOST} objects")));
            }
            let header = std::mem::take(&mut self.header);
            self.append(&header)?;
            self.header = header;
            return self.append(rest);
        }
        self.append(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), RemoteError> {
        // One without objects is not kept.
        if self.objects == 0 || bytes.is_empty() {
            return Ok(());
        }
        self.writer.write_all(bytes).map_err(|_| last())
    }

    /// Checks the whole pack, and adds it to the repository.
    pub(crate) fn end(mut self) -> Result<(), RemoteError> {
        if self.header.len() < HEADER {
            return Err(RemoteError::Pack("it is cut".to_owned()));
        }
        if self.objects > 0 {
            self.writer.commit().map_err(|error| RemoteError::Pack(shown(error.message())))?;
        }
        self.odb.refresh()?;
        Ok(())
    }
}

/// Returns the error that libgit2 has noted.
fn last() -> RemoteError {
    let error = git2::Error::last_error(-1);
    RemoteError::Pack(shown(error.message()))
}

/// Returns the first of these objects that is not there.
pub(crate) fn missing<'i>(odb: &Odb<'_>, ids: impl IntoIterator<Item = &'i Oid>) -> Option<Oid> {
    ids.into_iter().find(|id| odb.read_header(**id).is_err()).copied()
}
