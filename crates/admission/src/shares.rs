//! Counts connections and requests by their owners. Each owner has at most its share.
//!
//! ```text
//!  its own credential       ─► the principal ─────────────────────────────────────────────────────────┐
//!                                                                                                     ├─► its address
//!  token of one of its runs ─► that token (⅛) ─► its run tokens (½) ─► run tokens of the address (½) ─┘
//! ```
//!
//! The tokens of a principal's runs are counted apart from the principal, so that agents take nothing from the user who
//! has to stop them. An eighth of each share is for methods that steer: a caller that waits for long takes none of it.
//! An owner without connections and requests takes no memory.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Divisor for the part of a principal's share that the token of one run has, and for the part reserved for steering.
const RUN_TOKEN: usize = 8;
const RESERVE: usize = 8;
/// Divisor for the part of a principal's share, and of an address's, that all run tokens have.
const RUN_TOKENS: usize = 2;

/// The credential or the address that a request is counted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    Principal(String),
    /// A run's token, by the run's id.
    RunToken(String),
    /// The tokens of all runs of this principal.
    RunTokensOf(String),
    Address(IpAddr),
    RunTokensAt(IpAddr),
}

/// The largest shares.
#[derive(Debug, Clone, Copy)]
pub struct ShareLimits {
    pub per_principal: usize,
    pub per_address: usize,
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// May use up the whole share: the request stops, lists, renews or decides, and ends soon.
    Steering,
    Other,
}

/// The shares of all owners.
#[derive(Clone)]
pub struct Shares {
    limits: ShareLimits,
    /// Number of connections or requests of each owner, without zeros.
    taken: Arc<Mutex<HashMap<Owner, usize>>>,
}

/// One connection or request in the shares of its owners, given back when it is dropped.
pub struct Share {
    shares: Shares,
    owners: Vec<Owner>,
}

/// The share that a connection has now: that of the last credential with which a request was accepted.
#[derive(Debug)]
pub struct CurrentShare {
    shares: Shares,
    share: Mutex<Option<Share>>,
}

impl CurrentShare {
    /// Returns the share of a connection that has shown nothing yet.
    pub fn none_of(shares: Shares) -> Self {
        Self { shares, share: Mutex::default() }
    }

    /// Counts the connection for these owners from now on. If one of them has as many as it may, which is the error, the connection
    /// keeps the share that it has.
    pub fn belongs_to(&self, owners: Vec<Owner>, purpose: Purpose) -> Result<(), Owner> {
        let mut share = self.share.lock();
        if share.as_ref().is_some_and(|share| share.owners() == owners) {
            return Ok(());
        }
        *share = Some(self.shares.take(owners, purpose)?);
        Ok(())
    }

    /// Returns true if the connection counts for an owner.
    pub fn is_somebodys(&self) -> bool {
        self.share.lock().is_some()
    }
}

impl Owner {
    /// Returns the owners of what the token of this run uses up. The run is of that principal.
    pub fn of_run_token(run: impl fmt::Display, principal: String) -> Vec<Self> {
        vec![Self::RunToken(run.to_string()), Self::RunTokensOf(principal)]
    }
}

impl Shares {
    pub fn new(limits: ShareLimits) -> Self {
        Self { limits, taken: Arc::default() }
    }

    /// Takes one more for all of `owners`, or for none. The error is the first owner whose share is used up.
    pub fn take(&self, owners: Vec<Owner>, purpose: Purpose) -> Result<Share, Owner> {
        let mut taken = self.taken.lock();
        let is_full =
            |owner: &&Owner| taken.get(owner).is_some_and(|count| *count >= self.limits.of(owner, purpose));
        if let Some(full) = owners.iter().find(is_full) {
            return Err(full.clone());
        }
        for owner in &owners {
            *taken.entry(owner.clone()).or_default() += 1;
        }
        Ok(Share { shares: self.clone(), owners })
    }
}

impl ShareLimits {
    /// Returns the share of `owner` for this purpose: at least one.
    fn of(self, owner: &Owner, purpose: Purpose) -> usize {
        let all = match owner {
            Owner::Principal(_) => self.per_principal,
            Owner::RunToken(_) => self.per_principal / RUN_TOKEN,
            Owner::RunTokensOf(_) => self.per_principal / RUN_TOKENS,
            Owner::Address(_) => self.per_address,
            Owner::RunTokensAt(_) => self.per_address / RUN_TOKENS,
        };
        let reserved = if purpose == Purpose::Steering { 0 } else { all / RESERVE };
        (all - reserved).max(1)
    }
}

impl Share {
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        for owner in &self.owners {
            match taken.get_mut(owner) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(taken.remove(owner)),
            }
        }
    }
}

/// Leaves out the other owners.
impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.owners).finish()
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {

    use super::{Owner, Purpose, Share, ShareLimits, Shares};

    fn principal(name: &str) -> Vec<Owner> {
        vec![Owner::Principal(name.to_owned())]
    }

    fn run_token(run: &str, of: &str) -> Vec<Owner> {
        vec![Owner::RunToken(run.to_owned()), Owner::RunTokensOf(of.to_owned())]
    }

    /// Takes until it is refused.
    fn all(shares: &Shares, owners: &[Owner], purpose: Purpose) -> (Vec<Share>, Owner) {
        let mut taken = Vec::new();
        loop {
            match shares.take(owners.to_vec(), purpose) {
                Ok(share) => taken.push(share),
                Err(full) => return (taken, full),
            }
        }
    }

    #[test]
    fn owners_are_counted_apart_and_dropped_when_idle() {
        let shares = Shares::new(ShareLimits { per_principal: 2, per_address: 9 });
        let (taken, full) = all(&shares, &principal("a"), Purpose::Other);
        assert_eq!((taken.len(), &full), (2, &principal("a")[0]));
        // Takes none of them if one is full.
        let both = [principal("b"), principal("a")].concat();
        assert_eq!(shares.take(both, Purpose::Steering).unwrap_err(), full);
        assert_eq!(all(&shares, &principal("b"), Purpose::Other).0.len(), 2);
        drop(taken);
        assert!(shares.taken.lock().is_empty());
        assert!(shares.take(principal("a"), Purpose::Other).is_ok());
    }

    #[test]
    fn run_tokens_have_separate_shares_from_their_principal() {
        let shares = Shares::new(ShareLimits { per_principal: 256, per_address: 1_024 });
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for run in ["1", "2", "3", "4", "5"] {
            let (taken, full) = all(&shares, &run_token(run, "a"), Purpose::Other);
            counts.push((taken.len(), full == Owner::RunToken(run.to_owned())));
            held.extend(taken);
        }
        assert_eq!(counts, [(28, true), (28, true), (28, true), (28, true), (0, false)]);
        assert_eq!(all(&shares, &principal("a"), Purpose::Other).0.len(), 224);
    }

    #[test]
    fn steering_calls_have_an_eighth_of_each_share() {
        let shares = Shares::new(ShareLimits { per_principal: 256, per_address: 1_024 });
        for (owners, most) in [(principal("a"), 256), (run_token("1", "a"), 32)] {
            let (other, _) = all(&shares, &owners, Purpose::Other);
            let (steering, _) = all(&shares, &owners, Purpose::Steering);
            assert_eq!((other.len(), steering.len()), (most - most / 8, most / 8));
        }
    }

    #[test]
    fn the_smallest_share_is_one() {
        let shares = Shares::new(ShareLimits { per_principal: 1, per_address: 1 });
        let token = [run_token("1", "a"), vec![Owner::RunTokensAt([127, 0, 0, 1].into())]].concat();
        for owners in [principal("a"), token] {
            assert_eq!(all(&shares, &owners, Purpose::Other).0.len(), 1);
        }
    }
}
