//! Records the end of a process. The record of its start is the record of its call, which has the same id.

use audit::{Event, Kind, Outcome, Status, Usage};
use operations::{EndedBy, Evidence, Fault};
use runs::record::EndCause;
use serde_json::json;
use store::recording::Digest;
use wire::v1::{self, process::State};

use crate::disk::{Known, ProcessFiles};
use crate::input::Unrecorded;

/// Names the host as the cause of a process's end, if the process ended with its run and the host ended that: a drain of the node.
///
/// Clients that wait for the process or read its output see the cause. Returns the fact that shows it.
pub(crate) fn put_down_to_the_host(process: &mut v1::Process, cause: Option<EndCause>) -> Option<Evidence> {
    let shown = cause.and_then(EndCause::evidence).filter(|_| process.ended_by() == EndedBy::RunEnded)?;
    process.failure = format!(
        "the run of the process was ended by its node ({}): start it in a run on another node",
        shown.value
    );
    Some(shown)
}

/// Returns the event of a process's end. `unrecorded` counts the input that the recording lacks, and `of_host` is the fact that shows
/// that the host ended the run.
pub(crate) fn ended_event(
    files: &ProcessFiles,
    known: &Known,
    process: &v1::Process,
    recording: Option<&Digest>,
    unrecorded: Unrecorded,
    of_host: Option<&Evidence>,
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
    if let Some(Evidence { what, value }) = of_host {
        facts["fault"] = Fault::Infrastructure.as_str().into();
        facts["evidence"] = json!([{ "what": what, "value": value }]);
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

    #[test]
    fn a_process_that_a_drain_ends_names_the_drain_to_clients_and_on_record() {
        let drained = Some(EndCause::NodeDrained);
        let mut process = ended(EndedBy::RunEnded);
        let shown = put_down_to_the_host(&mut process, drained).unwrap();
        assert!(process.failure.contains("ended by its node (node_drained)"), "{}", process.failure);
        let files = ProcessFiles::new(Path::new("/unused"), RunId::new(), CallId::new());
        let known = Known::new(&process, "uid:1", "alice", None, 0);
        let event = |of_host| ended_event(&files, &known, &process, None, Unrecorded::default(), of_host);
        let outcome = event(Some(&shown)).outcome.unwrap();
        assert_eq!((outcome.status, outcome.message.as_ref()), (Status::Failed, Some(&process.failure)));
        let facts = outcome.facts.unwrap();
        assert_eq!(
            (&facts["ended_by"], &facts["fault"], &facts["evidence"]),
            (
                &json!("run-ended"),
                &json!("INFRASTRUCTURE"),
                &json!([{ "what": "run.end_cause", "value": "node_drained" }])
            )
        );
        let of_a_client = event(None).outcome.unwrap().facts.unwrap();
        assert_eq!((of_a_client.get("fault"), of_a_client.get("evidence")), (None, None));
    }

    #[test]
    fn an_end_that_a_client_or_a_limit_brought_about_is_not_put_down_to_the_host() {
        for (by, cause) in [
            (EndedBy::RunEnded, None),
            (EndedBy::RunEnded, Some(EndCause::Ttl)),
            (EndedBy::RunEnded, Some(EndCause::Lease)),
            (EndedBy::Killed, Some(EndCause::NodeDrained)),
            (EndedBy::MemoryLimit, Some(EndCause::NodeDrained)),
            (EndedBy::Unspecified, Some(EndCause::NodeDrained)),
        ] {
            let mut process = ended(by);
            assert_eq!(put_down_to_the_host(&mut process, cause), None, "{by:?} {cause:?}");
            assert_eq!(process, ended(by), "{by:?} {cause:?}");
        }
    }
}
