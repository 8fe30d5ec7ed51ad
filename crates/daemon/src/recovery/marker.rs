//! Keeps a place in the log up to which everything has its end, so that no start has to read all of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::ends::{Ends, Mark};
use crate::audit::AuditLog;
use crate::status::chain;
use crate::store::Store;

/// Between two looks at what was recorded meanwhile: what a start after a crash reads at least.
const EVERY: Duration = Duration::from_secs(600);

/// Follows the log at its own pace.
pub(crate) struct Marker {
    log: Arc<AuditLog>,
    store: Store,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ends: Ends,
    /// Where the look before the last one came to.
    before: Option<Mark>,
}

impl Marker {
    pub(crate) fn new(log: Arc<AuditLog>, store: Store) -> Self {
        Self { log, store, state: Mutex::default() }
    }

    /// Keeps the mark until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut every = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => {
                    let mut state = self.state.lock().await;
                    let Some(now) = self.read(&mut state).await else { continue };
                    // One look behind: an outcome comes into the store a moment after its receipt into the log, and the
                    // start looks for those that did not come so far.
                    if let Some(before) = state.before.replace(now) {
                        self.put(before).await;
                    }
                }
            }
        }
    }

    /// Nothing is under way any more and all is stored: the mark comes to the end.
    pub(crate) async fn finish(&self) {
        let mut state = self.state.lock().await;
        if let Some(now) = self.read(&mut state).await {
            self.put(now).await;
        }
    }

    /// Reads what came since.
    async fn read(&self, state: &mut State) -> Option<Mark> {
        let after = match state.ends.last {
            Some(last) => last.sequence,
            None => begin(&self.log, &self.store).await,
        };
        let mut follow = self.log.read_after(after, false);
        loop {
            match follow.next().await {
                Ok(Some(lines)) => lines.iter().for_each(|line| state.ends.read(&line.record)),
                Ok(None) => return state.ends.mark(),
                Err(refusal) => {
                    tracing::warn!(
                        why = refusal.message,
                        "the next start reads more of the audit log than it had to"
                    );
                    return None;
                }
            }
        }
    }

    async fn put(&self, mark: Mark) {
        if let Err(error) = self.store.with(move |store| store.set_mark(&mark)).await {
            tracing::warn!(error = %chain(&error), "the next start reads more of the audit log than it had to");
        }
    }
}

/// The sequence number behind which everything that may be open is: just before the mark, if the log still has the record
/// that was marked, and 0 otherwise. The store can be another log's, and a log can be another one's beginning.
pub(super) async fn begin(log: &AuditLog, store: &Store) -> u64 {
    let mark = match store.with(Store::mark).await {
        Ok(Some(mark)) => mark,
        Ok(None) => return 0,
        Err(error) => {
            tracing::warn!(error = %chain(&error), "the whole audit log is read");
            return 0;
        }
    };
    let before = mark.sequence.saturating_sub(1);
    let first = match log.read_after(before, false).next().await {
        Ok(Some(lines)) => lines.first().map(|line| (line.record.sequence, line.record.hash)),
        _ => None,
    };
    if first == Some((mark.sequence, mark.hash)) {
        return before;
    }
    tracing::warn!(
        sequence = mark.sequence,
        "the audit log is not the one that was marked: all of it is read"
    );
    0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;

    use audit::{Event, Kind};

    use super::{Marker, begin};
    use crate::audit::AuditLog;
    use crate::recovery::look;
    use crate::store::Store;

    async fn log(directory: &Path, kinds: &[(Kind, &str)]) -> Arc<AuditLog> {
        let (log, _, _) = AuditLog::open(directory, crate::audit::Settings::default()).unwrap();
        for (kind, call) in kinds {
            log.record(Event::new(*kind).call(*call)).await.unwrap();
        }
        Arc::new(log)
    }

    #[tokio::test]
    async fn a_start_reads_from_the_oldest_thing_that_is_open() {
        use Kind::{CallIntent, CallReceipt};
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db")).unwrap();
        let calls = [
            (CallIntent, "a"),
            (CallReceipt, "a"),
            (CallIntent, "waits"),
            (CallIntent, "b"),
            (CallReceipt, "b"),
        ];
        let log = log(&place.path().join("audit"), &calls).await;
        assert_eq!(begin(&log, &store).await, 0, "nothing is marked so far");
        let marker = Marker::new(log.clone(), store.clone());
        marker.finish().await;
        assert_eq!(begin(&log, &store).await, 2);
        let open = look(&log, &store, &BTreeSet::new()).await.unwrap();
        assert_eq!(open.ends.calls.keys().collect::<Vec<_>>(), ["waits"]);
        log.record(Event::new(CallReceipt).call("waits")).await.unwrap();
        marker.finish().await;
        assert_eq!(begin(&log, &store).await, 5, "only the last record is read again");
        assert!(look(&log, &store, &BTreeSet::new()).await.unwrap().ends.calls.is_empty());
    }

    #[tokio::test]
    async fn the_mark_of_another_log_is_not_believed() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db")).unwrap();
        let many = [(Kind::CallReceipt, "x"); 5];
        let marked = log(&place.path().join("one"), &many).await;
        Marker::new(marked.clone(), store.clone()).finish().await;
        assert_eq!(begin(&marked, &store).await, 4);
        for count in [0, 3, 5] {
            let other = log(&place.path().join(count.to_string()), &many[..count]).await;
            assert_eq!(begin(&other, &store).await, 0, "{count}");
        }
    }
}
