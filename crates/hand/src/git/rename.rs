//! Which added file is which deleted one under another name: git's algorithm, since libgit2's picks other pairs.
//!
//! In git's order: equal contents first, then files whose base names are unique on both sides, then each added
//! file's four best sources, best pairs first.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::HashMap;

use git2::Oid;

use super::contents::Contents;
use super::delta::is_binary;
use super::difference::Version;
use super::similarity::{Fingerprint, MAX_SCORE};

const MINIMUM: u64 = MAX_SCORE / 2;
const MINIMUM_OF_SAME_NAME: u64 = MINIMUM + (MAX_SCORE - MINIMUM) / 2;
/// Of equal contents, so many are looked at.
const ALTERNATIVES: usize = 100;
/// Best sources that are kept of each target.
const KEPT: usize = 4;
/// Comparisons, at most; with more, only the first two steps are done.
const COMPARISONS: usize = 1_000_000;
const REGULAR: u32 = 0o100_000;
const TYPE: u32 = 0o170_000;

/// A file that was added or deleted.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) path: Vec<u8>,
    /// Of its content, wherever that is.
    pub(super) id: Oid,
    pub(super) version: Version,
}

impl Candidate {
    fn base_name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    fn is_regular(&self) -> bool {
        self.version.mode & TYPE == REGULAR
    }
}

/// The source of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    /// Index among the sources.
    pub(super) source: usize,
    score: u64,
}

impl Pair {
    /// Percent.
    pub(super) fn similarity(self) -> u64 {
        self.score * 100 / MAX_SCORE
    }
}

/// For each target its source, if it has one. No source is used twice. Both lists are in the order of their paths.
pub(super) fn find(
    contents: &Contents<'_>,
    sources: &[Candidate],
    targets: &[Candidate],
) -> Vec<Option<Pair>> {
    let mut search = Search {
        contents,
        sources,
        targets,
        used: vec![false; sources.len()],
        pairs: vec![None; targets.len()],
        fingerprints: [sources, targets].map(|list| list.iter().map(|_| OnceCell::new()).collect()),
    };
    if !sources.is_empty() && !targets.is_empty() {
        search.equal_contents();
        search.same_names();
        search.best_scores();
    }
    search.pairs
}

struct Search<'s> {
    contents: &'s Contents<'s>,
    sources: &'s [Candidate],
    targets: &'s [Candidate],
    used: Vec<bool>,
    pairs: Vec<Option<Pair>>,
    /// Of the sources and of the targets, once they were asked for; `None` for what is no readable blob.
    fingerprints: [Vec<OnceCell<Option<Fingerprint>>>; 2],
}

impl Search<'_> {
    fn pair(&mut self, source: usize, target: usize, score: u64) {
        self.used[source] = true;
        self.pairs[target] = Some(Pair { source, score });
    }

    fn equal_contents(&mut self) {
        let mut by_id: HashMap<Oid, Vec<usize>> = HashMap::new();
        for (index, source) in self.sources.iter().enumerate() {
            by_id.entry(source.id).or_default().push(index);
        }
        for (index, target) in self.targets.iter().enumerate() {
            let same_kind = |source: &Candidate| {
                (source.is_regular() && target.is_regular()) || source.version.mode == target.version.mode
            };
            let alternatives = by_id.get(&target.id).into_iter().flatten().take(ALTERNATIVES);
            // The first of those with the best claim.
            let best = alternatives
                .filter(|source| !self.used[**source] && same_kind(&self.sources[**source]))
                .min_by_key(|source| self.sources[**source].base_name() != target.base_name());
            if let Some(source) = best.copied() {
                self.pair(source, index, MAX_SCORE);
            }
        }
    }

    fn same_names(&mut self) {
        let sources = unique_names(self.sources, |index| !self.used[index]);
        let targets = unique_names(self.targets, |index| self.pairs[index].is_none());
        for index in 0..self.sources.len() {
            let name = self.sources[index].base_name();
            if sources.get(name) != Some(&Some(index)) {
                continue;
            }
            if let Some(Some(target)) = targets.get(name) {
                let score = self.score(index, *target, MINIMUM_OF_SAME_NAME);
                if score >= MINIMUM_OF_SAME_NAME {
                    self.pair(index, *target, score);
                }
            }
        }
    }

    fn best_scores(&mut self) {
        let sources: Vec<usize> = (0..self.sources.len()).filter(|index| !self.used[*index]).collect();
        let targets: Vec<usize> =
            (0..self.targets.len()).filter(|index| self.pairs[*index].is_none()).collect();
        if sources.len().saturating_mul(targets.len()) > COMPARISONS {
            return;
        }
        let mut best = Vec::new();
        for target in targets {
            let mut kept: Vec<Match> = Vec::with_capacity(KEPT);
            for source in &sources {
                let score = self.score(*source, target, MINIMUM);
                let same_name = self.sources[*source].base_name() == self.targets[target].base_name();
                keep(&mut kept, Match { score, same_name, source: *source, target });
            }
            best.append(&mut kept);
        }
        best.sort_by_key(|found| Reverse((found.score, found.same_name)));
        for found in best.into_iter().take_while(|found| found.score >= MINIMUM) {
            if self.pairs[found.target].is_none() && !self.used[found.source] {
                self.pair(found.source, found.target, found.score);
            }
        }
    }

    fn score(&self, source: usize, target: usize, minimum: u64) -> u64 {
        if !self.sources[source].is_regular() || !self.targets[target].is_regular() {
            return 0;
        }
        match (self.fingerprint(0, source), self.fingerprint(1, target)) {
            (Some(source), Some(target)) => source.score(target, minimum),
            _ => 0,
        }
    }

    fn fingerprint(&self, list: usize, index: usize) -> Option<&Fingerprint> {
        let candidate = if list == 0 { &self.sources[index] } else { &self.targets[index] };
        let contents = self.contents;
        let make = || {
            let content = contents.of(&candidate.path, candidate.version).ok()?;
            let is_text = !is_binary(contents.repository, &candidate.path, &content);
            content.blob.as_ref().map(|blob| Fingerprint::of(blob.content(), is_text))
        };
        self.fingerprints[list][index].get_or_init(make).as_ref()
    }
}

#[derive(Clone, Copy)]
struct Match {
    score: u64,
    same_name: bool,
    source: usize,
    target: usize,
}

/// Keeps the best few, each in the slot in which it came: the order of equals is part of the result.
fn keep(kept: &mut Vec<Match>, found: Match) {
    let rank = |each: &Match| (each.score, each.same_name);
    if kept.len() < KEPT {
        kept.push(found);
        return;
    }
    // The first of the worst.
    if let Some(worst) = kept.iter_mut().min_by_key(|each| rank(each))
        && rank(worst) < rank(&found)
    {
        *worst = found;
    }
}

/// Each base name with its index, or `None` when several have it.
fn unique_names(candidates: &[Candidate], counts: impl Fn(usize) -> bool) -> HashMap<&[u8], Option<usize>> {
    let mut names = HashMap::new();
    for (index, candidate) in candidates.iter().enumerate().filter(|(index, _)| counts(*index)) {
        names.entry(candidate.base_name()).and_modify(|each| *each = None).or_insert(Some(index));
    }
    names
}
