//! Keeps a place in the log and what was open there, so that no start has to read all of it, and what is open has its end
//! although retention has removed its beginning: nothing behind the place is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use audit::Event;
use audit_service::AuditLog;
use refusal::chain;
use store::{Marked, Store};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::ends::Ends;

/// Between two looks at what was recorded meanwhile: what a start after a crash reads at least.
const EVERY: Duration = Duration::from_secs(600);

/// Follows the log at its own pace.
pub(crate) struct RecoveryCursor {
    log: Arc<AuditLog>,
    store: Store,
    state: Mutex<State>,
    /// The place that is kept; 0: none so far.
    kept: AtomicU64,
}

#[derive(Default)]
struct State {
    ends: Ends,
    /// Where the look before the last one came to.
    before: Option<Marked>,
}

impl RecoveryCursor {
    pub(crate) fn new(log: Arc<AuditLog>, store: Store) -> Self {
        Self { log, store, state: Mutex::default(), kept: AtomicU64::new(0) }
    }

    /// Keeps the mark until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut every = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => self.look().await,
            }
        }
    }

    /// Looks at what came, and keeps where the look before came to: an outcome comes into the store a moment after its
    /// receipt into the log, and the start looks for those that did not come so far.
    pub(crate) async fn look(&self) {
        let mut state = self.state.lock().await;
        let Some(now) = self.read(&mut state).await else { return };
        if let Some(before) = state.before.replace(now) {
            self.put(before).await;
        }
    }

    /// Looks, and gives the last of the records that no start needs: it knows what was open there.
    pub(crate) async fn look_released(self: Arc<Self>) -> u64 {
        self.look().await;
        self.released()
    }

    fn released(&self) -> u64 {
        self.kept.load(Ordering::Acquire).saturating_sub(1)
    }

    /// Nothing is under way any more and all is stored: the mark comes to the end.
    pub(crate) async fn finish(&self) {
        let mut state = self.state.lock().await;
        if let Some(now) = self.read(&mut state).await {
            self.put(now).await;
        }
    }

    /// Reads what came since.
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
        match self.store.with(move |store| store.set_mark(&marked)).await {
            Ok(()) => self.kept.store(sequence, Ordering::Release),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the next start reads more of the audit log than necessary");
            }
        }
    }
}

/// Where a start begins to read, and what was open before.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Begun {
    /// The sequence number behind which it reads.
    pub(super) after: u64,
    pub(super) open: Vec<Event>,
}

/// Just before the mark, if the log still has the record that was marked, and at the beginning otherwise. The store can be
/// another log's, and a log can be another one's beginning.
pub(super) async fn begin(log: &AuditLog, store: &Store) -> Begun {
    let Marked { mark, open } = match store.with(Store::mark).await {
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
    async fn a_start_reads_from_the_mark_and_knows_what_was_open_there() {
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
