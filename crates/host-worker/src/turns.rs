//! Which calls wait for others: effects on one file, and those on the repository, take turns in order of arrival.
//!
//! A path is compared as it is written, without a look at the disk: no link leads to a place that may be written. Two
//! names of one file that only the disk knows to be one (hard links) meet in `jail`, which sees the change and has the
//! operation begin again.

use std::collections::HashSet;

use wire::worker::v1::Start;

use crate::job::writes_repository;

/// Repository and paths that a call has for itself while it is at work.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    repository: bool,
    paths: Vec<String>,
}

impl Turn {
    /// Takes the paths out of `start`: the process of the operation needs none of them.
    pub(crate) fn of(start: &mut Start) -> Self {
        Self { repository: writes_repository(start), paths: std::mem::take(&mut start.paths) }
    }
}

/// Repository and paths that the calls before the next one have.
#[derive(Debug, Default)]
pub(crate) struct Turns<'t> {
    repository: bool,
    paths: HashSet<&'t str>,
    /// Directories that lead to these.
    above: HashSet<&'t str>,
}

impl<'t> Turns<'t> {
    pub(crate) fn take(&mut self, turn: &'t Turn) {
        self.repository |= turn.repository;
        for path in &turn.paths {
            self.paths.insert(path);
            self.above.extend(above(path));
        }
    }

    /// Returns whether a call shares nothing with the calls before it. A directory shares everything beneath it.
    pub(crate) fn admit(&self, turn: &Turn) -> bool {
        let is_taken = |path: &String| {
            self.paths.contains(path.as_str())
                || self.above.contains(path.as_str())
                || above(path).any(|above| self.paths.contains(above))
        };
        !(self.repository && turn.repository || turn.paths.iter().any(is_taken))
    }
}

fn above(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_for_those_before_them_that_share_a_path() {
        let turn = |paths: &[&str]| Turn {
            repository: false,
            paths: paths.iter().map(|&path| path.to_owned()).collect(),
        };
        for (before, next, free) in [
            (&["@project/a"][..], &["@project/a"][..], false),
            (&["@project/a"], &["@project/b"], true),
            (&["@project/a"], &["@state/a"], true),
            (&["@project/a", "@project/b"], &["@project/c", "@project/b"], false),
            (&["@project/d"], &["@project/d/e/f"], false),
            (&["@project/d/e/f"], &["@project/d"], false),
            (&["@project/d"], &["@project/de"], true),
            (&["@project"], &["@project/a"], false),
            (&[], &["@project/a"], true),
            (&["@project/a"], &[], true),
        ] {
            let (before, next) = (turn(before), turn(next));
            let mut turns = Turns::default();
            turns.take(&before);
            assert_eq!(turns.admit(&next), free, "{before:?} {next:?}");
        }
        let (one, other) = (Turn { repository: true, paths: Vec::new() }, turn(&["@project/a"]));
        let mut turns = Turns::default();
        turns.take(&one);
        assert!(turns.admit(&other) && !turns.admit(&one));
    }
}
