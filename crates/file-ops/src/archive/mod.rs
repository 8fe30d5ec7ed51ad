//! Tar archives of a tree, for transfers: read as hostile input, and written so that any tool can read them.
//!
//! An archive is read twice. [`members`] first checks all of them, and only if none is refused are they unpacked. Both passes use the same
//! reader, so they cannot interpret the format differently.

mod member;
mod pack;
mod unpack;

pub(crate) use member::{Member, MemberKind, members};
pub use pack::{Packed, pack};
#[cfg(feature = "write")]
pub(crate) use unpack::place;
pub use unpack::{Protected, Unpacked, unpack};

use operations::{Reason, ToolFailure};

/// Most files, directories and links of an archive.
pub const MAX_ENTRIES: u64 = 250_000;

/// Limits of an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArchiveBudget {
    entries: u64,
    bytes: u64,
    most: u64,
}

impl ArchiveBudget {
    pub(crate) fn new(most: u64) -> Self {
        Self { entries: 0, bytes: 0, most }
    }

    /// Counts one more entry with this many bytes of content, or refuses it.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), ToolFailure> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > MAX_ENTRIES {
            let message =
                format!("the archive has more than {MAX_ENTRIES} entries, which is the limit; divide it");
            return Err(ToolFailure::new(Reason::WriteLimit, message));
        }
        if self.bytes > self.most {
            let most = self.most;
            let message = format!(
                "the files of the archive have more than the {most} bytes that may be transferred at once; divide it"
            );
            return Err(
                ToolFailure::new(Reason::WriteLimit, message).with("max_transfer_bytes", most.to_string())
            );
        }
        Ok(())
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns true if a link in a directory `depth` levels below the top stays beneath that top, judged by names alone.
pub(crate) fn stays_within(depth: usize, target: &str) -> bool {
    let mut depth = depth;
    if target.is_empty() || target.starts_with('/') || target.contains('\0') {
        return false;
    }
    for component in target.split('/') {
        match component {
            "" | "." => {}
            ".." => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return false,
            },
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests;
