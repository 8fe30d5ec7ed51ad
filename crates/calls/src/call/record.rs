//! Writes a call's two records, and measures where its time went.
//!
//! The records never hold file contents. An input has their digest; an outcome has sizes, hashes, counts and a short preview of a
//! command's output.

use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
use audit_service::{AuditLog, Unavailable};
use dialects::ProcessView;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use gateway::Approval;
use identity::{CallId, Principal};
use operations::{ExecResult, Fault, OpResult, Operation, ToolFailure};
use policy::Caller;
use refusal::Refusal;
use serde_json::{Value, json};
use timestamp::micros;
use traces::{CallTrace, Made, Span, Stage, Stages};

use super::parse::Parsed;
use super::{CallEnd, input};

/// The time that each part of a call took.
pub(super) struct Times {
    taken: Instant,
    mark: Instant,
    /// The moments of the stages, of a call whose trace is recorded.
    stages: Option<Stages>,
    pub(super) queue: Duration,
    pub(super) policy: Duration,
    pub(super) audit: Duration,
    pub(super) execution: Duration,
}

impl Times {
    pub(super) fn begin(taken: Instant, trace: Option<&CallTrace>) -> Self {
        let zero = Duration::ZERO;
        let stages = trace.filter(|trace| trace.is_recorded()).map(|_| Stages::default());
        Self { taken, mark: taken, stages, queue: zero, policy: zero, audit: zero, execution: zero }
    }

    fn lap(&mut self, stage: Stage) -> Duration {
        let now = Instant::now();
        let mark = std::mem::replace(&mut self.mark, now);
        if let Some(stages) = &mut self.stages {
            stages.add(stage, mark, now);
        }
        now - mark
    }

    pub(super) fn queued(&mut self) {
        let lap = self.lap(Stage::Queue);
        self.queue += lap;
    }

    pub(super) fn decided(&mut self) {
        let lap = self.lap(Stage::Policy);
        self.policy += lap;
    }

    fn recorded(&mut self) {
        let lap = self.lap(Stage::Audit);
        self.audit += lap;
    }

    pub(super) fn executed(&mut self) {
        let lap = self.lap(Stage::Lane);
        self.execution += lap;
    }

    /// Restarts the clock. The wait for a reviewer is not counted, but it is a stage of the trace.
    pub(crate) fn resume(&mut self) {
        self.lap(Stage::Approval);
    }
}

/// The write of an intent, which begins when it is first awaited, and its result. Clones share both.
type Intent = Shared<BoxFuture<'static, Result<(), Unavailable>>>;

/// Writes a call's intent and receipt, each once.
pub(super) struct Journal {
    /// The fields that both records have.
    common: Event,
    input: Value,
    details: Value,
    limit: Option<Duration>,
    has_effect: bool,
    asked: bool,
    decision: Option<Decision>,
    opened: bool,
    /// The write of an intent that the effect waits for, and that may not have begun yet. `None` if an opened intent is on disk.
    intent: Option<Intent>,
    /// Bytes of the command's output that the spool has.
    kept: [u64; 2],
    /// The trace of the call, if it has one.
    trace: Option<CallTrace>,
    /// The outcome on record, of a call whose trace is recorded.
    outcome: Option<Outcome>,
}

impl Journal {
    pub(super) fn new(run: String, call: CallId, principal: &Principal, parsed: &Parsed) -> Self {
        let operation = parsed.operation.as_ref().ok();
        let mut common =
            Event::new(Kind::CallIntent).run(run).call(call.to_string()).principal(&principal.name);
        common.dialect = parsed.form.name();
        common.operation = operation.map(Operation::name).or(parsed.asked.operation).map(str::to_owned);
        let mut details = json!({});
        for (name, value) in [("task_id", &parsed.task_id), ("correlation_id", &parsed.correlation_id)] {
            if !value.is_empty() {
                details[name] = value.as_str().into();
            }
        }
        if principal.run.is_some() {
            details["via"] = "run_token".into();
            // In the receipt, too, because the receipt of a call that outlived its daemon is far from its intent.
            common.details = Some(json!({ "via": "run_token" }));
        }
        Self {
            common,
            input: operation.map_or_else(|| parsed.asked.input(), input::of),
            details,
            limit: parsed.limit,
            has_effect: operation.is_some_and(Operation::has_effect),
            asked: false,
            decision: None,
            opened: false,
            intent: None,
            kept: [0; 2],
            trace: None,
            outcome: None,
        }
    }

    /// Puts the context of the call's trace into both records, unless the daemon began it and does not record it: no one could look it up.
    pub(super) fn traced(&mut self, trace: Option<CallTrace>) {
        let told = trace.filter(CallTrace::is_known_outside);
        self.common.traceparent = told.map(|trace| trace.context().to_string());
        self.trace = trace;
    }

    /// Returns the spans of the call, after its receipt. There are none if its trace is not recorded.
    pub(super) fn spans(&mut self, times: &mut Times) -> Vec<Span> {
        let (Some(trace), Some(stages)) = (self.trace, times.stages.take()) else { return Vec::new() };
        let outcome = self.outcome.take().unwrap_or_else(|| Outcome::new(Status::Interrupted));
        let made = Made {
            call: self.common.call_id.clone().unwrap_or_default(),
            run: self.common.run_id.clone().unwrap_or_default(),
            operation: Operation::closed_name(self.common.operation.as_deref().unwrap_or_default()),
            outcome: outcome.status.name(),
            reason: outcome.reason.as_deref(),
            exit_code: outcome.exit_code,
            approval: self.common.approval_id.as_deref(),
        };
        trace.spans(&made, times.taken, &stages)
    }

    /// Returns the trace of the call, if it is recorded.
    pub(super) fn recorded_trace(&self) -> Option<String> {
        self.trace.filter(CallTrace::is_recorded).map(|trace| trace.context().trace_id())
    }

    /// Takes over a call of an earlier daemon, whose intent is on record.
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
            policy::Verdict::Allow => Verdict::Allow,
            policy::Verdict::Ask => Verdict::Ask,
            policy::Verdict::Deny => Verdict::Deny,
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

    /// Marks the call as one with an effect, although it has no operation.
    pub(super) fn affects(&mut self) {
        self.has_effect = true;
    }

    /// Adds the time that the call waited for the reviewer of another call to its receipt.
    pub(super) fn waited(&mut self, time: Duration) {
        let details = self.common.details.get_or_insert_with(|| json!({}));
        details["waited_for_approval_us"] = micros(time).into();
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

    /// Writes the intent. Waits until it is durable if an effect may follow.
    pub(super) async fn open(&mut self, log: &AuditLog, times: &mut Times) -> Result<(), Unavailable> {
        let event = self.event();
        let recorded = if self.has_effect || self.asked {
            log.record(event).await.map(drop)
        } else {
            log.enqueue(event).await
        };
        times.recorded();
        recorded
    }

    /// Prepares the intent of a call whose effect waits for it.
    ///
    /// The worker awaits it once it has the work; [`Self::close`] awaits it in any case.
    pub(super) fn begin(&mut self, log: &Arc<AuditLog>) {
        let (log, event) = (log.clone(), self.event());
        self.intent = Some(async move { log.record(event).await.map(drop) }.boxed().shared());
    }

    /// Returns the intent that [`Self::begin`] prepared.
    pub(super) fn begun(&self) -> Option<Intent> {
        self.intent.clone()
    }

    fn event(&mut self) -> Event {
        self.opened = true;
        let mut event = self.common.clone();
        event.input = Some(std::mem::take(&mut self.input)).filter(|input| !input.is_null());
        event.decision.clone_from(&self.decision);
        event.details = Some(self.details.clone()).filter(|details| details != &json!({}));
        event
    }

    /// Writes the receipt. Writes the intent first if the call was refused before it had one.
    pub(super) async fn close(
        &mut self,
        log: &AuditLog,
        close: &CallEnd,
        times: &mut Times,
    ) -> Result<(), Unavailable> {
        if !self.opened {
            let event = self.event();
            log.enqueue(event).await?;
        }
        if let Some(intent) = self.intent.take() {
            // If the intent failed, the receipt fails as well, or follows it.
            let _ = intent.await;
        }
        let mut event = self.common.clone();
        event.kind = Kind::CallReceipt;
        event.outcome = Some(outcome(close, self.kept));
        if times.stages.is_some() {
            self.outcome.clone_from(&event.outcome);
        }
        event.duration_us = Some(micros(times.taken.elapsed()));
        if let CallEnd::Executed(finished) = close {
            event.usage = Some(Usage {
                cpu_us: finished.usage.cpu_time_us,
                peak_memory_bytes: finished.usage.peak_memory_bytes,
                wall_us: Some(micros(times.execution)),
                bytes_in: finished.bytes_in,
                bytes_out: finished.bytes_out,
            });
        }
        let executed = !matches!(close, CallEnd::Refused(_));
        // The receipt of a call that waited for a reviewer is synced, since its approval is kept until then.
        let recorded = if self.has_effect && executed || self.asked {
            log.record(event).await.map(drop)
        } else {
            log.enqueue(event).await
        };
        times.recorded();
        recorded
    }
}

/// Returns the outcome of a call that was refused, or that the daemon failed.
fn refused(status: Status, refusal: &Refusal) -> Outcome {
    let outcome = Outcome::new(status).reason(refusal.reason.as_str()).message(&refusal.message);
    let mut facts = json!({});
    blame(&mut facts, &ToolFailure::from(refusal.clone()));
    if facts == json!({}) { outcome } else { outcome.facts(facts) }
}

/// Adds the party to which a failure is put down, and the facts that show it. Its reason alone says so of most failures.
fn blame(facts: &mut Value, failure: &ToolFailure) {
    let origin = &failure.origin;
    if failure.fault() == Fault::Infrastructure || !origin.evidence.is_empty() {
        facts["fault"] = failure.fault().as_str().into();
    }
    if !origin.evidence.is_empty() {
        let shown = origin.evidence.iter().map(|fact| json!({ "what": fact.what, "value": fact.value }));
        facts["evidence"] = shown.collect();
    }
}

fn outcome(close: &CallEnd, kept: [u64; 2]) -> Outcome {
    let finished = match close {
        CallEnd::Refused(refusal) => return refused(Status::Denied, refusal),
        CallEnd::Broken(refusal) => return refused(Status::Interrupted, refusal),
        CallEnd::Accessed(view) => return accessed(view),
        CallEnd::Executed(finished) => finished,
    };
    match &finished.outcome {
        Err(failure) => {
            let outcome =
                Outcome::new(Status::Failed).reason(failure.reason.as_str()).message(&failure.message);
            let mut facts = json!(failure.details);
            blame(&mut facts, failure);
            if facts == json!({}) { outcome } else { outcome.facts(facts) }
        }
        Ok(result @ OpResult::Session(session)) => {
            let failure = operations::cut_short(result);
            let done = failure.is_none() && session.exit_code.is_none_or(|code| code == 0);
            let status = if done { Status::Succeeded } else { Status::Failed };
            let mut outcome = Outcome::new(status).facts(operations::facts(result));
            outcome.reason = failure.map(|failure| failure.reason.as_str().to_owned());
            outcome.exit_code = session.exit_code;
            outcome
        }
        Ok(result) => match result.command() {
            Some(command) => of_command(command, operations::facts(result), kept),
            None => Outcome::new(Status::Succeeded).facts(operations::facts(result)),
        },
    }
}

/// Returns the process and how far its output was read, but never the output.
fn accessed(view: &ProcessView) -> Outcome {
    Outcome::new(Status::Succeeded).facts(match view {
        ProcessView::One(process, [stdout, stderr]) => {
            json!({ "process_id": process.process_id, "stdout_to": stdout.end, "stderr_to": stderr.end })
        }
        ProcessView::All(processes) => json!({ "processes": processes.len() }),
    })
}

/// Returns the outcome of a command. A command that failed is a tool that ran, so the record has its output.
fn of_command(command: &ExecResult, mut facts: Value, kept: [u64; 2]) -> Outcome {
    let failure = operations::unfinished(command);
    let done = failure.is_none() && command.exit_code == Some(0);
    let status = if done { Status::Succeeded } else { Status::Failed };
    for (name, written, kept) in [
        ("stdout_kept_bytes", command.stdout_bytes, kept[0]),
        ("stderr_kept_bytes", command.stderr_bytes, kept[1]),
    ] {
        // The spool lacks some of the output.
        if kept < written {
            facts[name] = kept.into();
        }
    }
    if let Some(failure) = &failure {
        blame(&mut facts, failure);
    }
    let mut outcome = Outcome::new(status).facts(facts);
    outcome.reason = failure.map(|failure| failure.reason.as_str().to_owned());
    outcome.exit_code = command.exit_code;
    outcome
}
