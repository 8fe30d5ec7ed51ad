//! Collects the results of several threads in any order, and builds the answer of a sequential search from them.

use std::collections::BTreeMap;

use operations::{GrepMatch, GrepResult};

use super::seeker::Sought;
use crate::cancel::Stopped;

/// Matches and bytes that still fit into the answer.
#[derive(Debug, Clone, Copy)]
struct Budget {
    matches: usize,
    bytes: usize,
}

impl Budget {
    /// Counts a match, unless the answer is full.
    fn admit(&mut self, found: &GrepMatch) -> bool {
        if self.matches == 0 || self.bytes == 0 {
            return false;
        }
        let lines = found.before.iter().chain(&found.after).chain([&found.text, &found.path]);
        self.matches -= 1;
        self.bytes = self.bytes.saturating_sub(lines.map(String::len).sum());
        true
    }
}

/// Matches of one file.
#[derive(Debug)]
struct Found {
    matches: Vec<GrepMatch>,
    /// True if the file has more matches than fit into any answer.
    more: bool,
}

/// Collector of the threads' results. Files are identified by their number in path order.
#[derive(Debug)]
pub(super) struct Tally {
    budget: Budget,
    searched: u64,
    /// Results by file, at most those of an answer and one more file.
    found: BTreeMap<u64, Found>,
    /// Numbers of files that were left out, among them those with NUL bytes.
    skipped: Vec<u64>,
    binary: Vec<u64>,
    /// Numbers of files that were not searched to their end.
    cut: Vec<u64>,
    stopped: Option<Stopped>,
}

/// Final result of a search.
#[derive(Debug)]
pub(super) struct Sum {
    /// Result without its hint.
    pub(super) result: GrepResult,
    /// True if there are more matches than fit.
    pub(super) more: bool,
    /// Number of files with NUL bytes.
    pub(super) binary: u64,
    /// Number of files that were not searched to their end.
    pub(super) cut: u64,
    pub(super) stopped: Option<Stopped>,
}

impl Tally {
    pub(super) fn new(max_matches: u32, space: usize) -> Self {
        let budget = Budget { matches: max_matches as usize, bytes: space };
        let (found, skipped, binary, cut) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Self { budget, searched: 0, found, skipped, binary, cut, stopped: None }
    }

    /// Adds the result of a file.
    ///
    /// Returns the number of the last file that can still matter, once the files up to it are known to fill the answer.
    pub(super) fn add(&mut self, number: u64, sought: Sought) -> Option<u64> {
        match sought {
            Sought::Unwanted => None,
            Sought::Stopped(stopped) => {
                self.stopped = Some(stopped);
                Some(0)
            }
            Sought::Binary => {
                self.skipped.push(number);
                self.binary.push(number);
                None
            }
            Sought::Unreadable => {
                self.skipped.push(number);
                None
            }
            Sought::Searched { matches, more, cut } => {
                self.searched += 1;
                if cut {
                    self.cut.push(number);
                }
                if matches.is_empty() && !more {
                    return None;
                }
                self.found.insert(number, Found { matches, more });
                let last = self.last()?;
                drop(self.found.split_off(&(last + 1)));
                Some(last)
            }
        }
    }

    /// Returns the first file with which the answer is full. Files before it that are still missing can only make it an earlier one.
    fn last(&self) -> Option<u64> {
        let mut budget = self.budget;
        let full = self
            .found
            .iter()
            .find(|(_, found)| !found.matches.iter().all(|found| budget.admit(found)) || found.more);
        full.map(|(&number, _)| number)
    }

    /// Returns the answer after `files` files were handed out and all that matter have been added.
    pub(super) fn finish(self, files: u64) -> Sum {
        let last = self.last();
        let looked = last.map_or(files, |last| last + 1);
        let counted = |numbers: &[u64]| numbers.iter().filter(|&&number| number < looked).count() as u64;
        let (skipped, binary, cut) = (counted(&self.skipped), counted(&self.binary), counted(&self.cut));
        let mut result = GrepResult {
            // A stopped search reports its progress. Otherwise the count follows the path order, independent of the threads' speed.
            files_searched: self.stopped.map_or(looked - skipped, |_| self.searched),
            files_skipped: skipped,
            ..GrepResult::default()
        };
        let mut budget = self.budget;
        for found in self.found.into_values() {
            let before = result.matches.len();
            result.matches.extend(found.matches.into_iter().take_while(|found| budget.admit(found)));
            result.files_matched += u64::from(result.matches.len() > before);
        }
        Sum { result, more: last.is_some(), binary, cut, stopped: self.stopped }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sought((kind, matches, length): (u8, usize, usize)) -> Sought {
        let found = GrepMatch {
            path: "a".to_owned(),
            line: 1,
            text: "x".repeat(length),
            before: Vec::new(),
            after: Vec::new(),
        };
        match kind {
            0 if length % 2 == 0 => Sought::Binary,
            0 => Sought::Unreadable,
            _ => Sought::Searched { matches: vec![found; matches], more: kind == 1, cut: kind == 2 },
        }
    }

    /// What came of files that were searched in that order; those that did not matter any more are left out.
    fn sum(files: &[(u8, usize, usize)], order: &[usize], max_matches: u32, space: usize) -> String {
        let (mut tally, mut last) = (Tally::new(max_matches, space), u64::MAX);
        for &number in order.iter().filter(|&&number| number < files.len()) {
            if number as u64 <= last {
                last = last.min(tally.add(number as u64, sought(files[number])).unwrap_or(last));
            }
        }
        format!("{:?}", tally.finish(files.len() as u64))
    }

    proptest! {
        #[test]
        fn tally_does_not_depend_on_order(
            files in prop::collection::vec((0_u8..6, 0_usize..5, 0_usize..40), 0..24),
            order in Just((0..24).collect::<Vec<_>>()).prop_shuffle(),
            max_matches in 1_u32..30,
            space in 1_usize..400,
        ) {
            let by_path: Vec<_> = (0..24).collect();
            prop_assert_eq!(sum(&files, &order, max_matches, space), sum(&files, &by_path, max_matches, space));
        }
    }
}
