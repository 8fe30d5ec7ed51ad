//! Writes large contents to the disk past the page cache.
//!
//! Such a file is synced before it appears, so its pages in the cache would be filled only to be written at once. On a guest of a
//! hypervisor that reclaims free memory, filling them costs more than the disk does. If a file system has no direct I/O, or not for these
//! blocks, the ordinary way is used.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write as _};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Bytes of one write past the page cache, which waits for the disk.
const BLOCK: usize = 4 * 1024 * 1024;
/// Bytes of any other write.
const SMALL_BLOCK: usize = 1024 * 1024;
/// Alignment that direct I/O needs for address, offset and length: no disk has larger sectors.
const ALIGNMENT: usize = 4096;
/// Smallest content that is written directly. A smaller one stays in memory for its reader.
const LARGE: u64 = 16 * 1024 * 1024;

/// Buffer for a block, aligned for direct I/O.
pub(super) struct Block {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Block {
    /// Creates a buffer for content of `size` bytes in all.
    pub(super) fn new(size: u64) -> Self {
        let length = if size < LARGE { SMALL_BLOCK } else { BLOCK };
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start, length }
    }

    /// Reads the next block of the source. It is full except at the end.
    pub(super) fn read(&mut self, source: &mut impl Read) -> io::Result<&[u8]> {
        let block = &mut self.memory[self.start..self.start + self.length];
        let mut filled = 0;
        while filled < block.len() {
            match source.read(&mut block[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&block[..filled])
    }
}

/// New file that is written block by block from its beginning.
pub(super) struct Target<'f> {
    file: &'f mut File,
    is_direct: bool,
}

impl<'f> Target<'f> {
    /// Prepares to write content of `size` bytes in all.
    pub(super) fn new(file: &'f mut File, size: u64) -> Self {
        let is_direct = size >= LARGE
            && fcntl_getfl(&*file).and_then(|flags| fcntl_setfl(&*file, flags | OFlags::DIRECT)).is_ok();
        Self { file, is_direct }
    }

    /// Writes a block. After one that is no multiple of [`ALIGNMENT`], all writes go through the page cache.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !bytes.len().is_multiple_of(ALIGNMENT) {
            self.use_cache()?;
        }
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The file system accepts the flag but not the block.
                Err(error) if self.is_direct && Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    self.use_cache()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn use_cache(&mut self) -> io::Result<()> {
        if self.is_direct {
            let flags = fcntl_getfl(&*self.file)?;
            fcntl_setfl(&*self.file, flags.difference(OFlags::DIRECT))?;
            self.is_direct = false;
        }
        Ok(())
    }
}
