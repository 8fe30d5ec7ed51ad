//! Judges recorded calls by a proposed policy: `ReplayPolicy`.
//!
//! ```text
//!  audit log ─ intents ─ restore the operation ─┬─ judged by the same code as a call ─ compared with the recorded verdict
//!                                               └─ not judged, with the reason
//! ```
//!
//! The log has no contents of files, no long arguments and no secrets. A placeholder replaces them only if the verdict depends on
//! their size alone. If a verdict may depend on the missing text, the call is counted as not judged.

use std::collections::HashMap;
use std::sync::Arc;

use audit::{Event, Kind};
use audit_service::AuditLog;
use gateway::Gateway;
use identity::RunId;
use operations::{CommandLimits, Operation, Reason};
use policy::{Caller, Policy, RunScope};
use refusal::Refusal;
use runs::Runs;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wire::v1;

/// Most files of a proposed policy.
const MAX_FILES: usize = 256;
const DEFAULT_CALLS: u32 = 10_000;
const MAX_CALLS: u32 = 100_000;
/// Most records that are read for one answer.
const MAX_RECORDS: u64 = 1_000_000;
/// Most changes that are listed, and most characters of each one's input.
const MAX_CHANGES: usize = 1_000;
const MAX_INPUT: usize = 500;
/// Most runs whose profile is remembered while the log is read.
const MAX_RUNS: usize = 100_000;
/// Most bytes of a text that a placeholder may replace.
const MAX_SIZE: usize = 8 << 20;
/// The beginning of redaction's marks, see `docs/src/audit-format.md`.
const MARK: &str = "[redacted:";

/// Judges recorded calls by proposed policies, one replay at a time.
pub struct Replays {
    audit: Arc<AuditLog>,
    gateway: Arc<Gateway>,
    runs: Arc<Runs>,
    turn: Semaphore,
}

/// The reason why a call cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unjudged {
    /// Arguments that matter were cut.
    Cut,
    /// Arguments that matter were redacted.
    Redacted,
    /// The record has no decision of a policy.
    Undecided,
    /// The record, or its run, is not understood.
    Unreadable,
}

impl Replays {
    pub fn new(audit: Arc<AuditLog>, gateway: Arc<Gateway>, runs: Arc<Runs>) -> Self {
        Self { audit, gateway, runs, turn: Semaphore::new(1) }
    }

    /// Judges recorded calls by a proposed policy.
    pub async fn replay(
        &self,
        request: v1::ReplayPolicyRequest,
    ) -> Result<v1::ReplayPolicyResponse, Refusal> {
        let most = match request.max_calls {
            0 => DEFAULT_CALLS,
            most if most <= MAX_CALLS => most,
            _ => return Err(Refusal::invalid("max_calls", format!("must be at most {MAX_CALLS}"))),
        };
        let only = match request.run_id.as_str() {
            "" => None,
            run => Some(RunId::parse(run)?.to_string()),
        };
        let Ok(_one) = self.turn.try_acquire() else {
            return Err(Refusal::new(
                Reason::Overloaded,
                "another replay is running: try again when it has ended",
            ));
        };
        let policy = proposed(request.files).await?;
        let mut replay = Replay {
            replays: self,
            only,
            profiles: HashMap::new(),
            response: v1::ReplayPolicyResponse {
                policy_digest: policy.digest().to_owned(),
                ..Default::default()
            },
            policy,
        };
        self.audit.settle().await;
        let mut log = self.audit.read_after(request.after_sequence, false);
        let mut records = 0;
        replay.response.last_sequence = request.after_sequence;
        while let Some(lines) = log.next().await? {
            for line in lines {
                if replay.response.calls >= most || records >= MAX_RECORDS {
                    return Ok(replay.response);
                }
                records += 1;
                replay.response.last_sequence = line.record.sequence;
                replay.record(line.record.sequence, &line.record.event);
            }
        }
        replay.response.complete = true;
        Ok(replay.response)
    }
}

async fn proposed(files: Vec<v1::PolicyFile>) -> Result<Policy, Refusal> {
    if files.is_empty() || files.len() > MAX_FILES {
        return Err(Refusal::invalid("files", format!("must be 1 to {MAX_FILES}")));
    }
    let load = move || Policy::from_files(files.into_iter().map(|file| (file.name, file.content)));
    let loaded = tokio::task::spawn_blocking(load).await;
    loaded
        .map_err(|error| Refusal::internal("reading the proposed policy", &error))?
        .map_err(|problems| Refusal::invalid("files", problems))
}

struct Replay<'a> {
    replays: &'a Replays,
    policy: Policy,
    /// The run whose calls are judged; `None` means all runs.
    only: Option<String>,
    /// The profile of each run that the log has shown so far.
    profiles: HashMap<String, String>,
    response: v1::ReplayPolicyResponse,
}

impl Replay<'_> {
    fn record(&mut self, sequence: u64, event: &Event) {
        let Some(run) = event.run_id.as_ref() else { return };
        match event.kind {
            Kind::RunCreated => {
                let profile = event.details.as_ref().and_then(|details| details["profile"].as_str());
                if let Some(profile) = profile.filter(|_| self.profiles.len() < MAX_RUNS) {
                    self.profiles.insert(run.clone(), profile.to_owned());
                }
            }
            Kind::CallIntent if self.only.as_ref().is_none_or(|only| only == run) => {
                self.response.calls += 1;
                match self.judge(sequence, run, event) {
                    Ok(None) => self.response.unchanged += 1,
                    Ok(Some(change)) => {
                        self.response.changed += 1;
                        if self.response.changes.len() < MAX_CHANGES {
                            self.response.changes.push(change);
                        }
                    }
                    Err(Unjudged::Cut) => self.response.cut += 1,
                    Err(Unjudged::Redacted) => self.response.redacted += 1,
                    Err(Unjudged::Undecided) => self.response.undecided += 1,
                    Err(Unjudged::Unreadable) => self.response.unreadable += 1,
                }
            }
            _ => {}
        }
    }

    fn judge(&self, sequence: u64, run: &str, event: &Event) -> Result<Option<v1::ReplayedCall>, Unjudged> {
        let decision = event.decision.as_ref().ok_or(Unjudged::Undecided)?;
        let was_rule = decision.rule.clone().unwrap_or_default();
        let by_policy = !was_rule.starts_with("anomaly ")
            && decision.reason.as_deref() != Some(Reason::RateLimited.as_str());
        let was = match decision.outcome {
            audit::Verdict::Allow => policy::Verdict::Allow,
            audit::Verdict::Ask => policy::Verdict::Ask,
            audit::Verdict::Deny => policy::Verdict::Deny,
            audit::Verdict::Unknown => return Err(Unjudged::Unreadable),
        };
        if !by_policy {
            return Err(Unjudged::Undecided);
        }
        let (Some(name), Some(input), Some(role), Some(agent_id)) =
            (&event.operation, &event.input, &event.role, &event.agent_id)
        else {
            return Err(Unjudged::Unreadable);
        };
        let operation = restore(name, input)?;
        let profile = self.profile(run).ok_or(Unjudged::Unreadable)?;
        let scope = RunScope { profile, image_id: String::new() };
        let caller = Caller {
            principal: event.principal.clone().unwrap_or_default(),
            agent_id: agent_id.clone(),
            role: role.clone(),
            run_id: run.to_owned(),
        };
        let explanation = self.replays.gateway.explain(&self.policy, &scope, &caller, &operation);
        let becomes = explanation.verdict();
        if becomes == was {
            return Ok(None);
        }
        let justification = match &explanation.outcome {
            Ok(decision) => decision.justification.clone(),
            Err(refusal) => refusal.message.clone(),
        };
        Ok(Some(v1::ReplayedCall {
            sequence,
            call_id: event.call_id.clone().unwrap_or_default(),
            run_id: run.to_owned(),
            agent_id: agent_id.clone(),
            operation: name.clone(),
            input: input.to_string().chars().take(MAX_INPUT).collect(),
            was: verdict(was).into(),
            was_rule,
            becomes: verdict(becomes).into(),
            rule: explanation.rule().to_owned(),
            justification,
        }))
    }

    /// Returns the profile of a run, from its record or from the log.
    fn profile(&self, run: &str) -> Option<String> {
        let record = RunId::parse(run).ok().and_then(|id| self.replays.runs.get(id).ok());
        record.map(|record| record.spec.profile).or_else(|| self.profiles.get(run).cloned())
    }
}

/// Returns the operation that was recorded, or one that a policy judges like it.
fn restore(name: &str, input: &Value) -> Result<Operation, Unjudged> {
    let base = name.split('.').next().unwrap_or_default();
    let mut input = input.clone();
    // No rule looks at the arguments of an upstream server's tool.
    if let ("mcp", Some(fields)) = (base, input.as_object_mut()) {
        fields.remove("arguments");
    }
    if base == "patch" {
        input = patch_of(&input)?;
    }
    fill(base, "", &mut input)?;
    let request: v1::Operation =
        serde_json::from_value(json!({ base: input })).map_err(|_| Unjudged::Unreadable)?;
    Operation::parse_within(request, CommandLimits::WIDEST).map_err(|_| Unjudged::Unreadable)
}

/// Returns a patch of the same files and the same size. A verdict depends on nothing else.
fn patch_of(input: &Value) -> Result<Value, Unjudged> {
    if let Some(path) = input["updateFrontmatter"]["path"].as_str() {
        return Ok(json!({ "updateFrontmatter": { "path": path, "currentNodeId": "x" } }));
    }
    let Some(paths) = input["paths"].as_array() else { return Err(Unjudged::Cut) };
    let text = ["unifiedDiff", "envelope"].iter().find_map(|name| input[name]["bytes"].as_u64());
    let bytes = text.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes <= MAX_SIZE);
    let bytes = bytes.ok_or(Unjudged::Cut)?;
    let mut envelope = "*** Begin Patch\n".to_owned();
    for path in paths {
        let path = path.as_str().ok_or(Unjudged::Unreadable)?;
        if path.contains(MARK) {
            return Err(Unjudged::Redacted);
        }
        envelope.extend(["*** Update File: ", path, "\n@@\n-x\n+y\n"]);
    }
    let rest = bytes.saturating_sub(envelope.len());
    envelope.insert_str(envelope.len() - 1, &"y".repeat(rest));
    Ok(json!({ "envelope": envelope + "*** End Patch\n" }))
}

/// Puts placeholders in place of text that the record lacks, if a verdict depends only on its size.
fn fill(operation: &str, key: &str, value: &mut Value) -> Result<(), Unjudged> {
    // Rules examine paths, sizes and names, and not at the text that is written, searched for, or set.
    let counts = !matches!(
        (operation, key),
        ("write" | "edit", "content" | "oldStr" | "newStr" | "text")
            | ("grep", "pattern")
            | ("git", "message")
            | ("exec" | "shell", "env")
    );
    match value {
        Value::String(text) if counts && text.contains(MARK) => Err(Unjudged::Redacted),
        Value::Object(fields) if is_cut(fields) => {
            let bytes =
                fields.get("bytes").and_then(Value::as_u64).and_then(|bytes| usize::try_from(bytes).ok());
            match bytes.filter(|bytes| !counts && *bytes <= MAX_SIZE) {
                // The new text differs from the old one, as in every edit.
                Some(bytes) => *value = if key == "newStr" { "y" } else { "x" }.repeat(bytes).into(),
                None => return Err(Unjudged::Cut),
            }
            Ok(())
        }
        Value::Object(fields) => fields.iter_mut().try_for_each(|(name, value)| {
            // The fields of `env` are variables, so their values keep the key `env`.
            let key = if key == "env" { "env" } else { name.as_str() };
            fill(operation, key, value)
        }),
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill(operation, key, item)),
        _ => Ok(()),
    }
}

/// Returns true if these are the fields that the record has in place of a content or a long text.
fn is_cut(fields: &serde_json::Map<String, Value>) -> bool {
    let has =
        |names: &[&str]| fields.len() == names.len() && names.iter().all(|name| fields.contains_key(*name));
    has(&["bytes", "sha256"]) || has(&["preview", "bytes", "sha256"])
}

/// Returns a verdict as the API has it.
pub fn verdict(verdict: policy::Verdict) -> v1::Verdict {
    match verdict {
        policy::Verdict::Allow => v1::Verdict::Allow,
        policy::Verdict::Ask => v1::Verdict::Ask,
        policy::Verdict::Deny => v1::Verdict::Deny,
    }
}

#[cfg(test)]
mod tests {
    use operations::Operation;
    use serde_json::json;

    use super::{Unjudged, restore};

    fn cut(bytes: usize) -> serde_json::Value {
        json!({ "preview": "x", "bytes": bytes, "sha256": "0".repeat(64) })
    }

    #[test]
    fn cut_values_are_restored_only_where_their_size_alone_counts() {
        let written = restore("write", &json!({ "path": "@project/a", "content": cut(5_000) })).unwrap();
        assert!(matches!(&written, Operation::Write(write) if write.content.len() == 5_000), "{written:?}");
        let exec = |args: serde_json::Value, env: serde_json::Value| {
            restore("exec", &json!({ "command": "make", "args": args, "env": env }))
        };
        assert!(exec(json!(["all"]), json!({})).is_ok());
        assert_eq!(exec(json!([cut(2_000)]), json!({})), Err(Unjudged::Cut));
        assert_eq!(exec(json!(["--password", "[redacted:argument]"]), json!({})), Err(Unjudged::Redacted));
        assert!(exec(json!([]), json!({ "TOKEN": "[redacted:key]" })).is_ok(), "names of variables count");
        assert_eq!(restore("shell", &json!({ "script": cut(3_000) })), Err(Unjudged::Cut));
        assert_eq!(
            restore("patch", &json!({ "unifiedDiff": cut(3_000) })),
            Err(Unjudged::Cut),
            "of an earlier release"
        );
        assert!(restore("git.commit", &json!({ "commit": { "message": cut(2_000) } })).is_ok());
        assert_eq!(restore("read", &json!({ "path": "[redacted:high-entropy]" })), Err(Unjudged::Redacted));
        assert_eq!(restore("read", &json!({ "path": 7 })), Err(Unjudged::Unreadable));
        assert_eq!(restore("teleport", &json!({})), Err(Unjudged::Unreadable));
        assert_eq!(restore("write", &json!({ "path": "a", "content": cut(64 << 20) })), Err(Unjudged::Cut));
    }

    #[test]
    fn recorded_changes_can_be_judged_again() {
        let change = |value: serde_json::Value| {
            let request: wire::v1::Operation = serde_json::from_value(value).unwrap();
            Operation::parse(request).unwrap()
        };
        let diff = format!("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+{}\n", "b".repeat(5_000));
        for operation in [
            change(json!({ "write": { "path": "a", "content": "x".repeat(300) } })),
            change(json!({ "edit": { "path": "a", "strReplace": { "oldStr": "a", "newStr": "b" } } })),
            change(json!({ "edit": { "path": "a", "insert": { "afterLine": "1", "text": "a" } } })),
            change(json!({ "edit": { "path": "a", "create": { "content": "a" } } })),
            change(json!({ "patch": { "unifiedDiff": diff } })),
            change(
                json!({ "patch": { "updateFrontmatter": { "path": "@state/a.md", "updatedAt": "now" } } }),
            ),
        ] {
            let recorded = crate::call::recorded_input(&operation);
            let restored =
                restore(operation.name(), &recorded).unwrap_or_else(|why| panic!("{why:?}: {recorded}"));
            assert_eq!((restored.name(), restored.paths()), (operation.name(), operation.paths()));
            if let (Operation::Write(was), Operation::Write(is)) = (&operation, &restored) {
                assert_eq!(was.content.len(), is.content.len());
            }
        }
    }
}
