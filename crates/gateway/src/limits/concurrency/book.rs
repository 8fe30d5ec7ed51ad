//! Who runs and who waits. Plain data behind the one lock of [`super::Places`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::Wake;
use super::caps::{Busy, Caps, Count, Together, Turn, Whole};

/// Shortest and longest estimate, milliseconds.
const ESTIMATES: (u64, u64) = (100, 60_000);

#[derive(Debug, Default)]
pub(super) struct Book {
    /// Number of the next call that enters: the order of the line.
    next: u64,
    all: Count,
    runs: Groups,
    principals: Groups,
    running: HashMap<u64, Running>,
    waiting: BTreeMap<u64, Waiting>,
}

/// Whose call it is: its groups.
#[derive(Debug, Clone, Copy)]
struct Of {
    run: usize,
    principal: usize,
}

#[derive(Debug)]
struct Running {
    of: Of,
    /// Milliseconds of uptime.
    since: u64,
}

struct Waiting {
    of: Of,
    caps: Caps,
    wake: Wake,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("of", &self.of).field("caps", &self.caps).finish_non_exhaustive()
    }
}

/// Runs, or principals, of which a call runs or waits. By index, so that looking through the line hashes no names.
#[derive(Debug, Default)]
struct Groups {
    by_name: HashMap<Arc<str>, usize>,
    all: Slab<Group>,
}

#[derive(Debug)]
struct Group {
    name: Arc<str>,
    count: Count,
}

impl Groups {
    fn count(&self, name: &str) -> Count {
        self.by_name.get(name).map_or_else(Count::default, |index| self.all[*index].count)
    }

    fn enter(&mut self, name: &str) -> usize {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let name: Arc<str> = name.into();
        let index = self.all.insert(Group { name: name.clone(), count: Count::default() });
        self.by_name.insert(name, index);
        index
    }

    /// Changes a group's count, and forgets the group when it has no calls any more.
    fn change(&mut self, index: usize, change: impl FnOnce(&mut Count)) {
        change(&mut self.all[index].count);
        if self.all[index].count == Count::default() {
            let group = self.all.remove(index);
            self.by_name.remove(&group.name);
        }
    }
}

/// The narrowest scope without room, and its limit.
fn full(
    run: Count,
    principal: Count,
    all: Count,
    caps: &Caps,
    whole: Whole,
) -> Option<(Together, Count, u32)> {
    let scopes = [
        (Together::Run, run, caps.run),
        (Together::Principal, principal, caps.principal),
        (Together::Daemon, all, whole.running),
    ];
    scopes.into_iter().find(|(_, count, limit)| count.running >= *limit)
}

impl Book {
    /// The number of a call that runs from now on, or waits, if it may.
    pub(super) fn enter(
        &mut self,
        (run, principal): (&str, &str),
        (caps, turn): (&Caps, Turn),
        whole: Whole,
        now: u64,
        wait: impl FnOnce() -> Wake,
    ) -> Result<u64, Busy> {
        let (of_run, of_principal) = (self.runs.count(run), self.principals.count(principal));
        let full = full(of_run, of_principal, self.all, caps, whole);
        let has_turn = caps.wait_s > 0
            && of_run.waiting < caps.waiting
            && of_principal.waiting < caps.principal
            && self.all.waiting < whole.waiting;
        let may_wait = has_turn || turn == Turn::Consented;
        if let Some((scope, count, limit)) = full.filter(|_| !may_wait) {
            let index = match scope {
                Together::Run => self.runs.by_name.get(run),
                Together::Principal => self.principals.by_name.get(principal),
                Together::Daemon => None,
            };
            let retry_after = self.estimate(scope, index.copied(), count, now);
            return Err(Busy { scope, count, limit, retry_after });
        }
        let of = Of { run: self.runs.enter(run), principal: self.principals.enter(principal) };
        let id = self.next;
        self.next += 1;
        if full.is_some() {
            self.count(of, |count| count.waiting += 1);
            self.waiting.insert(id, Waiting { of, caps: *caps, wake: wait() });
        } else {
            self.count(of, |count| count.running += 1);
            self.running.insert(id, Running { of, since: now });
        }
        Ok(id)
    }

    /// Whether the call waits still, and for what.
    pub(super) fn waits_for(&self, id: u64, whole: Whole, now: u64) -> Option<Busy> {
        let Waiting { of, caps, .. } = self.waiting.get(&id)?;
        let (run, principal) = (self.runs.all[of.run].count, self.principals.all[of.principal].count);
        // Whoever waits finds something full: otherwise it would have been woken.
        let full = full(run, principal, self.all, caps, whole);
        let (scope, count, limit) = full.unwrap_or((Together::Run, run, caps.run));
        let index = match scope {
            Together::Run => Some(of.run),
            Together::Principal => Some(of.principal),
            Together::Daemon => None,
        };
        let count = Count { waiting: count.waiting.saturating_sub(1), ..count };
        Some(Busy { scope, count, limit, retry_after: self.estimate(scope, index, count, now) })
    }

    /// Forgets a call that ran or waited. Those that may go on now run from now on, and are to be woken.
    pub(super) fn leave(&mut self, id: u64, whole: Whole, now: u64) -> Vec<Wake> {
        if let Some(Waiting { of, .. }) = self.waiting.remove(&id) {
            self.count(of, |count| count.waiting -= 1);
            return Vec::new();
        }
        let Some(Running { of, .. }) = self.running.remove(&id) else { return Vec::new() };
        self.count(of, |count| count.running -= 1);
        let mut woken = Vec::new();
        let mut after = 0;
        while self.all.running < whole.running {
            let next = self.waiting.range(after..).find(|(_, Waiting { of, caps, .. })| {
                self.runs.all[of.run].count.running < caps.run
                    && self.principals.all[of.principal].count.running < caps.principal
            });
            let Some(id) = next.map(|(id, _)| *id) else { break };
            let Some(Waiting { of, wake, .. }) = self.waiting.remove(&id) else { break };
            self.count(of, |count| {
                count.waiting -= 1;
                count.running += 1;
            });
            self.running.insert(id, Running { of, since: now });
            woken.push(wake);
            // Whoever was passed over finds no more room than before.
            after = id + 1;
        }
        woken
    }

    pub(super) fn of_run(&self, run: &str) -> Count {
        self.runs.count(run)
    }

    pub(super) fn of_principal(&self, principal: &str) -> Count {
        self.principals.count(principal)
    }

    pub(super) fn of_all(&self) -> Count {
        self.all
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Self { next: _, all, runs, principals, running, waiting } = self;
        let nobody = |groups: &Groups| groups.by_name.is_empty() && groups.all.is_empty();
        *all == Count::default()
            && nobody(runs)
            && nobody(principals)
            && running.is_empty()
            && waiting.is_empty()
    }

    fn count(&mut self, of: Of, change: impl Fn(&mut Count)) {
        change(&mut self.all);
        self.runs.change(of.run, &change);
        self.principals.change(of.principal, &change);
    }

    /// For one more that comes behind those that wait.
    fn estimate(&self, scope: Together, index: Option<usize>, count: Count, now: u64) -> Duration {
        let is_of = |of: &Of| match scope {
            Together::Run => Some(of.run) == index,
            Together::Principal => Some(of.principal) == index,
            Together::Daemon => true,
        };
        let of_scope = self.running.values().filter(|running| is_of(&running.of));
        let (mut calls, mut ages) = (0, 0_u64);
        for running in of_scope {
            calls += 1;
            ages = ages.saturating_add(now.saturating_sub(running.since));
        }
        let calls = u64::max(calls, 1);
        let millis = (ages / calls).saturating_mul(u64::from(count.waiting) + 1) / calls;
        Duration::from_millis(millis.clamp(ESTIMATES.0, ESTIMATES.1))
    }
}
