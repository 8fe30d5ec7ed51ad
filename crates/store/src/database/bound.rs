//! How much is kept of calls that are over, and for how long.
//!
//! ```text
//!  settled ─► whole ──no room: oldest first──► gone                       nobody was promised it
//!  settled ─► whole ──no room──► bare ──the promise is over──► gone       it has a request id, or a reviewer was asked
//! ```
//!
//! Whoever repeats a request, or asks what became of a call that waited for a reviewer, finds the call for as long as is promised,
//! if need be without its result. When not even that has room, [`Store::is_crowded`] says so, and no further request id is taken.
//! Near the end of the disk nothing is added but what takes the place of something older: the audit log needs the rest.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gateway::{Clock as _, SystemClock};
use identity::{CallId, RunId};
use prost::Message as _;
use refusal::chain;
use rusqlite::{Connection, Row, Transaction, params};
use seal::Seal;
use tokio_util::sync::CancellationToken;
use wire::v1::{CallResponse, call_response::Status};

use super::calls::place;
use super::{Store, StoreError, StoredCall};
use crate::disk::Space;

/// Outcomes that go at once: a call that ends waits for no more.
const BATCH: usize = 128;
/// Outcomes whose results are taken from them at once: they are read for it.
const READ: usize = 16;
/// What an outcome takes beside its response, bytes.
const ROW: u64 = 512;
/// A response longer than this takes whole pages, bytes.
const IN_A_PAGE: u64 = 768;
const PAGE: u64 = 4_096;
/// Bytes of a disk of the usual size that outcomes leave to others.
const MIN_FREE: u64 = 64 << 20;
/// Free pages that are given back at once, and kept for what comes next.
const GIVE_BACK: u32 = 256;
const KEEP_FREE: u32 = 4_096;
/// A database of a former release is written anew where that takes no longer than a start may.
const MAX_REWRITE: u64 = 1 << 30;
/// Between looks at what is too old, and while there is more to remove.
const TICK: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(100);
/// Characters that are left of an error's message.
const MESSAGE: usize = 300;

/// What must stay of an outcome, as the database has it.
mod keeps {
    pub(super) const NOTHING: u8 = 0;
    /// Something, and it is whole.
    pub(super) const WHOLE: u8 = 1;
    /// Something, and it is as small as it can be: its result is gone, or short.
    pub(super) const BARE: u8 = 2;
}

/// How much may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    /// Bytes that all stored calls may take.
    pub max_total: u64,
    /// Nothing is kept for longer.
    pub max_age: Duration,
    /// So long a call can be found by its request id, or after a reviewer was asked.
    pub request_ids: Duration,
}

impl Outcomes {
    /// More than a test makes.
    pub const WIDE: Self = Self {
        max_total: 1 << 30,
        max_age: Duration::from_secs(86_400),
        request_ids: Duration::from_secs(3_600),
    };
}

/// How much is kept.
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
        // Of a disk that cannot be asked nothing is known that would be worth losing an outcome for.
        let Ok(space) = Space::of(&self.directory) else {
            return Limit { usual: self.bounds.max_total, now: self.bounds.max_total, scarce: false };
        };
        let usual = self.bounds.max_total.min(space.total / 8);
        let scarce = space.free < MIN_FREE.min(space.total / 8);
        Limit { usual, now: if scarce { usual.min(self.used()) } else { usual }, scarce }
    }
}

/// Bytes that there may be.
#[derive(Debug, Clone, Copy)]
struct Limit {
    usual: u64,
    now: u64,
    /// The disk is near its end.
    scarce: bool,
}

/// What a response of so many bytes costs in the database.
fn cost(response: u64) -> u64 {
    ROW + if response <= IN_A_PAGE { response } else { response.div_ceil(PAGE) * PAGE }
}

/// A length, of which the database has no unsigned numbers.
fn bytes(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(at).map(i64::unsigned_abs)
}

fn length(response: &[u8]) -> u64 {
    response.len() as u64
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Room for outcomes, within one transaction.
pub(super) struct Room<'t> {
    transaction: &'t Transaction<'t>,
    kept: &'t Kept,
    seal: &'t Seal,
    limit: Limit,
    /// Bytes that are kept when the transaction is over.
    pub(super) used: u64,
    /// Unix time in milliseconds.
    pub(super) now: i64,
}

impl Store {
    pub(super) fn room<'t>(&'t self, transaction: &'t Transaction<'t>) -> Room<'t> {
        let kept = &self.0.outcomes;
        let now = i64::try_from(SystemClock.now().0).unwrap_or(i64::MAX);
        Room { transaction, kept, seal: &self.0.seal, limit: kept.limit(), used: kept.used(), now }
    }

    /// Whether there is no room left to remember another request id in.
    pub fn is_crowded(&self) -> bool {
        self.0.outcomes.crowded.load(Ordering::Acquire)
    }

    /// Keeps to the bounds until the daemon stops.
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

    /// Removes what is too old, gives free pages back to the disk, and near its end outcomes as well. Whether there is more to do.
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
    /// Takes away what is kept of a call already.
    pub(super) fn replace(&mut self, call: CallId) -> Result<(), StoreError> {
        self.forget("call_id = ?1", &call.to_string())
    }

    /// Takes away all of a run.
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

    /// Makes room for an outcome: what is to be kept of it, sealed, and what must stay. Nothing: it is not kept.
    pub(super) fn make(&mut self, call: &StoredCall) -> Result<Option<(Vec<u8>, u8)>, StoreError> {
        let seal = |response: &[u8]| self.seal.seal(&place(call.call_id), response);
        let whole = seal(&call.response);
        // Without its result it would take as much.
        let is_small = length(&whole) <= IN_A_PAGE;
        let needed = cost(length(&whole));
        // One that takes the place of all others is not worth it.
        let fits = needed <= self.kept.bounds.max_total / 4
            && (self.has(needed)
                || self.until(needed, Self::evict)?
                || call.promised && self.until(needed, Self::strip)?);
        let (response, keeps) = match (call.promised, fits) {
            (false, false) => return Ok(None),
            (false, true) => (whole, keeps::NOTHING),
            (true, _) if is_small => (whole, keeps::BARE),
            (true, true) => (whole, keeps::WHOLE),
            (true, false) => (seal(&bare(&call.response)), keeps::BARE),
        };
        let needed = cost(length(&response));
        self.used += needed;
        self.kept.crowded.store(self.used > self.limit.usual, Ordering::Release);
        Ok(Some((response, keeps)))
    }

    fn has(&self, bytes: u64) -> bool {
        self.used.saturating_add(bytes) <= self.limit.now
    }

    /// Does `step` until there is room for so many bytes, or nothing is left for it to do.
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

    /// Removes the oldest of those that nobody is promised, or no longer. Whether there were any.
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

    /// Takes their results from the oldest of those that somebody is promised. Whether there were any.
    fn strip(&mut self) -> Result<bool, StoreError> {
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
            // One that cannot be read any more says nothing as it is.
            let plain = self.seal.unseal(&place, sealed).unwrap_or_default();
            let rest = self.seal.seal(&place, &bare(&plain));
            update.execute(params![id, rest, keeps::BARE])?;
            self.used = self.used.saturating_sub(cost(length(sealed))) + cost(length(&rest));
        }
        Ok(!found.is_empty())
    }
}

/// What became of a call, without its result.
fn bare(response: &[u8]) -> Vec<u8> {
    let mut response = CallResponse::decode(response).unwrap_or_default();
    response.result_dropped = response.result.take().is_some() || response.rendered.len() > MESSAGE;
    if response.result_dropped {
        let what = if response.status() == Status::Succeeded { "succeeded" } else { "did not succeed" };
        response.rendered = format!(
            "This call was made before and {what}. Its result is no longer kept: look before you repeat it."
        );
    }
    if let Some(error) = &mut response.error {
        error.details.clear();
        error.message = error.message.chars().take(MESSAGE).collect();
    }
    response.encode_to_vec()
}

/// Has the database of a former release written anew once, so that it can give free pages back, where there is room and time for it.
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
