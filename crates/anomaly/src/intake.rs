//! Turns records into events for the rules: it joins an intent and its receipt, and keeps no other part of them.
//!
//! The daemon writes the records, but agents fill them. So names, paths and arguments become marks of a fixed size here, and
//! unexpected values are skipped.

use std::sync::Arc;

use audit::{Event, Kind as Kept, Status};
use gateway::looks_secret;
use jail::SandboxPath;
use operations::{Effect, Operation};
use policy::AnomalyRule;
use serde_json::Value;

use super::recent::Recent;
use super::seen::{Agent, Denial, Ended, Ending, Holder, Kind, Mark, Seen, Subject, What};
use super::timeline::Timeline;

/// Most calls under way that are remembered.
const MAX_OPEN: usize = 16_384;
/// Most runs whose agent is remembered.
const MAX_RUNS: usize = 4_096;
/// Most files of one call that are considered.
const MAX_FILES: usize = 64;

/// Reads records in the order of the log.
pub(super) struct Intake {
    time: Timeline,
    open: Recent<Arc<str>, Asked>,
    agents: Recent<Arc<str>, Agent>,
}

/// The facts of an intent that its receipt lacks.
struct Asked {
    input: Option<Mark>,
    files: Vec<Mark>,
    secret: bool,
    risk: Risk,
    /// The agent does not hold the operation.
    not_held: bool,
}

/// The risk of a command. A command of little risk only reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Risk {
    Low,
    Medium,
    More,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self { time: Timeline::default(), open: Recent::new(MAX_OPEN), agents: Recent::new(MAX_RUNS) }
    }

    /// Returns the event of record `sequence`, which was written at `millis` since 1970.
    ///
    /// `agent_of` finds the agent of a run that was created before reading began.
    pub(super) fn take(
        &mut self,
        sequence: u64,
        millis: u64,
        event: &Event,
        agent_of: &dyn Fn(&str) -> Option<Agent>,
    ) -> Option<Seen> {
        let at = self.time.at(millis);
        let run: Arc<str> = event.run_id.as_deref().unwrap_or_default().into();
        let what = match event.kind {
            Kept::RunCreated => {
                if let Some(agent) = named(event) {
                    self.agents.touch(&run, || agent.clone()).clone_from(&agent);
                }
                return None;
            }
            Kept::CallIntent => {
                if let Some(call) = &event.call_id {
                    self.open.touch(&call.as_str().into(), || asked(event));
                }
                What::Asked
            }
            Kept::CallReceipt => {
                let asked = event.call_id.as_deref().and_then(|call| self.open.remove(&call.into()));
                What::Ended(ended(event, asked.as_ref())?)
            }
            Kept::Alert => {
                let (rule, subject) = acknowledged(event)?;
                What::Acknowledged(rule, subject)
            }
            Kept::PermissionGranted => {
                let (agent, what) = granted(event)?;
                return Some(Seen { sequence, at, agent, run, what });
            }
            Kept::EscalationAttempt => What::Escalated,
            Kept::DiskSpace => disk_space(event)?,
            Kept::EgressIntent => What::Connected(host(event)?),
            Kept::EgressReceipt => What::Sent(detail(event, "bytes_out")?.as_u64()?),
            Kept::EgressRefused if detail(event, "placeholder").is_some() => What::Misplaced,
            Kept::EgressRefused => What::Unreached(host(event)?),
            Kept::ModelBudget => What::Spending,
            _ => return None,
        };
        let agent = named(event)
            .or_else(|| self.agents.get(&run).cloned())
            .or_else(|| agent_of(&run))
            .unwrap_or_else(|| Agent {
                principal: event.principal.as_deref().unwrap_or_default().into(),
                id: "".into(),
            });
        Some(Seen { sequence, at, agent, run, what })
    }
}

fn named(event: &Event) -> Option<Agent> {
    let id = event.agent_id.as_deref()?.into();
    Some(Agent { principal: event.principal.as_deref().unwrap_or_default().into(), id })
}

fn reason(event: &Event) -> &str {
    event.outcome.as_ref().and_then(|outcome| outcome.reason.as_deref()).unwrap_or_default()
}

fn asked(event: &Event) -> Asked {
    let operation = event.operation.as_deref().unwrap_or_default();
    let input = event.input.as_ref();
    let path = input.and_then(|input| input.get("path")).and_then(Value::as_str);
    let details = event.details.as_ref();
    let risk = match details.and_then(|details| details.get("risk")).and_then(Value::as_str) {
        Some("low") => Risk::Low,
        Some("medium") => Risk::Medium,
        _ => Risk::More,
    };
    Asked {
        input: input.map(|input| Mark::of(&[operation.as_bytes(), input.to_string().as_bytes()])),
        files: path.map(file).into_iter().collect(),
        secret: path
            .is_some_and(|path| SandboxPath::parse_anywhere(path).is_ok_and(|path| looks_secret(&path))),
        risk,
        not_held: details.and_then(|details| details.get("not_held")).and_then(Value::as_bool) == Some(true),
    }
}

fn file(path: &str) -> Mark {
    Mark::of(&[path.as_bytes()])
}

fn ended(event: &Event, asked: Option<&Asked>) -> Option<Ended> {
    let outcome = event.outcome.as_ref()?;
    let risk = asked.map_or(Risk::More, |asked| asked.risk);
    let operation = event.operation.as_deref().unwrap_or_default();
    let kind = match Operation::effect_of(operation) {
        Some(Effect::Reads) => Kind::Read,
        // The read-only commands.
        Some(Effect::Runs) if operation == "exec" && risk != Risk::More => Kind::Read,
        Some(Effect::Runs) => Kind::Command,
        Some(Effect::Looks) => Kind::Look,
        Some(Effect::Writes | Effect::Commits) => Kind::Change,
        Some(Effect::Deletes) => Kind::Delete,
        Some(Effect::Keeps | Effect::Foreign) | None => Kind::Other,
    };
    let ending = match (outcome.status, reason(event)) {
        // The final receipt is still to come.
        (Status::PendingApproval, _) => return None,
        (Status::Succeeded, _) => Ending::Succeeded,
        (
            _,
            "OVERLOADED" | "CANCELLED" | "RUN_NOT_READY" | "RUN_LOST" | "AWAITING_APPROVAL"
            | "AUDIT_UNAVAILABLE" | "ENGINE_UNAVAILABLE" | "INTERNAL" | "APPROVAL_EXPIRED",
        )
        | (Status::Interrupted | Status::Unknown, _) => Ending::Excused,
        (_, "RATE_LIMITED") => Ending::OverLimit,
        (_, "SANDBOX_VIOLATION") => Ending::Escape,
        (_, "COMMAND_NOT_ALLOWED") => Ending::Denied(Denial::Command),
        (_, "PERMISSION_DENIED") if asked.is_some_and(|asked| asked.not_held) => {
            Ending::Denied(Denial::NotHeld)
        }
        (_, "PERMISSION_DENIED" | "APPROVAL_DENIED") => Ending::Denied(Denial::Other),
        (Status::Failed | Status::Denied, _) => Ending::Failed,
    };
    // A patch names its files only in its receipt.
    let patched = outcome.facts.as_ref().and_then(|facts| facts.get("files")).and_then(Value::as_array);
    let patched = patched.into_iter().flatten().filter_map(|file| file.get("path")).filter_map(Value::as_str);
    let mut files = asked.map(|asked| asked.files.clone()).unwrap_or_default();
    files.extend(patched.take(MAX_FILES).map(file));
    Some(Ended {
        kind,
        ending,
        input: asked.and_then(|asked| asked.input),
        files,
        secret: asked.is_some_and(|asked| asked.secret)
            || (kind == Kind::Read && operation == "exec" && risk == Risk::Medium),
    })
}

fn detail<'e>(event: &'e Event, name: &str) -> Option<&'e Value> {
    event.details.as_ref()?.get(name)
}

/// Returns the host of a connection's record.
fn host(event: &Event) -> Option<Mark> {
    Some(Mark::of(&[detail(event, "host")?.as_str()?.as_bytes()]))
}

/// Returns the event of a disk's state. No rule uses a disk that has free space again.
fn disk_space(event: &Event) -> Option<What> {
    match detail(event, "state")?.as_str()? {
        "over" | "locked" => Some(What::DiskQuota),
        "low" | "full" | "spool_off" => Some(What::DiskLow),
        _ => None,
    }
}

/// Returns the agent, role or team that was granted a permission.
fn granted(event: &Event) -> Option<(Agent, What)> {
    let details = event.details.as_ref()?;
    if details.get("ends").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let subject = details.get("subject")?;
    let name = |kind: &str| subject.get(kind).and_then(Value::as_str).map(Arc::<str>::from);
    let agent = |id| Agent { principal: "".into(), id };
    if let Some(id) = name("agent").or_else(|| name("agent_id")) {
        return Some((agent(id), What::Granted));
    }
    let holder = name("role").map(Holder::Role).or_else(|| name("team").map(Holder::Team))?;
    Some((agent("".into()), What::GivenTo(holder)))
}

/// Returns the rule and subject of an alert that an operator acknowledged.
fn acknowledged(event: &Event) -> Option<(AnomalyRule, Subject)> {
    let details = event.details.as_ref()?;
    if details.get("state")?.as_str()? != "acknowledged" {
        return None;
    }
    let rule = AnomalyRule::parse(details.get("rule")?.as_str()?)?;
    let subject = details.get("subject")?;
    let text = |name: &str| subject.get(name).and_then(Value::as_str).map(Arc::<str>::from);
    let subject = match text("run_id") {
        Some(run) => Subject::Run(run),
        None => Subject::Agent(Agent { principal: text("principal")?, id: text("agent_id")? }),
    };
    Some((rule, subject))
}

#[cfg(test)]
mod tests {
    use audit::{Decision, Outcome, Verdict};
    use serde_json::json;

    use super::*;

    /// A call through the intake: what is seen of its receipt.
    fn receipt(intent: Event, outcome: Outcome) -> Option<Seen> {
        let mut intake = Intake::new();
        let intent = intent.run("r").call("c");
        let mut receipt = intent.clone().outcome(outcome);
        receipt.kind = Kept::CallReceipt;
        let agent = Agent { principal: "uid:1".into(), id: "alice".into() };
        let asked = intake.take(1, 0, &intent, &|_| Some(agent.clone()));
        assert_eq!(asked.unwrap().what, What::Asked);
        let seen = intake.take(2, 0, &receipt, &|run| (run == "r").then(|| agent.clone()));
        assert!(seen.as_ref().is_none_or(|seen| seen.agent == agent), "{seen:?}");
        seen
    }

    fn intent(operation: &str, input: Value, risk: &str) -> Event {
        let intent = Event::new(Kept::CallIntent).operation(operation).input(input);
        intent.decision(Decision::new(Verdict::Allow)).details(json!({ "risk": risk }))
    }

    #[test]
    fn a_full_disk_raises_an_event_and_freed_space_raises_none() {
        let seen = |state: &str| {
            let event = Event::new(Kept::DiskSpace).details(json!({ "state": state }));
            Intake::new().take(1, 0, &event, &|_| None).map(|seen| seen.what)
        };
        for state in ["low", "full", "spool_off"] {
            assert_eq!(seen(state), Some(What::DiskLow), "{state}");
        }
        for state in ["over", "locked"] {
            assert_eq!(seen(state), Some(What::DiskQuota), "{state}");
        }
        for state in ["enough", "spool_on", "anything"] {
            assert_eq!(seen(state), None, "{state}");
        }
    }

    #[test]
    fn connections_are_seen_by_host_and_bytes() {
        let seen = |kind, details| {
            let event = Event::new(kind).run("r").agent("alice").details(details);
            Intake::new().take(1, 0, &event, &|_| None).map(|seen| (seen.run, seen.what))
        };
        let host = Mark::of(&[b"files.example.org"]);
        let of_host = || json!({ "host": "files.example.org", "port": 443, "count": 7 });
        assert_eq!(seen(Kept::EgressIntent, of_host()), Some(("r".into(), What::Connected(host))));
        assert_eq!(seen(Kept::EgressRefused, of_host()), Some(("r".into(), What::Unreached(host))));
        let misplaced =
            json!({ "host": "files.example.org", "placeholder": "API_KEY", "secret_name": "model" });
        assert_eq!(seen(Kept::EgressRefused, misplaced), Some(("r".into(), What::Misplaced)));
        assert_eq!(seen(Kept::ModelBudget, json!({ "why": "" })), Some(("r".into(), What::Spending)));
        let receipt = |bytes| json!({ "host": "files.example.org", "bytes_out": bytes });
        assert_eq!(seen(Kept::EgressReceipt, receipt(json!(9))), Some(("r".into(), What::Sent(9))));
        // A receipt of a lost process has no number, and the log may have been written by another version.
        for (kind, details) in [
            (Kept::EgressReceipt, receipt(json!("9"))),
            (Kept::EgressReceipt, of_host()),
            (Kept::EgressIntent, json!({})),
            (Kept::EgressRefused, json!({ "host": 7 })),
        ] {
            assert_eq!(seen(kind, details), None, "{kind:?}");
        }
    }

    #[test]
    fn calls_are_classified_by_operation_and_outcome() {
        let ended = |event: Event, status, reason: &str| {
            let outcome = Outcome::new(status);
            let outcome = if reason.is_empty() { outcome } else { outcome.reason(reason) };
            let seen = receipt(event, outcome);
            let ended = seen.as_ref().unwrap().ended().unwrap().clone();
            (ended.kind, ended.ending, ended.secret)
        };
        let read = |path: &str| intent("read", json!({ "path": path }), "low");
        let done = Status::Succeeded;
        assert_eq!(ended(read("a"), done, ""), (Kind::Read, Ending::Succeeded, false));
        assert_eq!(ended(read("@state/.ssh/id_rsa"), done, ""), (Kind::Read, Ending::Succeeded, true));
        let exec = |risk| intent("exec", json!({ "command": "cat" }), risk);
        assert_eq!(ended(exec("low"), done, ""), (Kind::Read, Ending::Succeeded, false));
        assert_eq!(ended(exec("medium"), done, ""), (Kind::Read, Ending::Succeeded, true));
        assert_eq!(ended(exec("high"), Status::Failed, ""), (Kind::Command, Ending::Failed, false));
        for (status, reason, ending) in [
            (Status::Denied, "SANDBOX_VIOLATION", Ending::Escape),
            (Status::Failed, "SANDBOX_VIOLATION", Ending::Escape),
            (Status::Denied, "COMMAND_NOT_ALLOWED", Ending::Denied(Denial::Command)),
            (Status::Denied, "APPROVAL_DENIED", Ending::Denied(Denial::Other)),
            (Status::Denied, "APPROVAL_EXPIRED", Ending::Excused),
            (Status::Denied, "RATE_LIMITED", Ending::OverLimit),
            (Status::Denied, "RUN_NOT_READY", Ending::Excused),
            (Status::Denied, "AWAITING_APPROVAL", Ending::Excused),
            (Status::Interrupted, "", Ending::Excused),
            (Status::Failed, "NOT_FOUND", Ending::Failed),
        ] {
            assert_eq!(ended(exec("high"), status, reason).1, ending, "{reason}");
        }
        assert!(receipt(read("a"), Outcome::new(Status::PendingApproval)).is_none(), "there is more to come");
    }

    #[test]
    fn escalation_attempts_and_grants_raise_events() {
        let denied = || Outcome::new(Status::Denied).reason("PERMISSION_DENIED");
        let undecided = Event::new(Kept::CallIntent).operation("read");
        let ended = |seen: Option<Seen>| matches!(seen.unwrap().what, What::Ended(_));
        assert!(ended(receipt(undecided, denied())), "the attempt has a record of its own");
        assert!(ended(receipt(intent("delete", json!({}), "critical"), denied())), "the policy said no");
        let mut beyond = intent("write", json!({}), "high");
        beyond.details = Some(json!({ "not_held": true }));
        let seen = receipt(beyond.clone(), denied()).unwrap();
        assert_eq!(seen.ended().unwrap().ending, Ending::Denied(Denial::NotHeld));
        let later = receipt(beyond, Outcome::new(Status::Denied).reason("RATE_LIMITED")).unwrap();
        assert_eq!(later.ended().unwrap().ending, Ending::OverLimit);
        let attempt = Event::new(Kept::EscalationAttempt).principal("uid:7");
        let seen = Intake::new().take(1, 0, &attempt, &|_| None).unwrap();
        assert_eq!((seen.what, &*seen.agent.principal), (What::Escalated, "uid:7"));

        let details = json!({ "subject": { "agent": "alice" }, "ends": false });
        let granted = |details| granted(&Event::new(Kept::Unknown).details(details));
        let (agent, what) = granted(details).unwrap();
        assert_eq!((&*agent.principal, &*agent.id, what), ("", "alice", What::Granted));
        for (details, holder) in [
            (json!({ "subject": { "role": "worker" } }), Holder::Role("worker".into())),
            (json!({ "subject": { "team": "core" } }), Holder::Team("core".into())),
        ] {
            assert_eq!(granted(details).unwrap().1, What::GivenTo(holder));
        }
        assert_eq!(granted(json!({ "subject": { "agent": "a" }, "ends": true })), None);
    }
}
