//! A request under way, and its part of each bound.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::accounts::Accounts;
use crate::charge::Estimate;
use crate::holds::Held;
use crate::who::Who;

/// A request that is counted and may go out.
///
/// It holds its estimate until [`Ledger::settle`](crate::Ledger::settle) takes it. One that is dropped holds nothing and is charged nothing.
#[derive(Debug)]
pub struct Reservation {
    accounts: Arc<Mutex<Accounts>>,
    who: Who,
    estimate: Estimate,
    /// `None` once it holds nothing.
    held: Option<Held>,
}

impl Reservation {
    /// Reserves the estimate within the accounts that are locked.
    pub(crate) fn begin(
        (shared, accounts): (&Arc<Mutex<Accounts>>, &mut Accounts),
        who: &Who,
        estimate: Estimate,
        micro_usd: u64,
    ) -> Self {
        let held = Held::new(estimate.tokens().total(), micro_usd);
        accounts.holds.add(who, &held);
        Self { accounts: Arc::clone(shared), who: who.clone(), estimate, held: Some(held) }
    }

    /// Ends the hold within the accounts that are locked. Returns the run and the estimate.
    pub(crate) fn end(mut self, accounts: &mut Accounts) -> (Who, Estimate) {
        if let Some(held) = self.held.take() {
            accounts.holds.remove(&self.who, &held);
        }
        (self.who.clone(), std::mem::take(&mut self.estimate))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.accounts.lock().holds.remove(&self.who, &held);
        }
    }
}
