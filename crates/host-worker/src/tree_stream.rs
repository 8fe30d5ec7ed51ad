//! The form in which the files of a base go from one daemon to another.
//!
//! ```text
//! format (16)
//! kind: d, f, l or u (1) │ mode (4) │ seconds (8) │ nanoseconds (4)
//!   │ length of the name (2) │ length of the rest (8) │ name │ rest
//! ```
//!
//! Numbers are big-endian. The rest is the content of a file or the target of a link. A `d` begins a directory: the
//! entries of its names follow, in the order of their bytes, and a `u` without a name ends it. The first entry is the
//! topmost directory, which has no name, and its `u` is the end of the stream. So a stream that was cut off anywhere is
//! not taken for a whole one.
//!
//! There are no paths, owners, extended attributes, hard links or special files, so a receiver has nothing of these to
//! check.

use std::io::{self, Read, Write};

/// First bytes of a stream.
pub(crate) const FORMAT: &[u8; 16] = b"cofferdam base 1";
/// Length of an entry without its name and its rest.
const HEADER: usize = 27;
/// Length of the longest name, bytes (`NAME_MAX`).
pub(crate) const MOST_OF_NAME: usize = 255;

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    Link,
    /// End of a directory.
    Up,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Directory, Self::File, Self::Link, Self::Up];

    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Directory => b'd',
            Self::File => b'f',
            Self::Link => b'l',
            Self::Up => b'u',
        }
    }
}

/// An entry without its rest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    /// Time of the last modification: seconds since 1970, and nanoseconds.
    pub(crate) modified: (i64, u32),
    pub(crate) name: Vec<u8>,
    /// Length of the rest, bytes.
    pub(crate) rest: u64,
}

impl Entry {
    /// Returns the end of a directory.
    pub(crate) fn up() -> Self {
        Self { kind: Kind::Up, mode: 0, modified: (0, 0), name: Vec::new(), rest: 0 }
    }

    pub(crate) fn write(&self, output: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let length = u16::try_from(self.name.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(HEADER + self.name.len());
        bytes.push(self.kind.byte());
        bytes.extend(self.mode.to_be_bytes());
        bytes.extend(self.modified.0.to_be_bytes());
        bytes.extend(self.modified.1.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(self.rest.to_be_bytes());
        bytes.extend(&self.name);
        output.write_all(&bytes)
    }

    /// Reads an entry. `None` if it is not one of this form.
    pub(crate) fn read(input: &mut impl Read) -> io::Result<Option<Self>> {
        let [kind] = array(input)?;
        let mode = u32::from_be_bytes(array(input)?);
        let modified = (i64::from_be_bytes(array(input)?), u32::from_be_bytes(array(input)?));
        let length = usize::from(u16::from_be_bytes(array(input)?));
        let rest = u64::from_be_bytes(array(input)?);
        let kind = Kind::ALL.into_iter().find(|known| known.byte() == kind);
        let Some(kind) = kind.filter(|_| length <= MOST_OF_NAME && mode <= 0o777) else { return Ok(None) };
        if modified.1 >= 1_000_000_000 {
            return Ok(None);
        }
        let mut name = vec![0; length];
        input.read_exact(&mut name)?;
        Ok(Some(Self { kind, mode, modified, name, rest }))
    }
}

fn array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Entry {
        Entry {
            kind: Kind::File,
            mode: 0o640,
            modified: (-7, 999_999_999),
            name: b"\xff\n".to_vec(),
            rest: 9,
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let directory = Entry { kind: Kind::Directory, name: Vec::new(), rest: 0, ..file() };
        let link = Entry { kind: Kind::Link, name: vec![b'n'; MOST_OF_NAME], ..file() };
        for entry in [file(), directory, link, Entry::up()] {
            let mut bytes = Vec::new();
            entry.write(&mut bytes).unwrap();
            assert_eq!(bytes.len(), HEADER + entry.name.len());
            assert_eq!(Entry::read(&mut bytes.as_slice()).unwrap(), Some(entry));
            let cut = Entry::read(&mut &bytes[..bytes.len() - 1]).unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn values_that_no_entry_has_are_refused() {
        let bad = [
            Entry { mode: 0o4755, ..file() },
            Entry { modified: (0, 1_000_000_000), ..file() },
            Entry { name: vec![b'n'; MOST_OF_NAME + 1], ..file() },
        ];
        for entry in bad {
            let mut bytes = Vec::new();
            entry.write(&mut bytes).unwrap();
            assert_eq!(Entry::read(&mut bytes.as_slice()).unwrap(), None, "{entry:?}");
        }
        let mut bytes = Vec::new();
        file().write(&mut bytes).unwrap();
        bytes[0] = b's';
        assert_eq!(Entry::read(&mut bytes.as_slice()).unwrap(), None);
    }
}
