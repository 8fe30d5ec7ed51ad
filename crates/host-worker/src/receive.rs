//! Makes the files of a base that another daemon sends, and computes their digest.
//!
//! The stream is hostile. Each name is made in an open directory that this process has made itself, in a tree that no
//! other process uses, and nothing that exists is opened. Names have to come in the order in which a walk of the tree
//! finds them, so that the digest is that of the walk (`tree.rs`).

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use host_launch::TreeBounds;
use jail::EntryName;
use operations::Digest;
use rustix::fs::{AtFlags, Mode, fchmod, futimens, open, symlinkat, utimensat};
use text::excerpt;
use thiserror::Error;
use wire::v1::Base;

use crate::copying::{DIRECTORY, make_directory, make_file, times};
use crate::sys;
use crate::tree::{MAX_DEPTH, TreeFailure, hash_entry};
use crate::tree_stream::{Entry, FORMAT, Kind};

/// Bytes that are read at a time.
const PIECE: usize = 256 * 1024;
/// Length of the longest target of a link, bytes (`PATH_MAX` without its end).
const MOST_OF_LINK: u64 = 4_095;

/// The reason why a base was not received, fit for a client.
#[derive(Debug, Error)]
pub(crate) enum ReceiveFailure {
    /// It ended, or its other end, the daemon, broke it off.
    #[error("the stream ended before the base was complete")]
    Cut,
    #[error("the stream is not that of a base: {0}")]
    Form(&'static str),
    #[error(transparent)]
    Tree(#[from] TreeFailure),
}

/// Fills the workspace, which is empty, with the tree of a stream. Returns its digest and size.
pub(crate) fn receive(stream: OwnedFd, most: TreeBounds) -> Result<Base, ReceiveFailure> {
    receive_in(File::from(stream), Path::new("/workspace"), most, sys::is_abandoned)
}

fn receive_in(
    stream: impl Read,
    into: &Path,
    most: TreeBounds,
    is_abandoned: fn() -> bool,
) -> Result<Base, ReceiveFailure> {
    let top = open(into, DIRECTORY, Mode::empty()).map_err(|errno| TreeFailure::Start(errno.into()))?;
    let mut receiver = Receiver {
        input: io::BufReader::with_capacity(PIECE, stream),
        most,
        is_abandoned,
        hash: Digest::default(),
        path: Vec::new(),
        buffer: vec![0; PIECE],
        found: Base::default(),
    };
    receiver.all(top)?;
    let Receiver { hash, mut found, .. } = receiver;
    found.digest = hash.hex();
    Ok(found)
}

/// A directory whose end has not come.
struct Level {
    handle: OwnedFd,
    mode: u32,
    modified: (i64, u32),
    /// Length of its path.
    path: usize,
    /// The latest name in it.
    latest: Option<EntryName>,
}

struct Receiver<R> {
    input: R,
    most: TreeBounds,
    /// Returns true if the daemon that asked for this is gone.
    is_abandoned: fn() -> bool,
    hash: Digest,
    /// Relative path of the present name.
    path: Vec<u8>,
    buffer: Vec<u8>,
    found: Base,
}

impl<R: Read> Receiver<R> {
    fn all(&mut self, top: OwnedFd) -> Result<(), ReceiveFailure> {
        let mut format = [0; FORMAT.len()];
        self.input.read_exact(&mut format).map_err(|_| ReceiveFailure::Cut)?;
        if format != *FORMAT {
            return Err(ReceiveFailure::Form("it begins with another format"));
        }
        let first = self.entry()?;
        if first.kind != Kind::Directory || !first.name.is_empty() {
            return Err(ReceiveFailure::Form("it does not begin with a directory"));
        }
        let mut levels = vec![self.begin(top, &first)];
        while let Some(level) = levels.last_mut() {
            let entry = self.entry()?;
            if entry.kind == Kind::Up {
                self.end(level)?;
                levels.pop();
                continue;
            }
            let name = next_name(level, &entry.name)?;
            self.path.truncate(level.path);
            if level.path > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.as_bytes());
            match entry.kind {
                Kind::File => self.file(&level.handle, &name, &entry)?,
                Kind::Link => self.link(&level.handle, &name, &entry)?,
                Kind::Directory | Kind::Up => {
                    let made = make_directory(&level.handle, &name);
                    let handle = made.map_err(|error| self.write_failure(error))?;
                    let inner = self.begin(handle, &entry);
                    if levels.len() > MAX_DEPTH {
                        return Err(ReceiveFailure::Form("its directories are nested too deeply"));
                    }
                    levels.push(inner);
                }
            }
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(ReceiveFailure::Form("more follows its end")),
            Err(_) => Err(ReceiveFailure::Cut),
        }
    }

    fn entry(&mut self) -> Result<Entry, ReceiveFailure> {
        if (self.is_abandoned)() {
            // The next daemon may be about to remove the tree.
            sys::exit_now(1);
        }
        let entry = Entry::read(&mut self.input).map_err(|_| ReceiveFailure::Cut)?;
        let entry = entry.ok_or(ReceiveFailure::Form("an entry has values that no base has"))?;
        if entry.kind != Kind::Up {
            self.found.files += 1;
            if self.found.files > self.most.files {
                return Err(TreeFailure::Files(self.most.files).into());
            }
        }
        let has_rest = matches!(entry.kind, Kind::File | Kind::Link);
        if !has_rest && entry.rest > 0 {
            return Err(ReceiveFailure::Form("a directory has a content"));
        }
        if entry.kind == Kind::Up && entry != Entry::up() {
            return Err(ReceiveFailure::Form("the end of a directory has values"));
        }
        Ok(entry)
    }

    fn begin(&mut self, handle: OwnedFd, entry: &Entry) -> Level {
        hash_entry(&mut self.hash, (Kind::Directory.byte(), entry.mode), &self.path, &[]);
        let Entry { mode, modified, .. } = *entry;
        Level { handle, mode, modified, path: self.path.len(), latest: None }
    }

    /// Sets the mode and the time of a directory that has all of its names.
    fn end(&mut self, level: &Level) -> Result<(), ReceiveFailure> {
        self.path.truncate(level.path);
        let set = fchmod(&level.handle, Mode::from_raw_mode(level.mode))
            .and_then(|()| futimens(&level.handle, &times(level.modified)));
        Ok(set.map_err(|errno| self.write_failure(errno.into()))?)
    }

    fn file(&mut self, into: &OwnedFd, name: &EntryName, entry: &Entry) -> Result<(), ReceiveFailure> {
        self.found.size_bytes = self.found.size_bytes.saturating_add(entry.rest);
        if self.found.size_bytes > self.most.bytes {
            return Err(TreeFailure::Bytes(self.most.bytes).into());
        }
        let mut file = make_file(into, name).map_err(|error| self.write_failure(error))?;
        let (mut left, mut content) = (entry.rest, Digest::default());
        while left > 0 {
            let space = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let read = match self.input.read(&mut self.buffer[..space]) {
                Ok(0) => return Err(ReceiveFailure::Cut),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(ReceiveFailure::Cut),
            };
            left -= read as u64;
            content.update(&self.buffer[..read]);
            file.write_all(&self.buffer[..read]).map_err(|error| self.write_failure(error))?;
        }
        let set = fchmod(&file, Mode::from_raw_mode(entry.mode))
            .and_then(|()| futimens(&file, &times(entry.modified)));
        set.map_err(|errno| self.write_failure(errno.into()))?;
        let hash = content.hex();
        hash_entry(&mut self.hash, (Kind::File.byte(), entry.mode), &self.path, hash.as_bytes());
        Ok(())
    }

    fn link(&mut self, into: &OwnedFd, name: &EntryName, entry: &Entry) -> Result<(), ReceiveFailure> {
        if entry.mode != 0 || !(1..=MOST_OF_LINK).contains(&entry.rest) {
            return Err(ReceiveFailure::Form("a link has a mode, or no target that a link can have"));
        }
        let mut target = Vec::new();
        let mut rest = (&mut self.input).take(entry.rest);
        rest.read_to_end(&mut target).map_err(|_| ReceiveFailure::Cut)?;
        if (target.len() as u64) < entry.rest {
            return Err(ReceiveFailure::Cut);
        }
        if target.contains(&0) {
            return Err(ReceiveFailure::Form("the target of a link has a zero byte"));
        }
        let made = symlinkat(target.as_slice(), into, name.as_bytes()).and_then(|()| {
            utimensat(into, name.as_bytes(), &times(entry.modified), AtFlags::SYMLINK_NOFOLLOW)
        });
        made.map_err(|errno| self.write_failure(errno.into()))?;
        hash_entry(&mut self.hash, (Kind::Link.byte(), 0), &self.path, &target);
        Ok(())
    }

    fn write_failure(&self, error: io::Error) -> TreeFailure {
        let path = match self.path.as_slice() {
            b"" => "the directory".to_owned(),
            path => excerpt(&String::from_utf8_lossy(path)),
        };
        TreeFailure::Write { path, error }
    }
}

/// Returns the name of an entry, and notes it as the latest one of its directory.
fn next_name(level: &mut Level, name: &[u8]) -> Result<EntryName, ReceiveFailure> {
    let name = EntryName::new(name).filter(|name| !name.is_temporary());
    let name =
        name.ok_or(ReceiveFailure::Form("a name is none, leads elsewhere, or is of the daemon alone"))?;
    if level.latest.as_ref().is_some_and(|latest| *latest >= name) {
        return Err(ReceiveFailure::Form("names are not in their order, or one comes twice"));
    }
    level.latest = Some(name.clone());
    Ok(name)
}

#[cfg(test)]
mod tests;
