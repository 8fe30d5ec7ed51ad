//! Finds in the audit log the calls and sessions that a previous daemon did not finish, and records an end for each.

mod cursor;
mod ends;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use audit::{Event, Kind, Outcome, Status};
use audit_service::AuditLog;
use identity::{CallId, RunId};
use operations::{Fault, Reason, ToolFailure};
use prost::Message as _;
use refusal::chain;
use runs::{Directories, TakenOver};
use serde_json::json;
use store::{Store, StoredCall};
use timestamp::Timestamp;
use wire::v1::{CallResponse, call_response};

pub(crate) use cursor::RecoveryCursor;

use ends::Ends;

/// Message about a call whose end is not known.
const INTERRUPTED: &str = "the daemon ended during the call, which may have taken effect";

/// Number of latest receipts that are searched for outcomes that did not reach the store.
const LATEST: usize = 4_096;

/// State of calls and sessions at a start, according to the log.
#[derive(Default)]
pub(crate) struct Open {
    ends: Ends,
    /// Latest receipts of calls with a request id or an approval, in runs that may live on.
    closed: VecDeque<Event>,
    /// Last use of each of those runs, or a moment after it.
    pub(crate) used: BTreeMap<RunId, Timestamp>,
}

/// Reads the log from the stored position to its end. `living` are the runs that have not ended.
pub(crate) async fn look(log: &AuditLog, store: &Store, living: &BTreeSet<RunId>) -> anyhow::Result<Open> {
    let begun = cursor::begin(log, store).await;
    let mut open = Open { ends: Ends::with(&begun.open), ..Open::default() };
    let mut follow = log.read_after(begun.after, false);
    while let Some(lines) = follow.next().await.map_err(|refusal| anyhow::anyhow!(refusal.message))? {
        for line in lines {
            let at = line.record.time;
            if open.ends.last.is_none() {
                // Earlier records are not read, so this is the earliest time known.
                open.used = living.iter().map(|run| (*run, at)).collect();
            }
            open.ends.read(&line.record);
            open.note(line.record.event.clone(), at, living);
        }
    }
    Ok(open)
}

impl Open {
    fn note(&mut self, event: Event, at: Timestamp, living: &BTreeSet<RunId>) {
        let run = event.run_id.as_deref().and_then(|run| RunId::parse(run).ok());
        let Some(run) = run.filter(|run| living.contains(run)) else { return };
        if let Kind::CallIntent | Kind::CallReceipt | Kind::SessionOpened | Kind::SessionClosed = event.kind {
            self.used.insert(run, at);
        }
        let returned_to = event.request_id.is_some() || event.approval_id.is_some();
        if event.kind == Kind::CallReceipt && returned_to {
            if self.closed.len() == LATEST {
                self.closed.pop_front();
            }
            // Its input and facts are not needed here.
            self.closed.push_back(Event { input: None, details: None, ..event });
        }
    }

    /// Stores an outcome for each call that has a receipt in the log but no outcome in the store.
    ///
    /// The daemon died between the two. Without an outcome a repetition of the call would be executed, and a client
    /// that waits for its approval would not find the call.
    async fn find_outcomes(&self, store: &Store, taken: &TakenOver) -> anyhow::Result<()> {
        if self.closed.is_empty() {
            return Ok(());
        }
        let known = store.with(Store::call_ids).await;
        let known = known.map_err(|error| anyhow::anyhow!("the store: {}", chain(&error)))?;
        for event in &self.closed {
            let call = event.call_id.as_deref().and_then(|call| CallId::parse(call).ok());
            let run = event.run_id.as_deref().and_then(|run| RunId::parse(run).ok());
            let Some((call, run)) = call.zip(run) else { continue };
            if known.contains(&call) || !taken.has(run) {
                continue;
            }
            let why =
                "the call ended, but the daemon ended before it stored the outcome; the audit log has it";
            if let Some(stored) = lost(call, run, event, why.to_owned()) {
                keep(store, stored).await?;
            }
        }
        Ok(())
    }

    /// Records a receipt for every call that has none, and an end for every open session and connection.
    ///
    /// Calls in `waiting` stay open, because they go on in their run.
    pub(crate) async fn close(
        self,
        log: &AuditLog,
        store: &Store,
        directories: &Directories,
        taken: &TakenOver,
        waiting: &BTreeSet<CallId>,
    ) -> anyhow::Result<()> {
        self.find_outcomes(store, taken).await?;
        for (call, intent) in self.ends.calls {
            let id = CallId::parse(&call).ok();
            if id.is_some_and(|id| waiting.contains(&id)) {
                continue;
            }
            tracing::warn!(call, "a call was under way when the daemon ended: recorded as interrupted");
            let mut outcome = Outcome::new(Status::Interrupted).message(INTERRUPTED);
            let run = intent.run_id.as_deref().and_then(|run| RunId::parse(run).ok());
            if let Some(kill) = run.zip(id).and_then(|(run, id)| taken.evidence(run, id)) {
                outcome = outcome.facts(json!({ "kill": kill }));
            }
            let why = format!("{INTERRUPTED}: check before you repeat it");
            if let Some(stored) = run.zip(id).and_then(|(run, id)| lost(id, run, &intent, why)) {
                keep(store, stored).await?;
            }
            let mut receipt = Event::new(Kind::CallReceipt).call(call).outcome(outcome);
            receipt.run_id = intent.run_id;
            receipt.request_id = intent.request_id;
            receipt.principal = intent.principal;
            receipt.agent_id = intent.agent_id;
            receipt.operation = intent.operation;
            log.record(receipt).await.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
        }
        for (session, opened) in self.ends.sessions {
            tracing::warn!(%session, "a session was open when the daemon ended: recorded as interrupted");
            let directories = directories.clone();
            let closed =
                tokio::task::spawn_blocking(move || terminals::interrupted(&opened, &directories)).await?;
            log.record(closed).await.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
        }
        for intent in self.ends.connections.into_values() {
            let receipt = if intent.kind == Kind::ForwardIntent {
                port_forwarding::interrupted(intent)
            } else {
                let mut receipt = Event { kind: Kind::EgressReceipt, ..intent };
                if let Some(details) = &mut receipt.details {
                    details["cause"] = "daemon_lost".into();
                }
                receipt
            };
            log.record(receipt).await.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
        }
        Ok(())
    }
}

/// Returns the outcome that a client gets for a call whose real outcome is lost.
///
/// It is stored, so that a repeated request is not executed again.
fn lost(call_id: CallId, run_id: RunId, event: &Event, why: String) -> Option<StoredCall> {
    let failure =
        ToolFailure::new(Reason::Cancelled, why).with("interrupted", "true").by(Fault::Infrastructure);
    let response = CallResponse {
        call_id: call_id.to_string(),
        status: call_response::Status::Failed.into(),
        error: Some(failure.into()),
        ..Default::default()
    };
    Some(StoredCall {
        call_id,
        run_id,
        principal: event.principal.clone()?,
        request_id: event.request_id.clone(),
        // The log does not contain the request.
        request: Vec::new(),
        response: response.encode_to_vec(),
        promised: true,
    })
}

async fn keep(store: &Store, stored: StoredCall) -> anyhow::Result<()> {
    let inserted = store.with(move |store| store.insert_calls(&[stored], calls::bare)).await;
    inserted.map_err(|error| anyhow::anyhow!("the store: {}", chain(&error)))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use audit::{Event, Kind};
    use audit_service::AuditLog;
    use identity::CallId;
    use prost::Message as _;
    use runs::{Directories, TakenOver};
    use store::{Store, StoredCall};
    use wire::v1::CallResponse;

    use super::look;

    #[tokio::test]
    async fn a_request_whose_outcome_was_not_stored_is_not_executed_again() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), store::OutcomeBounds::WIDE).unwrap();
        let (log, _, _) =
            AuditLog::open(&place.path().join("audit"), audit_service::Settings::default()).unwrap();
        let log = Arc::new(log);
        let run = runs::testing::record();
        runs::stored::insert(&store, &run, None, &BTreeMap::new()).unwrap();
        let calls: Vec<_> = ["kept", "lost", "open", "waits"].map(|request| (CallId::new(), request)).into();
        for (call, request) in &calls {
            let mut event = Event::new(Kind::CallIntent)
                .run(run.id.to_string())
                .call(call.to_string())
                .principal("uid:0");
            event.request_id = Some((*request).to_owned());
            log.record(event.clone()).await.unwrap();
            if matches!(*request, "kept" | "lost") {
                event.kind = Kind::CallReceipt;
                log.record(event).await.unwrap();
            }
        }
        let kept = StoredCall {
            call_id: calls[0].0,
            run_id: run.id,
            principal: "uid:0".to_owned(),
            request_id: Some("kept".to_owned()),
            request: vec![1],
            response: vec![],
            promised: true,
        };
        store.insert_calls(std::slice::from_ref(&kept), calls::bare).unwrap();
        // Whoever decided on an approval, or asked for it, knows the call's id.
        let decided = CallId::new();
        let mut receipt = Event::new(Kind::CallReceipt)
            .run(run.id.to_string())
            .call(decided.to_string())
            .principal("uid:0");
        receipt.approval_id = Some("approval".to_owned());
        log.record(receipt).await.unwrap();

        let open = look(&log, &store, &[run.id].into()).await.unwrap();
        assert!(open.used.contains_key(&run.id));
        let directories = Directories { state: place.path().to_owned() };
        let waiting = BTreeSet::from([calls[3].0]);
        open.close(&log, &store, &directories, &TakenOver::of([run.id]), &waiting).await.unwrap();
        assert_eq!(store.call_by_request(run.id, "kept").unwrap(), Some(kept));
        for (request, words) in [("lost", "the audit log has it"), ("open", "may have taken effect")] {
            let stored = store.call_by_request(run.id, request).unwrap().unwrap();
            let response = CallResponse::decode(stored.response.as_slice()).unwrap();
            assert!(response.error.unwrap().message.contains(words), "{request}");
        }
        assert_eq!(store.call_by_request(run.id, "waits").unwrap(), None);
        let stored = store.call(decided).unwrap().unwrap();
        let response = CallResponse::decode(stored.response.as_slice()).unwrap();
        assert!(response.error.unwrap().message.contains("the audit log has it"));
        // One end for each, but for what waits.
        let again = look(&log, &store, &BTreeSet::new()).await.unwrap();
        assert_eq!(again.ends.calls.keys().collect::<Vec<_>>(), [&calls[3].0.to_string()]);
    }
}
