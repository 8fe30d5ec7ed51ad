//! `grep`: matching lines, by ripgrep's own libraries over the walk that glob uses.
//!
//! A pattern cannot hang it: the engine is linear in the text, a compiled pattern is bounded, and between two blocks
//! of a file it asks whether to stop.

use std::io::Read;
use std::ops::ControlFlow;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use jail::{FileKind, Jail, RegularFile};

use super::matches::Matches;
use super::pattern::Pattern;
use super::walk::{Rules, walk};
use crate::cancel::Stopped;
use crate::{Bounds, Cancel, Grep, GrepResult, OpResult, Outcome, Reason, ToolFailure};

/// Memory of the compiled pattern and of its automaton's cache.
const MAX_PATTERN_BYTES: usize = 4 * 1024 * 1024;
const MAX_CACHE_BYTES: usize = 4 * 1024 * 1024;
/// What is read, and so searched, between two questions whether to stop: small, since a pattern can cost a lot a byte.
const BLOCK: usize = 4 * 1024;
/// A file is searched up to its first line that is longer.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Searches a directory or one file, line by line.
pub fn grep(jail: &Jail, grep: &Grep, bounds: &Bounds, cancel: &Cancel) -> Outcome {
    let filter = grep.glob.as_deref().map(Pattern::compile).transpose()?;
    let mut search = Search::new(grep, bounds, cancel)?;
    let place = jail.readable(&grep.path)?;
    if place.metadata()?.kind != FileKind::Directory {
        let file = place.open_file()?;
        // There is no other file to go on to.
        let _ = search.file(&grep.path.to_string(), file);
        return search.result(Vec::new());
    }
    let (start, dir) = place.open_dir_resolved()?;
    let rules = Rules {
        hidden: grep.include_ignored || filter.as_ref().is_some_and(Pattern::names_hidden),
        ignored: grep.include_ignored,
        node_modules: grep.include_ignored,
    };
    let walked = walk(jail, &start, dir, rules, cancel, |visit| {
        if filter.as_ref().is_some_and(|filter| !filter.matches(visit.shown)) {
            return ControlFlow::Continue(());
        }
        let Ok(file) = visit.dir.open_file(visit.name) else {
            search.result.files_skipped += 1;
            return ControlFlow::Continue(());
        };
        search.file(&format!("{}/{}", grep.path, visit.shown), file)
    });
    search.stopped = search.stopped.or(walked.stopped);
    search.result.truncated |= walked.bounded;
    search.result(walked.hints())
}

struct Search<'a> {
    grep: &'a Grep,
    cancel: &'a Cancel,
    matcher: RegexMatcher,
    searcher: Searcher,
    /// Bytes of text that still fit into the answer.
    room: usize,
    /// Files with a line that is too long.
    cut: u64,
    /// There are more matches than fit.
    more: bool,
    stopped: Option<Stopped>,
    result: GrepResult,
}

impl<'a> Search<'a> {
    fn new(grep: &'a Grep, bounds: &Bounds, cancel: &'a Cancel) -> Result<Self, ToolFailure> {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .before_context(grep.before as usize)
            .after_context(grep.after as usize)
            .binary_detection(BinaryDetection::quit(0))
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_LINE_BYTES))
            .build();
        let room = usize::try_from(bounds.max_output_bytes).unwrap_or(usize::MAX);
        let (cut, more, stopped, result) = (0, false, None, GrepResult::default());
        Ok(Self { grep, cancel, matcher: matcher(grep)?, searcher, room, cut, more, stopped, result })
    }

    fn file(&mut self, path: &str, opened: RegularFile) -> ControlFlow<()> {
        let left = (self.grep.max_matches as usize).saturating_sub(self.result.matches.len());
        let mut matches = Matches::new(path, self.grep, left, self.room);
        // What is appended meanwhile belongs to a later state, and a file that grows for ever ends.
        let mut reader =
            Stoppable { file: opened.file.take(opened.meta.size), cancel: self.cancel, stopped: None };
        let searched = self.searcher.search_reader(&self.matcher, &mut reader, &mut matches);
        if let Some(stopped) = reader.stopped {
            self.stopped = Some(stopped);
            return ControlFlow::Break(());
        }
        if matches.binary {
            self.result.files_skipped += 1;
            return ControlFlow::Continue(());
        }
        self.cut += u64::from(searched.is_err());
        self.result.files_searched += 1;
        self.result.files_matched += u64::from(!matches.found.is_empty());
        self.room = matches.room;
        self.result.matches.append(&mut matches.found);
        if matches.more {
            self.result.truncated = true;
            self.more = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn result(mut self, mut hints: Vec<String>) -> Outcome {
        let GrepResult { files_searched, files_skipped, .. } = self.result;
        let found = self.result.matches.len();
        if let Some(stopped) = self.stopped {
            return Err(stopped
                .failure(format!(
                    "{}: {files_searched} files searched, {found} matches so far; give a path further down or a glob",
                    self.grep.path.excerpt()
                ))
                .with("files_searched", files_searched.to_string())
                .with("matches", found.to_string()));
        }
        if self.more {
            hints.push(format!(
                "stopped after {found} matches: narrow the pattern, give a path further down or a glob, or raise maxMatches"
            ));
        }
        if self.cut > 0 {
            hints.push(format!(
                "{} files were not searched to their end: a line over {MAX_LINE_BYTES} bytes, or a read error",
                self.cut
            ));
        }
        if files_searched == 0 && files_skipped == 1 {
            hints.push("the file is binary or unreadable".to_owned());
        }
        self.result.hint = hints.join("; ");
        Ok(OpResult::Grep(self.result))
    }
}

fn matcher(grep: &Grep) -> Result<RegexMatcher, ToolFailure> {
    RegexMatcherBuilder::new()
        .fixed_strings(!grep.regex)
        .case_insensitive(grep.case_insensitive)
        .multi_line(true)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_CACHE_BYTES)
        // Twice as fast as without, and a pattern that could match across lines is an error instead of a surprise.
        .line_terminator(Some(b'\n'))
        .build(&grep.pattern)
        .map_err(|error| {
            ToolFailure::new(
                Reason::InvalidArgument,
                format!("the pattern cannot be searched for, line by line: {error}"),
            )
        })
}

/// Reads until it is told to stop.
struct Stoppable<'a, R> {
    file: R,
    cancel: &'a Cancel,
    stopped: Option<Stopped>,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if let Err(stopped) = self.cancel.check() {
            self.stopped = Some(stopped);
            return Err(std::io::ErrorKind::Other.into());
        }
        let most = into.len().min(BLOCK);
        self.file.read(&mut into[..most])
    }
}
