//! Stores a position in the log, and the calls and sessions that were open there.
//!
//! A start reads the log from that position on, not from its beginning. Retention removes no record after the position.
//! A call that was open there gets its end even if retention has removed its beginning.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use audit::Event;
use audit_service::AuditLog;
use refusal::chain;
use store::{Store, StoreError, StoredMark};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::ends::{Ends, Mark, Marked};

/// Interval between two scans of new records. A start after a crash reads at least the records of one interval.
const EVERY: Duration = Duration::from_secs(600);

/// Scanner that follows the log and stores the position.
pub(crate) struct RecoveryCursor {
    log: Arc<AuditLog>,
    store: Store,
    state: Mutex<State>,
    /// Sequence number of the stored position; 0 if there is none yet.
    kept: AtomicU64,
}

#[derive(Default)]
struct State {
    ends: Ends,
    /// Position that the last scan reached. The next scan stores it.
    before: Option<Marked>,
}

impl RecoveryCursor {
    pub(crate) fn new(log: Arc<AuditLog>, store: Store) -> Self {
        Self { log, store, state: Mutex::default(), kept: AtomicU64::new(0) }
    }

    /// Scans new records at every interval, until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut every = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => self.look().await,
            }
        }
    }

    /// Scans new records, and stores the position that the previous scan reached.
    ///
    /// An outcome reaches the store a moment after its receipt reaches the log, and a start looks for outcomes that are
    /// missing. So the stored position has to be older than the last scan.
    pub(crate) async fn look(&self) {
        let mut state = self.state.lock().await;
        let Some(now) = self.read(&mut state).await else { return };
        if let Some(before) = state.before.replace(now) {
            self.put(before).await;
        }
    }

    /// Scans new records, and returns the last sequence number that no start needs.
    pub(crate) async fn look_released(self: Arc<Self>) -> u64 {
        self.look().await;
        self.released()
    }

    fn released(&self) -> u64 {
        self.kept.load(Ordering::Acquire).saturating_sub(1)
    }

    /// Stores the end of the log as the position. Call this when no call is running and all outcomes are stored.
    pub(crate) async fn finish(&self) {
        let mut state = self.state.lock().await;
        if let Some(now) = self.read(&mut state).await {
            self.put(now).await;
        }
    }

    /// Reads the records since the last scan. Returns `None` if the log cannot be read.
    async fn read(&self, state: &mut State) -> Option<Marked> {
        let after = if let Some(last) = state.ends.last {
            last.sequence
        } else {
            let begun = begin(&self.log, &self.store).await;
            state.ends = Ends::with(&begun.open);
            begun.after
        };
        let mut follow = self.log.read_after(after, false);
        loop {
            match follow.next().await {
                Ok(Some(lines)) => lines.iter().for_each(|line| state.ends.read(&line.record)),
                Ok(None) => return state.ends.mark(),
                Err(refusal) => {
                    tracing::warn!(
                        why = refusal.message,
                        "the next start reads more of the audit log than necessary"
                    );
                    return None;
                }
            }
        }
    }

    async fn put(&self, marked: Marked) {
        let sequence = marked.mark.sequence;
        let stored = self.store.with(move |store| {
            let Marked { mark: Mark { sequence, hash }, open } = marked;
            let (hash, open) = (hash.to_string(), serde_json::to_string(&open)?);
            store.set_mark(&StoredMark { sequence, hash, open })
        });
        match stored.await {
            Ok(()) => self.kept.store(sequence, Ordering::Release),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the next start reads more of the audit log than necessary");
            }
        }
    }
}

/// Position at which a start begins to read, and the calls and sessions that were open there.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Begun {
    /// Sequence number after which the start reads.
    pub(super) after: u64,
    pub(super) open: Vec<Event>,
}

/// Returns the stored position, or `None` if there is none that can be read.
fn stored(store: &Store) -> Result<Option<Marked>, StoreError> {
    let Some(StoredMark { sequence, hash, open }) = store.mark()? else { return Ok(None) };
    let open = serde_json::from_str(&open)?;
    Ok(hash.parse().ok().map(|hash| Marked { mark: Mark { sequence, hash }, open }))
}

/// Returns the position before the marked record, or the beginning if the log does not have that record.
///
/// The store may belong to another log, and the log may be a copy of another log's beginning.
pub(super) async fn begin(log: &AuditLog, store: &Store) -> Begun {
    let Marked { mark, open } = match store.with(stored).await {
        Ok(Some(marked)) => marked,
        Ok(None) => return Begun::default(),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "the whole audit log is read");
            return Begun::default();
        }
    };
    let after = mark.sequence.saturating_sub(1);
    let first = match log.read_after(after, false).next().await {
        Ok(Some(lines)) => lines.first().map(|line| (line.record.sequence, line.record.hash)),
        _ => None,
    };
    if first == Some((mark.sequence, mark.hash)) {
        return Begun { after, open };
    }
    tracing::warn!(
        sequence = mark.sequence,
        "the recovery cursor is of another audit log: the whole log is read"
    );
    Begun::default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;

    use std::time::Duration;

    use audit::{Event, Kind, Limits, Policy};
    use audit_service::{AuditLog, Maintenance};
    use store::Store;
    use tokio_util::sync::CancellationToken;

    use super::{Begun, RecoveryCursor, begin};
    use crate::recovery::look;

    async fn log(directory: &Path, kinds: &[(Kind, &str)]) -> Arc<AuditLog> {
        let (log, _, _) = AuditLog::open(directory, audit_service::Settings::default()).unwrap();
        for (kind, call) in kinds {
            log.record(Event::new(*kind).call(*call)).await.unwrap();
        }
        Arc::new(log)
    }

    #[tokio::test]
    async fn a_start_reads_from_the_cursor_and_knows_its_open_calls() {
        use Kind::{CallIntent, CallReceipt};
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), store::OutcomeBounds::WIDE).unwrap();
        let calls = [
            (CallIntent, "a"),
            (CallReceipt, "a"),
            (CallIntent, "waits"),
            (CallIntent, "b"),
            (CallReceipt, "b"),
        ];
        let log = log(&place.path().join("audit"), &calls).await;
        assert_eq!(begin(&log, &store).await, Begun::default(), "nothing is marked so far");
        let cursor = RecoveryCursor::new(log.clone(), store.clone());
        cursor.finish().await;
        let begun = begin(&log, &store).await;
        assert_eq!((begun.after, begun.open.len()), (4, 1), "only the last record is read again");
        let open = look(&log, &store, &BTreeSet::new()).await.unwrap();
        assert_eq!(open.ends.calls.keys().collect::<Vec<_>>(), ["waits"]);
        log.record(Event::new(CallReceipt).call("waits")).await.unwrap();
        cursor.finish().await;
        assert_eq!(begin(&log, &store).await, Begun { after: 5, open: Vec::new() });
        assert!(look(&log, &store, &BTreeSet::new()).await.unwrap().ends.calls.is_empty());
    }

    #[tokio::test]
    async fn the_mark_of_another_log_is_not_believed() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), store::OutcomeBounds::WIDE).unwrap();
        let many = [(Kind::CallReceipt, "x"); 5];
        let marked = log(&place.path().join("one"), &many).await;
        RecoveryCursor::new(marked.clone(), store.clone()).finish().await;
        assert_eq!(begin(&marked, &store).await.after, 4);
        for count in [0, 3, 5] {
            let other = log(&place.path().join(count.to_string()), &many[..count]).await;
            assert_eq!(begin(&other, &store).await, Begun::default(), "{count}");
        }
    }

    #[tokio::test]
    async fn open_calls_are_closed_after_their_records_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), store::OutcomeBounds::WIDE).unwrap();
        let directory = place.path().join("audit");
        let settings = audit_service::Settings {
            limits: Limits { segment_bytes: 1, ..Limits::default() },
            signing: Some((place.path().join("key"), 1)),
        };
        let (log, _, _) = AuditLog::open(&directory, settings).unwrap();
        let log = Arc::new(log);
        let cursor = Arc::new(RecoveryCursor::new(log.clone(), store.clone()));
        for (kind, call) in [
            (Kind::CallIntent, "waits"),
            (Kind::CallIntent, "closed"),
            (Kind::CallReceipt, "closed"),
            (Kind::CallIntent, "last"),
        ] {
            log.record(Event::new(kind).call(call)).await.unwrap();
        }
        let maintenance = Maintenance {
            checkpoint_interval: Duration::from_secs(1),
            policy: Policy {
                compress_after: None,
                remove_after: Some(Duration::from_millis(1)),
                keep_bytes: None,
            },
        };
        let stop = CancellationToken::new();
        let released = move || cursor.clone().look_released();
        let keeping = tokio::spawn(maintenance.run(log.clone(), released, stop.clone()));
        // As they fall behind the mark: it may take more than one look.
        let removed = async {
            loop {
                log.record(Event::new(Kind::Alert)).await.unwrap();
                let first = log.read_after(0, false).next().await.unwrap().unwrap();
                if first[0].record.sequence > 10 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), removed).await.expect("nothing is removed");
        stop.cancel();
        keeping.await.unwrap();
        let open = look(&log, &store, &BTreeSet::new()).await.unwrap();
        assert_eq!(open.ends.calls.keys().collect::<Vec<_>>(), ["last", "waits"]);
    }
}
