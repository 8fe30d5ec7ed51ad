//! Which lines are shown, and how.

use super::lines::{BOTH, Line, Lines};
use crate::git::output::Output;

const CONTEXT: usize = 3;
/// Bytes of the line behind a hunk's numbers, at most.
const COMMENT: usize = 40;

/// Marks what is shown.
pub(super) fn mark(lines: &mut Lines<'_>) {
    let end = lines.count + 1;
    let all = &mut lines.all;
    for line in &mut all[..end] {
        line.is_marked = line.added_to != 0 || !line.lost.is_empty();
    }
    let mut at = 0;
    loop {
        at = next(all, at, end, true);
        if at >= end {
            break;
        }
        let begin = at;
        at = hunk_end(all, begin, end);
        if !is_interesting(&all[begin..at]) {
            all[begin..at].iter_mut().for_each(|line| line.is_marked = false);
        }
    }
    give_context(all, end);
}

/// The end of what begins at `begin`: gaps that context would fill do not end it.
fn hunk_end(all: &[Line<'_>], begin: usize, end: usize) -> usize {
    let mut at = begin + 1;
    while at < end {
        if !all[at].is_marked {
            let ahead = (tail(all, begin, at) + CONTEXT).min(end);
            match (at..ahead).rev().find(|place| all[*place].is_marked) {
                Some(place) => at = place,
                None => return at,
            }
        }
        at += 1;
    }
    at
}

/// Whether the file differs from both sides, or from the two in different lines.
fn is_interesting(hunk: &[Line<'_>]) -> bool {
    let mut differing = hunk.iter().flat_map(|line| {
        let added = Some(line.added_to).filter(|sides| *sides != 0);
        added.into_iter().chain(line.lost.iter().map(|lost| lost.of))
    });
    let Some(first) = differing.next() else { return false };
    first == BOTH || differing.any(|sides| sides != first)
}

/// A last line that is only there for what was lost in front of it is a line of context already.
fn tail(all: &[Line<'_>], begin: usize, end: usize) -> usize {
    if begin < end && all[end - 1].added_to == 0 { end - 1 } else { end }
}

/// The first line from `at` on that is marked, or that is not; `end` when there is none.
fn next(all: &[Line<'_>], at: usize, end: usize, is_marked: bool) -> usize {
    (at..end).find(|place| all[*place].is_marked == is_marked).unwrap_or(at.max(end))
}

fn give_context(all: &mut [Line<'_>], end: usize) {
    let mut at = next(all, 0, end, true);
    while at < end {
        for line in &mut all[at.saturating_sub(CONTEXT)..at] {
            line.hides_lost |= !line.is_marked;
            line.is_marked = true;
        }
        loop {
            let gap = next(all, at, end, false);
            if gap >= end {
                return;
            }
            let following = next(all, gap, end, true);
            let from = tail(all, at, gap);
            at = following;
            if following < from + CONTEXT {
                all[from..following].iter_mut().for_each(|line| line.is_marked = true);
            } else {
                let to = (from + CONTEXT).min(end);
                all[from..to].iter_mut().for_each(|line| line.is_marked = true);
                break;
            }
        }
    }
}

/// Writes what is marked.
pub(super) fn write(lines: &Lines<'_>, output: &mut Output) {
    let end = lines.count + 1;
    let mut at = 0;
    loop {
        let begin = next(&lines.all, at, end, true);
        if begin >= end {
            return;
        }
        let comment = lines.all[at..begin].iter().rev().find(|line| is_comment(line.text));
        let until = next(&lines.all, begin, end, false);
        // What is lost at the end of the file hangs on no line.
        let count = until - begin - usize::from(until > lines.count);
        let [ours, theirs] = [0, 1].map(|number| {
            let (first, last) = (lines.all[begin].numbers[number], lines.all[until].numbers[number]);
            format!("-{first},{}", last.saturating_sub(first))
        });
        let mut header = format!("@@@ {ours} {theirs} +{},{count} @@@", begin + 1).into_bytes();
        header.extend_from_slice(&comment.map(|line| shortened(line.text)).unwrap_or_default());
        header.push(b'\n');
        output.push(&header);
        for (place, line) in lines.all.iter().enumerate().take(until).skip(begin) {
            write_line(line, place < lines.count, output);
        }
        at = until;
    }
}

fn write_line(line: &Line<'_>, is_there: bool, output: &mut Output) {
    let write = |signs: [u8; 2], text: &[u8]| {
        // As C prints it.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut bytes = signs.to_vec();
        bytes.extend_from_slice(text);
        bytes.push(b'\n');
        bytes
    };
    let signs = |sides: u8, sign: u8| [1, 2].map(|side| if sides & side != 0 { sign } else { b' ' });
    if !line.hides_lost {
        for lost in &line.lost {
            output.push(&write(signs(lost.of, b'-'), &lost.text));
        }
    }
    if is_there {
        output.push(&write(signs(line.added_to, b'+'), line.text));
    }
}

/// A line that tells where one is.
fn is_comment(text: &[u8]) -> bool {
    text.first().is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$'))
}

/// With the space in front; git leaves the last character out.
fn shortened(text: &[u8]) -> Vec<u8> {
    let text = &text[..text.len().min(COMMENT)];
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c);
    match text.iter().rposition(|byte| !is_space(byte)) {
        Some(last) if last > 0 => [b" ", &text[..last]].concat(),
        _ => Vec::new(),
    }
}
