//! The subscriptions in force, and those that are being written.
//!
//! Writing takes as long as the disk does, so no lock is held meanwhile. A place is reserved instead:
//!
//! ```text
//!            ┌──────────── renew ────────────┐
//!            ▼                               │
//!  ──────► pending ── on record, stored ──► known ──► ended, unless it is pending
//!            └─────── not written ──► as before
//! ```

use std::collections::BTreeMap;

use operations::Reason;
use refusal::Refusal;

use super::subscription::Subscription;
use super::{MAX, MAX_OF_PRINCIPAL};

/// Subscriptions by their ids.
#[derive(Default)]
pub(super) struct Table {
    known: BTreeMap<String, Subscription>,
    /// Subscriptions that are being written. One that is renewed is in `known`, too, as it was before.
    pending: BTreeMap<String, Subscription>,
}

impl Table {
    pub(super) fn new(known: BTreeMap<String, Subscription>) -> Self {
        Self { known, pending: BTreeMap::new() }
    }

    /// Returns all subscriptions in force, oldest first.
    pub(super) fn known(&self) -> impl Iterator<Item = &Subscription> {
        self.known.values()
    }

    /// Reserves a place for a subscription of a principal, until [`Self::settle`]. `make` gets the one that this browser has already.
    pub(super) fn reserve(
        &mut self,
        principal: &str,
        endpoint: &str,
        make: impl FnOnce(Option<&Subscription>) -> Subscription,
    ) -> Result<Subscription, Refusal> {
        let is_of_another = |it: &Subscription| it.endpoint == endpoint && it.principal != principal;
        if self.known.values().chain(self.pending.values()).any(is_of_another) {
            return Err(Refusal::new(
                Reason::AlreadyExists,
                "this browser gets notices for another principal: end that subscription first",
            ));
        }
        if self.pending.values().any(|it| it.endpoint == endpoint) {
            return Err(Refusal::new(
                Reason::Overloaded,
                "another request subscribes this browser at this moment: try again",
            ));
        }
        let same = self.known.values().find(|it| it.endpoint == endpoint);
        let further = self.pending.values().filter(|it| !self.known.contains_key(&it.id));
        let taken = self.known.values().chain(further);
        let mine = taken.clone().filter(|it| it.principal == principal).count();
        if same.is_none() && (mine >= MAX_OF_PRINCIPAL || taken.count() >= MAX) {
            return Err(Refusal::new(
                Reason::Overloaded,
                format!(
                    "a principal has at most {MAX_OF_PRINCIPAL} subscriptions, the daemon {MAX}: end one first"
                ),
            ));
        }
        let subscription = make(same);
        self.pending.insert(subscription.id.clone(), subscription.clone());
        Ok(subscription)
    }

    /// Gives the place of a subscription back. With `is_written`, the subscription is in force from now on.
    pub(super) fn settle(&mut self, id: &str, is_written: bool) {
        let settled = self.pending.remove(id);
        if let Some(subscription) = settled.filter(|_| is_written) {
            self.known.insert(subscription.id.clone(), subscription);
        }
    }

    /// Ends a subscription. Returns false if it is being renewed, and stays.
    pub(super) fn end(&mut self, id: &str) -> bool {
        let is_settled = !self.pending.contains_key(id);
        if is_settled {
            self.known.remove(id);
        }
        is_settled
    }

    /// Ends a subscription if it is as it was read. Returns false if it has been renewed or ended meanwhile, or is being renewed.
    pub(super) fn end_unchanged(&mut self, read: &Subscription) -> bool {
        self.known.get(&read.id) == Some(read) && self.end(&read.id)
    }
}
