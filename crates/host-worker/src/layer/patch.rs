//! Writes one change as a unified diff with git's headers, for people, `git apply` and `patch -p1`.

use std::fmt::Write as _;
use std::io::Read as _;
use std::time::Duration;

use jail::{Dir, EntryName, FileKind, Metadata};
use similar::TextDiff;

use super::judge::Kind;
use super::walk::Change;
use crate::git::quoted;

/// Longest file that is shown.
const MOST: u64 = 1024 * 1024;
/// Time for the shortest diff. After this the diff is right but may be longer.
const TIME: Duration = Duration::from_millis(500);
const CONTEXT: usize = 3;

struct Side {
    mode: &'static str,
    /// `None`: not text, or too long to show.
    text: Option<String>,
}

/// Returns the diff; empty for a change that has none, such as a directory's.
pub(super) fn of(change: &Change<'_>) -> String {
    let Some(name) = change.name() else { return String::new() };
    let old = change.old.zip(change.beneath).and_then(|(meta, beneath)| side(beneath, name, &meta));
    let new = match change.kind {
        Kind::Deleted => None,
        Kind::Added | Kind::Modified => side(change.changes, name, &change.meta),
    };
    let path: Vec<u8> = change.path.iter().map(EntryName::as_bytes).collect::<Vec<_>>().join(&b'/');
    match (old, new) {
        (None, None) => String::new(),
        // A link instead of a file, or the reverse: one is removed and one is created.
        (Some(old), Some(new)) if (old.mode == LINK) != (new.mode == LINK) => {
            [one(&path, Some(&old), None), one(&path, None, Some(&new))].concat()
        }
        (old, new) => one(&path, old.as_ref(), new.as_ref()),
    }
}

const LINK: &str = "120000";

fn side(directory: &Dir, name: &EntryName, meta: &Metadata) -> Option<Side> {
    match meta.kind {
        FileKind::File => {
            let mode = if meta.mode & 0o100 == 0 { "100644" } else { "100755" };
            Some(Side { mode, text: text(directory, name) })
        }
        FileKind::Symlink => {
            let target = directory.read_link(name).ok().and_then(|target| String::from_utf8(target).ok());
            Some(Side { mode: LINK, text: target })
        }
        _ => None,
    }
}

fn text(directory: &Dir, name: &EntryName) -> Option<String> {
    let opened = directory.open_file(name).ok()?;
    let mut bytes = Vec::new();
    opened.file.take(MOST + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > MOST || bytes.contains(&0) {
        return None;
    }
    String::from_utf8(bytes).ok()
}

fn one(path: &[u8], old: Option<&Side>, new: Option<&Side>) -> String {
    let [a, b] = [b"a/", b"b/"].map(|side| quoted(&[side, path].concat()));
    let mut diff = format!("diff --git {a} {b}\n");
    let header = match (old, new) {
        (None, Some(new)) => format!("new file mode {}\n", new.mode),
        (Some(old), None) => format!("deleted file mode {}\n", old.mode),
        (Some(old), Some(new)) if old.mode != new.mode => {
            format!("old mode {}\nnew mode {}\n", old.mode, new.mode)
        }
        _ => String::new(),
    };
    diff.push_str(&header);
    let from = if old.is_some() { a } else { "/dev/null".to_owned() };
    let to = if new.is_some() { b } else { "/dev/null".to_owned() };
    // A missing side is an empty text.
    let lines = |side: Option<&Side>| side.map_or(Some(String::new()), |side| side.text.clone());
    let (Some(before), Some(after)) = (lines(old), lines(new)) else {
        let _ = writeln!(diff, "Binary files {from} and {to} differ");
        return diff;
    };
    if before == after {
        return diff;
    }
    let tab = |name: &str| if name.contains(' ') { "\t" } else { "" };
    let _ = write!(diff, "--- {from}{}\n+++ {to}{}\n", tab(&from), tab(&to));
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let changes = TextDiff::configure().timeout(TIME).newline_terminated(true).diff_slices(&before, &after);
    let _ = write!(diff, "{}", changes.unified_diff().context_radius(CONTEXT));
    diff
}
