//! The kinds of containers that wait, and how many of each there should be. No I/O.
//!
//! ```text
//!  entry of the configuration ─► its kind, with `min` ──────────────┐
//!                           └─► kinds that runs asked for lately ───┴─► together at most `max`
//! ```
//!
//! Containers of one kind are interchangeable. An entry has one kind by itself: its profile, with the entry's image. A run of the profile
//! that needed another container adds a kind, as another image does, or lower limits. Such a kind lasts as long as it is asked for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::demand::Demand;

/// Most kinds that runs have added. Beyond it, the one that was asked for least makes room, unless containers of it wait.
const MOST_ADDED: usize = 64;
/// Time for which no container of a kind is made after an attempt failed because of the kind itself.
pub const PAUSE: Duration = Duration::from_secs(300);

/// Kinds and their containers. `M` says how a container is made, and `W` is one that waits.
pub struct Table<M, W> {
    kinds: BTreeMap<String, Kind<M, W>>,
    /// Bounds, by the key of the kind that the configuration has.
    bounds: BTreeMap<String, Bounds>,
    /// Key of the kind within whose bounds a run's own kind is added, by profile and image.
    entries: BTreeMap<Named, String>,
    counts: Counts,
}

/// Numbers since the start, of all kinds that are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs that took a container out.
    pub claimed: u64,
    /// Runs for whose kind none waited.
    pub missed: u64,
    /// Containers that were put in.
    pub refilled: u64,
}

/// A profile, and an image of an entry. `None` is any image.
pub type Named = (String, Option<String>);

impl<M, W> Default for Table<M, W> {
    fn default() -> Self {
        Self {
            kinds: BTreeMap::new(),
            bounds: BTreeMap::new(),
            entries: BTreeMap::new(),
            counts: Counts::default(),
        }
    }
}

/// Numbers of containers that wait: without demand, and at most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    pub min: usize,
    pub max: usize,
}

/// A kind of the configuration.
pub struct Configured<M> {
    pub key: String,
    /// Name for the log.
    pub name: String,
    pub make: M,
    pub bounds: Bounds,
    pub entry: Named,
}

struct Kind<M, W> {
    name: String,
    make: M,
    /// Key of its bounds.
    bounds: String,
    demand: Demand,
    /// Containers that wait, and since when. The oldest is first.
    ready: VecDeque<(Instant, W)>,
    /// None is made before this time, because the last attempt failed.
    not_before: Option<Instant>,
}

/// Reason that no container could be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoneWaits {
    /// No container of this kind is kept.
    Unknown,
    /// All that waited are taken, or lost.
    Taken,
}

/// Containers of a kind that wait, and how many there should be.
#[derive(Debug, PartialEq, Eq)]
pub struct Fill {
    pub name: String,
    pub ready: usize,
    pub target: usize,
}

/// A pool at one moment.
#[derive(Debug, PartialEq, Eq)]
pub struct Levels {
    pub fills: Vec<Fill>,
    pub counts: Counts,
    /// Longest time that a container has waited.
    pub oldest: Option<Duration>,
}

impl<M: Clone, W> Table<M, W> {
    /// Takes over the kinds of the configuration, and returns the containers of kinds that are gone, for the caller to remove.
    ///
    /// Kinds that runs have added go with the `policy` under which they were asked for, or with their entry.
    pub fn replace(&mut self, configured: Vec<Configured<M>>, is_new_policy: bool) -> Vec<W> {
        let mut before = std::mem::take(&mut self.kinds);
        (self.bounds, self.entries) = (BTreeMap::new(), BTreeMap::new());
        for Configured { key, name, make, bounds, entry } in configured {
            let same = self.bounds.entry(key.clone()).or_default();
            same.min += bounds.min;
            same.max += bounds.max;
            self.entries.entry(entry).or_insert_with(|| key.clone());
            let (demand, ready) =
                before.remove(&key).map(|kind| (kind.demand, kind.ready)).unwrap_or_default();
            let kind = Kind { name, make, bounds: key.clone(), demand, ready, not_before: None };
            self.kinds.entry(key).or_insert(kind);
        }
        let mut needless = Vec::new();
        for (key, kind) in before {
            let is_added = kind.bounds != key;
            if is_added && !is_new_policy && self.bounds.contains_key(&kind.bounds) {
                self.kinds.insert(key, kind);
                continue;
            }
            if !kind.ready.is_empty() {
                tracing::info!(pool = kind.name, key, "warm containers of this kind are no longer wanted");
            }
            needless.extend(kind.ready.into_iter().map(|(_, waits)| waits));
        }
        needless
    }

    /// Takes out the container that has waited longest, and counts the request.
    pub fn take(&mut self, key: &str, now: Instant, is_usable: impl Fn(&W) -> bool) -> Result<W, NoneWaits> {
        let kind = self.kinds.get_mut(key).ok_or(NoneWaits::Unknown)?;
        let most = self.bounds.get(&kind.bounds).map_or(0, |bounds| bounds.max);
        kind.demand.note(now, most);
        let first = kind.ready.iter().position(|(_, waits)| is_usable(waits));
        let taken = first.and_then(|first| kind.ready.remove(first)).map(|(_, waits)| waits);
        let count = if taken.is_some() { &mut self.counts.claimed } else { &mut self.counts.missed };
        *count += 1;
        taken.ok_or(NoneWaits::Taken)
    }

    /// Adds the kind of a run that got a new container, and counts the request. Does nothing if the kind is there, or has no entry.
    pub fn add(&mut self, key: &str, named: Named, now: Instant, make: impl FnOnce() -> (String, M)) {
        if self.kinds.contains_key(key) {
            return;
        }
        let (profile, image) = named;
        let of_image = self.entries.get(&(profile.clone(), image));
        let Some(bounds) = of_image.or_else(|| self.entries.get(&(profile, None))).cloned() else { return };
        let added = || self.kinds.iter().filter(|(key, kind)| kind.bounds != **key);
        if added().count() >= MOST_ADDED {
            let empty = added().filter(|(_, kind)| kind.ready.is_empty());
            let least = empty.min_by_key(|(_, kind)| (kind.demand.asked(now), kind.demand.last()));
            let Some(least) = least.map(|(key, _)| key.clone()) else { return };
            self.kinds.remove(&least);
        }
        let (name, make) = make();
        let mut demand = Demand::default();
        demand.note(now, 1);
        let kind = Kind { name, make, bounds, demand, ready: VecDeque::new(), not_before: None };
        self.kinds.insert(key.to_owned(), kind);
    }

    /// Takes out the containers that are lost, and one of each kind that has too many. Forgets added kinds that are no longer asked for.
    pub fn needless(&mut self, now: Instant, has_memory: bool, is_usable: impl Fn(&W) -> bool) -> Vec<W> {
        let targets = self.targets(now, has_memory);
        let mut needless = Vec::new();
        for (key, kind) in &mut self.kinds {
            let ready = std::mem::take(&mut kind.ready).into_iter();
            let (good, lost): (VecDeque<_>, VecDeque<_>) = ready.partition(|(_, waits)| is_usable(waits));
            kind.ready = good;
            needless.extend(lost.into_iter().map(|(_, waits)| waits));
            if kind.ready.len() > targets.get(key).copied().unwrap_or(0) {
                needless.extend(kind.ready.pop_front().map(|(_, waits)| waits));
            }
        }
        self.kinds
            .retain(|key, kind| kind.bounds == *key || !kind.ready.is_empty() || kind.demand.asked(now) > 0);
        needless
    }

    /// Returns the kind that lacks the most containers, and of several the one that was asked for most.
    pub fn missing(&self, now: Instant, has_memory: bool) -> Option<(String, M)> {
        let targets = self.targets(now, has_memory);
        let mut most: Option<((usize, usize), &String, &M)> = None;
        for (key, kind) in &self.kinds {
            let lacks = targets.get(key).copied().unwrap_or(0).saturating_sub(kind.ready.len());
            let may = lacks > 0 && kind.not_before.is_none_or(|at| at <= now);
            let rank = (lacks, kind.demand.asked(now));
            if may && most.as_ref().is_none_or(|(before, ..)| rank > *before) {
                most = Some((rank, key, &kind.make));
            }
        }
        most.map(|(_, key, make)| (key.clone(), make.clone()))
    }

    /// Adds a container, and says how many of its kind wait. Returns it if its kind is no longer wanted.
    pub fn put(&mut self, key: &str, waits: W, now: Instant) -> Result<Fill, W> {
        let target = self.targets(now, true).get(key).copied().unwrap_or(0);
        let Some(kind) = self.kinds.get_mut(key) else { return Err(waits) };
        kind.ready.push_back((now, waits));
        self.counts.refilled += 1;
        kind.not_before = None;
        Ok(Fill { name: kind.name.clone(), ready: kind.ready.len(), target })
    }

    /// Returns how many containers of each kind wait and should wait, and what became of them so far.
    pub fn levels(&self, now: Instant) -> Levels {
        let targets = self.targets(now, true);
        let fill = |(key, kind): (&String, &Kind<M, W>)| Fill {
            name: kind.name.clone(),
            ready: kind.ready.len(),
            target: targets.get(key).copied().unwrap_or(0),
        };
        let since = self.kinds.values().filter_map(|kind| kind.ready.front()).map(|(since, _)| *since).min();
        Levels {
            fills: self.kinds.iter().map(fill).collect(),
            counts: self.counts,
            oldest: since.map(|since| now.saturating_duration_since(since)),
        }
    }

    /// Makes no container of this kind for a while. A kind that a run has added is forgotten until it is asked for again.
    pub fn postpone(&mut self, key: &str, until: Instant) {
        let Some(kind) = self.kinds.get_mut(key) else { return };
        kind.not_before = Some(until);
        if kind.bounds != key {
            kind.demand.clear();
        }
    }

    /// Takes out all containers.
    pub fn clear(&mut self) -> Vec<W> {
        std::mem::take(self).kinds.into_values().flat_map(|kind| kind.ready).map(|(_, waits)| waits).collect()
    }

    /// Returns how many containers of each kind should wait.
    fn targets(&self, now: Instant, has_memory: bool) -> BTreeMap<String, usize> {
        let mut targets = BTreeMap::new();
        for (of, bounds) in &self.bounds {
            let kinds = self.kinds.iter().filter(|(_, kind)| kind.bounds == *of);
            let claims: Vec<(&String, Claim)> = kinds
                .map(|(key, kind)| {
                    let min = if key == of { bounds.min } else { 0 };
                    (key, Claim { min, asked: kind.demand.asked(now), last: kind.demand.last() })
                })
                .collect();
            let max = if has_memory { bounds.max } else { bounds.min };
            let shares = shares(max, claims.iter().map(|(_, claim)| *claim).collect());
            targets.extend(claims.iter().map(|(key, _)| (*key).clone()).zip(shares));
        }
        targets
    }
}

/// What a kind claims of the bounds that it shares.
#[derive(Debug, Clone, Copy)]
struct Claim {
    min: usize,
    /// Number of recent requests.
    asked: usize,
    last: Option<Instant>,
}

/// Divides `max` containers among kinds.
///
/// Minimums come first. Then each kind that was asked for gets one before any gets another, beginning with the one that was asked for most,
/// or last. So the least asked-for goes first where there are too many.
fn shares(max: usize, kinds: Vec<Claim>) -> Vec<usize> {
    let mut left = max;
    let mut shares: Vec<(usize, Claim, usize)> = Vec::with_capacity(kinds.len());
    for (place, claim) in kinds.into_iter().enumerate() {
        let share = claim.min.min(left);
        left -= share;
        shares.push((place, claim, share));
    }
    shares.sort_by_key(|(_, claim, _)| Reverse((claim.asked, claim.last)));
    let mut gave = true;
    while gave && left > 0 {
        gave = false;
        for (_, claim, share) in &mut shares {
            if left > 0 && *share < claim.asked {
                *share += 1;
                left -= 1;
                gave = true;
            }
        }
    }
    shares.sort_by_key(|(place, _, _)| *place);
    shares.into_iter().map(|(_, _, share)| share).collect()
}

#[cfg(test)]
mod tests;
