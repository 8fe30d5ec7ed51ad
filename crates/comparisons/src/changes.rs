//! The changes of one run, reduced to what a comparison needs.

use std::hash::{BuildHasher as _, RandomState};

use wire::v1::file_change::Kind;
use wire::v1::{DiffRunResponse, FileChange};

use crate::conflicts::Changed;
use crate::sections::{Shown, sections};

/// Most changes that are shown of a run.
const MOST_SHOWN: usize = 1_000;
/// Length of the longest file whose lines a diff shows, bytes.
const LONGEST_FILE: u64 = 1024 * 1024;
/// Bytes of a shown change beside its texts.
const FIXED: usize = 64;

/// Changes of one run.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) shown: Vec<FileChange>,
    pub(crate) total: u64,
    pub(crate) added: u64,
    pub(crate) removed: u64,
    /// Some lines were not counted.
    pub(crate) is_uncounted: bool,
    pub(crate) paths: Vec<(String, Changed)>,
    /// Some paths are not in `paths`.
    pub(crate) is_cut: bool,
}

impl Changes {
    /// Reduces the diff of a run. `room` is the number of bytes for the changes that are shown.
    pub(crate) fn of(diff: DiffRunResponse, run: usize, room: usize, states: &RandomState) -> Self {
        let DiffRunResponse { changes, total, unified_diff, truncated } = diff;
        let sections = sections(&unified_diff);
        let mut reduced = Self {
            total,
            added: sections.values().map(|section| section.added).sum(),
            removed: sections.values().map(|section| section.removed).sum(),
            is_uncounted: truncated,
            is_cut: total > changes.len() as u64,
            ..Self::default()
        };
        let mut room = Some(room);
        for change in changes {
            let section = sections.get(&change.path);
            reduced.is_uncounted |= is_uncounted(&change, section);
            let is_directory = change.kind() != Kind::Deleted && change.file_type == "directory";
            let changed = Changed { run, state: state(&change, section, states), is_directory };
            reduced.paths.push((change.path.clone(), changed));
            let length = FIXED + change.path.len() + change.objection.len() + change.obstacle.len();
            room = room.and_then(|room| room.checked_sub(length));
            if room.is_some() && reduced.shown.len() < MOST_SHOWN {
                reduced.shown.push(change);
            }
        }
        reduced
    }
}

/// Returns the hash of the state to which a path was changed, or `None` if its content is not known.
fn state(change: &FileChange, section: Option<&Shown<'_>>, states: &RandomState) -> Option<u64> {
    const NO_CONTENT: &[&str] = &[];
    let (file_type, content) = match (change.kind(), change.file_type.as_str()) {
        (Kind::Deleted, _) => ("", NO_CONTENT),
        (_, file_type @ ("file" | "symlink")) => {
            let section = section.filter(|section| !section.is_hidden)?;
            (file_type, section.parts.as_slice())
        }
        (_, file_type) => (file_type, NO_CONTENT),
    };
    Some(states.hash_one((change.kind, file_type, change.mode, content)))
}

/// Returns true if lines of the change are in no section.
fn is_uncounted(change: &FileChange, section: Option<&Shown<'_>>) -> bool {
    match (change.file_type.as_str(), section) {
        ("directory", _) => change.kind() == Kind::Deleted,
        ("file", None) => true,
        ("file", Some(section)) => section.is_hidden && change.size_bytes > LONGEST_FILE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, kind: Kind, file_type: &str) -> FileChange {
        FileChange {
            path: path.to_owned(),
            kind: kind.into(),
            file_type: file_type.to_owned(),
            mode: if kind == Kind::Deleted { 0 } else { 0o644 },
            ..FileChange::default()
        }
    }

    fn added(path: &str, text: &str) -> String {
        format!(
            "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
        )
    }

    fn diff(changes: Vec<FileChange>, unified_diff: String) -> DiffRunResponse {
        let total = changes.len() as u64;
        DiffRunResponse { changes, total, unified_diff, truncated: false }
    }

    #[test]
    fn equal_contents_have_equal_states_and_others_do_not() {
        let states = RandomState::new();
        let of = |change: FileChange, text: String| {
            let reduced = Changes::of(diff(vec![change], text), 0, 10_000, &states);
            assert!(!reduced.is_cut && reduced.total == 1);
            reduced.paths[0].1.state
        };
        let file = || change("a", Kind::Added, "file");
        let one = of(file(), added("a", "one"));
        assert!(one.is_some() && one == of(file(), added("a", "one")));
        assert_ne!(one, of(file(), added("a", "two")));
        assert_ne!(one, of(FileChange { mode: 0o755, ..file() }, added("a", "one")));
        let binary = "diff --git a/a b/a\nnew file mode 100644\nBinary files /dev/null and b/a differ\n";
        assert_eq!(of(file(), binary.to_owned()), None);
        assert_eq!(of(file(), String::new()), None);
        let gone = of(change("a", Kind::Deleted, "file"), String::new());
        assert!(gone.is_some() && gone == of(change("a", Kind::Deleted, "directory"), String::new()));
        assert!(of(change("a", Kind::Added, "directory"), String::new()).is_some());
    }

    #[test]
    fn lines_that_are_not_counted_are_said() {
        let states = RandomState::new();
        let incomplete = |change: FileChange, text: String| {
            Changes::of(diff(vec![change], text), 0, 10_000, &states).is_uncounted
        };
        let hidden = "diff --git a/a b/a\nnew file mode 100644\nBinary files /dev/null and b/a differ\n";
        let file = || change("a", Kind::Added, "file");
        assert!(!incomplete(file(), added("a", "x")) && !incomplete(file(), hidden.to_owned()));
        assert!(incomplete(FileChange { size_bytes: LONGEST_FILE + 1, ..file() }, hidden.to_owned()));
        assert!(incomplete(file(), String::new()));
        assert!(incomplete(change("a", Kind::Deleted, "directory"), String::new()));
        assert!(!incomplete(change("a", Kind::Added, "directory"), String::new()));
        assert!(!incomplete(change("a", Kind::Added, "fifo"), String::new()));
    }

    #[test]
    fn shown_changes_are_bounded_and_all_are_compared() {
        let states = RandomState::new();
        let many = || (0..1_500).map(|number| change(&format!("{number:04}"), Kind::Added, "directory"));
        let reduced = Changes::of(diff(many().collect(), String::new()), 3, usize::MAX, &states);
        assert_eq!((reduced.shown.len(), reduced.paths.len(), reduced.total), (MOST_SHOWN, 1_500, 1_500));
        assert!(reduced.paths[0].1.run == 3 && reduced.paths[0].1.is_directory);
        let small = Changes::of(diff(many().collect(), String::new()), 3, 10 * (FIXED + 4) + 1, &states);
        assert_eq!((small.shown.len(), small.paths.len()), (10, 1_500));
        let cut = DiffRunResponse { total: 9_999, truncated: true, ..diff(many().collect(), String::new()) };
        let cut = Changes::of(cut, 0, 0, &states);
        assert!(cut.is_cut && cut.is_uncounted && cut.shown.is_empty());
    }
}
