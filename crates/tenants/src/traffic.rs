//! Bytes that the connections of each principal have moved on the present day, and the file in which they outlive the daemon.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use timestamp::Timestamp;

use crate::state_file::StateFile;
use crate::table::Tenants;

/// Most principals that are counted apart on one day. Further ones share one count, which holds for each of them.
const MOST: usize = 4_096;
/// Version of the file. A daemon that cannot read the file refuses connections of bounded tenants for the rest of the day.
pub const FORMAT: u32 = 1;
/// Seconds of a day.
const DAY: i64 = 86_400;

/// The counts of one day of UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    /// Number of the day since 1970.
    day: i64,
    bytes: BTreeMap<String, u64>,
    /// Bytes of the principals that are not counted apart.
    #[serde(default)]
    others: u64,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// Day of which the counts are not known.
    unknown: Option<i64>,
    is_changed: bool,
    /// Sums of the same day, so that a check for a connection adds up nothing. Made at the first check after a reload, or after the group of a
    /// principal has changed.
    sums: Option<Sums>,
}

/// Bytes by tenant, without those that are not counted apart.
#[derive(Debug)]
struct Sums {
    /// Tenants that the sums are of.
    tenants: Arc<Tenants>,
    bytes: HashMap<String, u64>,
}

impl Sums {
    fn new<'g>(tenants: &Arc<Tenants>, group_of: impl Fn(&str) -> Option<&'g str>, counts: &Counts) -> Self {
        let mut sums = Self { tenants: tenants.clone(), bytes: HashMap::new() };
        for (principal, bytes) in &counts.bytes {
            sums.add(principal, group_of(principal), *bytes);
        }
        sums
    }

    fn add(&mut self, principal: &str, group: Option<&str>, bytes: u64) {
        let tenant = self.tenants.of(principal, group).tenant;
        match self.bytes.get_mut(tenant) {
            Some(sum) => *sum = sum.saturating_add(bytes),
            None => drop(self.bytes.insert(tenant.to_owned(), bytes)),
        }
    }
}

/// Traffic of all principals.
#[derive(Debug)]
pub(crate) struct Traffic {
    file: StateFile,
    state: Mutex<State>,
}

/// Returns the number of the day of a moment.
fn day(now: Timestamp) -> i64 {
    now.unix_seconds().div_euclid(DAY)
}

impl State {
    /// Begins a new day, if it is one. A clock that is set back by a day begins none.
    ///
    /// A count that is further ahead is of a clock that was wrong. It would be in force until that day.
    fn turn(&mut self, now: Timestamp) {
        let today = day(now);
        if today > self.counts.day || self.counts.day > today.saturating_add(1) {
            self.counts = Counts { day: today, ..Counts::default() };
            self.sums = None;
            self.is_changed = true;
        }
    }
}

impl Traffic {
    /// Opens the counts. If the file cannot be read, those of today are unknown.
    pub(crate) fn open(path: &Path, now: Timestamp) -> Self {
        let (file, mut state) = (StateFile::new(path), State::default());
        match file.read::<Counts>() {
            Ok(counts) => state.counts = counts.unwrap_or_default(),
            Err(error) => {
                tracing::error!(
                    %error,
                    file = %path.display(),
                    "the traffic of tenants cannot be read: those with `egress_mib_per_day` have no new connections until 00:00 UTC"
                );
                state.unknown = Some(day(now));
            }
        }
        state.turn(now);
        Self { file, state: Mutex::new(state) }
    }

    /// Counts bytes of connections of a principal, which may be in a group.
    pub(crate) fn add(&self, (principal, group): (&str, Option<&str>), bytes: u64, now: Timestamp) {
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.turn(now);
        state.is_changed = true;
        let State { counts, sums, .. } = &mut *state;
        let is_apart = counts.bytes.len() < MOST || counts.bytes.contains_key(principal);
        let count =
            if is_apart { counts.bytes.entry(principal.to_owned()).or_default() } else { &mut counts.others };
        *count = count.saturating_add(bytes);
        if let Some(sums) = sums.as_mut().filter(|_| is_apart) {
            sums.add(principal, group, bytes);
        }
    }

    /// Has the next check add up all bytes, because the group of a principal has changed.
    pub(crate) fn forget_sums(&self) {
        self.state.lock().sums = None;
    }

    /// Returns the bytes of today of a tenant. `None`: they are not known.
    pub(crate) fn of<'g>(
        &self,
        tenant: &str,
        (tenants, group_of): (&Arc<Tenants>, impl Fn(&str) -> Option<&'g str>),
        now: Timestamp,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        state.turn(now);
        if state.unknown == Some(state.counts.day) {
            return None;
        }
        let State { counts, sums, .. } = &mut *state;
        let sums = match sums {
            Some(sums) if Arc::ptr_eq(&sums.tenants, tenants) => sums,
            other => other.insert(Sums::new(tenants, group_of, counts)),
        };
        let own = sums.bytes.get(tenant).copied().unwrap_or_default();
        Some(own.saturating_add(counts.others))
    }

    /// Returns the bytes of today by principal, and those of all that are not counted apart. `None`: they are not known.
    pub(crate) fn all(&self, now: Timestamp) -> Option<(BTreeMap<String, u64>, u64)> {
        let mut state = self.state.lock();
        state.turn(now);
        let is_known = state.unknown != Some(state.counts.day);
        is_known.then(|| (state.counts.bytes.clone(), state.counts.others))
    }

    /// Writes the counts if they have changed. Blocks on the disk.
    pub(crate) fn write(&self) -> io::Result<()> {
        let changed = || {
            let mut state = self.state.lock();
            let is_changed = std::mem::take(&mut state.is_changed);
            // A file that could not be read stays for the operator while its counts would matter.
            let is_known = state.unknown != Some(state.counts.day);
            (is_changed && is_known).then(|| state.counts.clone())
        };
        self.file.write(changed, || self.state.lock().is_changed = true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.replace('Z', ".000000000Z").parse().unwrap()
    }

    /// Groups of principals that have none.
    const NONE: fn(&str) -> Option<&'static str> = |_| None;

    /// Returns the bytes of a principal that is a tenant by itself.
    fn alone(traffic: &Traffic, principal: &str, now: Timestamp) -> Option<u64> {
        traffic.of(principal, (&Arc::default(), NONE), now)
    }

    #[test]
    fn sums_of_tenants_follow_connections_reloads_and_days() {
        let directory = tempfile::tempdir().unwrap();
        let (noon, later) = (at("2026-03-01T12:00:00Z"), at("2026-03-02T00:00:00Z"));
        let traffic = Traffic::open(&directory.path().join("tenants.json"), noon);
        let ml = |principals: &[&str]| {
            let principals = principals.iter().map(ToString::to_string).collect();
            let tenant = crate::table::Tenant { principals, ..Default::default() };
            Arc::new(Tenants::new([("ml".to_owned(), tenant)].into()))
        };
        let (both, one) = (ml(&["a", "b"]), ml(&["a"]));
        traffic.add(("a", None), 1, noon);
        traffic.add(("b", None), 10, noon);
        assert_eq!(traffic.of("ml", (&both, NONE), noon), Some(11));
        // The next connections are added to the sums that are there.
        traffic.add(("b", None), 100, noon);
        traffic.add(("c", None), 1_000, noon);
        assert_eq!(
            (traffic.of("ml", (&both, NONE), noon), traffic.of("c", (&both, NONE), noon)),
            (Some(111), Some(1_000))
        );
        // A reload: another table.
        assert_eq!(
            (traffic.of("ml", (&one, NONE), noon), traffic.of("b", (&one, NONE), noon)),
            (Some(1), Some(110))
        );
        traffic.add(("a", None), 5, later);
        assert_eq!(
            (traffic.of("ml", (&one, NONE), later), traffic.of("b", (&one, NONE), later)),
            (Some(5), Some(0))
        );
    }

    #[test]
    fn counts_outlive_the_daemon_and_end_with_their_day() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tenants.json");
        let (noon, later) = (at("2026-03-01T12:00:00Z"), at("2026-03-02T00:00:00Z"));
        let traffic = Traffic::open(&path, noon);
        traffic.add(("a", None), 5, noon);
        traffic.add(("a", None), 6, noon);
        traffic.add(("b", None), 100, noon);
        traffic.write().unwrap();
        drop(traffic);
        let traffic = Traffic::open(&path, noon);
        assert_eq!(alone(&traffic, "a", noon), Some(11));
        assert_eq!(alone(&traffic, "b", noon), Some(100));
        assert_eq!((alone(&traffic, "a", later), alone(&traffic, "b", later)), (Some(0), Some(0)));
        // A clock that is set back brings nothing back, and gives nothing anew.
        traffic.add(("a", None), 7, later);
        assert_eq!(alone(&traffic, "a", noon), Some(7));
        // A clock that was wrong by years does not keep its counts in force for years.
        traffic.add(("a", None), 8, at("2099-03-02T00:00:00Z"));
        traffic.write().unwrap();
        assert_eq!(alone(&Traffic::open(&path, noon), "a", noon), Some(0));
        assert_eq!(alone(&traffic, "a", noon), Some(0));
    }

    #[test]
    fn counts_that_cannot_be_read_are_unknown_until_the_day_is_over_and_stay_on_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tenants.json");
        std::fs::write(&path, "{\"day\":").unwrap();
        let (noon, later) = (at("2026-03-01T12:00:00Z"), at("2026-03-02T00:00:01Z"));
        let traffic = Traffic::open(&path, noon);
        traffic.add(("a", None), 5, noon);
        traffic.write().unwrap();
        assert_eq!(alone(&traffic, "a", noon), None);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"day\":");
        traffic.add(("a", None), 6, later);
        assert_eq!(alone(&traffic, "a", later), Some(6));
        traffic.write().unwrap();
        assert_eq!(alone(&Traffic::open(&path, later), "a", later), Some(6));
    }

    #[test]
    fn principals_beyond_the_most_share_a_count() {
        let directory = tempfile::tempdir().unwrap();
        let now = at("2026-03-01T12:00:00Z");
        let traffic = Traffic::open(&directory.path().join("tenants.json"), now);
        for number in 0..MOST {
            traffic.add((&format!("p{number}"), None), 1, now);
        }
        traffic.add(("late", None), 9, now);
        traffic.add(("p0", None), 1, now);
        assert_eq!(alone(&traffic, "late", now), Some(9));
        assert_eq!(alone(&traffic, "p0", now), Some(11));
    }
}
