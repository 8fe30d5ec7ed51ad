//! A call's two records, and where its time went.
//!
//! Never file contents: inputs have their digest, outcomes are sizes, hashes, counts and a short preview of what a
//! command wrote.

use std::time::{Duration, Instant};

use audit::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
use audit_service::{AuditLog, Unavailable};
use gateway::{Approval, Caller};
use identity::{CallId, Principal};
use ops::{OpResult, Operation};
use serde_json::{Value, json};
use store::micros;

use super::decode::Decoded;
use super::{Close, input};

/// Characters of a command's output that the record keeps.
const PREVIEW: usize = 256;

/// Where a call's time went.
pub(super) struct Times {
    taken: Instant,
    mark: Instant,
    pub(super) queue: Duration,
    pub(super) policy: Duration,
    pub(super) audit: Duration,
    pub(super) execution: Duration,
}

impl Times {
    pub(super) fn begin(taken: Instant) -> Self {
        let zero = Duration::ZERO;
        Self { taken, mark: taken, queue: zero, policy: zero, audit: zero, execution: zero }
    }

    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.mark, now)
    }

    pub(super) fn queued(&mut self) {
        let lap = self.lap();
        self.queue += lap;
    }

    pub(super) fn decided(&mut self) {
        let lap = self.lap();
        self.policy += lap;
    }

    fn recorded(&mut self) {
        let lap = self.lap();
        self.audit += lap;
    }

    pub(super) fn executed(&mut self) {
        let lap = self.lap();
        self.execution += lap;
    }

    /// The wait for a reviewer is nobody's time.
    pub(crate) fn resume(&mut self) {
        self.mark = Instant::now();
    }
}

/// Writes a call's intent and receipt, each once.
pub(super) struct Journal {
    /// What both records have in common.
    common: Event,
    input: Value,
    details: Value,
    limit: Option<Duration>,
    has_effect: bool,
    asked: bool,
    decision: Option<Decision>,
    opened: bool,
    /// Bytes of the command's output that the spool has.
    kept: [u64; 2],
}

impl Journal {
    pub(super) fn new(run: String, call: CallId, principal: &Principal, decoded: &Decoded) -> Self {
        let operation = decoded.operation.as_ref().ok();
        let mut common =
            Event::new(Kind::CallIntent).run(run).call(call.to_string()).principal(&principal.name);
        common.dialect = decoded.form.name();
        common.operation = operation.map(Operation::name).or(decoded.asked.operation).map(str::to_owned);
        let mut details = json!({});
        for (name, value) in [("task_id", &decoded.task_id), ("correlation_id", &decoded.correlation_id)] {
            if !value.is_empty() {
                details[name] = value.as_str().into();
            }
        }
        if principal.run.is_some() {
            details["via"] = "run_token".into();
            // In the receipt, too: that of a call which outlived its daemon stands far from its intent.
            common.details = Some(json!({ "via": "run_token" }));
        }
        Self {
            common,
            input: operation.map_or_else(|| decoded.asked.input(), input::of),
            details,
            limit: decoded.limit,
            has_effect: operation.is_some_and(Operation::has_effect),
            asked: false,
            decision: None,
            opened: false,
            kept: [0; 2],
        }
    }

    /// Of a call that a former daemon has begun: its intent is on record.
    pub(super) fn resumed(&mut self, approval: &Approval) {
        self.opened = true;
        self.asked = true;
        self.common.agent_id = Some(approval.agent_id.clone());
        self.common.role = Some(approval.role.clone());
        self.common.approval_id = Some(approval.approval_id.clone());
    }

    pub(super) fn request(&mut self, request_id: Option<String>) {
        self.common.request_id = request_id;
    }

    pub(super) fn caller(&mut self, caller: &Caller) {
        self.common.agent_id = Some(caller.agent_id.clone());
        self.common.role = Some(caller.role.clone());
    }

    pub(super) fn decided(&mut self, decision: &gateway::Decision) {
        let outcome = match decision.verdict {
            gateway::Verdict::Allow => Verdict::Allow,
            gateway::Verdict::Ask => Verdict::Ask,
            gateway::Verdict::Deny => Verdict::Deny,
        };
        self.details["risk"] = decision.risk.as_str().into();
        self.decision = Some(
            Decision::new(outcome)
                .rule(&decision.rule)
                .reason(&decision.justification)
                .policy_digest(&decision.policy_digest),
        );
    }

    pub(super) fn refused(&mut self, refusal: &gateway::Refusal) {
        self.decision = Some(
            Decision::new(Verdict::Deny)
                .rule(&refusal.rule)
                .reason(refusal.reason.as_str())
                .policy_digest(&refusal.policy_digest),
        );
        if refusal.not_held {
            self.details["not_held"] = true.into();
        }
    }

    pub(super) fn asked(&mut self) {
        self.asked = true;
    }

    pub(super) fn was_asked(&self) -> bool {
        self.asked
    }

    pub(super) fn has_effect(&self) -> bool {
        self.has_effect
    }

    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    pub(super) fn kept(&mut self, kept: [u64; 2]) {
        self.kept = kept;
    }

    pub(super) fn approval_id(&self) -> Option<&str> {
        self.common.approval_id.as_deref()
    }

    pub(super) fn approval(&mut self, approval_id: &str) {
        self.common.approval_id = Some(approval_id.to_owned());
    }

    /// The intent: durable when an effect may follow.
    pub(super) async fn open(&mut self, log: &AuditLog, times: &mut Times) -> Result<(), Unavailable> {
        let event = self.intent();
        let recorded = if self.has_effect || self.asked {
            log.record(event).await.map(drop)
        } else {
            log.enqueue(event).await
        };
        times.recorded();
        recorded
    }

    fn intent(&mut self) -> Event {
        self.opened = true;
        let mut event = self.common.clone();
        event.input = Some(std::mem::take(&mut self.input)).filter(|input| !input.is_null());
        event.decision.clone_from(&self.decision);
        event.details = Some(self.details.clone()).filter(|details| details != &json!({}));
        event
    }

    /// The receipt, with the intent before it when the call was refused before it had one.
    pub(super) async fn close(
        &mut self,
        log: &AuditLog,
        close: &Close,
        times: &mut Times,
    ) -> Result<(), Unavailable> {
        if !self.opened {
            let event = self.intent();
            log.enqueue(event).await?;
        }
        let mut event = self.common.clone();
        event.kind = Kind::CallReceipt;
        event.outcome = Some(outcome(close, self.kept));
        event.duration_us = Some(micros(times.taken.elapsed()));
        if let Close::Executed(finished) = close {
            event.usage = Some(Usage {
                cpu_us: finished.usage.cpu_time_us,
                peak_memory_bytes: finished.usage.peak_memory_bytes,
                wall_us: Some(micros(times.execution)),
                bytes_in: finished.bytes_in,
                bytes_out: finished.bytes_out,
            });
        }
        let executed = !matches!(close, Close::Refused(_));
        // One that has waited is kept until its receipt is on disk.
        let recorded = if self.has_effect && executed || self.asked {
            log.record(event).await.map(drop)
        } else {
            log.enqueue(event).await
        };
        times.recorded();
        recorded
    }
}

fn outcome(close: &Close, kept: [u64; 2]) -> Outcome {
    let finished = match close {
        Close::Refused(refusal) => {
            return Outcome::new(Status::Denied).reason(refusal.reason.as_str()).message(&refusal.message);
        }
        Close::Broken(refusal) => {
            return Outcome::new(Status::Interrupted)
                .reason(refusal.reason.as_str())
                .message(&refusal.message);
        }
        Close::Executed(finished) => finished,
    };
    match &finished.outcome {
        Err(failure) => {
            let outcome =
                Outcome::new(Status::Failed).reason(failure.reason.as_str()).message(&failure.message);
            if failure.details.is_empty() { outcome } else { outcome.facts(json!(failure.details)) }
        }
        Ok(OpResult::Exec(exec) | OpResult::Shell(exec)) => {
            // A command that failed is a tool that ran: the record says what it said.
            let failure = ops::unfinished(exec);
            let done = failure.is_none() && exec.exit_code == Some(0);
            let status = if done { Status::Succeeded } else { Status::Failed };
            let mut said = json!({
                "signal": exec.signal,
                "timed_out": exec.timed_out,
                "ended_by": Some(&exec.ended_by).filter(|by| !by.is_empty()),
                "limits_hit": exec.limits_hit,
                "stdout_bytes": exec.stdout_bytes,
                "stderr_bytes": exec.stderr_bytes,
                "stdout": preview(&exec.stdout),
                "stderr": preview(&exec.stderr),
                "kill": exec.kill,
            });
            // What is missing in the spool is said, too.
            for (name, written, kept) in [
                ("stdout_kept_bytes", exec.stdout_bytes, kept[0]),
                ("stderr_kept_bytes", exec.stderr_bytes, kept[1]),
            ] {
                if kept < written {
                    said[name] = kept.into();
                }
            }
            let outcome = Outcome::new(status).facts(said);
            let outcome = match failure {
                Some(failure) => outcome.reason(failure.reason.as_str()),
                None => outcome,
            };
            exec.exit_code.map_or(outcome.clone(), |code| outcome.exit_code(code))
        }
        Ok(result) => Outcome::new(Status::Succeeded).facts(facts(result)),
    }
}

fn facts(result: &OpResult) -> Value {
    match result {
        OpResult::Read(read) => json!({
            "path": read.path, "size_bytes": read.size_bytes, "sha256": read.sha256,
            "returned_bytes": read.content.len(), "truncated": read.truncated,
        }),
        OpResult::List(list) => {
            json!({ "path": list.path, "entries": list.entries.len(), "truncated": list.truncated })
        }
        OpResult::Glob(glob) => json!({ "paths": glob.paths.len(), "truncated": glob.truncated }),
        OpResult::Grep(grep) => json!({
            "matches": grep.matches.len(), "files_searched": grep.files_searched, "truncated": grep.truncated,
        }),
        OpResult::Write(write) => json!({
            "path": write.path, "bytes_written": write.bytes_written, "created": write.created,
            "sha256_before": write.sha256_before, "sha256_after": write.sha256_after,
        }),
        OpResult::Edit(edit) => json!({
            "path": edit.path, "replacements": edit.replacements,
            "sha256_before": edit.sha256_before, "sha256_after": edit.sha256_after,
        }),
        OpResult::Patch(patch) => json!({ "files": patch.files, "notes": patch.notes }),
        OpResult::Delete(delete) => json!({
            "path": delete.path, "type": delete.r#type(), "size_bytes": delete.size_bytes,
            "sha256_before": delete.sha256, "trash_entry": delete.trash_entry,
            "gone_for_good": delete.gone_for_good,
        }),
        OpResult::Git(git) => json!({ "output_bytes": git.output.len(), "commit": git.commit }),
        OpResult::Mcp(mcp) => json!({
            "server": mcp.server, "tool": mcp.tool, "items": mcp.content.len(), "total_bytes": mcp.total_bytes,
            "sha256": mcp.sha256, "omitted_bytes": mcp.omitted_bytes, "truncated": mcp.truncated,
        }),
        // Has its own form.
        OpResult::Exec(_) | OpResult::Shell(_) => Value::Null,
    }
}

fn preview(text: &str) -> String {
    let mut preview = beginning(text).to_owned();
    if preview.len() < text.len() {
        preview.push('…');
    }
    preview
}

/// The first characters of a text. It is redacted later, and half of a secret does not look like one: the cut falls
/// behind a space, or nothing is kept.
pub(super) fn beginning(text: &str) -> &str {
    let Some((end, _)) = text.char_indices().nth(PREVIEW) else { return text };
    &text[..text[..end].rfind(char::is_whitespace).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_cut_within_a_word() {
        let short = "x".repeat(PREVIEW);
        assert_eq!(beginning(&short), short);
        assert_eq!(beginning(&"x".repeat(PREVIEW + 1)), "");
        let secret = format!("{} TOKEN {}", "é ".repeat(120), "s".repeat(40));
        assert_eq!(beginning(&secret), format!("{} TOKEN", "é ".repeat(120)));
        assert_eq!(preview("a b"), "a b");
    }
}
