//! Interface to the disk for the writer. Tests replace it with a disk that fails at any operation, loses power, and reports wrong content
//! after a failed fsync as real disks do.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::lines::ReadAt;
use crate::segment::{self, Segment, SegmentName};

/// A directory of segments that one writer uses.
pub(crate) trait Storage: Send {
    /// Returns the segments in the order of the log.
    fn segments(&mut self) -> io::Result<Vec<Segment>>;
    /// Creates a segment that does not exist yet.
    fn create(&mut self, name: SegmentName) -> io::Result<Box<dyn SegmentFile>>;
    /// Opens a segment for reading and writing.
    fn open(&mut self, name: SegmentName) -> io::Result<Box<dyn SegmentFile>>;
    /// Opens a segment for reading, in its present form.
    fn read(&mut self, segment: Segment) -> io::Result<Box<dyn ReadAt + Send>>;
    /// Makes the names of the segments durable.
    fn sync_names(&mut self) -> io::Result<()>;
    /// Writes a small file beside the segments, atomically and durably. It replaces a file of the same name.
    fn store(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Reads such a file. The part after [`LONGEST_FILE`] is cut off.
    fn load(&mut self, name: &str) -> io::Result<Option<Vec<u8>>>;
}

/// Length of the longest file beside the segments that the log itself reads, in bytes.
pub(crate) const LONGEST_FILE: u64 = 256 * 1024;

/// Does the work of [`Storage::store`] in a directory of the file system.
pub(crate) fn store(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = dir.join(name);
    let parent = path.parent().unwrap_or(dir);
    if !parent.is_dir() {
        DirBuilder::new().mode(0o700).create(parent)?;
        File::open(dir)?.sync_all()?;
    }
    let temporary = dir.join("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, &path)?;
    File::open(parent)?.sync_all()
}

/// Does the work of [`Storage::load`] in a directory of the file system.
pub(crate) fn load(dir: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match File::open(dir.join(name)) {
        Ok(file) => file.take(LONGEST_FILE).read_to_end(&mut bytes).map(|_| Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A segment that is open for writing.
pub(crate) trait SegmentFile: ReadAt + Send {
    fn length(&mut self) -> io::Result<u64>;
    /// Writes some of `bytes` at `offset` and returns their number.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Makes the written data and the length durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl ReadAt for Box<dyn ReadAt + Send> {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buffer, offset)
    }
}

impl ReadAt for Box<dyn SegmentFile> {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buffer, offset)
    }
}

/// A locked directory of the file system.
pub(crate) struct Disk {
    dir: PathBuf,
    /// File whose lock is held until it is closed.
    _lock: File,
}

/// Reason why a directory cannot be locked.
#[derive(Debug)]
pub(crate) enum ClaimError {
    /// Another writer uses the directory.
    Locked,
    Io(io::Error),
}

impl From<io::Error> for ClaimError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Disk {
    /// Creates the directory (mode 0700) if it is missing, and locks it.
    pub(crate) fn claim(dir: &Path) -> Result<Self, ClaimError> {
        if !dir.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir: dir.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(ClaimError::Locked),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options
    }
}

impl Storage for Disk {
    fn segments(&mut self) -> io::Result<Vec<Segment>> {
        segment::list(&self.dir)
    }

    fn create(&mut self, name: SegmentName) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(Self::options().create_new(true).open(name.path(&self.dir))?))
    }

    fn open(&mut self, name: SegmentName) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(Self::options().open(name.path(&self.dir))?))
    }

    fn read(&mut self, segment: Segment) -> io::Result<Box<dyn ReadAt + Send>> {
        Ok(Box::new(segment.open(&self.dir)?))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn store(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        store(&self.dir, name, bytes)
    }

    fn load(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        load(&self.dir, name)
    }
}

impl SegmentFile for File {
    fn length(&mut self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data() // fdatasync flushes the length as well, because it is needed to read the data back
    }
}
