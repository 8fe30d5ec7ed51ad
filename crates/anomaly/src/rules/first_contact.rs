//! `egress_after_secret`: a number of connections to hosts that are new to the run, each of them within the window after the reading of a
//! probable secret.
//!
//! A host is new if the run has not connected to it within the last [`KNOWN_WINDOWS`] windows.

use policy::AnomalySetting;

use super::tally::Tally;
use super::{Evidence, Rule, millis, within};
use crate::recent::Recent;
use crate::seen::{Mark, Moment, Seen, What};

/// Number of windows for which a host is known after a connection.
pub(super) const KNOWN_WINDOWS: u64 = 30;
/// Most hosts of a run that are remembered. The one that was connected to longest ago is new again.
const MAX_HOSTS: usize = 1_024;

pub(super) struct FirstContact {
    /// The last reading of a secret.
    read: Option<(Moment, u64)>,
    hosts: Recent<Mark, Moment>,
    contacts: Tally,
}

impl Default for FirstContact {
    fn default() -> Self {
        Self { read: None, hosts: Recent::new(MAX_HOSTS), contacts: Tally::default() }
    }
}

/// Returns true if a host that was connected to at `at` is still known.
pub(super) fn is_known(at: Moment, now: Moment, setting: &AnomalySetting) -> bool {
    at.saturating_add(millis(setting).saturating_mul(KNOWN_WINDOWS)) > now
}

impl Rule for FirstContact {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        let What::Connected(host) = seen.what else {
            self.read = Some((seen.at, seen.sequence));
            return None;
        };
        let was_known = self.hosts.get(&host).is_some_and(|at| is_known(*at, seen.at, setting));
        *self.hosts.touch(&host, || seen.at) = seen.at;
        let (_, read) = self.read.filter(|(at, _)| !was_known && within(*at, seen.at, setting))?;
        let mut evidence = self.contacts.count(seen.at, seen.sequence, setting)?;
        // Some of the contacts may have followed an earlier reading.
        let place = evidence.sequences.partition_point(|sequence| *sequence < read);
        evidence.sequences.insert(place, read);
        Some(evidence)
    }
}
