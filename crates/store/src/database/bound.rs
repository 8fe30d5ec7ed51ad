//! Limits on the number and age of the stored outcomes of finished calls.
//!
//! ```text
//!  settled ─► whole ──no space: oldest first─► gone                       nobody was promised it
//!  settled ─► whole ──no space─► bare ──the promise is over──► gone       it has a request id, or a reviewer was asked
//! ```
//!
//! A client may repeat a request, or ask for the outcome of a call that waited for a reviewer. It finds the call for the promised time, if
//! necessary without its result. If even that does not fit, [`Store::is_crowded`] returns true, and no further request id is accepted. When
//! the disk is nearly full, an outcome is only added in place of an older one, because the audit log needs the rest.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use identity::{CallId, RunId};
use refusal::chain;
use rusqlite::{Connection, Row, Transaction, params};
use seal::Seal;
use timestamp::UnixMillis;
use tokio_util::sync::CancellationToken;

use super::calls::{Bare, place};
use super::{Store, StoreError, StoredCall};
use crate::disk::Space;

/// Outcomes that are removed at once. A finishing call waits for no more than that.
const BATCH: usize = 128;
/// Outcomes whose results are dropped at once, which requires reading them.
const READ: usize = 16;
/// Bytes of an outcome besides its response.
const ROW: u64 = 512;
/// Length in bytes from which a response takes whole pages.
const IN_A_PAGE: u64 = 768;
const PAGE: u64 = 4_096;
/// Bytes that outcomes leave free on a disk of usual size.
const MIN_FREE: u64 = 64 << 20;
/// Free pages that are returned to the disk at once, and that are kept for new rows.
const GIVE_BACK: u32 = 256;
const KEEP_FREE: u32 = 4_096;
/// Size up to which a database of an earlier release is rewritten, so that the start does not take too long.
const MAX_REWRITE: u64 = 1 << 30;
/// Interval between two scans for old outcomes, and the shorter one while there is more to remove.
const TICK: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(100);

/// The part of an outcome that must be kept, as a number in the database.
mod keeps {
    pub(super) const NOTHING: u8 = 0;
    /// Part of the outcome must be kept, and all of it is there.
    pub(super) const WHOLE: u8 = 1;
    /// Part of the outcome must be kept, and it cannot become smaller: its result is dropped or short.
    pub(super) const BARE: u8 = 2;
}

/// Limits on the stored outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    /// Bytes that all stored calls may take.
    pub max_total: u64,
    /// Age after which every outcome is removed.
    pub max_age: Duration,
    /// Time for which a call can be found by its request id, or after a reviewer was asked.
    pub request_ids: Duration,
}

impl Outcomes {
    /// Limits that no test reaches.
    pub const WIDE: Self = Self {
        max_total: 1 << 30,
        max_age: Duration::from_secs(86_400),
        request_ids: Duration::from_secs(3_600),
    };
}

/// Present use of the store by outcomes.
pub(super) struct Kept {
    bounds: Outcomes,
    directory: PathBuf,
    used: AtomicU64,
    crowded: AtomicBool,
}

impl Kept {
    pub(super) fn open(connection: &Connection, path: &Path, bounds: Outcomes) -> Result<Self, StoreError> {
        let mut statement = connection.prepare("SELECT length(response) FROM calls")?;
        let lengths = statement.query_map([], |row| bytes(row, 0))?;
        let used = lengths.map(|length| length.map(cost)).sum::<Result<u64, _>>()?;
        let directory = path.parent().unwrap_or(path).to_owned();
        Ok(Self { bounds, directory, used: used.into(), crowded: AtomicBool::new(false) })
    }

    pub(super) fn set(&self, used: u64) {
        self.used.store(used, Ordering::Release);
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    fn limit(&self) -> Limit {
        // If the disk cannot be queried, the configured limit applies; no outcome is dropped for that.
        let Ok(space) = Space::of(&self.directory) else {
            return Limit { usual: self.bounds.max_total, now: self.bounds.max_total, scarce: false };
        };
        let usual = self.bounds.max_total.min(space.total / 8);
        let scarce = space.free < MIN_FREE.min(space.total / 8);
        Limit { usual, now: if scarce { usual.min(self.used()) } else { usual }, scarce }
    }
}

/// Bytes that outcomes may take.
#[derive(Debug, Clone, Copy)]
struct Limit {
    usual: u64,
    now: u64,
    /// True if the disk is nearly full.
    scarce: bool,
}

/// Returns the bytes that a response of this length takes in the database.
fn cost(response: u64) -> u64 {
    ROW + if response <= IN_A_PAGE { response } else { response.div_ceil(PAGE) * PAGE }
}

/// Reads a length. The database has no unsigned numbers.
fn bytes(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(at).map(i64::unsigned_abs)
}

fn length(response: &[u8]) -> u64 {
    response.len() as u64
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Space for outcomes during one transaction.
pub(super) struct Room<'t> {
    transaction: &'t Transaction<'t>,
    kept: &'t Kept,
    seal: &'t Seal,
    limit: Limit,
    /// Bytes that are used after the transaction.
    pub(super) used: u64,
    /// Unix time in milliseconds.
    pub(super) now: i64,
}

impl Store {
    pub(super) fn room<'t>(&'t self, transaction: &'t Transaction<'t>) -> Room<'t> {
        let kept = &self.0.outcomes;
        let now = i64::try_from(UnixMillis::now().0).unwrap_or(i64::MAX);
        Room { transaction, kept, seal: &self.0.seal, limit: kept.limit(), used: kept.used(), now }
    }

    /// Returns true if there is no space to remember another request id.
    pub fn is_crowded(&self) -> bool {
        self.0.outcomes.crowded.load(Ordering::Acquire)
    }

    /// Enforces the limits until the daemon stops.
    pub async fn keep_bounds(self, stop: CancellationToken) {
        let mut wait = Duration::ZERO;
        while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
            wait = match self.with(Self::tidy_outcomes).await {
                Ok(true) => SOON,
                Ok(false) => TICK,
                Err(error) => {
                    tracing::error!(error = %chain(&error), "outcomes of calls that are too old were not removed");
                    TICK
                }
            };
        }
    }

    /// Removes old outcomes and returns free pages to the disk. If the disk is nearly full, it also evicts others.
    ///
    /// Returns true if there is more to do.
    fn tidy_outcomes(&self) -> Result<bool, StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let mut room = self.room(&transaction);
        let Limit { usual, scarce, .. } = room.limit;
        let mut more = room.remove_older_than(self.0.outcomes.bounds.max_age)?;
        if scarce || room.used > usual || self.is_crowded() {
            more |= room.evict()?;
        }
        let used = room.used;
        transaction.commit()?;
        self.0.outcomes.set(used);
        if used < usual {
            self.0.outcomes.crowded.store(false, Ordering::Release);
        }
        let free: u32 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        if free > if scarce { 0 } else { KEEP_FREE } {
            let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({GIVE_BACK})"))?;
            let mut pages = statement.query([])?;
            while pages.next()?.is_some() {}
        }
        Ok(more)
    }
}

impl Room<'_> {
    /// Removes the stored outcome of a call, if there is one.
    pub(super) fn replace(&mut self, call: CallId) -> Result<(), StoreError> {
        self.forget("call_id = ?1", &call.to_string())
    }

    /// Removes all outcomes of a run.
    pub(super) fn forget_run(&mut self, run: RunId) -> Result<(), StoreError> {
        self.forget("run_id = ?1", &run.to_string())
    }

    fn forget(&mut self, which: &str, id: &str) -> Result<(), StoreError> {
        let query = format!("DELETE FROM calls WHERE {which} RETURNING length(response)");
        let mut statement = self.transaction.prepare_cached(&query)?;
        for length in statement.query_map([id], |row| bytes(row, 0))? {
            self.used = self.used.saturating_sub(cost(length?));
        }
        Ok(())
    }

    /// Frees space for an outcome.
    ///
    /// Returns the sealed response to store, which may lack its result, and the part that must be kept. `None` if it is not stored.
    pub(super) fn make(
        &mut self,
        call: &StoredCall,
        bare: Bare,
    ) -> Result<Option<(Vec<u8>, u8)>, StoreError> {
        let seal = |response: &[u8]| self.seal.seal(&place(call.call_id), response);
        let whole = seal(&call.response)?;
        // Without its result it would take as much.
        let is_small = length(&whole) <= IN_A_PAGE;
        let needed = cost(length(&whole));
        // An outcome that would displace all others is not stored.
        let fits = needed <= self.kept.bounds.max_total / 4
            && (self.has(needed)
                || self.until(needed, Self::evict)?
                || call.promised && self.until(needed, |room| room.strip(bare))?);
        let (response, keeps) = match (call.promised, fits) {
            (false, false) => return Ok(None),
            (false, true) => (whole, keeps::NOTHING),
            (true, _) if is_small => (whole, keeps::BARE),
            (true, true) => (whole, keeps::WHOLE),
            (true, false) => (seal(&bare(&call.response))?, keeps::BARE),
        };
        let needed = cost(length(&response));
        self.used += needed;
        self.kept.crowded.store(self.used > self.limit.usual, Ordering::Release);
        Ok(Some((response, keeps)))
    }

    fn has(&self, bytes: u64) -> bool {
        self.used.saturating_add(bytes) <= self.limit.now
    }

    /// Repeats `step` until these bytes fit, or until the step returns false.
    fn until(
        &mut self,
        bytes: u64,
        step: impl Fn(&mut Self) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        while !self.has(bytes) {
            if !step(self)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the oldest outcomes that are not promised, or no longer. Returns true if there were any.
    fn evict(&mut self) -> Result<bool, StoreError> {
        let over = self.now.saturating_sub(millis(self.kept.bounds.request_ids));
        let oldest = |keeps: u8, before: &str| {
            format!(
                "SELECT * FROM (SELECT call_id, settled_at, length(response) FROM calls
                 WHERE keeps = {keeps} AND settled_at < {before} ORDER BY settled_at LIMIT {BATCH})"
            )
        };
        let query = format!(
            "{} UNION ALL {} UNION ALL {} ORDER BY 2 LIMIT {BATCH}",
            oldest(keeps::NOTHING, &i64::MAX.to_string()),
            oldest(keeps::WHOLE, "?1"),
            oldest(keeps::BARE, "?1"),
        );
        self.remove(&query, over)
    }

    fn remove_older_than(&mut self, age: Duration) -> Result<bool, StoreError> {
        let over = self.now.saturating_sub(millis(age));
        let query = format!(
            "SELECT call_id, settled_at, length(response) FROM calls WHERE keeps IN (0, 1, 2) AND settled_at < ?1 LIMIT {BATCH}"
        );
        self.remove(&query, over)
    }

    fn remove(&mut self, query: &str, before: i64) -> Result<bool, StoreError> {
        let mut statement = self.transaction.prepare_cached(query)?;
        let found = statement.query_map([before], |row| Ok((row.get::<_, String>(0)?, bytes(row, 2)?)))?;
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let mut delete = self.transaction.prepare_cached("DELETE FROM calls WHERE call_id = ?1")?;
        for (call, length) in &found {
            delete.execute([call])?;
            self.used = self.used.saturating_sub(cost(*length));
        }
        Ok(!found.is_empty())
    }

    /// Drops the results of the oldest promised outcomes. Returns true if there were any.
    fn strip(&mut self, bare: Bare) -> Result<bool, StoreError> {
        let query = format!(
            "SELECT call_id, response FROM calls WHERE keeps = {} ORDER BY settled_at LIMIT {READ}",
            keeps::WHOLE
        );
        let mut statement = self.transaction.prepare_cached(&query)?;
        let found =
            statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let mut update = self
            .transaction
            .prepare_cached("UPDATE calls SET response = ?2, keeps = ?3 WHERE call_id = ?1")?;
        for (id, sealed) in &found {
            let place = CallId::parse(id).map(place).unwrap_or_default();
            // An outcome that can no longer be read is useless already.
            let plain = self.seal.unseal(&place, sealed).unwrap_or_default();
            let rest = self.seal.seal(&place, &bare(&plain))?;
            update.execute(params![id, rest, keeps::BARE])?;
            self.used = self.used.saturating_sub(cost(length(sealed))) + cost(length(&rest));
        }
        Ok(!found.is_empty())
    }
}

/// Rewrites the database of an earlier release once, so that it can return free pages. Only done if time and space permit.
pub(super) fn allow_giving_back(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let incremental: u32 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    if incremental == 2 {
        return Ok(());
    }
    let pages = connection.pragma_query_value(None, "page_count", |row| bytes(row, 0))?;
    let bytes = pages.saturating_mul(PAGE);
    let has_room = Space::of(path.parent().unwrap_or(path)).is_ok_and(|space| space.free / 4 > bytes);
    if bytes <= MAX_REWRITE && has_room {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.execute_batch("VACUUM")?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;
