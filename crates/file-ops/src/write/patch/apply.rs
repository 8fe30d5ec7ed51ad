//! Applies hunks to a file: pure, and strict.
//!
//! A hunk is applied at its stated position, or at the only other position where all of its lines are. Positions are never guessed, and
//! every line is compared.
//!
//! The result is the one that git would produce, or the hunk is refused. There is one exception: git lets a line without a newline match a
//! line with one (`--unidiff-zero`, 2.47.3). Here that line only matches the file's last line. Beyond git, a patch whose lines end in `\n`
//! fits a file whose lines all end in `\r\n`, and its first line needs no byte order mark, since models write neither.

use operations::patch::{Hunk, HunkPosition, Kind, Line};

use super::locate::Index;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Most positions that a failure names.
const MAX_PLACES: usize = 20;

/// File after the patch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) content: Vec<u8>,
    /// Hunks that were applied elsewhere than stated.
    pub(super) moved: Vec<Moved>,
}

/// Hunk that was not at its stated position.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// Number of the hunk, from 1.
    pub(super) hunk: usize,
    /// Stated line, from 1.
    pub(super) said: u64,
    pub(super) found: u64,
}

/// Hunk that does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// Number of the hunk, from 1.
    pub(super) hunk: usize,
    pub(super) kind: MismatchKind,
}

/// Reason for which a hunk does not fit. Lines are numbered from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MismatchKind {
    /// Its lines do not occur where they may.
    Absent,
    /// Its lines occur more than once.
    Ambiguous(Vec<u64>),
    /// Its lines occur only before an earlier hunk of the patch.
    OutOfOrder(u64),
    /// It has no lines by which to find its position.
    NoContext,
    /// This line of the envelope's `@@` is not in the file, or not after the one before.
    NoAnchor(String),
    /// The anchor occurs more than once.
    AmbiguousAnchor(String, Vec<u64>),
}

/// Applies the hunks, in their order.
pub(super) fn apply(content: &[u8], hunks: &[Hunk]) -> Result<Applied, Mismatch> {
    let all_lines = || hunks.iter().flat_map(|hunk| &hunk.lines);
    let (mark, content) = match content.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) if !all_lines().any(|line| line.text.as_bytes().starts_with(BYTE_ORDER_MARK)) => {
            (BYTE_ORDER_MARK, rest)
        }
        _ => (&[][..], content),
    };
    let newline: &[u8] = if ends_in_crlf(content) && !all_lines().any(|line| line.text.contains('\r')) {
        b"\r\n"
    } else {
        b"\n"
    };
    // The envelope does not state the last newline, so the file keeps its own.
    let anchored = hunks.iter().any(|hunk| matches!(hunk.place, HunkPosition::Anchored { .. }));
    let unended = anchored && !content.is_empty() && !content.ends_with(b"\n");
    let ended = if unended { [content, newline].concat() } else { Vec::new() };
    let content = if unended { ended.as_slice() } else { content };

    let file = File::new(content, newline);
    let mut result = mark.to_vec();
    let mut moved = Vec::new();
    // Lines that the hunks have added so far, less those that they have removed.
    let (mut done, mut grown) = (0, 0);
    for (number, hunk) in (1..).zip(hunks) {
        let old: Vec<Vec<u8>> = hunk.old().map(|line| file.bytes(line)).collect();
        let needle = file.index.needle(&old);
        let at = file.place(hunk, &needle, done, grown).map_err(|kind| Mismatch { hunk: number, kind })?;
        if let HunkPosition::Stated { old: said, .. } = hunk.place
            && said != 0
            && at + 1 != as_index(said)
        {
            moved.push(Moved { hunk: number, said, found: at as u64 + 1 });
        }
        file.copy(done..at, &mut result);
        grown += growth(hunk);
        done = at;
        for line in &hunk.lines {
            match line.kind {
                Kind::Context => file.copy(done..done + 1, &mut result),
                Kind::Added => result.extend(file.bytes(line)),
                Kind::Removed => {}
            }
            done += usize::from(line.is_old());
        }
    }
    file.copy(done..file.lines.len(), &mut result);
    if unended && result.len() > mark.len() {
        result.truncate(result.len() - newline.len());
    }
    Ok(Applied { content: result, moved })
}

fn ends_in_crlf(content: &[u8]) -> bool {
    let mut lines =
        content.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")).peekable();
    lines.peek().is_some() && lines.all(|line| line.ends_with(b"\r\n"))
}

fn growth(hunk: &Hunk) -> i64 {
    hunk.lines.iter().map(|line| i64::from(line.is_new()) - i64::from(line.is_old())).sum()
}

fn as_index(line: u64) -> usize {
    usize::try_from(line).unwrap_or(usize::MAX)
}

struct File<'f> {
    lines: Vec<&'f [u8]>,
    index: Index<'f>,
    newline: &'f [u8],
}

impl<'f> File<'f> {
    fn new(content: &'f [u8], newline: &'f [u8]) -> Self {
        let lines: Vec<&[u8]> = content.split_inclusive(|&byte| byte == b'\n').collect();
        let index = Index::of(&lines);
        Self { lines, index, newline }
    }

    /// Returns the bytes that a line of the patch has, or would have, in this file.
    fn bytes(&self, line: &Line) -> Vec<u8> {
        let newline = if line.newline { self.newline } else { &[] };
        [line.text.as_bytes(), newline].concat()
    }

    fn copy(&self, lines: std::ops::Range<usize>, to: &mut Vec<u8>) {
        for line in self.lines.get(lines).unwrap_or_default() {
            to.extend_from_slice(line);
        }
    }

    /// Returns the index of the hunk's first line. Lines before `from` belong to earlier hunks.
    fn place(&self, hunk: &Hunk, needle: &[u32], from: usize, grown: i64) -> Result<usize, MismatchKind> {
        match &hunk.place {
            HunkPosition::Stated { old, new } => {
                let agree = i128::from(*new) - i128::from(*old) == i128::from(grown) - removes_all(hunk);
                self.stated(hunk, needle, from, *old, agree)
            }
            HunkPosition::Anchored { anchors, at_end } => self.anchored(anchors, *at_end, needle, from),
        }
    }

    /// Finds a hunk by its line numbers. Git uses the line in the new file, so the position is unique only if both lines `agree`.
    fn stated(
        &self,
        hunk: &Hunk,
        needle: &[u32],
        from: usize,
        old: u64,
        agree: bool,
    ) -> Result<usize, MismatchKind> {
        if needle.is_empty() {
            return if self.lines.is_empty() && old == 0 { Ok(0) } else { Err(MismatchKind::NoContext) };
        }
        let said = as_index(old).checked_sub(1).filter(|&at| at >= from && self.index.is_at(needle, at));
        if let Some(at) = said.filter(|_| agree) {
            // Without context after them, git takes such lines for the file's last.
            let last = self.index.last(needle).filter(|&last| last != at && !ends_in_context(hunk));
            return last.map_or(Ok(at), |last| Err(ambiguous(&[at, last])));
        }
        self.only(needle, from)
    }

    fn only(&self, needle: &[u32], from: usize) -> Result<usize, MismatchKind> {
        let found = self.index.all(needle, 0);
        // Lines that earlier hunks have used are not available.
        let left = |&at: &usize| at >= from || at + needle.len() <= from;
        match found.iter().copied().filter(left).collect::<Vec<_>>()[..] {
            [] => Err(MismatchKind::Absent),
            [at] if at >= from => Ok(at),
            [at] => Err(MismatchKind::OutOfOrder(at as u64 + 1)),
            ref several => Err(ambiguous(several)),
        }
    }

    fn anchored(
        &self,
        anchors: &[String],
        at_end: bool,
        needle: &[u32],
        from: usize,
    ) -> Result<usize, MismatchKind> {
        if at_end {
            let anchor = self.behind(anchors, from)?;
            return match self.index.last(needle).filter(|&at| at >= anchor) {
                Some(at) => Ok(at),
                None => Err(MismatchKind::Absent),
            };
        }
        if needle.is_empty() {
            // Directly after the named line.
            return match anchors {
                [] if self.lines.is_empty() => Ok(0),
                [] => Err(MismatchKind::NoContext),
                _ => self.behind(anchors, from).map(|at| at + 1),
            };
        }
        let found = self.index.all(needle, from);
        match (&found[..], anchors) {
            ([], _) => Err(match self.index.all(needle, 0).first() {
                Some(&at) => MismatchKind::OutOfOrder(at as u64 + 1),
                None => MismatchKind::Absent,
            }),
            (&[at], []) => Ok(at),
            (several, []) => Err(ambiguous(several)),
            // The lines occur only once, so the anchors only have to precede them.
            (&[at], _) if self.first_behind(anchors, from).is_ok_and(|anchor| anchor <= at) => Ok(at),
            (several, _) => {
                let anchor = self.behind(anchors, from)?;
                several.iter().copied().find(|&at| at >= anchor).ok_or(MismatchKind::Absent)
            }
        }
    }

    /// Returns the index of the last anchor. The first anchor must occur only once in the file.
    fn behind(&self, anchors: &[String], from: usize) -> Result<usize, MismatchKind> {
        if let Some(anchor) = anchors.first() {
            let found: Vec<usize> = self.equal(anchor, from).collect();
            if found.len() > 1 {
                return Err(MismatchKind::AmbiguousAnchor(anchor.clone(), numbers(&found)));
            }
        }
        self.first_behind(anchors, from)
    }

    /// Returns the index of the last anchor. Each is the first occurrence after the one before.
    fn first_behind(&self, anchors: &[String], from: usize) -> Result<usize, MismatchKind> {
        let mut at = from;
        for (number, anchor) in anchors.iter().enumerate() {
            let from = if number == 0 { at } else { at + 1 };
            at = self.equal(anchor, from).next().ok_or_else(|| MismatchKind::NoAnchor(anchor.clone()))?;
        }
        Ok(at)
    }

    fn equal(&self, anchor: &str, from: usize) -> impl Iterator<Item = usize> {
        let lines = self.lines.iter().enumerate().skip(from);
        lines.filter(move |(_, line)| line.trim_ascii() == anchor.as_bytes().trim_ascii()).map(|(at, _)| at)
    }
}

/// Returns 1 if the hunk removes all of its lines: its position in the new file is then the line before.
fn removes_all(hunk: &Hunk) -> i128 {
    i128::from(!hunk.lines.iter().any(Line::is_new))
}

fn ends_in_context(hunk: &Hunk) -> bool {
    hunk.lines.last().is_some_and(|line| line.kind == Kind::Context)
}

fn ambiguous(found: &[usize]) -> MismatchKind {
    MismatchKind::Ambiguous(numbers(found))
}

fn numbers(found: &[usize]) -> Vec<u64> {
    found.iter().take(MAX_PLACES).map(|&at| at as u64 + 1).collect()
}
