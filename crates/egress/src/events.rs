//! The records of a run's connections.

use std::net::IpAddr;

use audit::{Event, Kind};
use serde_json::{Value, json};
use wire::worker::v1::ConnectionEnded;

use crate::live::{Live, cause_name};
use crate::refused::Due;

/// Returns the record of a connection that is about to go out.
pub(crate) fn intent(run: &str, live: &Live) -> Event {
    of(Kind::EgressIntent, run, live, details(live))
}

/// Returns the record of the end of a connection that had an intent.
pub(crate) fn receipt(run: &str, live: &Live, ended: &ConnectionEnded, address: Option<IpAddr>) -> Event {
    let mut details = details(live);
    details["cause"] = cause_name(ended.cause()).into();
    details["bytes_out"] = ended.bytes_out.into();
    details["bytes_in"] = ended.bytes_in.into();
    details["duration_ms"] = u64::try_from(live.opened.elapsed().as_millis()).unwrap_or(u64::MAX).into();
    if let Some(address) = address {
        details["address"] = address.to_string().into();
    }
    if ended.errno != 0 {
        details["errno"] = ended.errno.into();
    }
    if let Some(why) = &live.ended_for {
        details["why"] = why.as_str().into();
    }
    if live.request_count > 1 {
        details["request_count"] = live.request_count.into();
    }
    of(Kind::EgressReceipt, run, live, details)
}

/// Returns the receipt of a connection that was lost with its process.
pub(crate) fn lost(run: &str, live: &Live) -> Event {
    let mut details = details(live);
    details["cause"] = "process_lost".into();
    of(Kind::EgressReceipt, run, live, details)
}

/// Returns the record of a refusal.
pub(crate) fn refused(run: &str, due: &Due, calls: &[String]) -> Event {
    let mut details = json!({
        "host": due.key.host, "rule": due.key.rule, "why": due.why, "count": due.count,
    });
    if due.key.port != 0 {
        details["port"] = due.key.port.into();
    }
    if !calls.is_empty() {
        details["calls"] = calls.into();
    }
    Event::new(Kind::EgressRefused).run(run.to_owned()).details(details)
}

/// Returns the record of a process that was started or lost.
pub(crate) fn process(run: &str, event: &str, why: &str) -> Event {
    Event::new(Kind::WorkerEvent)
        .run(run.to_owned())
        .details(json!({ "worker": "coffer-egress", "event": event, "why": why }))
}

/// Returns a record of a connection, with the approval of a reviewer if it has one.
fn of(kind: Kind, run: &str, live: &Live, details: Value) -> Event {
    let event = Event::new(kind).run(run.to_owned()).details(details);
    match &live.approval {
        Some(approval) => event.approval(approval.as_str()),
        None => event,
    }
}

fn details(live: &Live) -> Value {
    let mut details = json!({
        "connection": live.id,
        "host": live.host(),
        "port": live.port,
        "scheme": live.verdict.scheme.to_string(),
        "rule": live.verdict.rule,
    });
    if live.is_proxied {
        details["upstream_proxy"] = true.into();
    }
    if !live.server_name.is_empty() {
        details["server_name"] = live.server_name.as_str().into();
    }
    if live.has_encrypted_hello {
        details["encrypted_client_hello"] = true.into();
    }
    if !live.calls.is_empty() {
        details["calls"] = live.calls.as_slice().into();
    }
    if !live.requests.is_empty() {
        let requests = live.requests.iter().map(
            |request| json!({ "method": request.method, "path": request.path, "status": request.status }),
        );
        details["requests"] = requests.collect();
    }
    details
}
