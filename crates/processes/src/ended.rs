//! Records the end of a process. The record of its start is the record of its call, which has the same id.

use audit::{Event, Kind, Outcome, Status, Usage};
use operations::EndedBy;
use serde_json::json;
use store::recording::Digest;
use wire::v1::{self, process::State};

use crate::disk::{Known, ProcessFiles};
use crate::input::Unrecorded;

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
