//! `grep`: matching lines, by ripgrep's own libraries over the walk that glob uses.
//!
//! Several threads search ([`worker_pool`]), each one file at a time ([`seeker`]); what they find is put together in path order
//! ([`tally`]), so that the same tree gives the same answer however many they are.
//!
//! A pattern cannot hang it: the engine is linear in the text and in the compiled pattern, which is bounded, and between
//! two blocks of a file it asks whether to stop ([`pattern`]).

mod matches;
mod pattern;
mod queue;
mod seeker;
mod source;
mod tally;
mod threads;
mod worker_pool;

use std::sync::atomic::AtomicU64;

use jail::{FileKind, Jail, RegularFile};

use self::pattern::Compiled;
use self::seeker::{MAX_LINE_BYTES, Order, Seeker};
use self::tally::{Sum, Tally};
use super::pattern::Pattern;
use super::walk::{Rules, Walk};
use crate::{Bounds, Cancel, Grep, GrepResult, OpResult, Outcome};

/// Searches a directory or one file, line by line.
pub fn grep(jail: &Jail, grep: &Grep, bounds: &Bounds, cancel: &Cancel) -> Outcome {
    let filter = grep.glob.as_deref().map(Pattern::compile).transpose()?;
    let compiled = Compiled::new(grep)?;
    let room = usize::try_from(bounds.max_output_bytes).unwrap_or(usize::MAX);
    let last = AtomicU64::new(u64::MAX);
    let order = Order { grep, compiled: &compiled, room, cancel, last: &last };
    let tally = Tally::new(grep.max_matches, room);

    let place = jail.readable(&grep.path)?;
    if place.metadata()?.kind != FileKind::Directory {
        let file = place.open_file()?;
        return result(grep, alone(order, &file, tally), Vec::new());
    }
    let (start, dir) = place.open_dir_resolved()?;
    let rules = Rules {
        hidden: grep.include_ignored || filter.as_ref().is_some_and(Pattern::names_hidden),
        ignored: grep.include_ignored,
        node_modules: grep.include_ignored,
    };
    let walk = Walk::new(jail, &start, dir, rules, cancel);
    let (mut sum, walked) = worker_pool::search(order, filter.as_ref(), walk, tally);
    sum.stopped = sum.stopped.or(walked.stopped);
    if sum.more {
        // How far the walk had come by then is chance.
        return result(grep, sum, Vec::new());
    }
    sum.result.truncated |= walked.bounded;
    result(grep, sum, walked.hints())
}

/// Searches the one file that was asked for.
fn alone(order: Order<'_>, file: &RegularFile, mut tally: Tally) -> Sum {
    tally.add(0, Seeker::new(order).file(0, file, || order.grep.path.to_string()));
    tally.finish(1)
}

fn result(grep: &Grep, sum: Sum, mut hints: Vec<String>) -> Outcome {
    let Sum { mut result, more, cut, stopped } = sum;
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
        hints.push(format!(
            "stopped after {found} matches: narrow the pattern, search further down or in fewer files, or ask for more"
        ));
    }
    if cut > 0 {
        hints.push(format!(
            "{cut} files were not searched to their end: a line over {MAX_LINE_BYTES} bytes, or a read error"
        ));
    }
    if files_searched == 0 && files_skipped == 1 {
        hints.push("the file is binary or unreadable".to_owned());
    }
    result.truncated |= more;
    result.hint = hints.join("; ");
    Ok(OpResult::Grep(result))
}
