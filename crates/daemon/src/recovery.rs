//! What the audit log says of a daemon that died: calls and sessions without an end. Each of them gets one.

use std::collections::{BTreeMap, BTreeSet};

use audit::{Event, Kind, Outcome, Status};
use ops::{Reason, ToolFailure};
use prost::Message as _;
use serde_json::json;
use wire::v1::{CallResponse, call_response};

use crate::audit::AuditLog;
use crate::ids::{CallId, RunId};
use crate::runs::{Directories, TakenOver};
use crate::status::chain;
use crate::store::{Store, StoredCall};
use crate::terminal;
use crate::time::Timestamp;

/// What is said of a call that nobody saw the end of.
const INTERRUPTED: &str = "the daemon ended during the call; whether it had an effect is not known";

/// What had begun and had no end.
#[derive(Default)]
pub(crate) struct Open {
    /// Intents without a receipt.
    calls: BTreeMap<String, Event>,
    sessions: BTreeMap<crate::ids::SessionId, Event>,
    /// When each run was last used.
    pub(crate) used: BTreeMap<RunId, Timestamp>,
}

/// Reads the log to its end.
pub(crate) async fn look(log: &AuditLog) -> anyhow::Result<Open> {
    let mut open = Open::default();
    let mut follow = log.read_after(0, false);
    while let Some(lines) = follow.next().await.map_err(|refusal| anyhow::anyhow!(refusal.message))? {
        for line in lines {
            let (at, event) = (Timestamp::of_record(line.record.time), line.record.event);
            if let Kind::CallIntent | Kind::CallReceipt | Kind::SessionOpened | Kind::SessionClosed =
                event.kind
                && let Some(run) = event.run_id.as_deref().and_then(|run| RunId::parse(run).ok())
            {
                open.used.insert(run, at);
            }
            match (event.kind, event.call_id.clone(), terminal::session_of(&event)) {
                (Kind::CallIntent, Some(call), _) => drop(open.calls.insert(call, event)),
                (Kind::CallReceipt, Some(call), _) => drop(open.calls.remove(&call)),
                (Kind::SessionOpened, _, Some(session)) => drop(open.sessions.insert(session, event)),
                (Kind::SessionClosed, _, Some(session)) => drop(open.sessions.remove(&session)),
                _ => {}
            }
        }
    }
    Ok(open)
}

impl Open {
    /// Gives every intent that has no receipt one that says so, and every session that was open its end. Calls that are
    /// `waiting` stay open: they go on in their run.
    pub(crate) async fn close(
        self,
        log: &AuditLog,
        store: &Store,
        directories: &Directories,
        taken: &TakenOver,
        waiting: &BTreeSet<CallId>,
    ) -> anyhow::Result<()> {
        for (call, intent) in self.calls {
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
            if let Some(stored) = run.zip(id).and_then(|(run, id)| interrupted(id, run, &intent)) {
                let kept = store.with(move |store| store.insert_call(&stored)).await;
                kept.map_err(|error| anyhow::anyhow!("the store: {}", chain(&error)))?;
            }
            let mut receipt = Event::new(Kind::CallReceipt).call(call).outcome(outcome);
            receipt.run_id = intent.run_id;
            receipt.request_id = intent.request_id;
            receipt.principal = intent.principal;
            receipt.agent_id = intent.agent_id;
            receipt.operation = intent.operation;
            log.record(receipt).await.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
        }
        for (session, opened) in self.sessions {
            tracing::warn!(%session, "a session was open when the daemon ended: recorded as interrupted");
            let directories = directories.clone();
            let closed =
                tokio::task::spawn_blocking(move || terminal::interrupted(&opened, &directories)).await?;
            log.record(closed).await.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
        }
        Ok(())
    }
}

/// What a client finds that comes back for the call. Kept, so that a repeated request is not made once more.
fn interrupted(call_id: CallId, run_id: RunId, intent: &Event) -> Option<StoredCall> {
    let failure = ToolFailure::new(Reason::Cancelled, format!("{INTERRUPTED}: look before you repeat it"))
        .with("interrupted", "true");
    let response = CallResponse {
        call_id: call_id.to_string(),
        status: call_response::Status::Failed.into(),
        error: Some(worker::convert::failure_to_wire(failure)),
        ..Default::default()
    };
    Some(StoredCall {
        call_id,
        run_id,
        principal: intent.principal.clone()?,
        request_id: intent.request_id.clone(),
        // The log does not have it.
        request: Vec::new(),
        response: response.encode_to_vec(),
    })
}
