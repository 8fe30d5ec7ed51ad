//! Unpacks an archive beneath a directory of a jail.
//!
//! Every name goes through the jail like that of a `write`: no link is followed, protected paths are refused, and each file appears whole.
//! Files are synced together at the end, because one sync for each would take longer than everything else.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};

use jail::{Access, Jail, Parents, PathRefusal, SandboxPath, WriteMode};
use operations::{Reason, ToolFailure};

use super::member::broken;
use super::{Member, MemberKind, members};

const BLOCK: usize = 256 * 1024;

/// Treatment of members whose paths are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protected {
    /// The whole archive is refused.
    Refused,
    /// Such members are left out.
    LeftOut,
}

/// Totals of an unpacked archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub entries: u64,
    /// Sum over all files.
    pub bytes: u64,
    pub left_out: u64,
}

/// Returns the path at which a member is unpacked.
pub(crate) fn place(top: &SandboxPath, name: &str) -> Result<SandboxPath, ToolFailure> {
    let path = SandboxPath::parse_anywhere(&format!("{top}/{name}"))?;
    if path.mount() == top.mount() {
        Ok(path)
    } else {
        Err(PathRefusal::InMount { path: path.excerpt() }.into())
    }
}

/// Unpacks at most `most` bytes beneath `top`, which is created if it is missing.
///
/// All members are checked before the first one is unpacked.
pub fn unpack(
    jail: &Jail,
    top: &SandboxPath,
    archive: &File,
    most: u64,
    protected: Protected,
) -> Result<Unpacked, ToolFailure> {
    let mut left_out = 0;
    let is_left_out = |path: &SandboxPath| match (jail.check(path, Access::Write), protected) {
        (Ok(()), _) => Ok(false),
        (Err(_), Protected::LeftOut) => Ok(true),
        (Err(refusal), Protected::Refused) => Err(ToolFailure::from(refusal)),
    };
    rewind(archive)?;
    let budget = members(archive, most, |member, _| {
        let mut goes = is_left_out(&place(top, &member.name)?)?;
        if let MemberKind::Same { original, .. } = &member.kind {
            goes |= is_left_out(&place(top, original)?)?;
        }
        left_out += u64::from(goes);
        Ok(())
    })?;
    jail.writable(top)?.ensure_directory()?;
    rewind(archive)?;
    let mut done = 0;
    let mut block = vec![0; BLOCK];
    let unpacked = members(archive, most, |member, content| {
        let path = place(top, &member.name)?;
        let original = match &member.kind {
            MemberKind::Same { original, .. } => Some(place(top, original)?),
            _ => None,
        };
        // A second name of a file that is left out is left out, too: the file now at that path does not come from the archive.
        if [Some(&path), original.as_ref()]
            .into_iter()
            .flatten()
            .all(|path| jail.check(path, Access::Write).is_ok())
        {
            one(jail, top, &path, &member, content, &mut block)?;
        }
        done += 1;
        Ok(())
    });
    let synced = jail.sync(top.mount());
    if let Err(failure) = unpacked {
        let message = format!(
            "{}; {done} of {} entries were unpacked before, each of them whole",
            failure.message,
            budget.entries()
        );
        return Err(ToolFailure { message, ..failure }.with("entries_unpacked", done.to_string()));
    }
    synced?;
    Ok(Unpacked { entries: budget.entries() - left_out, bytes: budget.bytes(), left_out })
}

fn one(
    jail: &Jail,
    top: &SandboxPath,
    path: &SandboxPath,
    member: &Member,
    content: &mut dyn Read,
    block: &mut [u8],
) -> Result<(), ToolFailure> {
    let writable = jail.writable(path)?;
    match &member.kind {
        MemberKind::Directory if member.name.is_empty() => Ok(()),
        MemberKind::Directory => Ok(writable.make_directory(member.mode)?),
        MemberKind::Link(target) => Ok(writable.make_link(target.as_bytes())?),
        MemberKind::File(_) => file(jail, path, member.mode, content, block),
        MemberKind::Same { original: name, bytes } => {
            let original = place(top, name)?;
            let mut original = jail.readable(&original)?.open_file()?;
            if original.meta.size != *bytes {
                let message =
                    format!("{} was changed while the archive was unpacked; try again", jail::excerpt(name));
                return Err(ToolFailure::new(Reason::PreconditionFailed, message));
            }
            let mode = original.meta.mode & 0o777;
            let mut content = Read::take(&mut original.file, *bytes);
            file(jail, path, mode, &mut content, block)
        }
    }
}

fn file(
    jail: &Jail,
    path: &SandboxPath,
    mode: u32,
    content: &mut dyn Read,
    block: &mut [u8],
) -> Result<(), ToolFailure> {
    let target = jail.writable(path)?.target(Parents::CreateUnsynced)?;
    target.write_from(&mut |file| copy(content, file, block), Some(mode), WriteMode::Replace)?;
    Ok(())
}

fn copy(content: &mut dyn Read, file: &mut File, block: &mut [u8]) -> io::Result<()> {
    loop {
        match content.read(block) {
            Ok(0) => return Ok(()),
            Ok(read) => file.write_all(&block[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn rewind(mut archive: &File) -> Result<(), ToolFailure> {
    archive.rewind().map_err(|error| broken(&error))
}
