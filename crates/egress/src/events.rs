//! The records of a run's connections.

use std::net::IpAddr;

use audit::{Event, Kind, WorkerChange};
use git_wire::Ruling;
use serde_json::{Value, json};
use wire::worker::v1::ConnectionEnded;

use crate::cause::cause_name;
use crate::git::Push;
use crate::live::{Live, Opener};
use crate::refused::Due;
use crate::view::ModelTokens;

/// Returns the record of a connection that is about to go out.
pub(crate) fn intent(run: &str, live: &Live) -> Event {
    of(Kind::EgressIntent, run, live, details(live))
}

/// Returns the record of the end of a connection that had an intent.
pub(crate) fn receipt(run: &str, live: &Live, ended: &ConnectionEnded, address: Option<IpAddr>) -> Event {
    let mut details = with_grants(live, details(live));
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
    let mut details = with_grants(live, details(live));
    details["cause"] = "process_lost".into();
    details["bytes_out"] = live.moved.out.into();
    details["bytes_in"] = live.moved.into.into();
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
    if let Some(placeholder) = &due.key.placeholder {
        details["placeholder"] = placeholder.variable.as_str().into();
        // The redactor of the log would hide the value of a key `secret`.
        details["secret_name"] = placeholder.secret.as_str().into();
    }
    if !calls.is_empty() {
        details["calls"] = calls.into();
    }
    Event::new(Kind::EgressRefused).run(run.to_owned()).details(details)
}

/// Most refs of a push that are on record one by one.
const REFS: usize = 64;

/// Returns the record of a push that is about to go out.
pub(crate) fn push(run: &str, live: &Live, request: u64, push: &Push, ruling: &Ruling) -> Event {
    let list = &push.list;
    let commands = list.commands.iter().zip(&ruling.commands).take(REFS);
    let refs: Vec<Value> = commands
        .map(|(command, ruled)| {
            json!({
                "ref": command.name().as_str(), "old": command.old().as_str(), "new": command.new_id().as_str(),
                "change": command.change().as_str(), "forced": ruled.is_forced,
            })
        })
        .collect();
    let injected = live.verdict.opening.secrets();
    let mut details = json!({
        "connection": live.id,
        "request": request,
        "host": live.host(),
        "port": live.port,
        "rule": live.verdict.rule,
        "repository": push.repository.as_str(),
        "refs": refs,
        "ref_count": list.commands.len(),
        "atomic": list.capabilities.is_atomic,
        "injected": injected.into_iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    if !list.options.is_empty() {
        details["options"] = list.options.as_slice().into();
    }
    if !live.calls.is_empty() {
        details["calls"] = live.calls.as_slice().into();
    }
    of(Kind::GitPush, run, live, details)
}

/// Returns the record of a budget of which 80 % are used up.
pub(crate) fn budget(run: &str, warning: &str, live: Option<&Live>) -> Event {
    let mut details = json!({ "why": warning });
    if let Some(live) = live {
        details["connection"] = live.id.as_str().into();
        details["host"] = live.host().into();
        if !live.calls.is_empty() {
            details["calls"] = live.calls.as_slice().into();
        }
    }
    Event::new(Kind::ModelBudget).run(run.to_owned()).details(details)
}

/// Returns the record of a process that was lost.
pub(crate) fn process_lost(run: &str, why: &str) -> Event {
    Event::of_worker("coffer-egress", WorkerChange::Lost, Some(why)).run(run.to_owned())
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
    if live.by == Opener::HostLane {
        details["by"] = "host lane".into();
    }
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
        let requests = live.requests.iter().map(|request| {
            json!({
                "number": request.number, "method": request.method, "path": request.path, "status": request.status,
            })
        });
        details["requests"] = requests.collect();
    }
    details
}

/// Adds what a rule did for a connection, and the tokens that its responses said.
fn with_grants(live: &Live, mut details: Value) -> Value {
    if live.is_opened() {
        details["opened"] = true.into();
    }
    if let Some(upstream) = live.upstream() {
        details["upstream"] = upstream.into();
    }
    if !live.injected.is_empty() {
        details["injected"] = live.injected.iter().map(String::as_str).collect();
    }
    let usage: Vec<Value> = live.usage().map(of_model).collect();
    if !usage.is_empty() {
        details["usage"] = usage.into();
    }
    details
}

fn of_model(tokens: &ModelTokens) -> Value {
    let mut counts = json!({
        "model": tokens.model,
        "requests": tokens.requests,
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cached_input_tokens": tokens.cached_input,
        "cache_write_tokens": tokens.cache_write,
    });
    if tokens.unreported > 0 {
        counts["unreported"] = tokens.unreported.into();
    }
    counts
}
