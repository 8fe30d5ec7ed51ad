//! Which run began with the state of which other one.

use std::collections::{BTreeMap, BTreeSet};

use wire::v1::Run;

/// Returns the run from which this one was forked.
pub(crate) fn origin(run: &Run) -> Option<&str> {
    run.forked_from.as_ref().map(|from| from.run_id.as_str())
}

/// Returns the labels of a run on one line.
pub(crate) fn labels(run: &Run) -> String {
    let labels: Vec<String> = run.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.join(" ")
}

/// Runs by their origin.
pub(crate) struct Lineage<'r> {
    runs: BTreeMap<&'r str, &'r Run>,
    /// Forks of each run, oldest first. The run itself may have been deleted.
    forks: BTreeMap<&'r str, Vec<&'r Run>>,
}

/// Run in the tree of its family.
#[derive(Debug, PartialEq)]
pub(crate) struct Node<'r> {
    /// Lines that lead to it from its origin.
    pub(crate) lines: String,
    pub(crate) id: &'r str,
    /// `None`: it was deleted.
    pub(crate) run: Option<&'r Run>,
}

impl<'r> Lineage<'r> {
    pub(crate) fn of(runs: &'r [Run]) -> Self {
        let mut forks: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in runs {
            if let Some(origin) = origin(run) {
                forks.entry(origin).or_default().push(run);
            }
        }
        // The ids are in the order of time.
        for forks in forks.values_mut() {
            forks.sort_by(|a, b| a.run_id.cmp(&b.run_id));
        }
        Self { runs: runs.iter().map(|run| (run.run_id.as_str(), run)).collect(), forks }
    }

    /// Returns the forks of a run, oldest first.
    pub(crate) fn forks(&self, id: &str) -> &[&'r Run] {
        self.forks.get(id).map_or(&[][..], Vec::as_slice)
    }

    pub(crate) fn run(&self, id: &str) -> Option<&'r Run> {
        self.runs.get(id).copied()
    }

    /// Returns the first run of a family, which may have been deleted. Returns `None` if the run is not known.
    pub(crate) fn root(&self, id: &str) -> Option<&'r str> {
        let known = self.runs.get_key_value(id).map(|(id, _)| *id);
        let mut root = known.or_else(|| self.forks.get_key_value(id).map(|(id, _)| *id))?;
        let mut seen = BTreeSet::new();
        while let Some(origin) = self.run(root).and_then(origin)
            && seen.insert(root)
        {
            root = origin;
        }
        Some(root)
    }

    /// Returns the first runs of all families, oldest first.
    pub(crate) fn roots(&self) -> Vec<&'r str> {
        let is_root = |id: &&&str| self.run(id).and_then(origin).is_none();
        self.forks.keys().filter(is_root).copied().collect()
    }

    /// Returns a family, each run before its forks.
    pub(crate) fn family(&self, root: &'r str) -> Vec<Node<'r>> {
        let mut family = Vec::new();
        let mut seen = BTreeSet::new();
        // The id, the lines of the run and those before its forks.
        let mut left = vec![(root, String::new(), String::new())];
        while let Some((id, lines, before)) = left.pop() {
            if !seen.insert(id) {
                continue;
            }
            let forks = self.forks(id).iter().rev().enumerate();
            left.extend(forks.map(|(number, fork)| {
                let [own, below] = if number == 0 { ["└─ ", "   "] } else { ["├─ ", "│  "] };
                (fork.run_id.as_str(), format!("{before}{own}"), format!("{before}{below}"))
            }));
            family.push(Node { lines, id, run: self.run(id) });
        }
        family
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use wire::v1::ForkedFrom;

    use super::*;

    pub(crate) fn run(id: &str, origin: &str) -> Run {
        let forked_from = (!origin.is_empty())
            .then(|| ForkedFrom { checkpoint_id: String::new(), run_id: origin.to_owned() });
        Run { run_id: id.to_owned(), forked_from, ..Run::default() }
    }

    #[test]
    fn a_family_is_a_tree_with_the_oldest_first() {
        let runs = [run("5", ""), run("4", "2"), run("3", "1"), run("2", "1"), run("1", "")];
        let lineage = Lineage::of(&runs);
        let shown: Vec<String> =
            lineage.family("1").iter().map(|node| format!("{}{}", node.lines, node.id)).collect();
        assert_eq!(shown, ["1", "├─ 2", "│  └─ 4", "└─ 3"]);
        assert_eq!(lineage.roots(), ["1"]);
        assert_eq!((lineage.root("4"), lineage.root("5"), lineage.root("9")), (Some("1"), Some("5"), None));
    }

    #[test]
    fn a_deleted_origin_keeps_its_family_together() {
        let runs = [run("3", "1"), run("2", "1")];
        let lineage = Lineage::of(&runs);
        assert_eq!(
            (lineage.roots(), lineage.root("3"), lineage.root("1")),
            (vec!["1"], Some("1"), Some("1"))
        );
        let family = lineage.family("1");
        assert!(family[0].run.is_none() && family[1].run.is_some() && family.len() == 3);
    }

    #[test]
    fn a_circle_ends() {
        let runs = [run("1", "2"), run("2", "1")];
        let lineage = Lineage::of(&runs);
        assert!(lineage.root("1").is_some() && lineage.roots().is_empty());
        assert_eq!(lineage.family("1").len(), 2);
    }
}
