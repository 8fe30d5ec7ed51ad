//! `grep`: matching lines, found by ripgrep's own libraries over the walk that glob uses.
//!
//! Several threads search ([`worker_pool`]), each one file at a time ([`seeker`]). Their results are combined in path order ([`tally`]), so
//! the same tree gives the same answer for any number of threads.
//!
//! A pattern cannot block a search for long. The engine is linear in the text and in the compiled pattern, whose size is bounded. Between
//! two blocks of a file it checks for cancellation ([`pattern`]).

mod matches;
mod pattern;
mod queue;
mod seeker;
mod source;
mod tally;
mod threads;
mod worker_pool;

use std::sync::atomic::AtomicU64;

use jail::{FileKind, Jail, RegularFile, SandboxPath};
use operations::{ASK_FOR_MORE, Bounds, Grep, GrepResult, LeftOut, OpResult, Outcome, noted};

use self::pattern::Compiled;
use self::seeker::{Order, Seeker};
use self::tally::{Sum, Tally};
use super::pattern::Pattern;
use super::search::{Begin, begin};
use super::walk::{Rules, Walk, Walked};
use crate::Cancel;

/// Searches a directory or one file, line by line.
pub fn grep(jail: &Jail, grep: &Grep, bounds: &Bounds, cancel: &Cancel) -> Outcome {
    let filter = grep.glob.as_deref().map(|glob| Pattern::compile(glob, &grep.path)).transpose()?;
    let compiled = Compiled::new(grep)?;
    let space = usize::try_from(bounds.max_output_bytes).unwrap_or(usize::MAX);
    let last = AtomicU64::new(u64::MAX);
    let order = Order { grep, compiled: &compiled, space, cancel, last: &last };
    let tally = Tally::new(grep.max_matches, space);

    let place = jail.readable(&grep.path)?;
    if place.metadata()?.kind != FileKind::Directory {
        return result(
            grep,
            alone(order, &place.open_file()?, &grep.path, tally),
            &Walked::default(),
            Vec::new(),
        );
    }
    let filter = filter.as_ref();
    let (start, dir) = match begin(jail, &grep.path, filter)? {
        Begin::Walk(start, dir) => (start, dir),
        Begin::File(path) => {
            let file = jail.readable(&path)?.open_file()?;
            return result(grep, alone(order, &file, &path, tally), &Walked::default(), Vec::new());
        }
        Begin::Nowhere(hint) => return result(grep, tally.finish(0), &Walked::default(), vec![hint]),
    };
    let rules = Rules {
        hidden: grep.include_ignored || filter.is_some_and(Pattern::names_hidden),
        ignored: grep.include_ignored,
        node_modules: grep.include_ignored,
    };
    let walk = Walk::new(jail, &start, dir, rules, filter, cancel);
    let (mut sum, walked) =
        worker_pool::search(order, filter.map_or(&grep.path, Pattern::start), walk, tally);
    sum.stopped = sum.stopped.or(walked.stopped);
    if sum.more {
        // The progress of the walk at that time is arbitrary.
        return result(grep, sum, &Walked::default(), Vec::new());
    }
    sum.result.truncated |= walked.bounded;
    let mut hints = walked.hints();
    if let Some(filter) = filter.filter(|_| sum.result.files_searched + sum.result.files_skipped == 0) {
        hints.extend(walked.directory_hint(filter.start()));
        hints.extend(filter.doubts().iter().map(|&doubt| doubt.to_owned()));
    }
    result(grep, sum, &walked, hints)
}

/// Searches a single file that the caller named.
fn alone(order: Order<'_>, file: &RegularFile, path: &SandboxPath, mut tally: Tally) -> Sum {
    tally.add(0, Seeker::new(order).file(0, file, || path.to_string()));
    tally.finish(1)
}

fn result(grep: &Grep, sum: Sum, walked: &Walked, mut hints: Vec<String>) -> Outcome {
    let Sum { mut result, more, binary, cut, stopped } = sum;
    let GrepResult { files_searched, files_skipped, .. } = result;
    let found = result.matches.len();
    if let Some(stopped) = stopped {
        return Err(stopped
            .failure(format!(
                "{}: {files_searched} files searched, {found} matches so far; search further down or in fewer files",
                grep.path.excerpt()
            ))
            .with("files_searched", files_searched.to_string())
            .with("matches", found.to_string()));
    }
    if more {
        let stopped = format!(
            "stopped after {found} matches: narrow the pattern, search further down or in fewer files, or {ASK_FOR_MORE}"
        );
        hints.insert(0, stopped);
    }
    let left_out = LeftOut {
        binary,
        unreadable: walked.left_out.unreadable + (files_skipped - binary),
        unfinished: cut,
        ..walked.left_out
    };
    result.left_out = Some(left_out).filter(|left_out| *left_out != LeftOut::default());
    result.truncated |= more;
    result.hint = hints.join("; ");
    Ok(noted(OpResult::Grep(result)))
}
