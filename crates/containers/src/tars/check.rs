//! Checks the tar of a file system, or of the directory of a build.

use std::io::{self, Read, Write};

use super::member::{Kind, Member};
use super::walk::{End, Walk};
use super::{BadTar, write};

/// Places to which links may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// Anywhere: the targets are paths of the image.
    Anywhere,
    /// Within the tar.
    Within,
}

/// Writes a tar anew, and fails at the first member that is refused.
pub(super) fn pass(input: impl Read, mut output: impl Write, links: Links) -> Result<(), BadTar> {
    let mut walk = Walk::new(input, End::Said);
    members(&mut walk, &mut output, links)?;
    write::end(&mut output)
}

/// Writes all members anew, and reads the tar to its end.
pub(super) fn members<R: Read>(
    walk: &mut Walk<R>,
    output: &mut impl Write,
    links: Links,
) -> Result<(), BadTar> {
    while let Some(member) = walk.next()? {
        check(&member, links)?;
        write::write(output, &member)?;
        io::copy(&mut walk.content(), output).map_err(|error| cut(error, &member))?;
        write::fill(output, member.size)?;
        walk.finish(&member)?;
    }
    walk.drain()
}

/// Converts an error, naming the member in which the input ended.
pub(super) fn cut(error: io::Error, member: &Member) -> BadTar {
    if error.kind() == io::ErrorKind::UnexpectedEof { BadTar::Cut(member.shown()) } else { error.into() }
}

fn check(member: &Member, links: Links) -> Result<(), BadTar> {
    if depth(&member.name).is_none() {
        return Err(member.refused("has a name that leads out of the tar"));
    }
    match member.kind {
        Kind::File | Kind::Directory => return Ok(()),
        Kind::Symlink | Kind::HardLink => {}
        Kind::CharDevice | Kind::BlockDevice | Kind::Fifo if links == Links::Anywhere => return Ok(()),
        _ => return Err(member.refused("is neither a file, a directory nor a link")),
    }
    let Some(target) = member.link.as_ref().filter(|target| !target.is_empty()) else {
        return Err(member.refused("is a link to nowhere"));
    };
    // A hard link names a member; a symbolic link is resolved from its own directory.
    let stays = match member.kind {
        Kind::HardLink => depth(target).is_some(),
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

/// Returns the depth of a name. `None` if it leads out on the way, is absolute, or is invalid.
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
