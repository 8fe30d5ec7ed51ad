//! Copies the directory that becomes a base or a part of a checkpoint, sends the tree of a base, and computes the digest of a tree.
//!
//! The digest is SHA-256 over one entry for each name, from the topmost directory down. The names of a directory are in the order of
//! their bytes, and an entry is followed by the entries of the names in it:
//!
//! ```text
//! kind: d, f, l, s, w or o (1) │ mode (4) │ length of the path (8) │ path │ length of the rest (8) │ rest
//! ```
//!
//! Numbers are big-endian. The path is relative, and empty for the topmost directory. The rest is a file's SHA-256, hexadecimal, or the
//! target of a link. A deleted name of a layer is a `w`. A directory of a layer that hides the one beneath is a `d` and an `o`. So
//! names of any bytes count, and owners, times and extended attributes do not.
//!
//! An agent may have written the source. It is walked name by name on open directories, no link is followed, and only regular files
//! and directories are opened, as the owner of the source. A copy has the permission bits and the times. It has no set-id bits, no
//! extended attributes and no hard links: the marks of an overlay that somebody planted are not in it. FIFOs, sockets and devices are
//! counted and left out. Mount points that the engine makes in the layer of a root are left out as well. Any other name that cannot be
//! read ends the copy, because its base would lack files without a word.
//!
//! A checkpoint also has names that the owner has made unreadable: an agent must not prevent the checkpoints of its run. Therefore the
//! process may read them (`setup`, `copying.rs`).

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use host_launch::{Marks, TreeBounds};
use jail::{Dir, EntryName, FileKind, Metadata, Mount, OpenError, OpenErrorKind, Root};
use operations::Digest;
use rustix::fs::{AtFlags, Mode, fchmod, fstat, futimens, open, symlinkat, utimensat};
use rustix::process::geteuid;
use text::excerpt;
use thiserror::Error;
use wire::v1::Base;

use crate::copying::{
    DIRECTORY, ENTERED, by_kernel, check_open, make_directory, make_file, open_dir, open_file, times,
};
use crate::fill::MOST_MARKS;
use crate::tree_stream::{Entry, FORMAT, Kind};
use crate::{layer, sys};

/// Most levels of directories, as in an overlay's changes.
pub(crate) const MAX_DEPTH: usize = 128;
/// Bytes that are read at a time.
const PIECE: usize = 256 * 1024;

/// The reason why there is no copy or no digest, fit for a client.
#[derive(Debug, Error)]
pub(crate) enum TreeFailure {
    #[error("the directory cannot be opened: {0}")]
    Start(#[from] io::Error),
    #[error("{path}: {kind}")]
    Open { path: String, kind: OpenErrorKind },
    #[error("{path} cannot be read: {error}")]
    Read { path: String, error: io::Error },
    #[error("{path} cannot be written: {error}")]
    Write { path: String, error: io::Error },
    #[error("there are more than {0} files, directories and links")]
    Files(u64),
    #[error("the files are larger than {} MiB in all", .0 >> 20)]
    Bytes(u64),
    #[error("the paths of deleted names and special files take more than {} MiB", MOST_MARKS >> 20)]
    Marks,
    #[error("{path} changed while it was read")]
    Changed { path: String },
    #[error("the files cannot be sent: {0}")]
    Send(io::Error),
    #[error("{path}: directories are nested deeper than {MAX_DEPTH} levels")]
    Deep { path: String },
}

/// Copies the source into the workspace, which is empty, and returns the copy's digest and size.
pub(crate) fn copy(most: TreeBounds) -> Result<Base, TreeFailure> {
    walk(Path::new("/source"), Some(Path::new("/workspace")), most, sys::is_abandoned)
}

/// Returns the digest and the size of the source.
pub(crate) fn digest(most: TreeBounds) -> Result<Base, TreeFailure> {
    walk(Path::new("/source"), None, most, sys::is_abandoned)
}

/// Sends the source, and returns its digest and its size.
pub(crate) fn send(stream: OwnedFd, most: TreeBounds) -> Result<Base, TreeFailure> {
    send_from(Path::new("/source"), &mut File::from(stream), most, sys::is_abandoned)
}

pub(crate) fn send_from(
    from: &Path,
    stream: &mut dyn io::Write,
    most: TreeBounds,
    is_abandoned: fn() -> bool,
) -> Result<Base, TreeFailure> {
    let mut stream = BufWriter::with_capacity(PIECE, stream);
    stream.write_all(FORMAT).map_err(TreeFailure::Send)?;
    let (found, _) = walk_to(from, (None, Some(&mut stream)), most, Marks::Ignored, is_abandoned)?;
    stream.flush().map_err(TreeFailure::Send)?;
    Ok(found)
}

fn walk(
    from: &Path,
    into: Option<&Path>,
    most: TreeBounds,
    is_abandoned: fn() -> bool,
) -> Result<Base, TreeFailure> {
    walk_with(from, into, most, Marks::Ignored, is_abandoned).map(|(found, _)| found)
}

/// Walks the tree, and returns what was found and the list of its marks.
pub(crate) fn walk_with(
    from: &Path,
    into: Option<&Path>,
    most: TreeBounds,
    marks: Marks,
    is_abandoned: fn() -> bool,
) -> Result<(Base, Vec<u8>), TreeFailure> {
    walk_to(from, (into, None), most, marks, is_abandoned)
}

/// Walks the tree, and copies or sends it.
fn walk_to(
    from: &Path,
    (into, stream): (Option<&Path>, Option<&mut dyn io::Write>),
    most: TreeBounds,
    marks: Marks,
    is_abandoned: fn() -> bool,
) -> Result<(Base, Vec<u8>), TreeFailure> {
    // The mount's name makes no difference: messages have relative paths.
    let from = Root::open(Mount::Project, from)?;
    let into = into.map(|into| open(into, DIRECTORY, Mode::empty())).transpose().map_err(io::Error::from)?;
    let mut walk = Walk {
        most,
        is_abandoned,
        hash: Digest::default(),
        path: Vec::new(),
        pending: 0,
        marks,
        listed: Vec::new(),
        buffer: vec![0; PIECE],
        stream,
        found: Base { files: 1, ..Base::default() },
    };
    let top = from.top().map_err(|error| walk.open_failure(error))?;
    check_open(&top, ENTERED).map_err(|kind| TreeFailure::Open { path: walk.shown(), kind })?;
    walk.directory(&top, into.as_ref(), 0)?;
    let Walk { hash, mut found, listed, .. } = walk;
    found.digest = hash.hex();
    Ok((found, listed))
}

struct Walk<'s> {
    most: TreeBounds,
    /// Returns true if the daemon that asked for this is gone.
    is_abandoned: fn() -> bool,
    hash: Digest,
    /// Relative path of the present name.
    path: Vec<u8>,
    /// Names that were listed and not walked yet, at all levels.
    pending: u64,
    marks: Marks,
    /// The list of marks.
    listed: Vec<u8>,
    buffer: Vec<u8>,
    /// Stream to which the tree is sent.
    stream: Option<&'s mut dyn io::Write>,
    found: Base,
}

impl Walk<'_> {
    fn directory(&mut self, from: &Dir, into: Option<&OwnedFd>, depth: usize) -> Result<(), TreeFailure> {
        if depth > MAX_DEPTH {
            return Err(TreeFailure::Deep { path: self.shown() });
        }
        let stat = fstat(from).map_err(|errno| self.read_failure(errno.into()))?;
        let mode = kept(stat.st_mode, into);
        let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let modified = (stat.st_mtime, nanos);
        self.entry(b'd', mode, &[]);
        self.begin(Kind::Directory, mode, modified, 0)?;
        if self.marks == Marks::Listed && layer::is_opaque(from) {
            self.mark(b'o')?;
        }
        let names = self.names(from)?;
        self.pending += names.len() as u64;
        for name in names {
            self.pending -= 1;
            let above = self.path.len();
            if above > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.as_bytes());
            self.name(from, &name, into, depth)?;
            self.path.truncate(above);
        }
        self.pass(&Entry::up())?;
        if let Some(into) = into {
            let set = fchmod(into, Mode::from_raw_mode(mode)).and_then(|()| futimens(into, &times(modified)));
            set.map_err(|errno| self.write_failure(errno.into()))?;
        }
        Ok(())
    }

    /// Returns the names in a directory, in the order of their bytes.
    ///
    /// The names that wait at all levels are within the bound together, so memory is bounded, too.
    fn names(&self, from: &Dir) -> Result<Vec<EntryName>, TreeFailure> {
        let mut names = Vec::new();
        let others = self.found.files.saturating_add(self.pending);
        for entry in from.entries().map_err(|error| self.open_failure(error))? {
            names.push(entry.map_err(|error| self.open_failure(error))?.name);
            if others.saturating_add(names.len() as u64) > self.most.files {
                return Err(TreeFailure::Files(self.most.files));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn name(
        &mut self,
        from: &Dir,
        name: &EntryName,
        into: Option<&OwnedFd>,
        depth: usize,
    ) -> Result<(), TreeFailure> {
        if (self.is_abandoned)() {
            // The next daemon may be about to remove the copy.
            sys::exit_now(1);
        }
        // A temporary file of the daemon was never complete.
        if into.is_some() && name.is_temporary() {
            return Ok(());
        }
        let meta = from.metadata(name).map_err(|error| self.open_failure(error))?;
        if self.marks == Marks::Listed && layer::is_whiteout(from, name, &meta) {
            self.count()?;
            return self.mark(b'w');
        }
        if self.is_mount_point(&meta) {
            return Ok(());
        }
        if !matches!(meta.kind, FileKind::File | FileKind::Directory | FileKind::Symlink) {
            self.found.left_out += 1;
            if self.found.left_out > self.most.files {
                return Err(TreeFailure::Files(self.most.files));
            }
            if self.marks == Marks::Listed {
                // A restore removes it.
                self.list(b's')?;
            }
            if into.is_none() {
                // A copy has none, so somebody has put it there.
                self.entry(b's', kept(meta.mode, into), &[]);
            }
            return Ok(());
        }
        self.count()?;
        match meta.kind {
            FileKind::File => self.file(from, name, into),
            FileKind::Symlink => self.link(from, name, &meta, into),
            _ => {
                let inner = open_dir(from, name).map_err(|error| self.open_failure(error))?;
                let copy = into.map(|into| make_directory(into, name)).transpose();
                let copy = copy.map_err(|error| self.write_failure(error))?;
                self.directory(&inner, copy.as_ref(), depth + 1)
            }
        }
    }

    /// Returns true for a mount point, such as `/etc/hosts`, that the engine has made in the layer of a root: an empty file of another
    /// user, which the run cannot read. Each container gets it anew.
    fn is_mount_point(&self, meta: &Metadata) -> bool {
        let is_closed = meta.uid != geteuid().as_raw() && meta.mode & 0o004 == 0;
        self.marks == Marks::Listed && meta.kind == FileKind::File && meta.size == 0 && is_closed
    }

    fn file(&mut self, from: &Dir, name: &EntryName, into: Option<&OwnedFd>) -> Result<(), TreeFailure> {
        let mut opened = open_file(from, name).map_err(|error| self.open_failure(error))?;
        // A sparse file takes no space in the source, and its copy would.
        if opened.meta.size > self.most.bytes.saturating_sub(self.found.size_bytes) {
            return Err(TreeFailure::Bytes(self.most.bytes));
        }
        let mode = kept(opened.meta.mode, into);
        let copy = into.map(|into| make_file(into, name)).transpose();
        let mut copy = copy.map_err(|error| self.write_failure(error))?;
        // One byte more than may be there is found below.
        let left = self.most.bytes.saturating_sub(self.found.size_bytes).saturating_add(1);
        let shared = copy.as_ref().map(|copy| by_kernel(&opened.file, copy, left)).transpose();
        let is_copied = shared.map_err(|error| self.write_failure(error))?.unwrap_or(false);
        let before = self.found.size_bytes;
        self.begin(Kind::File, mode, opened.meta.modified, opened.meta.size)?;
        let mut content = Digest::default();
        loop {
            // The digest is that of the copy, whatever happens to the source meanwhile.
            let from = copy.as_mut().filter(|_| is_copied).unwrap_or(&mut opened.file);
            let read = match from.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.read_failure(error)),
            };
            self.found.size_bytes = self.found.size_bytes.saturating_add(read as u64);
            if self.found.size_bytes > self.most.bytes {
                return Err(TreeFailure::Bytes(self.most.bytes));
            }
            content.update(&self.buffer[..read]);
            if let Some(stream) = &mut self.stream {
                stream.write_all(&self.buffer[..read]).map_err(TreeFailure::Send)?;
            }
            if let Some(copy) = copy.as_mut().filter(|_| !is_copied) {
                copy.write_all(&self.buffer[..read]).map_err(|error| self.write_failure(error))?;
            }
        }
        if self.stream.is_some() && self.found.size_bytes - before != opened.meta.size {
            // Its length was sent before.
            return Err(TreeFailure::Changed { path: self.shown() });
        }
        if let Some(copy) = &copy {
            let set = fchmod(copy, Mode::from_raw_mode(mode))
                .and_then(|()| futimens(copy, &times(opened.meta.modified)));
            set.map_err(|errno| self.write_failure(errno.into()))?;
        }
        self.entry(b'f', mode, content.hex().as_bytes());
        Ok(())
    }

    fn link(
        &mut self,
        from: &Dir,
        name: &EntryName,
        meta: &Metadata,
        into: Option<&OwnedFd>,
    ) -> Result<(), TreeFailure> {
        let target = from.read_link(name).map_err(|error| self.open_failure(error))?;
        if let Some(into) = into {
            let made = symlinkat(target.as_slice(), into, name.as_bytes()).and_then(|()| {
                utimensat(into, name.as_bytes(), &times(meta.modified), AtFlags::SYMLINK_NOFOLLOW)
            });
            made.map_err(|errno| self.write_failure(errno.into()))?;
        }
        // The kernel ignores the mode of a link, and file systems differ in it.
        self.entry(b'l', 0, &target);
        self.begin(Kind::Link, 0, meta.modified, target.len() as u64)?;
        if let Some(stream) = &mut self.stream {
            stream.write_all(&target).map_err(TreeFailure::Send)?;
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), TreeFailure> {
        self.found.files += 1;
        if self.found.files > self.most.files {
            return Err(TreeFailure::Files(self.most.files));
        }
        Ok(())
    }

    /// Lists a mark at the present name.
    fn mark(&mut self, kind: u8) -> Result<(), TreeFailure> {
        self.entry(kind, 0, &[]);
        self.list(kind)
    }

    /// Adds the present name to the list of marks, which takes memory and then a file.
    fn list(&mut self, kind: u8) -> Result<(), TreeFailure> {
        let length = (self.listed.len() + self.path.len() + 2) as u64;
        if length > MOST_MARKS {
            return Err(TreeFailure::Marks);
        }
        if length > self.most.bytes.saturating_sub(self.found.size_bytes) {
            return Err(TreeFailure::Bytes(self.most.bytes));
        }
        self.listed.push(kind);
        self.listed.extend_from_slice(&self.path);
        self.listed.push(0);
        Ok(())
    }

    fn entry(&mut self, kind: u8, mode: u32, rest: &[u8]) {
        hash_entry(&mut self.hash, (kind, mode), &self.path, rest);
    }

    /// Sends the present name, whose rest follows.
    fn begin(&mut self, kind: Kind, mode: u32, modified: (i64, u32), rest: u64) -> Result<(), TreeFailure> {
        let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        self.pass(&Entry { kind, mode, modified, name, rest })
    }

    fn pass(&mut self, entry: &Entry) -> Result<(), TreeFailure> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        entry.write(*stream).map_err(TreeFailure::Send)
    }

    fn shown(&self) -> String {
        if self.path.is_empty() {
            return "the directory".to_owned();
        }
        excerpt(&String::from_utf8_lossy(&self.path))
    }

    fn open_failure(&self, error: OpenError) -> TreeFailure {
        TreeFailure::Open { path: self.shown(), kind: error.kind }
    }

    fn read_failure(&self, error: io::Error) -> TreeFailure {
        TreeFailure::Read { path: self.shown(), error }
    }

    fn write_failure(&self, error: io::Error) -> TreeFailure {
        TreeFailure::Write { path: self.shown(), error }
    }
}

/// Adds the entry of a name to the digest of its tree.
pub(crate) fn hash_entry(hash: &mut Digest, (kind, mode): (u8, u32), path: &[u8], rest: &[u8]) {
    hash.update(&[kind]);
    hash.update(&mode.to_be_bytes());
    for part in [path, rest] {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
}

/// Returns the mode that counts: a copy has permission bits only.
fn kept(mode: u32, into: Option<&OwnedFd>) -> u32 {
    mode & if into.is_some() { 0o777 } else { 0o7777 }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use rustix::fs::{CWD, XattrFlags, lsetxattr, mkfifoat};

    use super::*;

    const ALL: TreeBounds = TreeBounds { bytes: u64::MAX, files: u64::MAX };

    fn walked(from: &Path, into: Option<&Path>, most: TreeBounds) -> Result<Base, TreeFailure> {
        walk(from, into, most, || false)
    }

    /// A directory with one name of each kind, and an empty one for its copy.
    fn trees() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let (from, into) = (place.path().join("from"), place.path().join("into"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::create_dir(&into).unwrap();
        fs::write(from.join("a/file"), "content").unwrap();
        fs::write(from.join("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(from.join("run.sh"), Permissions::from_mode(0o4755)).unwrap();
        fs::write(from.join(OsStr::from_bytes(b"name-\xff\n")), "bytes").unwrap();
        symlink("/etc/passwd", from.join("link")).unwrap();
        (place, from, into)
    }

    #[test]
    fn a_copy_has_names_contents_modes_and_links_and_the_digest_of_its_source() {
        let (_place, from, into) = trees();
        let copy = walked(&from, Some(&into), ALL).unwrap();
        let again = walked(&into, None, ALL).unwrap();
        assert_eq!((&copy.digest, copy.files, copy.size_bytes), (&again.digest, 7, 7 + 10 + 5));
        assert_eq!(copy.digest.len(), 64);
        assert_eq!(fs::read(into.join("a/file")).unwrap(), b"content");
        assert_eq!(fs::read(into.join(OsStr::from_bytes(b"name-\xff\n"))).unwrap(), b"bytes");
        assert_eq!(fs::read_link(into.join("link")).unwrap(), Path::new("/etc/passwd"));
        let mode = fs::metadata(into.join("run.sh")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o755, "no set-id bit");
        let modified = |path: &Path| fs::metadata(path.join("a/file")).unwrap().mtime_nsec();
        assert_eq!(modified(&from), modified(&into));
    }

    #[test]
    fn every_change_of_a_tree_changes_its_digest_and_its_times_do_not() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 7] = [
            ("content", |tree| fs::write(tree.join("a/file"), "Content").unwrap()),
            ("name", |tree| fs::rename(tree.join("a/file"), tree.join("a/fils")).unwrap()),
            ("place", |tree| fs::rename(tree.join("a/file"), tree.join("a/b/file")).unwrap()),
            ("mode", |tree| fs::set_permissions(tree.join("a"), Permissions::from_mode(0o700)).unwrap()),
            ("link", |tree| {
                fs::remove_file(tree.join("link")).unwrap();
                symlink("/etc/shadow", tree.join("link")).unwrap();
            }),
            ("an empty directory", |tree| fs::create_dir(tree.join("a/c")).unwrap()),
            ("a FIFO", |tree| mkfifoat(CWD, tree.join("fifo"), Mode::RWXU).unwrap()),
        ];
        for (what, change) in changes {
            let (_place, from, _) = trees();
            let before = walked(&from, None, ALL).unwrap().digest;
            fs::write(from.join("a/file"), "content").unwrap();
            assert_eq!(walked(&from, None, ALL).unwrap().digest, before, "written again");
            change(&from);
            assert_ne!(walked(&from, None, ALL).unwrap().digest, before, "{what}");
        }
    }

    #[test]
    fn special_files_and_planted_marks_are_not_copied() {
        let (_place, from, into) = trees();
        mkfifoat(CWD, from.join("a/fifo"), Mode::RWXU).unwrap();
        fs::write(from.join(".cofferdam-tmp-00112233445566778899aabbccddeeff"), "half").unwrap();
        let planted = lsetxattr(from.join("a"), "user.overlay.opaque", b"y", XattrFlags::empty()).is_ok();
        let made = walked(&from, Some(&into), ALL).unwrap();
        assert_eq!((made.files, made.left_out), (7, 1));
        assert!(!into.join("a/fifo").exists());
        assert_eq!(fs::read_dir(&into).unwrap().count(), 4, "no temporary file");
        if planted {
            let mut value = [0_u8; 1];
            let found = rustix::fs::lgetxattr(into.join("a"), "user.overlay.opaque", &mut value);
            assert!(found.is_err(), "the mark of an overlay was copied");
        }
    }

    #[test]
    fn bounds_hold_and_a_tree_that_is_too_deep_is_refused() {
        let (_place, from, into) = trees();
        let most = TreeBounds { files: 6, ..ALL };
        assert!(matches!(walked(&from, Some(&into), most), Err(TreeFailure::Files(6))));
        assert!(into.join("a").is_dir() && !into.join("a/b").exists(), "names of both levels count together");
        fs::remove_dir(into.join("a")).unwrap();
        assert_eq!(walked(&from, None, TreeBounds { files: 7, ..ALL }).unwrap().files, 7);
        let most = TreeBounds { bytes: 21, ..ALL };
        assert!(matches!(walked(&from, Some(&into), most), Err(TreeFailure::Bytes(21))));
        File::create(from.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let (_place, _, empty) = trees();
        let most = TreeBounds { bytes: 1 << 30, ..ALL };
        assert!(matches!(walked(&from, Some(&empty), most), Err(TreeFailure::Bytes(_))));
        assert!(!empty.join("sparse").exists(), "nothing of it was read");
        fs::remove_file(from.join("sparse")).unwrap();
        let deep: std::path::PathBuf = std::iter::repeat_n("d", MAX_DEPTH + 1).collect();
        fs::create_dir_all(from.join(deep)).unwrap();
        assert!(
            matches!(walked(&from, None, ALL), Err(TreeFailure::Deep { path }) if path.starts_with("d/d/"))
        );
    }
}
