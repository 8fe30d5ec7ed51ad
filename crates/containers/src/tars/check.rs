//! The checks of a file system's tar, and of the directory of a build.

use std::io::{self, Read, Write};

use tar::EntryType;

use super::BadTar;
use super::member::Member;
use super::walk::{End, Walk};

/// Where links may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// Anywhere: they mean places of the image.
    Anywhere,
    /// To what the tar holds itself.
    Within,
}

/// Reads, and writes the same to `output`.
pub(super) struct Tee<R, W> {
    pub(super) input: R,
    pub(super) output: W,
}

impl<R: Read, W: Write> Read for Tee<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.output.write_all(&buffer[..count])?;
        Ok(count)
    }
}

/// Passes a tar on as it is, as far as it is in order.
pub(super) fn pass(input: impl Read, output: impl Write, links: Links) -> Result<(), BadTar> {
    let mut walk = Walk::new(Tee { input, output }, End::Said);
    members(&mut walk, links)?;
    walk.drain()
}

/// Checks all members.
pub(super) fn members<R: Read>(walk: &mut Walk<R>, links: Links) -> Result<(), BadTar> {
    while let Some(found) = walk.next()? {
        let member = found.member;
        check(&member, links)?;
        walk.finish(&member)?;
    }
    Ok(())
}

fn check(member: &Member, links: Links) -> Result<(), BadTar> {
    if depth(&member.name).is_none() {
        return Err(member.refused("has a name that leads out of the tar"));
    }
    match member.kind {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory => return Ok(()),
        EntryType::Symlink | EntryType::Link => {}
        EntryType::Char | EntryType::Block | EntryType::Fifo if links == Links::Anywhere => return Ok(()),
        _ => return Err(member.refused("is neither a file, a directory nor a link")),
    }
    let Some(target) = &member.link else { return Err(member.refused("is a link to nowhere")) };
    // A hard link names a member; a symbolic one is read from its own directory.
    let stays = match member.kind {
        EntryType::Link => depth(target).is_some(),
        _ if links == Links::Anywhere => true,
        _ => {
            let directory = parent(&member.name);
            !target.starts_with(b"/") && depth(&[directory, b"/", target].concat()).is_some()
        }
    };
    if stays { Ok(()) } else { Err(member.refused("is a link that leads out of the tar")) }
}

fn parent(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    name.iter().rposition(|byte| *byte == b'/').map_or(b".", |slash| &name[..slash])
}

/// How deep a name is; `None` where it leads out on its way, is absolute, or is no name.
fn depth(name: &[u8]) -> Option<usize> {
    if name.is_empty() || name.starts_with(b"/") || name.contains(&0) {
        return None;
    }
    name.split(|byte| *byte == b'/').try_fold(0_usize, |depth, part| match part {
        b"" | b"." => Some(depth),
        b".." => depth.checked_sub(1),
        _ => Some(depth + 1),
    })
}
