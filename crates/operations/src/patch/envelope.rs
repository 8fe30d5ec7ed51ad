//! The `*** Begin Patch` envelope, as models write it.
//!
//! ```text
//! *** Begin Patch
//! *** Add File: PATH            then lines, each with a `+`
//! *** Delete File: PATH
//! *** Update File: PATH
//! *** Move to: PATH             optional
//! @@ class or function          optional, any number: the hunk follows that line
//!  context, -old, +new
//! *** End of File               optional: the lines before are the file's last
//! *** End Patch
//! ```
//!
//! A `@@` line with the numbers of a unified diff counts as one without: models seldom write right numbers.

use super::reader::Reader;
use super::script::{Action, FilePatch, Hunk, HunkPosition, Kind, Line};
use crate::Malformed;

pub(super) const FIELD: &str = "patch.envelope";
const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";
const END_OF_FILE: &str = "*** End of File";

/// Parses an envelope, which has at least one file.
pub(super) fn parse(text: &str) -> Result<Vec<FilePatch>, Malformed> {
    // A transport may have ended all lines with `\r\n`. Then the first line shows it.
    let begin = text.trim_start().split_inclusive('\n').next().unwrap_or_default();
    let unified = text.replace("\r\n", "\n");
    let text = if begin.ends_with("\r\n") { &unified } else { text };
    let mut reader = Reader::new(FIELD, text)?;
    skip_blank(&mut reader);
    if reader.peek().map(str::trim_end) != Some(BEGIN) {
        return Err(reader.fault(format!("an envelope begins with `{BEGIN}`")));
    }
    reader.next();
    let mut files = Vec::new();
    loop {
        skip_blank(&mut reader);
        let Some(line) = reader.peek() else {
            return Err(reader.fault(format!("`{END}` is missing: the text may have been cut off")));
        };
        if line.trim_end() == END {
            break;
        }
        files.push(file(&mut reader, line)?);
    }
    reader.next();
    skip_blank(&mut reader);
    if reader.peek().is_some() {
        return Err(reader.fault(format!("there is text after `{END}`: send one envelope at a time")));
    }
    if files.is_empty() {
        return Err(reader.fault_of_all(
            "names no file: add `*** Add File: `, `*** Update File: ` or `*** Delete File: ` lines",
        ));
    }
    Ok(files)
}

fn skip_blank(reader: &mut Reader<'_>) {
    while reader.peek().is_some_and(|line| line.trim().is_empty()) {
        reader.next();
    }
}

fn file(reader: &mut Reader<'_>, line: &str) -> Result<FilePatch, Malformed> {
    let number = reader.number();
    let named = |prefix: &str| line.strip_prefix(prefix).map(|name| reader.path(number, name.trim()));
    if let Some(path) = named(ADD) {
        let path = path?;
        reader.next();
        Ok(FilePatch { path, action: Action::Create { content: added(reader)? } })
    } else if let Some(path) = named(DELETE) {
        let path = path?;
        reader.next();
        Ok(FilePatch { path, action: Action::Delete { content: None } })
    } else if let Some(path) = named(UPDATE) {
        let path = path?;
        reader.next();
        let moved_to = moved_to(reader)?;
        let hunks = hunks(reader)?;
        if hunks.is_empty() && moved_to.is_none() {
            return Err(reader.fault_at(number, "changes nothing: no hunk and no `*** Move to: ` follows"));
        }
        Ok(FilePatch { path, action: Action::Update { moved_to, hunks } })
    } else {
        Err(reader.fault(
            "expected `*** Add File: PATH`, `*** Update File: PATH`, `*** Delete File: PATH` or `*** End Patch`",
        ))
    }
}

fn added(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let mut content = String::new();
    while let Some(line) = reader.peek() {
        if ends_file(line) || (line.trim().is_empty() && blank_ends_file(reader)) {
            break;
        }
        let Some(text) = line.strip_prefix('+') else {
            return Err(reader.fault("every line of a new file begins with `+`, empty ones too"));
        };
        content.push_str(text);
        content.push('\n');
        reader.next();
    }
    Ok(content)
}

/// Returns true at a blank line before the next file, which belongs to no file.
fn blank_ends_file(reader: &Reader<'_>) -> bool {
    reader.peek_second().is_none_or(|line| line.trim().is_empty() || ends_file(line))
}

fn ends_file(line: &str) -> bool {
    [ADD, DELETE, UPDATE].iter().any(|prefix| line.starts_with(prefix)) || line.trim_end() == END
}

fn moved_to(reader: &mut Reader<'_>) -> Result<Option<jail::SandboxPath>, Malformed> {
    let Some(name) = reader.peek().and_then(|line| line.strip_prefix(MOVE)) else { return Ok(None) };
    let path = reader.path(reader.number(), name.trim())?;
    reader.next();
    Ok(Some(path))
}

fn hunks(reader: &mut Reader<'_>) -> Result<Vec<Hunk>, Malformed> {
    let mut hunks = Vec::new();
    while let Some(line) = reader.peek() {
        if ends_file(line) {
            break;
        }
        if let Some(hunk) = hunk(reader)? {
            hunks.push(hunk);
        }
    }
    Ok(hunks)
}

/// Reads the next hunk. Returns `None` if only blank lines were left.
fn hunk(reader: &mut Reader<'_>) -> Result<Option<Hunk>, Malformed> {
    let at = reader.number();
    let (mut anchors, mut headed) = (Vec::new(), false);
    while let Some(heading) = reader.peek().and_then(|line| line.strip_prefix("@@")) {
        headed = true;
        let anchor = heading.trim();
        if !anchor.is_empty() && !anchor.starts_with(['-', '+']) {
            anchors.push(anchor.to_owned());
        }
        reader.next();
    }
    let mut lines = Vec::new();
    // Blank lines without their leading space are context if more context follows, and otherwise only separate files.
    let mut blank = 0;
    let mut at_end = false;
    while let Some(line) = reader.peek() {
        if ends_file(line) || line.starts_with("@@") {
            break;
        }
        if line.trim_end() == END_OF_FILE {
            reader.next();
            at_end = true;
            break;
        }
        let (kind, text) = match line.as_bytes().first() {
            None => {
                blank += 1;
                reader.next();
                continue;
            }
            Some(b' ') => (Kind::Context, &line[1..]),
            Some(b'-') => (Kind::Removed, &line[1..]),
            Some(b'+') => (Kind::Added, &line[1..]),
            Some(_) => {
                return Err(reader.fault(
                    "every line of a hunk begins with a blank (context), `-` (removed) or `+` (added)",
                ));
            }
        };
        if !lines.is_empty() || headed {
            lines.extend((0..blank).map(|_| context("")));
        }
        blank = 0;
        lines.push(Line { kind, text: text.to_owned(), newline: true });
        reader.next();
    }
    if lines.is_empty() && !headed && !at_end {
        return Ok(None);
    }
    let hunk = Hunk { at, place: HunkPosition::Anchored { anchors, at_end }, lines };
    if hunk.changes_nothing() {
        return Err(reader.fault_at(at, "the hunk changes nothing: it has no `+` and no `-` line"));
    }
    Ok(Some(hunk))
}

fn context(text: &str) -> Line {
    Line { kind: Kind::Context, text: text.to_owned(), newline: true }
}
