//! Searches one file after the other, on one thread.
//!
//! Most files have no match, so each is first searched without counting its lines. The few files with a match are searched again with line
//! numbers and context. A file that fits into a block is read with one system call, and so is seen at one moment.

use std::sync::atomic::{AtomicU64, Ordering};

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use jail::RegularFile;
use operations::{Grep, GrepMatch};

use super::matches::{First, Matches};
use super::pattern::Compiled;
use super::source::{Blocks, Source, Whole};
use crate::Cancel;
use crate::cancel::Stopped;

/// Longest line. The search of a file ends at the first longer one.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Data that all threads of a search share.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) grep: &'a Grep,
    pub(super) compiled: &'a Compiled,
    /// Bytes of text that fit into the answer.
    pub(super) space: usize,
    pub(super) cancel: &'a Cancel,
    /// Number, in path order, of the last file that can still matter.
    pub(super) last: &'a AtomicU64,
}

impl Order<'_> {
    /// Returns an error if the file with this number should not be searched further.
    pub(super) fn wants(&self, number: u64) -> Result<(), Sought> {
        if self.last.load(Ordering::Relaxed) < number {
            return Err(Sought::Unwanted);
        }
        self.cancel.check().map_err(Sought::Stopped)
    }
}

/// Result of searching a file.
#[derive(Debug)]
pub(super) enum Sought {
    /// The file is text.
    Searched {
        matches: Vec<GrepMatch>,
        /// True if the file has more matches than fit into any answer.
        more: bool,
        /// True if the file was not searched to its end.
        cut: bool,
    },
    /// The file has NUL bytes.
    Binary,
    /// The file cannot be opened.
    Unreadable,
    /// The result is no longer needed.
    Unwanted,
    /// The whole search has to stop.
    Stopped(Stopped),
}

impl Sought {
    const fn nothing(cut: bool) -> Self {
        Self::Searched { matches: Vec::new(), more: false, cut }
    }
}

/// Tools of one thread.
pub(super) struct Seeker<'a> {
    order: Order<'a>,
    tools: Tools,
    block: Vec<u8>,
}

impl<'a> Seeker<'a> {
    pub(super) fn new(order: Order<'a>) -> Self {
        // A matcher is fastest if no other thread uses it.
        let matcher = order.compiled.matcher.clone();
        let by_line = order.compiled.by_line;
        let tools = Tools { matcher, first: builder(by_line).line_number(false).build(), all: None };
        Self { order, tools, block: vec![0; order.compiled.block] }
    }

    /// Searches the file with this number. `path` is for display.
    pub(super) fn file(
        &mut self,
        number: u64,
        opened: &RegularFile,
        path: impl FnOnce() -> String,
    ) -> Sought {
        let size = usize::try_from(opened.meta.size).unwrap_or(usize::MAX);
        let Some(space) = self.block.get_mut(..size) else {
            let mut blocks = Blocks::new(opened, self.order.compiled.block, || self.order.wants(number));
            let sought = self.tools.seek(&mut blocks, &self.order, path);
            return blocks.halted.unwrap_or(sought);
        };
        if let Err(halted) = self.order.wants(number) {
            return halted;
        }
        match Whole::read(&opened.file, space) {
            Ok(mut whole) => self.tools.seek(&mut whole, &self.order, path),
            Err(_) => Sought::nothing(true),
        }
    }
}

struct Tools {
    matcher: RegexMatcher,
    first: Searcher,
    /// Searcher that is made for the first file with a match.
    all: Option<Searcher>,
}

impl Tools {
    fn seek(&mut self, text: &mut impl Source, order: &Order<'_>, path: impl FnOnce() -> String) -> Sought {
        let mut first = First::default();
        let searched = text.search(&mut self.first, &self.matcher, &mut first);
        if first.binary {
            return Sought::Binary;
        }
        if !first.found {
            return Sought::nothing(searched.is_err());
        }
        let Order { grep, space, .. } = *order;
        let all = self.all.get_or_insert_with(|| {
            let (before, after) = (grep.before as usize, grep.after as usize);
            builder(order.compiled.by_line)
                .line_number(true)
                .before_context(before)
                .after_context(after)
                .build()
        });
        let path = path();
        let mut matches = Matches::new(&path, grep, space);
        let searched = text.search(all, &self.matcher, &mut matches);
        if matches.binary {
            return Sought::Binary;
        }
        // With one match per file, further ones are not wanted.
        let more = matches.more && !grep.one_per_file;
        Sought::Searched { matches: matches.found, more, cut: searched.is_err() }
    }
}

fn builder(by_line: bool) -> SearcherBuilder {
    let mut builder = SearcherBuilder::new();
    builder
        .line_terminator(if by_line { LineTerminator::crlf() } else { LineTerminator::byte(b'\n') })
        .binary_detection(BinaryDetection::quit(0))
        // With a memory map, a file that becomes shorter would kill the process.
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_LINE_BYTES));
    builder
}
