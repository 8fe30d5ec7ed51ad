//! Short object names: as long as git makes them in a repository of this size, and longer where that is ambiguous.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use git2::{ErrorCode, Odb, Oid, Repository};

use super::error::GitError;

const HEX: usize = 40;
const SHORTEST: usize = 7;
/// More packs than any sane repository has.
const PACKS: usize = 4096;

/// Makes short names.
pub(super) struct Abbreviations<'r> {
    objects: Odb<'r>,
    length: usize,
}

impl<'r> Abbreviations<'r> {
    pub(super) fn of(repository: &'r Repository) -> Result<Self, GitError> {
        let length = default_length(packed_objects(&repository.path().join("objects/pack")));
        Ok(Self { objects: repository.odb()?, length })
    }

    /// The short name of `id`, whether there is such an object or not.
    pub(super) fn shorten(&self, id: Oid) -> String {
        let hex = id.to_string();
        let length = if id.is_zero() { self.length } else { self.unambiguous(id) };
        hex[..length.min(hex.len())].to_owned()
    }

    fn unambiguous(&self, id: Oid) -> usize {
        (self.length..HEX)
            .find(|length| match self.objects.exists_prefix(id, *length) {
                Ok(found) => found == id,
                Err(error) => error.code() == ErrorCode::NotFound,
            })
            .unwrap_or(HEX)
    }
}

/// git's rule: 2^n objects are expected to collide at n/2 bits.
fn default_length(objects: u64) -> usize {
    let bits = (u64::BITS - objects.leading_zeros()) as usize;
    bits.div_ceil(2).max(SHORTEST)
}

/// Objects in all packs, by the last entry of each index's fan-out table. Damaged ones count as empty.
fn packed_objects(packs: &Path) -> u64 {
    const LAST_FANOUT: u64 = 8 + 255 * 4;
    let Ok(entries) = fs::read_dir(packs) else { return 0 };
    entries
        .take(PACKS)
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "idx"))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| {
            let mut count = [0; 4];
            File::open(entry.path()).ok()?.read_exact_at(&mut count, LAST_FANOUT).ok()?;
            Some(u64::from(u32::from_be_bytes(count)))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::default_length;

    #[test]
    fn lengths_grow_with_the_repository() {
        for (objects, length) in
            [(0, 7), (1, 7), (16_383, 7), (16_384, 8), (65_535, 8), (65_536, 9), (10_000_000, 12)]
        {
            assert_eq!(default_length(objects), length, "{objects}");
        }
    }
}
