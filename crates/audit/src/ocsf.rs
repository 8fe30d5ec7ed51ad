//! Converts records to events of the Open Cybersecurity Schema Framework 1.3.0, class API Activity (6003), without profiles.
//!
//! | attribute | from |
//! |---|---|
//! | `activity_id` | 1 Create: `run_created`; 2 Read: `read` `list` `glob` `grep` `git.status` `git.diff` `git.log` `git.show`; 3 Update: `write` `edit` `patch`; 4 Delete: `delete`; 99 Other: everything else, with `activity_name` |
//! | `time`, `duration` | the record's time; a receipt's duration; milliseconds |
//! | `metadata.uid`, `.sequence`, `.original_time` | `LOG/SEQUENCE`, the sequence number, the time with nanoseconds |
//! | `metadata.event_code`, `.correlation_uid` | the kind; the run |
//! | `actor.user.name`, `actor.app_name` | the principal; the agent |
//! | `api.operation`, `api.service.name` | the operation (of records that are none of a call: the kind); `cofferdam` |
//! | `api.request.uid` | the call (of records that are none of a call: `LOG/SEQUENCE`) |
//! | `api.response.code`, `.error`, `.error_message` | exit code, reason and message of a receipt |
//! | `resources` | the run, the image, and the path that the input names |
//! | `src_endpoint.svc_name` | `unix-socket`: clients have no address |
//! | `status_id`, `status`, `status_code`, `status_detail` | 1 Success, 2 Failure, 0 Unknown (an intent); outcome or decision; reason; message |
//! | `severity_id` | 1 Informational; 2 Low: failed; 3 Medium: denied, interrupted, a repaired log; 4 High: an alert |
//! | `unmapped` | the record's own fields, under their own names, with its hashes |

use serde_json::{Value, json};

use crate::event::{Event, Kind, Status, Verdict};
use crate::record::Record;

pub const VERSION: &str = "1.3.0";
/// Number of the class "API Activity".
pub const CLASS: u32 = 6003;

/// Converts a record to an event of the class API Activity.
pub fn event(record: &Record) -> Value {
    let event = &record.event;
    let (activity, activity_name) = activity(event);
    let (status_id, status) = status(event);
    let (severity_id, severity) = severity(event);
    let uid = format!("{}/{}", record.log, record.sequence);
    let operation = event.operation.as_deref().unwrap_or(event.kind.as_str());
    let mut made = json!({
        "activity_id": activity,
        "activity_name": activity_name,
        "category_uid": 6,
        "category_name": "Application Activity",
        "class_uid": CLASS,
        "class_name": "API Activity",
        "type_uid": u64::from(CLASS) * 100 + activity,
        "type_name": format!("API Activity: {activity_name}"),
        "time": milliseconds(record),
        "severity_id": severity_id,
        "severity": severity,
        "status_id": status_id,
        "metadata": {
            "version": VERSION,
            "uid": uid,
            "sequence": record.sequence,
            "original_time": record.time.to_string(),
            "event_code": event.kind.as_str(),
            "log_name": "cofferdam audit log",
            "product": { "name": "Cofferdam", "vendor_name": "Cofferdam", "version": env!("CARGO_PKG_VERSION") },
        },
        "actor": { "user": { "name": event.principal.as_deref().unwrap_or("cofferd") } },
        "api": {
            "operation": operation,
            "service": { "name": "cofferdam" },
            "request": { "uid": event.call_id.as_deref().unwrap_or(&uid) },
        },
        "src_endpoint": { "svc_name": "unix-socket" },
        "unmapped": unmapped(record),
    });
    let mut set = |path: &[&str], value: Option<Value>| {
        let Some(value) = value else { return };
        let slot = path.iter().fold(&mut made, |slot, name| &mut slot[*name]);
        *slot = value;
    };
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let outcome = event.outcome.as_ref();
    set(&["status"], status.map(Value::from));
    set(&["status_code"], outcome.and_then(|outcome| text(&outcome.reason)));
    set(&["status_detail"], outcome.and_then(|outcome| text(&outcome.message)));
    set(&["metadata", "correlation_uid"], text(&event.run_id));
    set(&["actor", "app_name"], text(&event.agent_id));
    set(&["duration"], event.duration_us.map(|duration| (duration / 1_000).into()));
    set(&["api", "response", "code"], outcome.and_then(|outcome| outcome.exit_code).map(Value::from));
    set(&["api", "response", "error"], outcome.and_then(|outcome| text(&outcome.reason)));
    set(&["api", "response", "error_message"], outcome.and_then(|outcome| text(&outcome.message)));
    set(&["resources"], resources(event));
    made
}

fn milliseconds(record: &Record) -> i64 {
    let within = i64::from(record.time.subsecond_nanos() / 1_000_000);
    record.time.unix_seconds().saturating_mul(1_000).saturating_add(within)
}

fn activity(event: &Event) -> (u64, &'static str) {
    match (event.kind, event.operation.as_deref()) {
        (Kind::RunCreated, _) => (1, "Create"),
        (_, Some("read" | "list" | "glob" | "grep" | "git.status" | "git.diff" | "git.log" | "git.show")) => {
            (2, "Read")
        }
        (_, Some("write" | "edit" | "patch")) => (3, "Update"),
        (_, Some("delete")) => (4, "Delete"),
        _ => (99, "Other"),
    }
}

fn status(event: &Event) -> (u64, Option<&'static str>) {
    match event.outcome.as_ref().map(|outcome| outcome.status) {
        Some(Status::Succeeded) => return (1, Some("Success")),
        Some(Status::Failed | Status::Denied | Status::Interrupted) => return (2, Some("Failure")),
        Some(Status::PendingApproval | Status::Unknown) | None => {}
    }
    let denied = event.decision.as_ref().is_some_and(|decision| decision.outcome == Verdict::Deny);
    if denied { (2, Some("Failure")) } else { (0, None) }
}

fn severity(event: &Event) -> (u64, &'static str) {
    match (event.kind, event.outcome.as_ref().map(|outcome| outcome.status)) {
        (Kind::Alert, _) => (4, "High"),
        (Kind::LogRepaired, _) | (_, Some(Status::Denied | Status::Interrupted)) => (3, "Medium"),
        (_, Some(Status::Failed)) => (2, "Low"),
        _ => (1, "Informational"),
    }
}

fn resources(event: &Event) -> Option<Value> {
    let named = |kind: &str, uid: Option<&str>| uid.map(|uid| json!({ "type": kind, "uid": uid }));
    let path = event.input.as_ref().and_then(|input| input["path"].as_str());
    let resources: Vec<_> = [
        named("run", event.run_id.as_deref()),
        named("image", event.image.as_deref()),
        path.map(|path| json!({ "type": "file", "name": path })),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!resources.is_empty()).then(|| resources.into())
}

fn unmapped(record: &Record) -> Value {
    // Cannot fail, because every event was read from JSON or can be written as JSON.
    let mut fields = serde_json::to_value(&record.event).unwrap_or_else(|_| json!({}));
    fields["log"] = record.log.to_string().into();
    fields["previous"] = record.previous.to_string().into();
    fields["hash"] = record.hash.to_string().into();
    fields
}

#[cfg(test)]
mod tests;
