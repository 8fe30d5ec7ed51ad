//! The calls that run and those that wait: plain data under the one lock of [`super::Reservations`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use slab::Slab;

use super::Wake;
use policy::Caps;

use super::caps::{Busy, Count, Together, Turn, Whole};
use super::groups::{Groups, Name};

/// Shortest and longest estimate, milliseconds.
const ESTIMATES: (u64, u64) = (100, 60_000);

#[derive(Debug, Default)]
pub(super) struct Schedule {
    all: Count,
    runs: Groups,
    principals: Groups,
    tenants: Groups,
    calls: Slab<Call>,
    /// Number of the next call that waits. The numbers define the order among calls of one tenant.
    next_number: u64,
    /// Calls that wait, by that number.
    line: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Call {
    of: Of,
    state: State,
}

/// Groups of a call.
#[derive(Debug, Clone, Copy)]
struct Of {
    run: usize,
    principal: usize,
    tenant: usize,
}

#[derive(Debug)]
enum State {
    Runs {
        /// Milliseconds of uptime.
        since: u64,
    },
    Waits(Waiting),
}

struct Waiting {
    number: u64,
    caps: Caps,
    wake: Wake,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, caps, wake: _ } = self;
        f.debug_struct("Waiting").field("number", number).field("caps", caps).finish_non_exhaustive()
    }
}

/// Returns the number of calls of one tenant that may wait while `waiting` calls of all tenants do: as many as there are free places.
///
/// So one tenant gets half of the line, and each of two a third. There is a place for another tenant, however many principals a tenant has.
pub fn tenant_may_wait(most: u32, waiting: u32) -> u32 {
    most.saturating_sub(waiting)
}

/// Returns the narrowest scope that is full, and its limit.
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

impl Schedule {
    /// Adds a call that runs from now on, or waits if it may. Returns its index.
    pub(super) fn enter(
        &mut self,
        [run, principal, tenant]: [Name<'_>; 3],
        (caps, turn): (&Caps, Turn),
        whole: Whole,
        now: u64,
        wait: impl FnOnce() -> Wake,
    ) -> Result<usize, Busy> {
        let (its_run, its_principal) = (self.runs.find(run), self.principals.find(principal));
        let (of_run, of_principal) = (self.runs.count(its_run), self.principals.count(its_principal));
        let full = full(of_run, of_principal, self.all, caps, whole);
        let its_tenant = self.tenants.find(tenant);
        let has_turn = caps.wait_s > 0
            && of_run.waiting < caps.waiting
            && of_principal.waiting < caps.principal
            && self.tenants.count(its_tenant).waiting < tenant_may_wait(whole.waiting, self.all.waiting);
        let may_wait = has_turn || turn == Turn::Consented;
        if let Some((scope, count, limit)) = full.filter(|_| !may_wait) {
            let index = match scope {
                Together::Run => its_run,
                Together::Principal => its_principal,
                Together::Daemon => None,
            };
            let retry_after = self.estimate(scope, index, count, now);
            return Err(Busy { scope, count, limit, retry_after });
        }
        let of = Of {
            run: its_run.unwrap_or_else(|| self.runs.make(run)),
            principal: its_principal.unwrap_or_else(|| self.principals.make(principal)),
            tenant: its_tenant.unwrap_or_else(|| self.tenants.make(tenant)),
        };
        if full.is_none() {
            self.count(of, |count| count.running += 1);
            return Ok(self.calls.insert(Call { of, state: State::Runs { since: now } }));
        }
        self.count(of, |count| count.waiting += 1);
        let number = self.next_number;
        self.next_number += 1;
        let waiting = Waiting { number, caps: *caps, wake: wait() };
        let index = self.calls.insert(Call { of, state: State::Waits(waiting) });
        self.line.insert(number, index);
        Ok(index)
    }

    /// Returns the reason why the call still waits, or `None` if it runs.
    pub(super) fn waits_for(&self, call: usize, whole: Whole, now: u64) -> Option<Busy> {
        let Call { of, state: State::Waits(Waiting { caps, .. }) } = self.calls.get(call)? else {
            return None;
        };
        let (run, principal) = (self.runs.count(Some(of.run)), self.principals.count(Some(of.principal)));
        // A call that waits has a full scope; otherwise it would have been woken.
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

    /// Removes a call that ran or waited. Returns the callbacks of calls that now run and have to be woken.
    pub(super) fn leave(&mut self, call: usize, whole: Whole, now: impl Fn() -> u64) -> Vec<Wake> {
        let Some(Call { of, state }) = self.calls.try_remove(call) else { return Vec::new() };
        if let State::Waits(Waiting { number, .. }) = state {
            self.line.remove(&number);
            self.count(of, |count| count.waiting -= 1);
            return Vec::new();
        }
        self.count(of, |count| count.running -= 1);
        let mut woken = Vec::new();
        while self.all.running < whole.running {
            let Some((number, index)) = self.next() else { break };
            self.line.remove(&number);
            let Some(call) = self.calls.get_mut(index) else { break };
            let of = call.of;
            let before = std::mem::replace(&mut call.state, State::Runs { since: now() });
            self.count(of, |count| {
                count.waiting -= 1;
                count.running += 1;
            });
            if let State::Waits(Waiting { wake, .. }) = before {
                woken.push(wake);
            }
        }
        woken
    }

    /// Returns the number and the index of the call that runs next: the first one of the tenant with the fewest calls that run, among
    /// those below all caps.
    fn next(&self) -> Option<(u64, usize)> {
        let mut next: Option<(u32, u64, usize)> = None;
        for (number, index) in &self.line {
            let Some(call) = self.calls.get(*index) else { continue };
            let running = self.tenants.count(Some(call.of.tenant)).running;
            if next.is_none_or(|(fewest, ..)| running < fewest) && self.may_run(*index) {
                next = Some((running, *number, *index));
                if running == 0 {
                    break;
                }
            }
        }
        next.map(|(_, number, index)| (number, index))
    }

    /// Returns true if the run and the principal of a waiting call are below their caps.
    fn may_run(&self, call: usize) -> bool {
        let Some(Call { of, state: State::Waits(Waiting { caps, .. }) }) = self.calls.get(call) else {
            return false;
        };
        self.runs.count(Some(of.run)).running < caps.run
            && self.principals.count(Some(of.principal)).running < caps.principal
    }

    pub(super) fn of_run(&self, run: Name<'_>) -> Count {
        self.runs.count(self.runs.find(run))
    }

    pub(super) fn of_principal(&self, principal: Name<'_>) -> Count {
        self.principals.count(self.principals.find(principal))
    }

    pub(super) fn of_all(&self) -> Count {
        self.all
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Self { all, runs, principals, tenants, calls, next_number: _, line } = self;
        *all == Count::default()
            && runs.is_empty()
            && principals.is_empty()
            && tenants.is_empty()
            && calls.is_empty()
            && line.is_empty()
    }

    fn count(&mut self, of: Of, change: impl Fn(&mut Count)) {
        change(&mut self.all);
        self.runs.change(of.run, &change);
        self.principals.change(of.principal, &change);
        self.tenants.change(of.tenant, &change);
    }

    /// Estimates the time until one more call would run after those that wait.
    fn estimate(&self, scope: Together, index: Option<usize>, count: Count, now: u64) -> Duration {
        let is_of = |of: &Of| match scope {
            Together::Run => Some(of.run) == index,
            Together::Principal => Some(of.principal) == index,
            Together::Daemon => true,
        };
        let (mut calls, mut ages) = (0, 0_u64);
        for (_, call) in self.calls.iter().filter(|(_, call)| is_of(&call.of)) {
            if let State::Runs { since } = call.state {
                calls += 1;
                ages = ages.saturating_add(now.saturating_sub(since));
            }
        }
        let calls = u64::max(calls, 1);
        let millis = (ages / calls).saturating_mul(u64::from(count.waiting) + 1) / calls;
        Duration::from_millis(millis.clamp(ESTIMATES.0, ESTIMATES.1))
    }
}
