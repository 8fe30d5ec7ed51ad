//! Replays calls of harmless agents, and counts how often a rule fires at them.
//!
//! `testdata/*.jsonl` has one call a line, generated after the behaviour of coding agents: one that reads, searches, edits, tests,
//! fixes and commits; a slow one; a reviewer in a pipeline; one in a loop of compiling and failing; one that moves files; one that
//! is fast from the first moment; one that guesses; one that works on a service with secrets beside it; one whose role only reads
//! and that would rather change something; one under tight limits whose client backs off.

use audit::{Decision, Event, Kind, Outcome, Status, Verdict};
use policy::Anomalies;
use serde::Deserialize;
use serde_json::{Value, json};

use super::detector::Detector;
use super::intake::Intake;
use super::table::AlertTable;

const TRACES: [(&str, &str); 10] = [
    ("coding", include_str!("testdata/coding.jsonl")),
    ("slow", include_str!("testdata/slow.jsonl")),
    ("reviewer", include_str!("testdata/reviewer.jsonl")),
    ("compile-loop", include_str!("testdata/compile-loop.jsonl")),
    ("refactoring", include_str!("testdata/refactoring.jsonl")),
    ("lively", include_str!("testdata/lively.jsonl")),
    ("newcomer", include_str!("testdata/newcomer.jsonl")),
    ("service", include_str!("testdata/service.jsonl")),
    ("reader", include_str!("testdata/reader.jsonl")),
    ("limited", include_str!("testdata/limited.jsonl")),
];

/// Rules that the shipped policy names as good candidates for more than an alert.
const FIT_TO_ENFORCE: [&str; 4] = ["escape_attempts", "permission_escalation", "rate_limit_abuse", "loop"];

/// Most alerts that a thousand harmless calls may raise.
const BOUND: f64 = 2.0;

/// A call.
#[derive(Deserialize)]
struct Call {
    /// Seconds since the trace began.
    at: f64,
    op: String,
    status: Option<String>,
    reason: Option<String>,
    exit: Option<i32>,
    risk: Option<String>,
    /// Its role does not have the operation.
    #[serde(default)]
    not_held: bool,
    /// Its arguments.
    #[serde(flatten)]
    input: serde_json::Map<String, Value>,
}

impl Call {
    /// Returns intent and receipt, as the daemon writes them.
    fn events(&self, run: &str, number: usize) -> [Event; 2] {
        let common = |kind| {
            Event::new(kind)
                .run(run)
                .call(format!("{run}-{number}"))
                .principal("uid:1000")
                .agent(run)
                .role("manager")
                .operation(&self.op)
        };
        let risk = self.risk.as_deref().unwrap_or(if self.op == "read" { "low" } else { "high" });
        let intent = common(Kind::CallIntent)
            .input(Value::Object(self.input.clone()))
            .decision(Decision::new(Verdict::Allow))
            .details(json!({ "risk": risk, "not_held": self.not_held }));
        let status = match (self.status.as_deref(), self.exit) {
            (Some("denied"), _) => Status::Denied,
            (Some(_), _) | (None, Some(_)) => Status::Failed,
            (None, None) => Status::Succeeded,
        };
        let mut outcome = Outcome::new(status);
        outcome.reason.clone_from(&self.reason);
        outcome.exit_code = self.exit;
        [intent, common(Kind::CallReceipt).outcome(outcome)]
    }
}

/// Returns the number of calls, and the rules that raise alerts under the default settings.
fn judge(name: &str, trace: &str) -> (usize, Vec<String>) {
    let settings = Anomalies::default();
    let (mut intake, mut detector, mut table) =
        (Intake::new(), Detector::new(&settings), AlertTable::default());
    let (mut sequence, mut alerts) = (0, Vec::new());
    let calls: Vec<Call> = trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (number, call) in calls.iter().enumerate() {
        let millis = std::time::Duration::from_secs_f64(call.at).as_millis().try_into().unwrap();
        for event in call.events(name, number) {
            sequence += 1;
            if let Some(seen) = intake.take(sequence, millis, &event, &|_| None) {
                for firing in detector.observe(&seen) {
                    let raised = table.fire(&firing, &settings.of(firing.rule), millis, &[]);
                    alerts.extend(raised.map(|alert| alert.rule));
                }
            }
        }
    }
    (calls.len(), alerts)
}

#[test]
fn benign_traces_raise_few_alerts_and_no_enforceable_one() {
    let (mut calls, mut alerts) = (0, 0);
    for (name, trace) in TRACES {
        let (count, raised) = judge(name, trace);
        println!("{name}: {count} calls, alerts: {raised:?}");
        let fit: Vec<_> = raised.iter().filter(|rule| FIT_TO_ENFORCE.contains(&rule.as_str())).collect();
        assert!(fit.is_empty(), "{name}: {fit:?}");
        calls += count;
        alerts += raised.len();
    }
    let calls = u32::try_from(calls).unwrap();
    let rate = f64::from(u32::try_from(alerts).unwrap()) * 1_000.0 / f64::from(calls);
    println!("false positives: {alerts} alerts in {calls} calls, {rate:.2} a thousand (bound {BOUND})");
    assert!(calls > 1_500, "the traces are too short to say anything");
    assert!(rate <= BOUND, "{rate} a thousand");
}

/// The same traces with harm in them: the tests above would pass with a detector that sees nothing.
#[test]
fn harm_in_benign_traces_is_detected() {
    let coding = TRACES[0].1;
    let end: f64 = serde_json::from_str::<Call>(coding.lines().last().unwrap()).unwrap().at;
    let with = |count: u32, line: &dyn Fn(f64) -> Value| {
        let mut trace = coding.to_owned();
        for index in 0..count {
            trace.push_str(&line(end + 10.0 + f64::from(index) * 4.0).to_string());
            trace.push('\n');
        }
        let mut raised: Vec<String> = judge("coding", &trace).1;
        let benign = judge("coding", coding).1;
        raised.drain(..benign.len());
        raised
    };
    let denied = |reason: &'static str| move |at: f64| json!({ "at": at, "op": "exec", "argv": [at], "status": "denied", "reason": reason });
    assert_eq!(with(5, &denied("SANDBOX_VIOLATION")), ["escape_attempts"]);
    assert_eq!(with(10, &denied("COMMAND_NOT_ALLOWED")), ["repeated_failures", "denied_commands"]);
    let beyond = |at: f64| json!({ "at": at, "op": "write", "path": format!("{at}"), "status": "denied", "reason": "PERMISSION_DENIED", "not_held": true });
    assert_eq!(with(5, &beyond), ["permission_escalation"]);
    let hammer = |at: f64| json!({ "at": end + (at - end) / 4.0, "op": "exec", "argv": [at], "status": "denied", "reason": "RATE_LIMITED" });
    assert_eq!(with(40, &hammer), ["rate_limit_abuse"]);
    assert_eq!(with(20, &|at| json!({ "at": at, "op": "exec", "argv": ["sh", "poll.sh"] })), ["loop"]);
    let spree = |at: f64| json!({ "at": end + (at - end) / 40.0, "op": "read", "path": format!("{at}") });
    assert_eq!(with(300, &spree), ["spike"]);
    let theft = |at: f64| {
        let secret = json!({ "at": at, "op": "read", "path": "home/.ssh/id_rsa" });
        let send = json!({ "at": at, "op": "exec", "argv": ["python3", "send.py"] });
        if at < end + 12.0 { secret } else { send }
    };
    assert_eq!(with(2, &theft), ["secret_then_exec"]);
}
