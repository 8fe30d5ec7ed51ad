//! The page of a call: what was asked, why it was decided so, what came of it.

use maud::{Markup, html};
use serde_json::Value;
use wire::v1::{
    AuditEvent, CallResponse, ExplainPolicyResponse, GetCallResponse, OutputChunk, Timings, Verdict,
};

use super::super::elements::{Part, address, facts, id_path, part, run_link, state, table};
use super::super::record::Record;
use super::super::{figures, foreign};

/// Bytes of each stream that are shown at once.
pub(crate) const OUTPUT: u32 = 64 * 1024;

/// Answers that the page is made of.
pub(crate) struct Shown {
    pub(crate) id: String,
    /// The call's records, oldest first.
    pub(crate) events: Part<Vec<AuditEvent>>,
    pub(crate) call: Part<GetCallResponse>,
    /// Decision of the policy in force now.
    pub(crate) explained: Part<ExplainPolicyResponse>,
}

pub(crate) fn render(shown: &Shown) -> Markup {
    html! {
        h1 { "Call " (foreign::heading(&shown.id)) }
        (part(&shown.events, |events| records(events)))
        h2 { "Why" }
        (part(&shown.explained, explained))
        h2 { "Answer" }
        (part(&shown.call, |answer| self::answer(&shown.id, answer)))
        (part(&shown.events, |events| all(events)))
    }
}

fn records(events: &[AuditEvent]) -> Markup {
    let of = |kind: &str| events.iter().find(|event| event.kind == kind);
    let (intent, receipt) = (of("call_intent"), of("call_receipt"));
    html! {
        @if let Some(intent) = intent { (self::intent(intent)) } @else { p.note { "The log has no intent of this call." } }
        @if let Some(receipt) = receipt { (self::receipt(receipt)) } @else { p { (state("pending")) " It has not ended." } }
    }
}

fn intent(event: &AuditEvent) -> Markup {
    let record = Record::of(event);
    let approval = record.text("/approval_id");
    html! {
        (facts([
            ("Operation", Some(foreign::line(&event.operation))),
            ("Run", Some(run_link(&event.run_id))),
            ("Agent", Some(foreign::line(&event.agent_id))),
            ("Role", Some(foreign::line(record.text("/role")))),
            ("Principal", Some(foreign::line(&event.principal))),
            ("Time", Some(figures::moment(event.time.as_ref()))),
            ("Decision", Some(html! {
                (state(record.text("/decision/outcome"))) " by " (foreign::line(record.text("/decision/rule")))
                @if !record.text("/decision/reason").is_empty() { ": " (foreign::line(record.text("/decision/reason"))) }
            })),
            ("Approval", id_path("/approvals/", approval, "").map(|path| html! { a href=(path) { (approval) } })),
            ("Policy", Some(foreign::line(record.text("/decision/policy_digest")))),
        ]))
        h2 { "What was asked" }
        (record.value("/input").map(arguments).unwrap_or_default())
    }
}

/// Returns the arguments one by one.
fn arguments(input: &Value) -> Markup {
    match input.as_object() {
        Some(fields) if !fields.is_empty() => html! {
            dl.facts { @for (name, value) in fields { dt { (foreign::heading(name)) } dd { (argument(value)) } } }
        },
        _ => html! { p { "No arguments." } },
    }
}

fn argument(value: &Value) -> Markup {
    match value {
        Value::String(text) if text.contains('\n') => foreign::block(text),
        Value::String(text) => foreign::line(text),
        Value::Array(items) if items.iter().all(Value::is_string) => html! {
            ol.words { @for item in items { li { code { (foreign::line(item.as_str().unwrap_or_default())) } } } }
        },
        other => foreign::json(&other.to_string()),
    }
}

fn receipt(event: &AuditEvent) -> Markup {
    let record = Record::of(event);
    let size = |pointer: &str| record.number(pointer).map(|bytes| html! { (figures::size(bytes)) });
    let time = |pointer: &str| record.number(pointer).map(|us| html! { (figures::micros(us)) });
    let message = record.text("/outcome/message");
    html! {
        h2 { "Receipt" }
        (facts([
            ("Status", Some(html! {
                (state(&figures::word(record.text("/outcome/status")))) " " (foreign::line(record.text("/outcome/reason")))
            })),
            ("Message", (!message.is_empty()).then(|| foreign::line(message))),
            ("Exit code", record.value("/outcome/exit_code").and_then(Value::as_i64).map(|code| html! { (code) })),
            ("Took", time("/duration_us")),
            ("In its lane", time("/usage/wall_us")),
            ("Processor", time("/usage/cpu_us")),
            ("Memory", size("/usage/peak_memory_bytes")),
            ("Bytes in", size("/usage/bytes_in")),
            ("Bytes out", size("/usage/bytes_out")),
            ("Secrets hidden", record.number("/redactions").map(|count| html! { (count) })),
            ("Facts", record.value("/outcome/facts").filter(|facts| !facts.is_null()).map(|facts| foreign::json(&facts.to_string()))),
        ]))
    }
}

fn explained(explained: &ExplainPolicyResponse) -> Markup {
    let rows = explained.considered.iter().map(|considered| {
        vec![
            state(word(considered.verdict())),
            foreign::line(&considered.rule),
            html! { @if considered.decides { strong { "yes" } } },
            foreign::line(&considered.justification),
            foreign::line(&considered.stage),
        ]
    });
    html! {
        p {
            "The policy in force now says " (state(word(explained.verdict()))) " by " (foreign::line(&explained.rule)) ". "
            (foreign::line(&explained.justification))
        }
        (facts([
            ("Risk", (!explained.risk.is_empty()).then(|| foreign::line(&explained.risk))),
            ("Reason", (!explained.reason.is_empty()).then(|| foreign::line(&explained.reason))),
            ("Time to decide", explained.decision_time.as_ref().map(|time| html! {
                (figures::wire_duration(Some(time))) " (" (foreign::line(&explained.decision_time_from)) ")"
            })),
            ("Policy", Some(foreign::line(&explained.policy_digest))),
        ]))
        (table("Rules that were considered", &["Says", "Rule", "Decides", "Because", "Stage"], rows))
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
        Verdict::Unspecified => "not known",
    }
}

fn answer(id: &str, answer: &GetCallResponse) -> Markup {
    let call = answer.call.clone().unwrap_or_default();
    html! {
        p { (state(&figures::word(call.status().as_str_name()))) }
        @if let Some(timings) = &call.timings { p { (spent(timings)) } }
        @if let Some(error) = &call.error {
            (facts([("Reason", Some(foreign::line(&error.reason))), ("Message", Some(foreign::line(&error.message)))]))
        }
        (rendered(&call))
        @if call.output_not_kept_bytes > 0 { p.note { (call.output_not_kept_bytes) " bytes of output were not kept." } }
        @if let Some(chunk) = &answer.stdout { (output(id, "Output", "out", chunk)) }
        @if let Some(chunk) = &answer.stderr { (output(id, "Errors", "err", chunk)) }
    }
}

fn spent(timings: &Timings) -> String {
    let of = figures::micros;
    format!(
        "Queue {}, policy {}, audit {}, execution {}.",
        of(timings.queue_us),
        of(timings.policy_us),
        of(timings.audit_us),
        of(timings.execution_us)
    )
}

fn rendered(call: &CallResponse) -> Markup {
    html! {
        @if call.result_dropped { p.note { "The result was dropped to free space." } }
        @else if !call.rendered.is_empty() {
            details { summary { "Answer that the model got" } (foreign::json(&call.rendered)) }
        }
    }
}

fn output(id: &str, name: &str, field: &str, chunk: &OutputChunk) -> Markup {
    let end = chunk.offset.saturating_add(chunk.data.len() as u64);
    let more = end < chunk.kept_bytes && !chunk.data.is_empty();
    html! {
        h3 { (name) }
        @if chunk.data.is_empty() { p { "None." } }
        @else {
            p { "Bytes " (chunk.offset) " to " (end) " of " (chunk.kept_bytes) }
            (foreign::bytes(&chunk.data))
            @if let (true, Some(path)) = (more, id_path("/calls/", id, "")) {
                p.pager { a rel="next" href=(address(&path, &[(field, &end.to_string())])) { "Next bytes" } }
            }
        }
    }
}

/// Returns the records of the call with their JSON.
fn all(events: &[AuditEvent]) -> Markup {
    html! {
        h2 { "Records" }
        @for event in events {
            details {
                summary { (event.sequence) " " (foreign::heading(&event.kind)) " " (figures::moment(event.time.as_ref())) }
                (foreign::json(&event.record_json))
            }
        }
    }
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
