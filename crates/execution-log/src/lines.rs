//! Joins the two records of a call into one line.

use std::collections::{HashMap, VecDeque};

use audit::{Event, Kind, Record, Status};
use serde_json::{Value, json};

/// Number of calls whose input is remembered until they end. Lines of older calls have no input.
const OPEN: usize = 4_096;

/// Inputs of calls that have not ended.
#[derive(Default)]
pub(super) struct Lines {
    inputs: HashMap<String, Value>,
    /// Ids of calls, oldest first. Calls that have ended may be among them.
    order: VecDeque<String>,
}

impl Lines {
    /// Returns the line, with its newline, of a record that ends a call. Other records have none.
    pub(super) fn line(&mut self, record: &Record) -> Option<String> {
        let event = &record.event;
        let call = event.call_id.as_deref()?;
        match event.kind {
            Kind::CallIntent => {
                self.remember(call, event.input.clone().unwrap_or_default());
                None
            }
            Kind::CallReceipt => {
                let input = self.inputs.remove(call).unwrap_or_default();
                Some(format!("{}\n", line(record, call, &input)))
            }
            _ => None,
        }
    }

    fn remember(&mut self, call: &str, input: Value) {
        self.inputs.insert(call.to_owned(), input);
        self.order.push_back(call.to_owned());
        while self.inputs.len() > OPEN || self.order.len() > 4 * OPEN {
            let Some(oldest) = self.order.pop_front() else { return };
            self.inputs.remove(&oldest);
        }
    }
}

/// Returns a line that reports missing lines before it. `None` means that their number is unknown.
pub(super) fn gap(time: &str, missing: Option<u64>) -> String {
    let message = match missing {
        Some(_) => "these calls could not be written here; the audit log has them",
        None => {
            "another process changed or removed this file: lines before this one are missing; the audit log has them"
        }
    };
    format!("{}\n", json!({ "ts": time, "kind": "log.gap", "missing": missing, "message": message }))
}

/// Returns a line that says where the lines before it are.
pub(super) fn turned(time: &str) -> String {
    let message = "older lines are in execution.1.jsonl; those before them are in the audit log alone";
    format!("{}\n", json!({ "ts": time, "kind": "log.turned", "message": message }))
}

fn line(record: &Record, call: &str, input: &Value) -> Value {
    let event = &record.event;
    // `DIALECT:TOOL`, or a canonical operation.
    let tool = event.dialect.as_deref().and_then(|dialect| dialect.split_once(':')).map(|(_, tool)| tool);
    json!({
        "ts": record.time.to_string(),
        "kind": "tool.exec",
        "toolCallId": event.request_id.as_deref().unwrap_or(call),
        "toolName": tool.or(event.operation.as_deref()),
        "agentId": event.agent_id,
        "input": input,
        "output": output(event),
        "durationMs": event.duration_us.unwrap_or_default() / 1_000,
    })
}

/// Returns the outcome in short, as the record has it: sizes, hashes and cut previews, never contents.
fn output(event: &Event) -> Value {
    let Some(outcome) = &event.outcome else { return json!({ "ok": false }) };
    let ok = outcome.status == Status::Succeeded;
    let mut said = match &outcome.facts {
        Some(Value::Object(facts)) => Value::Object(facts.clone()),
        _ => json!({}),
    };
    said["ok"] = ok.into();
    if let Some(code) = outcome.exit_code {
        said["exitCode"] = code.into();
    }
    if !ok {
        said["error"] = json!({ "code": outcome.reason, "message": outcome.message });
    }
    said
}

#[cfg(test)]
mod tests {
    use audit::{Event, Kind, Outcome, Status, Writer};
    use serde_json::{Value, json};

    use super::Lines;

    fn lines(events: &[Event]) -> Vec<Value> {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path()).unwrap();
        let mut lines = Lines::default();
        let records = writer.append_batch(events).unwrap();
        let texts = records.iter().filter_map(|record| lines.line(record));
        texts
            .map(|text| {
                assert_eq!(text.find('\n'), Some(text.len() - 1));
                let mut line: Value = serde_json::from_str(&text).unwrap();
                assert!(line["ts"].as_str().is_some_and(|ts| ts.ends_with('Z')));
                line.as_object_mut().unwrap().remove("ts");
                line
            })
            .collect()
    }

    #[test]
    fn a_call_is_one_line_in_the_tool_hosts_shape() {
        let call = |kind| Event::new(kind).call("c1").agent("sm");
        let intent = call(Kind::CallIntent).input(json!({ "path": "@project/foo.md" }));
        let mut receipt = call(Kind::CallReceipt).operation("read").duration_us(12_345_u64);
        receipt.dialect = Some("fs:fs.read".into());
        receipt.request_id = Some("call-1".into());
        let good = receipt.clone().outcome(Outcome::new(Status::Succeeded).facts(json!({ "size_bytes": 3 })));
        let bad = Outcome::new(Status::Denied).reason("SANDBOX_VIOLATION").message("no");
        let refused = Event::new(Kind::CallReceipt).call("c2").operation("write").outcome(bad);
        let found = lines(&[intent, Event::new(Kind::Alert), good, refused]);
        assert_eq!(
            found,
            [
                json!({
                    "kind": "tool.exec", "toolCallId": "call-1", "toolName": "fs.read", "agentId": "sm",
                    "input": { "path": "@project/foo.md" }, "output": { "ok": true, "size_bytes": 3 }, "durationMs": 12,
                }),
                json!({
                    "kind": "tool.exec", "toolCallId": "c2", "toolName": "write", "agentId": null, "input": null,
                    "output": { "ok": false, "error": { "code": "SANDBOX_VIOLATION", "message": "no" } },
                    "durationMs": 0,
                }),
            ]
        );
    }

    #[test]
    fn remembered_inputs_are_bounded() {
        let mut lines = Lines::default();
        for call in 0..3 * super::OPEN {
            lines.remember(&call.to_string(), Value::Null);
        }
        assert_eq!(lines.inputs.len(), super::OPEN);
        for call in 0..9 * super::OPEN {
            lines.remember("the same", call.into());
        }
        assert!(lines.order.len() <= 4 * super::OPEN + 1);
    }
}
