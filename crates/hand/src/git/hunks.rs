//! The patch form of a change, byte for byte as `git diff` writes it.

use git2::{Oid, Patch};

use super::abbrev::Abbreviations;
use super::delta::{Change, Content, Kind, Side};
use super::error::GitError;
use super::output::Output;
use super::quote::{Spaces, quoted, quoted_with_prefix};
use super::similarity::is_text;

/// Writes the change as a patch.
pub(super) fn write(
    names: &Abbreviations<'_>,
    change: &Change<'_>,
    output: &mut Output,
) -> Result<(), GitError> {
    match change.kind {
        Kind::Unmerged => {
            // The one place where git does not quote.
            output.push(&[b"* Unmerged path ", &*change.new.path, b"\n"].concat());
            Ok(())
        }
        Kind::TypeChanged => {
            type_change(names, change, output);
            Ok(())
        }
        _ => {
            header(names, change, output);
            content(change, output)
        }
    }
}

fn header(names: &Abbreviations<'_>, change: &Change<'_>, output: &mut Output) {
    let (old, new) = (&change.old, &change.new);
    let path = |prefix, side: &Side| quoted_with_prefix(prefix, &side.path, Spaces::Plain);
    output.push_str(&format!("diff --git {} {}\n", path("a/", old), path("b/", new)));
    let same_mode = old.mode == new.mode;
    match change.kind {
        Kind::Added => output.push_str(&format!("new file mode {:06o}\n", new.mode)),
        Kind::Deleted => output.push_str(&format!("deleted file mode {:06o}\n", old.mode)),
        _ if !same_mode => {
            output.push_str(&format!("old mode {:06o}\nnew mode {:06o}\n", old.mode, new.mode));
        }
        _ => {}
    }
    if let Kind::Renamed { similarity } = change.kind {
        let (from, to) = (quoted(&old.path, Spaces::Plain), quoted(&new.path, Spaces::Plain));
        output.push_str(&format!("similarity index {similarity}%\nrename from {from}\nrename to {to}\n"));
    }
    if old.id != new.id {
        let mode = if same_mode { format!(" {:06o}", old.mode) } else { String::new() };
        output.push_str(&format!("index {}..{}{mode}\n", names.shorten(old.id), names.shorten(new.id)));
    }
}

fn content(change: &Change<'_>, output: &mut Output) -> Result<(), GitError> {
    let (old, new) = labels(change);
    match &change.content {
        Content::Same { .. } | Content::Replaced { .. } => {}
        Content::Binary => output.push_str(&format!("Binary files {old} and {new} differ\n")),
        Content::Text { patch, .. } => {
            files(&old, &new, output);
            hunks(patch, output)?;
        }
    }
    Ok(())
}

/// The names in `---` and `+++`, `/dev/null` for the side that is not there.
fn labels(change: &Change<'_>) -> (String, String) {
    let label = |prefix, side: &Side, absent| {
        if absent { "/dev/null".to_owned() } else { quoted_with_prefix(prefix, &side.path, Spaces::Plain) }
    };
    (
        label("a/", &change.old, change.kind == Kind::Added),
        label("b/", &change.new, change.kind == Kind::Deleted),
    )
}

/// A tab ends a name with spaces, so that `patch` sees where it ends.
fn files(old: &str, new: &str, output: &mut Output) {
    let tab = |name: &str| if name.contains(' ') { "\t" } else { "" };
    output.push_str(&format!("--- {old}{}\n+++ {new}{}\n", tab(old), tab(new)));
}

fn hunks(patch: &Patch<'_>, output: &mut Output) -> Result<(), GitError> {
    let mut line_bytes = Vec::new();
    for index in 0..patch.num_hunks() {
        let (hunk, lines) = patch.hunk(index)?;
        output.push(hunk.header());
        for line in 0..lines {
            let line = patch.line_in_hunk(index, line)?;
            line_bytes.clear();
            // The other origins are the notes about a missing newline, complete as they are.
            if matches!(line.origin(), ' ' | '+' | '-') {
                line_bytes.push(line.origin() as u8);
            }
            line_bytes.extend_from_slice(line.content());
            output.push(&line_bytes);
        }
    }
    Ok(())
}

/// A file that became a link, or the reverse: git shows one deleted and one created.
fn type_change(names: &Abbreviations<'_>, change: &Change<'_>, output: &mut Output) {
    let Content::Replaced { old, new, .. } = &change.content else { return };
    let path = |prefix| quoted_with_prefix(prefix, &change.new.path, Spaces::Plain);
    let (a, b) = (path("a/"), path("b/"));
    let none = names.shorten(Oid::ZERO_SHA1);
    output.push_str(&format!("diff --git {a} {b}\ndeleted file mode {:06o}\n", change.old.mode));
    output.push_str(&format!("index {}..{none}\n", names.shorten(change.old.id)));
    whole(old, '-', &a, "/dev/null", output);
    output.push_str(&format!("diff --git {a} {b}\nnew file mode {:06o}\n", change.new.mode));
    output.push_str(&format!("index {none}..{}\n", names.shorten(change.new.id)));
    whole(new, '+', "/dev/null", &b, output);
}

fn whole(content: &[u8], sign: char, old: &str, new: &str, output: &mut Output) {
    if content.is_empty() {
        return;
    }
    if !is_text(content) {
        output.push_str(&format!("Binary files {old} and {new} differ\n"));
        return;
    }
    files(old, new, output);
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let range = if lines.len() == 1 { "1".to_owned() } else { format!("1,{}", lines.len()) };
    output.push_str(&if sign == '-' {
        format!("@@ -{range} +0,0 @@\n")
    } else {
        format!("@@ -0,0 +{range} @@\n")
    });
    for line in lines {
        output.push(&[&[sign as u8], line].concat());
    }
    if content.last() != Some(&b'\n') {
        output.push_str("\n\\ No newline at end of file\n");
    }
}
