//! The text of a file: all of it at once, or block by block.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek as _};

use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink};
use jail::RegularFile;

/// Text that can be searched repeatedly from its beginning.
///
/// An error means that the search did not reach the end: a line is too long, the file cannot be read, or the source was stopped.
pub(super) trait Source {
    fn search(
        &mut self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        sink: impl Sink<Error = io::Error>,
    ) -> io::Result<()>;
}

/// Whole file in memory.
pub(super) struct Whole<'a>(&'a [u8]);

impl<'a> Whole<'a> {
    /// Reads the file into a buffer of its size when it was opened. The file may have become shorter.
    pub(super) fn read(mut file: &File, into: &'a mut [u8]) -> io::Result<Self> {
        let mut length = 0;
        while length < into.len() {
            match file.read(&mut into[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(&into[..length]))
    }
}

impl Source for Whole<'_> {
    fn search(
        &mut self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        sink: impl Sink<Error = io::Error>,
    ) -> io::Result<()> {
        searcher.search_slice(matcher, self.0, sink)
    }
}

/// File that is read block by block, with a check before each block.
pub(super) struct Blocks<'a, G, H> {
    file: &'a RegularFile,
    block: usize,
    go_on: G,
    /// Error that the check returned, if it did.
    pub(super) halted: Option<H>,
}

impl<'a, G: Fn() -> Result<(), H>, H> Blocks<'a, G, H> {
    pub(super) const fn new(file: &'a RegularFile, block: usize, go_on: G) -> Self {
        Self { file, block, go_on, halted: None }
    }
}

impl<G: Fn() -> Result<(), H>, H> Source for Blocks<'_, G, H> {
    fn search(
        &mut self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        sink: impl Sink<Error = io::Error>,
    ) -> io::Result<()> {
        let mut file = &self.file.file;
        file.rewind()?;
        // Bytes that are appended meanwhile belong to a later state. The limit also ends a file that grows forever.
        let text = Asking { file: file.take(self.file.meta.size), blocks: self };
        searcher.search_reader(matcher, text, sink)
    }
}

struct Asking<'a, 'b, G, H> {
    file: io::Take<&'a File>,
    blocks: &'a mut Blocks<'b, G, H>,
}

impl<G: Fn() -> Result<(), H>, H> Read for Asking<'_, '_, G, H> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Err(halt) = (self.blocks.go_on)() {
            self.blocks.halted = Some(halt);
            return Err(ErrorKind::Other.into());
        }
        let most = into.len().min(self.blocks.block);
        self.file.read(&mut into[..most])
    }
}
