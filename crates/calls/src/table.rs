//! Finds the calls that are under way or were made lately, by id and by the client's request id.
//!
//! A call is known here from the moment it is accepted, and it runs to its end without its client. A client that disconnects loses
//! nothing and finds the outcome with `GetCall`.
//!
//! Finished calls are kept in memory up to a bound. Calls with an effect, an approval or a request id are also kept in the store,
//! until their run is deleted. Calls with an approval or a request id are stored before the answer: a client that waits or repeats
//! must find them even after a crash. The others are stored a moment later.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use identity::{CallId, Principal, RunId, check_client_name};
use operations::Reason;
use parking_lot::Mutex;
use prost::Message as _;
use refusal::{Refusal, chain};
use store::spool::{Output, Spool};
use store::{Bare, Store, StoreError, StoredCall};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wire::v1::{CallResponse, call_response::Status};

use crate::approvals::Asker;
use crate::bare::bare;

/// Most finished calls that are kept in memory.
const FINISHED: usize = 2_048;
/// Most bytes of their answers. Answers contain file contents, so that the number of calls alone bounds nothing.
const FINISHED_BYTES: usize = 64 * 1024 * 1024;
/// Time between an answer and the transaction that keeps it.
const LINGER: Duration = Duration::from_millis(5);
/// Most calls of one run that wait or run at the same time.
const UNDER_WAY: usize = 256;

/// A call, as its client sees it.
pub struct Call {
    pub id: CallId,
    pub(crate) run: RunId,
    /// The principal that made it.
    pub(crate) principal: String,
    pub(crate) request_id: Option<String>,
    /// Digest of the request's content.
    pub(crate) digest: Vec<u8>,
    /// Cancelled by `CancelCall`, and by the disconnect of a client that asked for that.
    pub cancel: CancellationToken,
    /// The sink for its command's output.
    pub(crate) output: Output,
    state: watch::Sender<Answer>,
}

/// The current answer of a call.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(crate) response: CallResponse,
    /// The refusal of the call. Canonical callers get it instead of the response.
    pub(crate) refusal: Option<Refusal>,
    /// The answer is final.
    pub finished: bool,
    /// This daemon does nothing more for the call: the next one goes on.
    pub(crate) suspended: bool,
}

impl Call {
    pub fn answer(&self) -> Answer {
        self.state.borrow().clone()
    }

    /// Returns the answer as it changes.
    pub(crate) fn follow(&self) -> watch::Receiver<Answer> {
        self.state.subscribe()
    }

    /// Marks the call as waiting for this approval.
    pub(crate) fn pend(&self, approval_id: &str, rendered: String) {
        self.state.send_modify(|answer| {
            answer.response.status = Status::PendingApproval.into();
            answer.response.rendered = rendered;
            approval_id.clone_into(&mut answer.response.approval_id);
        });
    }

    /// Leaves the waiting call to the next daemon.
    pub(crate) fn suspend(&self) {
        self.state.send_modify(|answer| {
            answer.suspended = true;
            answer.response.status = Status::PendingApproval.into();
        });
    }

    /// Marks the call as running: its approval was given.
    pub(crate) fn resume(&self) {
        self.state.send_modify(|answer| answer.response.status = Status::Running.into());
    }

    /// Waits until the answer is final. Returns false if the next daemon goes on with the call.
    pub async fn over(&self) -> bool {
        self.settled(true).await.finished
    }

    /// Waits for the outcome or, unless the client waits for approvals, for a pending approval.
    pub(crate) async fn settled(&self, wait_for_approval: bool) -> Answer {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|answer| {
            answer.finished
                || answer.suspended
                || (!wait_for_approval && answer.response.status() == Status::PendingApproval)
        });
        match settled.await {
            Ok(answer) => answer.clone(),
            // The sender lives in `self`.
            Err(_) => self.answer(),
        }
    }
}

/// The way in which a call's outcome is kept. A call with a request id is always [`Keep::First`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// In memory, for a while.
    Briefly,
    /// In the store after the answer, without a sync.
    Stored,
    /// In the store, synced, before the answer.
    First,
}

/// The result of a request to begin a call.
pub(crate) enum Begun {
    /// A new call.
    New(Arc<Call>),
    /// A call that was made before and is under way or finished lately.
    Known(Arc<Call>),
    /// A call that was made before and has finished.
    Stored(Box<Found>),
}

/// The state of a call, wherever it is kept.
#[derive(Debug, PartialEq)]
pub struct Found {
    pub id: CallId,
    pub run: RunId,
    pub response: CallResponse,
    /// The response is final.
    pub finished: bool,
}

/// All calls.
pub struct CallTable {
    store: Store,
    spool: Arc<Spool>,
    table: Mutex<Table>,
    /// Calls that are answered, and not stored yet.
    later: Mutex<Vec<StoredCall>>,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<CallId, Arc<Call>>,
    by_request: HashMap<(RunId, String), CallId>,
    under_way: HashMap<RunId, usize>,
    /// Finished calls with the size of their answers, oldest first.
    finished: VecDeque<(CallId, usize)>,
    finished_bytes: usize,
}

impl Table {
    fn of_request(&self, run: RunId, request_id: &str) -> Option<Arc<Call>> {
        self.by_id.get(self.by_request.get(&(run, request_id.to_owned()))?).cloned()
    }

    fn forget(&mut self, id: CallId) {
        if let Some(forgotten) = self.by_id.remove(&id)
            && let Some(request_id) = &forgotten.request_id
        {
            self.by_request.remove(&(forgotten.run, request_id.clone()));
        }
    }

    fn finish(&mut self, id: CallId, bytes: usize) {
        self.finished.push_back((id, bytes));
        self.finished_bytes += bytes;
        while self.finished.len() > FINISHED || self.finished_bytes > FINISHED_BYTES {
            let Some((oldest, bytes)) = self.finished.pop_front() else { return };
            self.finished_bytes -= bytes;
            self.forget(oldest);
        }
    }
}

impl CallTable {
    pub fn new(store: Store, spool: Arc<Spool>) -> Self {
        Self { store, spool, table: Mutex::default(), later: Mutex::default() }
    }

    /// Begins a call, or finds the one that the same request began before.
    pub(crate) async fn begin(
        &self,
        run: RunId,
        principal: &str,
        request_id: &str,
        digest: Vec<u8>,
    ) -> Result<Begun, Refusal> {
        let request_id = Some(request_id.to_owned()).filter(|id| !id.is_empty());
        if let Some(request_id) = &request_id {
            check_client_name("request_id", request_id)?;
            let id = request_id.clone();
            let stored = self.store.with(move |store| store.call_by_request(run, &id)).await;
            let stored = stored.map_err(|error| Refusal::internal("looking a call up", &chain(&error)))?;
            if let Some(stored) = stored {
                same(&stored.principal, principal, &stored.request, &digest)?;
                return Ok(Begun::Stored(Box::new(found(&stored)?)));
            }
            if self.store.is_crowded() && self.table.lock().of_request(run, request_id).is_none() {
                return Err(Refusal::new(
                    Reason::Overloaded,
                    "request_id: the daemon has stored its maximum of request ids; try again later, or leave the id out",
                ));
            }
        }
        let mut table = self.table.lock();
        if let Some(call) = request_id.as_ref().and_then(|request_id| table.of_request(run, request_id)) {
            same(&call.principal, principal, &call.digest, &digest)?;
            return Ok(Begun::Known(call));
        }
        let under_way = table.under_way.entry(run).or_default();
        if *under_way >= UNDER_WAY {
            return Err(Refusal::new(
                Reason::Overloaded,
                format!("{UNDER_WAY} calls of this run wait or run already: let some finish first"),
            ));
        }
        *under_way += 1;
        let id = CallId::new();
        let response =
            CallResponse { call_id: id.to_string(), status: Status::Running.into(), ..Default::default() };
        let call = Arc::new(Call {
            id,
            run,
            principal: principal.to_owned(),
            request_id: request_id.clone(),
            digest,
            cancel: CancellationToken::new(),
            output: self.spool.output(run, id),
            state: watch::Sender::new(Answer { response, refusal: None, finished: false, suspended: false }),
        });
        table.by_id.insert(id, call.clone());
        if let Some(request_id) = request_id {
            table.by_request.insert((run, request_id), id);
        }
        Ok(Begun::New(call))
    }

    /// Returns true if a call was begun in the run under this request id, by any principal and with any content.
    pub async fn has_request(&self, run: RunId, request_id: &str) -> Result<bool, Refusal> {
        let id = request_id.to_owned();
        let stored = self.store.with(move |store| store.call_by_request(run, &id)).await;
        let stored = stored.map_err(|error| Refusal::internal("looking a call up", &chain(&error)))?;
        Ok(stored.is_some() || self.table.lock().of_request(run, request_id).is_some())
    }

    /// Restores a call that an earlier daemon left waiting for an approval.
    pub fn resume(&self, asker: &Asker) -> Arc<Call> {
        let Asker { call: id, run, .. } = *asker;
        let response = CallResponse {
            call_id: id.to_string(),
            status: Status::PendingApproval.into(),
            ..Default::default()
        };
        let call = Arc::new(Call {
            id,
            run,
            principal: asker.principal.clone(),
            request_id: asker.request_id.clone(),
            digest: asker.digest.clone(),
            cancel: CancellationToken::new(),
            output: self.spool.output(run, id),
            state: watch::Sender::new(Answer { response, refusal: None, finished: false, suspended: false }),
        });
        let mut table = self.table.lock();
        *table.under_way.entry(run).or_default() += 1;
        table.by_id.insert(id, call.clone());
        if let Some(request_id) = &call.request_id {
            table.by_request.insert((run, request_id.clone()), id);
        }
        call
    }

    /// Ends a call: completes its output, keeps its outcome and gives the answer.
    pub(crate) async fn finish(
        &self,
        call: &Arc<Call>,
        response: CallResponse,
        refusal: Option<Refusal>,
        keep: Keep,
    ) {
        call.output.finish().await;
        let keep = if call.request_id.is_some() { Keep::First } else { keep };
        let stored = (keep != Keep::Briefly).then(|| StoredCall {
            call_id: call.id,
            run_id: call.run,
            principal: call.principal.clone(),
            request_id: call.request_id.clone(),
            request: call.digest.clone(),
            response: response.encode_to_vec(),
            promised: keep == Keep::First,
        });
        let (first, later) = if keep == Keep::First { (stored, None) } else { (None, stored) };
        if let Some(first) = first {
            self.keep(vec![first], Store::insert_calls).await;
        }
        {
            let mut table = self.table.lock();
            if let Some(under_way) = table.under_way.get_mut(&call.run) {
                *under_way -= 1;
                if *under_way == 0 {
                    table.under_way.remove(&call.run);
                }
            }
            table.finish(call.id, response.encoded_len());
        }
        // A refused call is recorded under its id, too.
        let refusal = refusal.map(|refusal| refusal.with("call_id", call.id.to_string()));
        call.state.send_replace(Answer { response, refusal, finished: true, suspended: false });
        if let Some(later) = later {
            self.keep_later(later).await;
        }
    }

    /// Stores a call after its answer, together with others that finish within [`LINGER`], in one transaction.
    async fn keep_later(&self, call: StoredCall) {
        self.later.lock().push(call);
        tokio::time::sleep(LINGER).await;
        let together = std::mem::take(&mut *self.later.lock());
        if !together.is_empty() {
            self.keep(together, Store::insert_calls_unsynced).await;
        }
    }

    /// Stores calls. Their receipts are in the audit log already. If this fails, a client that returns later finds no outcome.
    async fn keep(
        &self,
        calls: Vec<StoredCall>,
        insert: fn(&Store, &[StoredCall], Bare) -> Result<(), StoreError>,
    ) {
        let ids: Vec<_> = calls.iter().map(|call| call.call_id).collect();
        if let Err(error) = self.store.with(move |store| insert(store, &calls, bare)).await {
            for call in ids {
                tracing::error!(%call, error = %chain(&error), "a call's outcome was not kept");
            }
        }
    }

    /// Returns the number of calls that neither have finished nor wait for an approval.
    pub fn working(&self) -> usize {
        let works = |answer: &Answer| {
            !answer.finished && !answer.suspended && answer.response.status() == Status::Running
        };
        self.table.lock().by_id.values().filter(|call| works(&call.state.borrow())).count()
    }

    /// Forgets the finished calls of a deleted run, as the store does, because their answers contain the output of its commands.
    pub fn forget_run(&self, run: RunId) {
        let mut table = self.table.lock();
        let finished = std::mem::take(&mut table.finished);
        for (id, bytes) in finished {
            if table.by_id.get(&id).is_some_and(|call| call.run == run) {
                table.finished_bytes -= bytes;
                table.forget(id);
            } else {
                table.finished.push_back((id, bytes));
            }
        }
    }

    /// Returns a call that is under way or finished lately.
    pub fn known(&self, id: CallId) -> Option<Arc<Call>> {
        self.table.lock().by_id.get(&id).cloned()
    }

    /// Returns a call, wherever it is kept. If the principal is limited to profiles, the caller has to check the call's run as
    /// well.
    pub async fn get(&self, id: CallId, principal: &Principal) -> Result<Found, Refusal> {
        if let Some(call) = self.known(id) {
            return if principal.may_use_call(call.run, &call.principal) {
                let Answer { response, finished, .. } = call.answer();
                Ok(Found { id, run: call.run, response, finished })
            } else {
                Err(no_such_call(id))
            };
        }
        let stored = self.store.with(move |store| store.call(id)).await;
        let stored = stored.map_err(|error| Refusal::internal("looking a call up", &chain(&error)))?;
        let stored = stored
            .filter(|stored| principal.may_use_call(stored.run_id, &stored.principal))
            .ok_or_else(|| no_such_call(id))?;
        found(&stored)
    }
}

fn no_such_call(id: CallId) -> Refusal {
    Refusal::absent("call", id, "there is no such call; calls that only read are deleted after a while")
}

/// Checks that a request repeats the call that was made with `digest`, by the same principal.
fn same(one: &str, other: &str, digest: &[u8], again: &[u8]) -> Result<(), Refusal> {
    // A call that was interrupted has no digest: the audit log lacks the content of its request.
    if one == other && (digest == again || digest.is_empty()) {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::AlreadyExists,
        "request_id: this id was used for a different call; a repetition must have the same content",
    ))
}

fn found(stored: &StoredCall) -> Result<Found, Refusal> {
    let response = CallResponse::decode(stored.response.as_slice())
        .map_err(|error| Refusal::internal("reading a kept call", &error))?;
    Ok(Found { id: stored.call_id, run: stored.run_id, response, finished: true })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures_util::FutureExt as _;
    use identity::{Principal, RunId};
    use operations::Reason;
    use store::Store;
    use store::spool::{Bounds, Spool};
    use wire::v1::{CallResponse, call_response::Status};

    use super::{Begun, CallTable, FINISHED, FINISHED_BYTES, Keep, UNDER_WAY};

    fn calls() -> (tempfile::TempDir, CallTable) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"), store::OutcomeBounds::WIDE).unwrap();
        let bounds = Bounds { max_total: 1 << 20, min_free: 0 };
        let none = (&[].into(), &[].into());
        let spool = Spool::open(
            directory.path().to_owned(),
            bounds,
            store.stream_key("spool").unwrap(),
            none.0,
            none.1,
        )
        .unwrap();
        (directory, CallTable::new(store, spool))
    }

    /// A run that is in the store.
    fn run(calls: &CallTable) -> RunId {
        let record = runs::testing::record();
        runs::stored::insert(&calls.store, &record, None, &BTreeMap::new()).unwrap();
        record.id
    }

    fn principal(name: &str) -> Principal {
        Principal { name: name.to_owned(), ..Principal::anonymous() }
    }

    fn done(id: identity::CallId) -> CallResponse {
        CallResponse { call_id: id.to_string(), status: Status::Succeeded.into(), ..Default::default() }
    }

    #[tokio::test]
    async fn a_repeated_request_finds_its_call_and_another_content_is_refused() {
        let (_directory, calls) = calls();
        let run = run(&calls);
        let Ok(Begun::New(call)) = calls.begin(run, "uid:0", "r", vec![1]).await else { panic!("not new") };
        let Ok(Begun::Known(again)) = calls.begin(run, "uid:0", "r", vec![1]).await else {
            panic!("not known")
        };
        assert_eq!(again.id, call.id);
        let refused = |result: Result<Begun, refusal::Refusal>| result.err().map(|refusal| refusal.reason);
        assert_eq!(refused(calls.begin(run, "uid:0", "r", vec![2]).await), Some(Reason::AlreadyExists));
        assert_eq!(refused(calls.begin(run, "uid:7", "r", vec![1]).await), Some(Reason::AlreadyExists));
        assert!(matches!(calls.begin(RunId::new(), "uid:0", "r", vec![2]).await, Ok(Begun::New(_))));

        calls.finish(&call, done(call.id), None, Keep::Briefly).await;
        let Ok(Begun::Stored(stored)) = calls.begin(run, "uid:0", "r", vec![1]).await else {
            panic!("not stored")
        };
        assert_eq!(stored.response, done(call.id));
        assert_eq!(refused(calls.begin(run, "uid:0", "r", vec![2]).await), Some(Reason::AlreadyExists));
        assert_eq!(calls.get(call.id, &principal("uid:0")).await.unwrap().response, done(call.id));
        assert!(calls.get(call.id, &principal("uid:7")).await.is_err());
    }

    #[tokio::test]
    async fn memory_is_bounded_and_stored_calls_are_found() {
        let (_directory, calls) = calls();
        let run = run(&calls);
        let mut first = None;
        for i in 0..=FINISHED {
            let Ok(Begun::New(call)) = calls.begin(run, "uid:0", "", vec![]).await else { panic!("not new") };
            calls.finish(&call, done(call.id), None, if i == 0 { Keep::Stored } else { Keep::Briefly }).await;
            first.get_or_insert(call.id);
        }
        let first = first.unwrap();
        assert!(calls.known(first).is_none());
        assert_eq!(calls.get(first, &principal("uid:0")).await.unwrap().response, done(first));
        assert!(calls.get(first, &principal("uid:7")).await.is_err());
        assert_eq!(calls.table.lock().by_id.len(), FINISHED);
    }

    #[tokio::test]
    async fn a_refusal_names_its_call() {
        let (_directory, calls) = calls();
        let run = run(&calls);
        let Ok(Begun::New(call)) = calls.begin(run, "uid:0", "", vec![]).await else { panic!("not new") };
        let refusal = refusal::Refusal::new(Reason::PermissionDenied, "no");
        calls.finish(&call, done(call.id), Some(refusal), Keep::Briefly).await;
        let refusal = call.answer().refusal.unwrap();
        assert_eq!(refusal.metadata, [("call_id".into(), call.id.to_string())]);
    }

    #[tokio::test]
    async fn large_answers_are_forgotten_sooner() {
        let (_directory, calls) = calls();
        let run = RunId::new();
        let size = FINISHED_BYTES / 4;
        for _ in 0..8 {
            let Ok(Begun::New(call)) = calls.begin(run, "uid:0", "", vec![]).await else { panic!("not new") };
            let response = CallResponse { rendered: "x".repeat(size), ..done(call.id) };
            calls.finish(&call, response, None, Keep::Briefly).await;
        }
        let table = calls.table.lock();
        assert_eq!((table.by_id.len(), table.finished.len()), (3, 3));
        assert!(table.finished_bytes <= FINISHED_BYTES);
    }

    #[tokio::test]
    async fn calls_of_a_deleted_run_are_forgotten_and_no_others() {
        let (_directory, calls) = calls();
        let (gone, other) = (RunId::new(), RunId::new());
        let mut ids = Vec::new();
        for run in [gone, other, gone] {
            let Ok(Begun::New(call)) = calls.begin(run, "uid:0", "", vec![]).await else { panic!("not new") };
            calls.finish(&call, done(call.id), None, Keep::Briefly).await;
            ids.push(call.id);
        }
        let Ok(Begun::New(under_way)) = calls.begin(gone, "uid:0", "", vec![]).await else {
            panic!("not new")
        };
        calls.forget_run(gone);
        let known: Vec<_> = ids.iter().map(|id| calls.known(*id).is_some()).collect();
        assert_eq!(known, [false, true, false]);
        assert!(calls.known(under_way.id).is_some());
        let table = calls.table.lock();
        assert_eq!((table.finished.len(), table.finished_bytes), (1, table.finished[0].1));
    }

    #[tokio::test]
    async fn a_run_cannot_pile_up_calls() {
        let (_directory, calls) = calls();
        let run = RunId::new();
        for _ in 0..UNDER_WAY {
            assert!(matches!(calls.begin(run, "uid:0", "", vec![]).await, Ok(Begun::New(_))));
        }
        let refused = calls.begin(run, "uid:0", "", vec![]).await.err().map(|refusal| refusal.reason);
        assert_eq!(refused, Some(Reason::Overloaded));
        assert!(calls.begin(RunId::new(), "uid:0", "", vec![]).await.is_ok());
    }

    #[tokio::test]
    async fn outcomes_that_arrive_together_are_answered_first_and_stored_together() {
        let (_directory, calls) = calls();
        let run = run(&calls);
        let mut begun = Vec::new();
        for _ in 0..8 {
            let Begun::New(call) = calls.begin(run, "uid:0", "", vec![1]).await.unwrap() else { panic!() };
            begun.push(call);
        }
        let ends = begun.iter().map(|call| calls.finish(call, done(call.id), None, Keep::Stored));
        let mut ends = std::pin::pin!(futures_util::future::join_all(ends));
        assert!(ends.as_mut().now_or_never().is_none());
        assert!(begun.iter().all(|call| call.answer().finished), "the answers wait for the store");
        assert_eq!(calls.later.lock().len(), begun.len());
        ends.await;
        for call in &begun {
            assert_eq!(calls.store.call(call.id).unwrap().unwrap().call_id, call.id);
        }
        assert!(calls.later.lock().is_empty());
    }
}
