//! Puts the end of a process down to a party and records it. The record of its start is the record of its call, which has the same id.

use std::time::Duration;

use audit::{Event, Kind, Outcome, Status, Usage};
use operations::{EndedBy, Evidence, Fault, fault_of};
use runs::record::{EndCause, Failed, Record, State as RunState};
use runs::{OnStop, Run};
use serde_json::json;
use store::recording::Digest;
use wire::v1::{self, process::State};

use crate::disk::{Known, ProcessFiles};
use crate::input::Unrecorded;
use crate::shared::Shared;

/// Time in which the worker of a run is missed after the loss of a process, if their container has ended.
const MISSED: Duration = Duration::from_secs(1);

/// The end of a run, as far as its processes end with it.
#[derive(Debug, Default)]
pub(crate) struct RunEnd {
    failed: Option<Failed>,
    failure: Option<String>,
    cause: Option<EndCause>,
    /// The daemon was stopping, and ended its runs, when the process ended.
    is_of_stop: bool,
    /// A client or its time ended it under an earlier daemon.
    has_stopped: bool,
}

impl RunEnd {
    /// Returns the end of a run of an earlier daemon.
    pub(crate) fn of(record: Record) -> Self {
        let Record { failed, failure, end_cause: cause, state, .. } = record;
        Self { failed, failure, cause, is_of_stop: false, has_stopped: state == RunState::Stopped }
    }

    /// Returns the end of a run of this daemon. `is_of_stop` says what [`ends_runs`] said when the process ended.
    pub(crate) fn now(run: &Run, is_of_stop: bool) -> Self {
        Self { is_of_stop, ..Self::of(run.record()) }
    }

    /// Waits until the run of a process that is gone has ended as well, or is seen to go on, and returns its end as far as it is known.
    ///
    /// The end of a container is first seen by the ends of its processes. Programs can bring these about, but not that end.
    pub(crate) async fn decided(run: &Run, shared: &Shared) -> Self {
        shared.stop.run_until_cancelled(run.ends_within(MISSED)).await;
        // A drain is seen before it ends a keeper, and explains none that was lost before.
        Self { cause: None, ..Self::of(run.record()) }
    }

    /// Returns true if the infrastructure has lost the run.
    pub(crate) fn is_lost(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.fault == Fault::Infrastructure)
    }

    /// Returns what happened, the party and the facts that show it. `None` if a client ended the run, or its time was over.
    fn blame(&self, by: EndedBy) -> Option<(String, Fault, Vec<Evidence>)> {
        let failed = || {
            let failed = self.failed.as_ref()?;
            let why = self.failure.as_deref().unwrap_or("its container is gone");
            Some((format!("the run of the process failed: {why}"), failed.fault, failed.evidence.clone()))
        };
        if self.is_lost() {
            return failed();
        }
        if let Some(shown) = self.cause.and_then(EndCause::evidence) {
            let why = format!(
                "the run of the process was ended by its node ({}): start it in a run on another node",
                shown.value
            );
            return Some((why, Fault::Infrastructure, vec![shown]));
        }
        // The stop does not explain a lost keeper, which a program can end at any time, or a run that ended before.
        if self.is_of_stop && self.failed.is_none() && self.cause.is_none() && by == EndedBy::RunEnded {
            let why = "the daemon was stopped, and the run of the process was ended with it".to_owned();
            return Some((why, Fault::Infrastructure, vec![Evidence::new("daemon.event", "stop")]));
        }
        failed()
    }
}

/// Returns true if the daemon stops and ends its runs.
pub(crate) fn ends_runs(shared: &Shared) -> bool {
    shared.stop.is_cancelled() && shared.on_stop.now() == OnStop::End
}

/// Puts the early end of a process down to a party, for its clients and for the record.
///
/// A process that was ended or lost with its run has the party and the facts of the run's end. Any other end has the party that the same
/// end of a command has.
pub(crate) fn put_down(process: &mut v1::Process, run: &RunEnd) {
    let by = process.ended_by();
    let is_with_its_run = matches!(by, EndedBy::RunEnded | EndedBy::Interrupted);
    let of_run = if is_with_its_run { run.blame(by) } else { None };
    let (fault, evidence) = match of_run {
        Some((why, fault, evidence)) => {
            process.failure = why;
            (Some(fault), evidence)
        }
        None if run.has_stopped && is_with_its_run => (fault_of(EndedBy::RunEnded), Vec::new()),
        None => (fault_of(by), Vec::new()),
    };
    process.set_fault(fault.map_or(v1::Fault::Unspecified, Fault::to_wire));
    process.evidence = evidence.iter().map(Evidence::to_wire).collect();
}

/// Puts the end of a process whose record an earlier daemon left unreadable down to that daemon, unless the end of its run explains it.
pub(crate) fn put_down_unreadable(process: &mut v1::Process, run: &RunEnd) {
    put_down(process, run);
    if run.blame(process.ended_by()).is_none() {
        process.set_fault(v1::Fault::Infrastructure);
        process.evidence = vec![Evidence::new("daemon.event", "restart").to_wire()];
    }
}

/// Returns the event of a process's end. `unrecorded` counts the input that the recording lacks.
pub(crate) fn ended_event(
    files: &ProcessFiles,
    known: &Known,
    process: &v1::Process,
    recording: Option<&Digest>,
    unrecorded: Unrecorded,
) -> Event {
    let itself = process.ended_by() == EndedBy::Unspecified;
    let status = match process.state() {
        State::Interrupted => Status::Interrupted,
        // A process that was stopped has not done its work, also if it caught SIGTERM and exited with 0.
        _ if itself && process.failure.is_empty() && process.exit_code == Some(0) => Status::Succeeded,
        // The exit codes of processes that a command left running are unknown.
        _ if itself && process.left_behind > 0 => Status::Succeeded,
        _ => Status::Failed,
    };
    let mut facts = json!({
        "signal": process.signal,
        "ended_by": process.ended_by().word(),
        "kill": process.kill,
        "stdout_bytes": process.stdout_bytes,
        "stderr_bytes": process.stderr_bytes,
    });
    if process.left_behind > 0 {
        facts["left_behind"] = process.left_behind.into();
    }
    if let Some(fault) = Fault::of_wire(process.fault) {
        facts["fault"] = fault.as_str().into();
    }
    if !process.evidence.is_empty() {
        let shown = process.evidence.iter().map(|fact| json!({ "what": fact.what, "value": fact.value }));
        facts["evidence"] = shown.collect();
    }
    if let Some(Digest { sha256, bytes }) = recording {
        facts["recording"] = json!({ "sha256": sha256, "bytes": bytes });
    }
    for (key, count) in
        [("signals_not_recorded", unrecorded.signals), ("input_bytes_refused", unrecorded.refused_bytes)]
    {
        if count > 0 {
            facts[key] = count.into();
        }
    }
    let mut outcome = Outcome::new(status).facts(facts);
    if !process.failure.is_empty() {
        outcome = outcome.message(&process.failure);
    }
    outcome.exit_code = process.exit_code;
    let usage = Usage {
        cpu_us: Some(process.cpu_time_us),
        peak_memory_bytes: Some(process.peak_memory_bytes),
        wall_us: None,
        bytes_in: process.stdin_bytes,
        bytes_out: process.stdout_bytes + process.stderr_bytes,
    };
    let tag = process.request.as_ref().map(|request| request.tag.clone()).unwrap_or_default();
    Event::new(Kind::ProcessEnded)
        .run(files.run.to_string())
        .call(files.id.to_string())
        .principal(&known.principal)
        .agent(&known.agent)
        .details(json!({ "process_id": files.id.to_string(), "tag": tag }))
        .outcome(outcome)
        .usage(usage)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use identity::{CallId, RunId};

    use super::*;

    fn ended(by: EndedBy) -> v1::Process {
        v1::Process { state: State::Ended.into(), ended_by: by.into(), ..Default::default() }
    }

    /// Returns a process that ended in this way while its run ended in that way.
    fn put_down_by(by: EndedBy, run: &RunEnd) -> v1::Process {
        let mut process = ended(by);
        put_down(&mut process, run);
        process
    }

    fn by_cause(cause: EndCause) -> RunEnd {
        RunEnd { cause: Some(cause), ..RunEnd::default() }
    }

    fn failed(fault: Fault) -> RunEnd {
        let evidence = vec![Evidence::new("engine.exit_code", 137)];
        let failed = Failed { reason: "RUN_LOST".to_owned(), fault, evidence };
        RunEnd { failed: Some(failed), failure: Some("it was killed".to_owned()), ..RunEnd::default() }
    }

    fn on_record(process: &v1::Process) -> (Outcome, serde_json::Value) {
        let files = ProcessFiles::new(Path::new("/unused"), RunId::new(), CallId::new());
        let known = Known::new(process, "uid:1", "alice", None, 0);
        let event = ended_event(&files, &known, process, None, Unrecorded::default());
        let outcome = event.outcome.unwrap();
        let facts = outcome.facts.clone().unwrap();
        (outcome, facts)
    }

    #[test]
    fn a_process_that_a_drain_ends_names_the_drain_to_clients_and_on_record() {
        let process = put_down_by(EndedBy::RunEnded, &by_cause(EndCause::NodeDrained));
        assert!(process.failure.contains("ended by its node (node_drained)"), "{}", process.failure);
        assert_eq!(process.fault(), v1::Fault::Infrastructure);
        assert_eq!(process.evidence, [Evidence::new("run.end_cause", "node_drained").to_wire()]);
        let (outcome, facts) = on_record(&process);
        assert_eq!((outcome.status, outcome.message.as_ref()), (Status::Failed, Some(&process.failure)));
        assert_eq!(
            (&facts["ended_by"], &facts["fault"], &facts["evidence"]),
            (
                &json!("run-ended"),
                &json!("INFRASTRUCTURE"),
                &json!([{ "what": "run.end_cause", "value": "node_drained" }])
            )
        );
    }

    #[test]
    fn a_process_that_ends_with_its_run_has_the_party_and_the_facts_of_its_end() {
        for by in [EndedBy::RunEnded, EndedBy::Interrupted] {
            for (fault, to_clients) in
                [(Fault::Infrastructure, v1::Fault::Infrastructure), (Fault::Program, v1::Fault::Program)]
            {
                let process = put_down_by(by, &failed(fault));
                assert_eq!((process.fault(), process.ended_by()), (to_clients, by));
                assert_eq!(process.evidence, [Evidence::new("engine.exit_code", 137).to_wire()]);
                assert!(process.failure.ends_with("it was killed"), "{}", process.failure);
                let (_, facts) = on_record(&process);
                assert_eq!(facts["fault"], fault.as_str());
                assert_eq!(facts["evidence"], json!([{ "what": "engine.exit_code", "value": "137" }]));
            }
        }
        // A drain that the end of its daemon cut off has left a run that was being ended.
        let cut_off = RunEnd { cause: Some(EndCause::NodeDrained), ..failed(Fault::Caller) };
        let process = put_down_by(EndedBy::Interrupted, &cut_off);
        assert_eq!(process.fault(), v1::Fault::Infrastructure);
        assert_eq!(process.evidence, [Evidence::new("run.end_cause", "node_drained").to_wire()]);
    }

    #[test]
    fn the_text_and_the_facts_of_a_process_without_a_record_name_one_cause() {
        let unreadable = "its record cannot be read";
        let [drain, loss, daemon] =
            [("run.end_cause", "node_drained"), ("engine.exit_code", "137"), ("daemon.event", "restart")];
        for (run, fault, fact, words) in [
            (by_cause(EndCause::NodeDrained), v1::Fault::Infrastructure, drain, "node_drained"),
            (failed(Fault::Infrastructure), v1::Fault::Infrastructure, loss, "it was killed"),
            (failed(Fault::Program), v1::Fault::Program, loss, "it was killed"),
            (RunEnd::default(), v1::Fault::Infrastructure, daemon, unreadable),
            (by_cause(EndCause::Ttl), v1::Fault::Infrastructure, daemon, unreadable),
            (
                RunEnd { has_stopped: true, ..RunEnd::default() },
                v1::Fault::Infrastructure,
                daemon,
                unreadable,
            ),
        ] {
            let mut process = v1::Process { failure: unreadable.to_owned(), ..ended(EndedBy::Interrupted) };
            put_down_unreadable(&mut process, &run);
            assert_eq!(process.fault(), fault, "{run:?}");
            assert_eq!(process.evidence, [Evidence::new(fact.0, fact.1).to_wire()], "{run:?}");
            assert!(process.failure.contains(words), "{run:?}: {}", process.failure);
            let is_of_record = process.failure.contains(unreadable);
            assert_eq!(is_of_record, fact == daemon, "{run:?}: {}", process.failure);
        }
    }

    #[test]
    fn a_daemon_that_ends_its_runs_answers_for_their_processes_and_not_for_lost_keepers() {
        let stopped = || RunEnd { is_of_stop: true, ..RunEnd::default() };
        let process = put_down_by(EndedBy::RunEnded, &stopped());
        assert_eq!(process.fault(), v1::Fault::Infrastructure);
        assert_eq!(process.evidence, [Evidence::new("daemon.event", "stop").to_wire()]);
        assert!(process.failure.contains("the daemon was stopped"), "{}", process.failure);
        let process = put_down_by(EndedBy::Interrupted, &stopped());
        assert_eq!((process.fault(), process.evidence.len()), (v1::Fault::Program, 0));
        // A run that ended before the stop.
        let by_program = RunEnd { is_of_stop: true, ..failed(Fault::Program) };
        let by_time = RunEnd { is_of_stop: true, ..by_cause(EndCause::Ttl) };
        for (run, fault) in [(by_program, v1::Fault::Program), (by_time, v1::Fault::Caller)] {
            assert_eq!(put_down_by(EndedBy::RunEnded, &run).fault(), fault, "{run:?}");
        }
    }

    #[test]
    fn an_end_that_a_client_or_a_limit_brought_about_is_not_put_down_to_the_host() {
        let lost = || failed(Fault::Infrastructure);
        for (by, run, fault) in [
            (EndedBy::RunEnded, RunEnd::default(), v1::Fault::Caller),
            (EndedBy::RunEnded, by_cause(EndCause::Ttl), v1::Fault::Caller),
            (EndedBy::RunEnded, by_cause(EndCause::Lease), v1::Fault::Caller),
            (EndedBy::Interrupted, RunEnd::default(), v1::Fault::Program),
            (EndedBy::Interrupted, RunEnd { has_stopped: true, ..RunEnd::default() }, v1::Fault::Caller),
            (EndedBy::Killed, by_cause(EndCause::NodeDrained), v1::Fault::Caller),
            (EndedBy::Killed, lost(), v1::Fault::Caller),
            (EndedBy::Timeout, lost(), v1::Fault::Program),
            (EndedBy::MemoryLimit, lost(), v1::Fault::Program),
            (EndedBy::DiskQuota, lost(), v1::Fault::Policy),
            (EndedBy::Unspecified, by_cause(EndCause::NodeDrained), v1::Fault::Unspecified),
            (EndedBy::Unspecified, lost(), v1::Fault::Unspecified),
        ] {
            let process = put_down_by(by, &run);
            assert_eq!(process, v1::Process { fault: fault.into(), ..ended(by) }, "{run:?}");
            let (_, facts) = on_record(&process);
            let named = Fault::of_wire(process.fault).map(Fault::as_str);
            assert_eq!(facts.get("fault").and_then(serde_json::Value::as_str), named, "{run:?}");
            assert_eq!(facts.get("evidence"), None, "{run:?}");
        }
    }
}
