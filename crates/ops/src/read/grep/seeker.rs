//! Searches one file after the other, on one thread.
//!
//! Most files have no match, so each is looked through first without counting its lines; the few that have one are
//! searched again with line numbers and context. A file that fits into a block is read with one system call and is seen
//! as it was at that moment.

use std::sync::atomic::{AtomicU64, Ordering};

use grep_matcher::LineTerminator;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use jail::RegularFile;

use super::matches::{First, Matches};
use super::pattern::Compiled;
use super::source::{Blocks, Source, Whole};
use crate::cancel::Stopped;
use crate::{Cancel, Grep, GrepMatch};

/// A file is searched up to its first line that is longer.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// What all threads of a search have in common.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub(super) grep: &'a Grep,
    pub(super) compiled: &'a Compiled,
    /// Bytes of text that fit into the answer.
    pub(super) room: usize,
    pub(super) cancel: &'a Cancel,
    /// The number, in path order, of the last file that can still matter.
    pub(super) last: &'a AtomicU64,
}

impl Order<'_> {
    /// Whether to go on with the file of that number.
    pub(super) fn wants(&self, number: u64) -> Result<(), Sought> {
        if self.last.load(Ordering::Relaxed) < number {
            return Err(Sought::Unwanted);
        }
        self.cancel.check().map_err(Sought::Stopped)
    }
}

/// What came of a file.
#[derive(Debug)]
pub(super) enum Sought {
    /// It is text.
    Searched {
        matches: Vec<GrepMatch>,
        /// There are more than fit into any answer.
        more: bool,
        /// It was not searched to its end.
        cut: bool,
    },
    /// It has NUL bytes.
    Binary,
    /// It cannot be opened.
    Unreadable,
    /// Nobody wants to know any more.
    Unwanted,
    /// The whole search has to stop.
    Stopped(Stopped),
}

impl Sought {
    const fn nothing(cut: bool) -> Self {
        Self::Searched { matches: Vec::new(), more: false, cut }
    }
}

/// One thread's tools.
pub(super) struct Seeker<'a> {
    order: Order<'a>,
    tools: Tools,
    block: Vec<u8>,
}

impl<'a> Seeker<'a> {
    pub(super) fn new(order: Order<'a>) -> Self {
        // A matcher is quickest on a thread that has it for itself.
        let matcher = order.compiled.matcher.clone();
        let by_line = order.compiled.by_line;
        let tools = Tools { matcher, first: builder(by_line).line_number(false).build(), all: None };
        Self { order, tools, block: vec![0; order.compiled.block] }
    }

    /// Searches the file of that number. `path` is for showing.
    pub(super) fn file(
        &mut self,
        number: u64,
        opened: &RegularFile,
        path: impl FnOnce() -> String,
    ) -> Sought {
        let size = usize::try_from(opened.meta.size).unwrap_or(usize::MAX);
        let Some(room) = self.block.get_mut(..size) else {
            let mut blocks = Blocks::new(opened, self.order.compiled.block, || self.order.wants(number));
            let sought = self.tools.seek(&mut blocks, &self.order, path);
            return blocks.halted.unwrap_or(sought);
        };
        if let Err(halted) = self.order.wants(number) {
            return halted;
        }
        match Whole::read(&opened.file, room) {
            Ok(mut whole) => self.tools.seek(&mut whole, &self.order, path),
            Err(_) => Sought::nothing(true),
        }
    }
}

struct Tools {
    matcher: RegexMatcher,
    first: Searcher,
    /// Made for the first file that has a match.
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
        let Order { grep, room, .. } = *order;
        let all = self.all.get_or_insert_with(|| {
            let (before, after) = (grep.before as usize, grep.after as usize);
            builder(order.compiled.by_line)
                .line_number(true)
                .before_context(before)
                .after_context(after)
                .build()
        });
        let path = path();
        let mut matches = Matches::new(&path, grep, room);
        let searched = text.search(all, &self.matcher, &mut matches);
        if matches.binary {
            return Sought::Binary;
        }
        // More of the same file is not wanted.
        let more = matches.more && !grep.one_per_file;
        Sought::Searched { matches: matches.found, more, cut: searched.is_err() }
    }
}

fn builder(by_line: bool) -> SearcherBuilder {
    let mut builder = SearcherBuilder::new();
    builder
        .line_terminator(if by_line { LineTerminator::crlf() } else { LineTerminator::byte(b'\n') })
        .binary_detection(BinaryDetection::quit(0))
        // A file that becomes shorter would end the process.
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_LINE_BYTES));
    builder
}
