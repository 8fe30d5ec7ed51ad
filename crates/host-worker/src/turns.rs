//! Decides which calls wait for others: effects on one file, and effects on the repository, run in order of arrival.
//!
//! Paths are compared as they are written, without access to the disk: no link leads to a writable path. Hard links are two names
//! of one file that only the disk knows. They meet in `jail`, which sees the change and has the operation begin again.

use std::collections::HashSet;

use wire::worker::v1::Start;

use crate::job::{writes_repository, writes_work_tree};

/// The directory of all files that a pull may write.
const WORK_TREE: &str = "@project";

/// The repository and the paths that a call needs exclusively while it is at work.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    repository: bool,
    paths: Vec<String>,
}

impl Turn {
    /// Takes the paths out of `start`: the process of the operation needs none of them.
    pub(crate) fn of(start: &mut Start) -> Self {
        let mut paths = std::mem::take(&mut start.paths);
        if writes_work_tree(start) {
            paths.push(WORK_TREE.to_owned());
        }
        Self { repository: writes_repository(start), paths }
    }
}

/// The repository and the paths that earlier calls have taken.
#[derive(Debug, Default)]
pub(crate) struct Turns<'t> {
    repository: bool,
    paths: HashSet<&'t str>,
    /// The directories above these paths.
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

    /// Returns true if a call shares nothing with the calls before it. A directory shares everything beneath it.
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
    use wire::v1::{GitPull, git_request, operation};

    use super::*;

    #[test]
    fn calls_wait_for_earlier_calls_with_a_common_path() {
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
        let pull = wire::v1::GitRequest { command: Some(git_request::Command::Pull(GitPull::default())) };
        let operation = wire::v1::Operation { kind: Some(operation::Kind::Git(pull)) };
        let mut start = Start { operation: Some(operation), ..Start::default() };
        let pull = Turn::of(&mut start);
        let mut turns = Turns::default();
        turns.take(&turn(&["@project/a"]));
        assert!(!turns.admit(&pull));
        start.preview = true;
        assert!(turns.admit(&Turn::of(&mut start)));

        let (one, other) = (Turn { repository: true, paths: Vec::new() }, turn(&["@project/a"]));
        let mut turns = Turns::default();
        turns.take(&one);
        assert!(turns.admit(&other) && !turns.admit(&one));
    }
}
