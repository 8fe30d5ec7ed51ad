//! Walks through a tar by its headers, in bounded memory.
//!
//! ```text
//!  header ─► L, K (GNU) ─┐ once each, and never both kinds
//!         ─► x (pax) ────┴─► header of the member ─► Member ─► content
//! ```

use std::io::{self, Read};

use super::BadTar;
use super::header::{BLOCK, Fields, MAX_LONG};
use super::member::{Form, Kind, Member, refused};
use super::pax::Records;

/// Size limit of one extension in bytes, such as a long name.
const MAX_EXTENSION: u64 = 1 << 20;
/// Largest number of members of one tar.
const MAX_MEMBERS: u64 = 4_000_000;

/// Requirement for the end of a tar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Said,
    /// A layer in an archive, whose length its member states. It may be empty, and needs no end mark.
    Known,
}

pub(super) struct Walk<R> {
    input: R,
    end: End,
    members: u64,
    /// Bytes left of the current member, and of the padding of its last block.
    left: u64,
    filling: u64,
}

/// Extension members that belong to the next header.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Option<Records>,
}

impl<R: Read> Walk<R> {
    pub(super) fn new(input: R, end: End) -> Self {
        Self { input, end, members: 0, left: 0, filling: 0 }
    }

    /// Returns the next member once the content of the last one was read, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Member>, BadTar> {
        let mut extensions = Extensions::default();
        loop {
            let Some(block) = self.block(extensions.are_none())? else { return Ok(None) };
            let fields = Fields::read(&block)?;
            let is_new = match fields.flag {
                b'L' => extensions.name.replace(self.long(&fields)?).is_none(),
                b'K' => extensions.link.replace(self.long(&fields)?).is_none(),
                b'x' => {
                    let records = Records::parse(&self.extension(fields.size)?)?;
                    extensions.records.replace(records).is_none()
                }
                // A comment on all members that follow, as git writes it. It is left out.
                b'g' if extensions.are_none() => {
                    if !Records::parse(&self.extension(fields.size)?)?.is_empty() {
                        return Err(BadTar::NoTar(
                            "a global header sets fields of all members, which is not supported",
                        ));
                    }
                    true
                }
                _ => {
                    let member = extensions.describe(fields)?;
                    self.members += 1;
                    if self.members > MAX_MEMBERS {
                        return Err(member.refused("exceeds the number of members that a tar may have"));
                    }
                    self.left = member.size;
                    self.filling = filling(member.size);
                    return Ok(Some(member));
                }
            };
            if !is_new || !extensions.are_of_one_form() {
                return Err(BadTar::NoTar(
                    "a member has two extended headers, or both pax and GNU headers, on which readers disagree",
                ));
            }
        }
    }

    /// Returns a reader of the current member's content.
    pub(super) fn content(&mut self) -> Content<'_, R> {
        Content(self)
    }

    /// Skips the padding after a member whose content was read.
    pub(super) fn finish(&mut self, member: &Member) -> Result<(), BadTar> {
        let wanted = self.left.saturating_add(self.filling);
        let read = io::copy(&mut (&mut self.input).take(wanted), &mut io::sink())?;
        (self.left, self.filling) = (0, 0);
        if read == wanted { Ok(()) } else { Err(BadTar::Cut(member.shown())) }
    }

    /// Reads to the end of the input. Only zeros may follow the end of the tar.
    pub(super) fn drain(&mut self) -> Result<(), BadTar> {
        let mut block = [0; 8 * BLOCK];
        loop {
            match self.input.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(count) if block.iter().take(count).all(|byte| *byte == 0) => {}
                Ok(_) => return Err(BadTar::NoTar("data follows its end")),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn block(&mut self, may_end: bool) -> Result<Option<[u8; BLOCK]>, BadTar> {
        let mut block = [0; BLOCK];
        let mut have = 0;
        while have < BLOCK {
            match self.input.read(&mut block[have..])? {
                0 => break,
                count => have += count,
            }
        }
        match have {
            0 if may_end && self.end == End::Known => Ok(None),
            0 if self.members > 0 => Err(BadTar::Cut("its members".to_owned())),
            0 => Err(BadTar::NoTar("it is empty")),
            BLOCK if block.iter().all(|byte| *byte == 0) => {
                let is_empty = self.members == 0 && self.end == End::Said;
                match may_end {
                    _ if is_empty => Err(BadTar::NoTar("it has no members")),
                    true => Ok(None),
                    false => Err(BadTar::Cut("the headers of a member".to_owned())),
                }
            }
            BLOCK => Ok(Some(block)),
            _ => Err(BadTar::Cut("a header".to_owned())),
        }
    }

    /// Reads a long name or link of GNU, which ends with its only zero.
    fn long(&mut self, fields: &Fields) -> Result<Vec<u8>, BadTar> {
        let mut text = self.extension(fields.size)?;
        let is_ended = text.pop() == Some(0);
        if !fields.is_gnu || !is_ended || text.is_empty() || text.contains(&0) {
            return Err(BadTar::NoTar("a long name is invalid"));
        }
        Ok(text)
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, BadTar> {
        if size > MAX_EXTENSION {
            return Err(BadTar::NoTar("a name or a pax header is longer than 1 MiB"));
        }
        let whole = size + filling(size);
        let mut content = Vec::new();
        (&mut self.input).take(whole).read_to_end(&mut content)?;
        if content.len() as u64 != whole {
            return Err(BadTar::Cut("a name or a pax header".to_owned()));
        }
        content.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(content)
    }
}

impl Extensions {
    fn are_none(&self) -> bool {
        self.name.is_none() && self.link.is_none() && self.records.is_none()
    }

    fn are_of_one_form(&self) -> bool {
        self.records.is_none() || (self.name.is_none() && self.link.is_none())
    }

    /// Returns the member that these extensions and its header describe.
    fn describe(mut self, fields: Fields) -> Result<Member, BadTar> {
        let form = match (&self.records, fields.is_gnu) {
            (Some(_), _) => Form::Pax,
            (None, true) => Form::Gnu,
            (None, false) => Form::Ustar,
        };
        let records = self.records.take().unwrap_or_default();
        let plain = if fields.prefix.is_empty() {
            fields.name
        } else {
            [fields.prefix.as_slice(), b"/", &fields.name].concat()
        };
        let name = self.name.or_else(|| records.name.clone()).unwrap_or(plain);
        let refused = |why| Err(refused(&name, why));
        if records.is_sparse() || fields.flag == b'S' {
            return refused("is sparse, so its size unpacked is not known: pack it without holes");
        }
        let Some(kind) = Kind::of(fields.flag) else {
            return refused("is neither a file, a directory, a link nor a device");
        };
        if self.link.is_some() && !kind.is_link() {
            return refused("has a link target but is not a link");
        }
        if kind == Kind::File && name.ends_with(b"/") {
            return refused("is a file with the name of a directory");
        }
        let size = match records.size {
            // A field whose value does not fit is not compared.
            Some(size) if fields.size != size && (size <= MAX_LONG || form != Form::Pax) => {
                return refused("has two sizes");
            }
            Some(size) => size,
            None => fields.size,
        };
        if kind != Kind::File && size != 0 {
            return refused("has a size but is not a file");
        }
        let is_typed = [0, kind.mode_bits()].contains(&(fields.mode & !0o7_777));
        if !is_typed && kind != Kind::HardLink {
            return refused("has a type and a mode in its header that contradict each other");
        }
        let link = self.link.or_else(|| records.link.clone()).unwrap_or(fields.link);
        Ok(Member {
            form,
            link: kind.is_link().then_some(link),
            kind,
            size,
            mode: if is_typed { fields.mode } else { fields.mode & 0o7_777 },
            uid: records.uid.unwrap_or(fields.uid),
            gid: records.gid.unwrap_or(fields.gid),
            modified: records.modified.as_deref().map_or(Ok(fields.modified), seconds)?,
            user: fields.user,
            group: fields.group,
            device: if kind.is_device() {
                Some(fields.device.unwrap_or_default())
            } else {
                fields.device.map(|_| (0, 0))
            },
            records,
            name,
        })
    }
}

/// Returns the whole seconds of a time that was checked.
fn seconds(time: &[u8]) -> Result<u64, BadTar> {
    let whole = time.split(|byte| *byte == b'.').next().and_then(|digits| std::str::from_utf8(digits).ok());
    whole.and_then(|digits| digits.parse().ok()).ok_or(BadTar::NoTar("a pax header has an invalid time"))
}

/// Reader of one member's content.
pub(super) struct Content<'w, R>(&'w mut Walk<R>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.0.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.0.input.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.left -= count as u64;
        Ok(count)
    }
}

fn filling(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}
