//! One round of lists: the state of the daemon as the screen shows it.

use command_context::client::{Client, quick};
use presentation::exit::Exit;
use presentation::failure::Failure;
use serde::Serialize;
use tonic::Status;
use wire::v1::{
    Alert, Approval, AuditEvent, EventFilter, GetPoolRequest, ListAlertsRequest, ListApprovalsRequest,
    ListRunsRequest, PoolKind, QueryEventsRequest, Run, alert, approval, query_events_request::Order,
};

/// Number of runs, newest first.
const RUNS: u32 = 500;
/// Number of alerts.
const ALERTS: u32 = 200;
/// Number of records of calls.
const RECORDS: u32 = 200;
/// Number of approvals and of kinds of the pool.
const MOST: usize = 1_000;
/// Size of a record that is kept, bytes. A longer one is shown without its details.
const RECORD: usize = 64 * 1024;

/// A list, or the reason why there is none.
#[derive(Debug, Serialize)]
pub(crate) struct Part<T> {
    pub(crate) items: Vec<T>,
    /// Reason why the daemon gave no list; empty if it did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) unavailable: String,
}

// Not derived, because that would need `T: Default`.
impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { items: Vec::new(), unavailable: String::new() }
    }
}

/// Lists of the same moment, except for the milliseconds between them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Board {
    pub(crate) runs: Part<Run>,
    pub(crate) calls: Part<AuditEvent>,
    pub(crate) approvals: Part<Approval>,
    pub(crate) alerts: Part<Alert>,
    pub(crate) pool: Part<PoolKind>,
}

/// Asks for all lists at once. Fails if the daemon is gone.
pub(crate) async fn collect(client: &Client) -> Result<Board, Failure> {
    let runs = async {
        let request = ListRunsRequest { page_size: RUNS, ..Default::default() };
        client.runs().list_runs(quick(request)).await.map(|response| response.into_inner().runs)
    };
    let calls = async {
        let kinds = ["call_intent", "call_receipt"].map(str::to_owned).to_vec();
        let request = QueryEventsRequest {
            filter: Some(EventFilter { kinds, ..Default::default() }),
            order: Order::NewestFirst.into(),
            page_size: RECORDS,
            page_token: String::new(),
        };
        client.audit().query_events(quick(request)).await.map(|response| response.into_inner().events)
    };
    let approvals = async {
        let request = ListApprovalsRequest { state: approval::State::Pending.into(), run_id: String::new() };
        client
            .approvals()
            .list_approvals(quick(request))
            .await
            .map(|response| response.into_inner().approvals)
    };
    let alerts = async {
        let request =
            ListAlertsRequest { state: alert::State::Open.into(), page_size: ALERTS, ..Default::default() };
        client.alerts().list_alerts(quick(request)).await.map(|response| response.into_inner().alerts)
    };
    let pool = async {
        client.host().get_pool(quick(GetPoolRequest {})).await.map(|response| response.into_inner().kinds)
    };
    let (runs, calls, approvals, alerts, pool) = tokio::join!(runs, calls, approvals, alerts, pool);
    let mut board = Board {
        runs: part(runs)?,
        calls: part(calls)?,
        approvals: part(approvals)?,
        alerts: part(alerts)?,
        pool: part(pool)?,
    };
    for approval in &mut board.approvals.items {
        // A reviewer reads them from a separate answer, right before the decision.
        approval.preview.clear();
        approval.operation_json.clear();
        approval.files.clear();
    }
    for event in &mut board.calls.items {
        if event.record_json.len() > RECORD {
            event.record_json.clear();
        }
    }
    latest_of_each_call(&mut board.calls.items);
    Ok(board)
}

/// Converts an answer. Only a daemon that is gone is a failure.
fn part<T>(answer: Result<Vec<T>, Status>) -> Result<Part<T>, Failure> {
    match answer {
        Ok(mut items) => {
            items.truncate(MOST);
            Ok(Part { items, unavailable: String::new() })
        }
        Err(status) => match Failure::from(status) {
            failure if failure.exit() == Exit::Unreachable => Err(failure),
            failure => Ok(Part { items: Vec::new(), unavailable: failure.to_string() }),
        },
    }
}

/// Keeps the newest record of each call. `events` are newest first.
fn latest_of_each_call(events: &mut Vec<AuditEvent>) {
    let mut known = std::collections::HashSet::new();
    events.retain(|event| known.insert(event.call_id.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_record_a_call_and_it_is_the_newest() {
        let event =
            |sequence, call: &str| AuditEvent { sequence, call_id: call.into(), ..Default::default() };
        let mut events = vec![event(4, "a"), event(3, "b"), event(2, "a"), event(1, "b")];
        latest_of_each_call(&mut events);
        assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [4, 3]);
    }

    #[test]
    fn only_a_daemon_that_is_gone_fails_a_round() {
        let refused = part::<Run>(Err(Status::permission_denied("needs the role auditor"))).unwrap();
        assert!(refused.unavailable.contains("needs the role auditor"));
        assert!(part::<Run>(Err(Status::unavailable("transport error"))).is_err());
    }
}
