//! What a header of a tar says of its member.

use tar::{EntryType, Header};

use super::BadTar;

/// A member of a tar, with its long names.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    /// Where it leads, if it is a link.
    pub(super) link: Option<Vec<u8>>,
    pub(super) kind: EntryType,
    /// Bytes that follow.
    pub(super) size: u64,
}

impl Member {
    /// For a message: bounded and on one line.
    pub(super) fn shown(&self) -> String {
        text::excerpt(&String::from_utf8_lossy(&self.name))
    }

    pub(super) fn refused(&self, why: &'static str) -> BadTar {
        BadTar::Member { name: self.shown(), why }
    }
}

/// What extensions before a header say of it.
#[derive(Debug, Default)]
pub(super) struct Extension {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

impl Extension {
    /// A GNU long name or link.
    pub(super) fn long(&mut self, kind: EntryType, content: &[u8]) {
        let text = content.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        match kind {
            EntryType::GNULongName => self.name = Some(text),
            _ => self.link = Some(text),
        }
    }

    /// Records of a pax header: `LENGTH KEY=VALUE\n`.
    pub(super) fn pax(&mut self, content: &[u8]) -> Result<(), BadTar> {
        let mut rest = content;
        while !rest.is_empty() {
            let damaged = BadTar::NoTar("a pax header is damaged");
            let Some(space) = rest.iter().position(|byte| *byte == b' ') else { return Err(damaged) };
            let length = std::str::from_utf8(&rest[..space]).ok().and_then(|text| text.parse::<usize>().ok());
            let Some(length) = length.filter(|length| *length > space + 1 && *length <= rest.len()) else {
                return Err(damaged);
            };
            let record = &rest[space + 1..length];
            rest = &rest[length..];
            let Some(record) = record.strip_suffix(b"\n") else { return Err(damaged) };
            let Some(equals) = record.iter().position(|byte| *byte == b'=') else { return Err(damaged) };
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    self.size = Some(size.ok_or(BadTar::NoTar("a pax header has a size that is none"))?);
                }
                key if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether it says nothing that matters.
    pub(super) fn is_empty(&self) -> bool {
        let Self { name, link, size, is_sparse } = self;
        name.is_none() && link.is_none() && size.is_none() && !is_sparse
    }

    /// The member that these and its header describe.
    pub(super) fn describe(self, header: &Header) -> Result<Member, BadTar> {
        let kind = header.entry_type();
        let size = match self.size {
            Some(size) => size,
            None => header.entry_size().map_err(|_| BadTar::NoTar("a header has a size that is none"))?,
        };
        let link = self.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let member = Member {
            name: self.name.unwrap_or_else(|| header.path_bytes().into_owned()),
            link: link.filter(|_| matches!(kind, EntryType::Symlink | EntryType::Link)),
            kind,
            // Only these have content, whatever is said of the others.
            size: if matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse) {
                size
            } else {
                0
            },
        };
        if self.is_sparse || kind == EntryType::GNUSparse {
            return Err(member.refused("is sparse, so its size unpacked is not known: pack it without holes"));
        }
        Ok(member)
    }
}
