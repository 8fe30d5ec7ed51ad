//! Paths that several runs have changed to different states.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

/// Most paths that are compared.
const MOST_PATHS: usize = 100_000;
/// Most bytes that these paths may have together.
const MOST_PATH_BYTES: usize = 16 * 1024 * 1024;

/// State to which a run has changed a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Number of the run in the request.
    pub(crate) run: usize,
    /// Hash of the state. `None`: not known, and different from every other.
    pub(crate) state: Option<u64>,
    /// True if the path is a directory now. Names beneath any other path are gone.
    pub(crate) is_directory: bool,
}

/// Path that several runs have changed to different states, with the numbers of these runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) path: String,
    pub(crate) runs: BTreeSet<usize>,
}

/// All changed paths of the runs.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    changed: BTreeMap<String, Vec<Changed>>,
    bytes: usize,
    is_cut: bool,
}

impl Paths {
    /// Adds the change of a path, unless there are too many paths already.
    pub(crate) fn add(&mut self, path: String, changed: Changed) {
        if let Some(others) = self.changed.get_mut(&path) {
            others.push(changed);
        } else if self.changed.len() < MOST_PATHS && self.bytes + path.len() <= MOST_PATH_BYTES {
            self.bytes += path.len();
            self.changed.insert(path, vec![changed]);
        } else {
            self.is_cut = true;
        }
    }

    /// Notes that a run has changed more paths than it could name.
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Returns at most `most` conflicts, by path. Also returns whether there may be more.
    pub(crate) fn conflicts(&self, most: usize) -> (Vec<Conflict>, bool) {
        let mut found = Vec::new();
        for (path, changed) in &self.changed {
            let runs = self.differing(path, changed);
            if runs.is_empty() {
                continue;
            }
            if found.len() == most {
                return (found, true);
            }
            found.push(Conflict { path: path.clone(), runs });
        }
        (found, self.is_cut)
    }

    /// Returns the runs that do not agree about a path; none if all do.
    fn differing(&self, path: &str, changed: &[Changed]) -> BTreeSet<usize> {
        let mut runs = BTreeSet::new();
        if let [first, others @ ..] = changed
            && others.iter().any(|other| first.state.is_none() || other.state != first.state)
        {
            runs.extend(changed.iter().map(|changed| changed.run));
        }
        let ended = changed.iter().filter(|changed| !changed.is_directory).map(|changed| changed.run);
        let mut involved: BTreeSet<usize> = ended.collect();
        if !involved.is_empty() {
            // `0` is the character after the slash.
            let (from, to) = (format!("{path}/"), format!("{path}0"));
            let range = (Included(from.as_str()), Excluded(to.as_str()));
            let mut beneath = self.changed.range::<str, _>(range).peekable();
            if beneath.peek().is_some() {
                involved.extend(beneath.flat_map(|(_, others)| others).map(|other| other.run));
                if involved.len() > 1 {
                    runs.append(&mut involved);
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflicts(changes: &[(&str, usize, Option<u64>, bool)]) -> Vec<(String, Vec<usize>)> {
        let mut paths = Paths::default();
        for (path, run, state, is_directory) in changes {
            paths.add((*path).to_owned(), Changed { run: *run, state: *state, is_directory: *is_directory });
        }
        let (found, more) = paths.conflicts(10);
        assert!(!more);
        found.into_iter().map(|one| (one.path, one.runs.into_iter().collect())).collect()
    }

    #[test]
    fn equal_changes_agree_and_different_or_unknown_ones_conflict() {
        assert_eq!(conflicts(&[("a", 0, Some(1), false), ("b", 1, Some(1), false)]), []);
        assert_eq!(conflicts(&[("a", 0, Some(1), false), ("a", 1, Some(1), false)]), []);
        assert_eq!(
            conflicts(&[("a", 0, Some(1), false), ("a", 2, Some(1), false), ("a", 1, Some(2), false)]),
            [("a".to_owned(), vec![0, 1, 2])]
        );
        for (one, other) in [(None, None), (None, Some(1)), (Some(1), None)] {
            assert_eq!(conflicts(&[("a", 0, one, false), ("a", 1, other, false)]).len(), 1);
        }
        assert_eq!(conflicts(&[("a", 0, None, false)]), []);
    }

    #[test]
    fn a_deleted_directory_conflicts_with_changes_beneath_it() {
        let beneath = [("d", 0, Some(1), false), ("d/x", 1, Some(2), false), ("d!", 2, Some(3), false)];
        assert_eq!(conflicts(&beneath), [("d".to_owned(), vec![0, 1])]);
        // Another name that begins alike, a directory that stays, and changes of the run itself.
        for agree in [
            [("d", 0, Some(1), false), ("d0", 1, Some(2), false)],
            [("d", 0, Some(1), true), ("d/x", 1, Some(2), false)],
            [("d", 0, Some(1), false), ("d/x", 0, Some(2), false)],
        ] {
            assert_eq!(conflicts(&agree), [], "{agree:?}");
        }
    }

    #[test]
    fn conflicts_and_paths_are_bounded() {
        let changed = |run| Changed { run, state: None, is_directory: false };
        let mut paths = Paths::default();
        for name in ["a", "b", "c"] {
            paths.add(name.to_owned(), changed(0));
            paths.add(name.to_owned(), changed(1));
        }
        let (found, more) = paths.conflicts(2);
        assert_eq!((found.len(), more), (2, true));
        assert!(!paths.conflicts(3).1);
        paths.add("x".repeat(MOST_PATH_BYTES), changed(0));
        assert_eq!((paths.conflicts(3).1, paths.changed.len()), (true, 3));
    }
}
