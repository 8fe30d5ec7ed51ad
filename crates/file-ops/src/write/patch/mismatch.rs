//! The failure for a hunk that does not fit: the expected lines, the present ones, and what to do.

use jail::{SandboxPath, excerpt};
use operations::patch::{Hunk, HunkPosition};
use operations::{Reason, ToolFailure};

use super::apply::{Mismatch, MismatchKind};
use crate::write::nearest::{Candidate, Nearest, nearest};

/// Most bytes of expected text that a failure carries.
const MAX_EXPECTED: usize = 2_000;

/// Returns the failure. `content` is the file.
pub(super) fn failure(
    path: &SandboxPath,
    content: &[u8],
    hunks: &[Hunk],
    mismatch: &Mismatch,
) -> ToolFailure {
    let shown = path.excerpt();
    let number = mismatch.hunk;
    let Some(hunk) = hunks.get(number - 1) else {
        return ToolFailure::new(Reason::Internal, format!("{shown}: a hunk was lost"));
    };
    let expected = Hunk::text(hunk.old());
    let mut details = Vec::new();
    let what = match &mismatch.kind {
        MismatchKind::Absent => absent(hunk, content, &expected, &mut details),
        MismatchKind::Ambiguous(lines) => {
            let lines = join(lines);
            details.push(("lines", lines.clone()));
            let remedy = match hunk.place {
                HunkPosition::Stated { .. } => "correct the line numbers of its `@@` line",
                HunkPosition::Anchored { .. } => "name the function or class around it in an `@@` line",
            };
            format!("its lines occur several times (lines {lines}): add context lines, or {remedy}")
        }
        MismatchKind::OutOfOrder(line) => format!(
            "its lines are at line {line}, before those of an earlier hunk: put the hunks into the order of \
             the file"
        ),
        MismatchKind::NoContext => {
            "it only adds lines and has no context to find their position: include the lines before and after"
                .to_owned()
        }
        MismatchKind::NoAnchor(anchor) => format!(
            "no later line equals `{}`: an `@@` line must repeat a whole line of the file",
            excerpt(anchor)
        ),
        MismatchKind::AmbiguousAnchor(anchor, lines) => {
            let lines = join(lines);
            details.push(("lines", lines.clone()));
            format!(
                "`{}` matches several lines (lines {lines}): name the enclosing block in another `@@` line before it",
                excerpt(anchor)
            )
        }
    };
    let message = format!("{shown}: hunk {number} (line {} of the patch) does not apply: {what}", hunk.at);
    let failure = ToolFailure::new(Reason::PreconditionFailed, message)
        .with("path", path.to_string())
        .with("hunk", number.to_string())
        .with("expected", cut(&expected));
    details.into_iter().fold(failure, |failure, (name, value)| failure.with(name, value))
}

fn absent(hunk: &Hunk, content: &[u8], expected: &str, details: &mut Vec<(&'static str, String)>) -> String {
    let text = String::from_utf8_lossy(content);
    let difference = match hunk.place {
        HunkPosition::Stated { old, .. } => first_difference(hunk, &text, old),
        HunkPosition::Anchored { at_end: true, .. } => Some("its lines are not the file's last".to_owned()),
        HunkPosition::Anchored { .. } => None,
    };
    let near = match nearest(&text, expected) {
        Nearest::Whitespace(spans) => {
            let spans: Vec<String> = spans.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            let spans = spans.join(", ");
            details.push(("candidates", spans.clone()));
            format!(
                "lines {spans} differ in white space only (indentation, tabs, blank lines, line endings or the last newline)"
            )
        }
        Nearest::Lines(candidates) if candidates.is_empty() => "nothing in the file is like it".to_owned(),
        Nearest::Lines(candidates) => {
            let lines: Vec<String> = candidates
                .iter()
                .map(|Candidate { line, text }| format!("line {line} `{}`", excerpt(text.trim())))
                .collect();
            details.push((
                "candidates",
                candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            ));
            format!("the nearest is {}", lines.join(", "))
        }
    };
    let difference = difference.unwrap_or_else(|| "its lines are not in the file".to_owned());
    format!("{difference}; {near}: read the file again and copy its lines exactly")
}

/// Describes the first difference at the position that the hunk states.
fn first_difference(hunk: &Hunk, text: &str, old: u64) -> Option<String> {
    let mut there = text.lines().skip(usize::try_from(old.max(1) - 1).ok()?);
    let differing = hunk.old().zip(old.max(1)..).find_map(|(line, number)| {
        let there = there.next();
        (there != Some(line.text.trim_end_matches('\r'))).then_some((line, number, there))
    });
    let (line, number, there) = differing?;
    let wanted = excerpt(&line.text);
    Some(match there {
        Some(there) => format!("it expects line {number} to be `{wanted}`, which is `{}`", excerpt(there)),
        None => format!("it expects line {number} to be `{wanted}`, which is beyond the end of the file"),
    })
}

fn join(lines: &[u64]) -> String {
    lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn cut(text: &str) -> String {
    let end = (0..=MAX_EXPECTED.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}
