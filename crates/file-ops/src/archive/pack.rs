//! Writes a tree as an archive while a hostile process may change it.
//!
//! No link is followed, and each directory is entered through a handle. A file that grows while it is read keeps the length that it had
//! when it was opened. Entries that an archive cannot hold are left out and counted.

use std::fs::File;
use std::io::{self, Read, Write};

use jail::{Access, Dir, EntryName, FileKind, Jail, Metadata, RegularFile, SandboxPath};
use operations::{Reason, ToolFailure};
use tar::{Builder, EntryType, Header};

use super::{ArchiveBudget, stays_within};

/// Levels of directories; each one takes a file descriptor.
const MAX_DEPTH: usize = 128;

/// Totals of a packed tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packed {
    pub entries: u64,
    /// Sum over all files.
    pub bytes: u64,
    pub left_out: u64,
}

/// Writes the directory `top` and everything beneath it to which `access` is permitted, at most `most` bytes.
pub fn pack(
    jail: &Jail,
    top: &SandboxPath,
    access: Access,
    most: u64,
    output: impl Write,
) -> Result<Packed, ToolFailure> {
    let (real, dir) = jail.readable(top)?.open_dir_resolved()?;
    let mut packer =
        Packer { jail, access, budget: ArchiveBudget::new(most), left_out: 0, builder: Builder::new(output) };
    packer.directory(&real, &dir, &mut Vec::new())?;
    let (entries, bytes, left_out) = (packer.budget.entries(), packer.budget.bytes(), packer.left_out);
    packer.builder.into_inner().and_then(|mut output| output.flush()).map_err(|error| not_written(&error))?;
    Ok(Packed { entries, bytes, left_out })
}

struct Packer<'p, W: Write> {
    jail: &'p Jail,
    access: Access,
    budget: ArchiveBudget,
    left_out: u64,
    builder: Builder<W>,
}

impl<W: Write> Packer<'_, W> {
    /// Packs a directory. `names` lead from the top to it, and it is at `path`.
    fn directory(
        &mut self,
        path: &SandboxPath,
        dir: &Dir,
        names: &mut Vec<String>,
    ) -> Result<(), ToolFailure> {
        // Sorted, so that equal trees make equal archives.
        let mut entries = dir.entries()?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for entry in entries {
            let Some(below) = entry.name.as_str().and(path.rel().join(&entry.name)) else {
                self.left_out += 1;
                continue;
            };
            let below = SandboxPath::new(path.mount(), below);
            names.push(entry.name.shown().into_owned());
            let taken = self.jail.check(&below, self.access).is_ok()
                && self.entry(&below, dir, &entry.name, entry.kind, names)?;
            names.pop();
            self.left_out += u64::from(!taken);
        }
        Ok(())
    }

    /// Packs an entry. Returns false if it was left out.
    fn entry(
        &mut self,
        path: &SandboxPath,
        dir: &Dir,
        name: &EntryName,
        kind: FileKind,
        names: &mut Vec<String>,
    ) -> Result<bool, ToolFailure> {
        match kind {
            FileKind::Directory if names.len() <= MAX_DEPTH => {
                let Ok(within) = dir.open_dir(name) else { return Ok(false) };
                let Ok(meta) = dir.metadata(name) else { return Ok(false) };
                self.budget.take(0)?;
                let mut header = header(EntryType::Directory, &meta, 0);
                let name = names.join("/") + "/";
                self.builder
                    .append_data(&mut header, name, io::empty())
                    .map_err(|error| not_written(&error))?;
                self.directory(path, &within, names)?;
                Ok(true)
            }
            FileKind::File => {
                let Ok(RegularFile { file, meta }) = dir.open_file(name) else { return Ok(false) };
                self.budget.take(meta.size)?;
                let mut header = header(EntryType::Regular, &meta, meta.size);
                let content = Whole { file, left: meta.size };
                let written = self.builder.append_data(&mut header, names.join("/"), content);
                written.map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => ToolFailure::new(
                        Reason::PreconditionFailed,
                        format!("{} became shorter while it was read; try again", path.excerpt()),
                    ),
                    _ => not_written(&error),
                })?;
                Ok(true)
            }
            FileKind::Symlink => {
                let (Ok(target), Ok(meta)) = (dir.read_link(name), dir.metadata(name)) else {
                    return Ok(false);
                };
                let Some(target) =
                    String::from_utf8(target).ok().filter(|target| stays_within(names.len() - 1, target))
                else {
                    return Ok(false);
                };
                self.budget.take(0)?;
                let mut header = header(EntryType::Symlink, &meta, 0);
                let written = self.builder.append_link(&mut header, names.join("/"), target);
                written.map_err(|error| not_written(&error))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

fn header(kind: EntryType, meta: &Metadata, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(meta.mode & 0o777);
    header.set_mtime(u64::try_from(meta.modified.0).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn not_written(error: &io::Error) -> ToolFailure {
    ToolFailure::new(Reason::Internal, format!("the archive cannot be written: {error}"))
}

/// Reader of exactly this many bytes of a file; a shorter file is an error.
struct Whole {
    file: File,
    left: u64,
}

impl Read for Whole {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        match self.file.read(&mut into[..most])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.left -= read as u64;
                Ok(read)
            }
        }
    }
}
