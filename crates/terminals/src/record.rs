//! Builds a session's two records, and the last message to its operator.
//!
//! They contain no input and no output, which may be a password. They contain the byte counts, and the digest of the
//! recording.

use std::time::Instant;

use audit::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
use executor::failure;
use identity::{RunId, SessionId};
use operations::{CommandReport, Exit, Reason, Stop};
use refusal::Refusal;
use serde_json::json;
use timestamp::{UnixMillis, micros};
use wire::v1::{self, open_terminal_response::Event as Shown, terminal_closed};
use worker_protocol::client::{Finished, LaneError};
use worker_protocol::convert::Reply;

use super::session::{Cause, End, Response};
use super::start::Start;
use store::recording::Digest;

/// Key of the moment since which the run is paused, in the details of both records. Milliseconds since 1970.
const PAUSED_SINCE: &str = "paused_since_ms";

/// Content that both records have in common.
pub(super) struct Chapter {
    pub(super) session: SessionId,
    /// Digest of the recording, once it is finished.
    pub(super) recording: Option<Digest>,
    /// Moment at which a run that was paused for the session could resume.
    pub(super) paused_until: Option<UnixMillis>,
    common: Event,
    began: Instant,
}

/// End of a session, for the record and for the client.
pub(super) struct Closing {
    why: Why,
    command: Option<CommandReport>,
    usage: Usage,
}

enum Why {
    Ended(terminal_closed::Reason, Option<&'static str>),
    /// The session could not go on, or not even begin. The client gets a status.
    Refused(Refusal),
}

impl Chapter {
    pub(super) fn new(run: RunId, session: SessionId, principal: &str, image: &str) -> Self {
        let common = Event::new(Kind::SessionOpened)
            .run(run.to_string())
            .principal(principal)
            .image(image)
            .details(details(session));
        Self { session, recording: None, paused_until: None, common, began: Instant::now() }
    }

    /// Adds to both records the moment since which the run is paused for the session.
    pub(super) fn paused(mut self, since: UnixMillis) -> Self {
        let mut details = details(self.session);
        details[PAUSED_SINCE] = since.0.into();
        self.common = self.common.details(details);
        self
    }

    pub(super) fn opened(&self, start: &Start, decision: &gateway::Decision) -> Event {
        let exec = &start.command.exec;
        let mut input = json!({
            "cwd": exec.cwd.to_string(),
            "term": start.term,
            "rows": start.size.rows(),
            "columns": start.size.columns(),
        });
        if start.command.login_shell {
            input["login_shell"] = (!start.paused).into();
        } else {
            // In the form of `exec`, so that secrets among the arguments are found.
            input["command"] = json!(exec.command);
            input["args"] = json!(exec.args);
        }
        let decision = Decision::new(Verdict::Allow)
            .rule(&decision.rule)
            .reason(&decision.justification)
            .policy_digest(&decision.policy_digest);
        self.common.clone().input(input).decision(decision)
    }

    pub(super) fn closed(&self, closing: &Closing) -> Event {
        let command = closing.command.as_ref();
        let mut facts = json!({});
        if let Some(command) = command {
            facts["signal"] = json!(command.exit.signal());
            facts["kill"] = json!(command.kill);
        }
        if let Some(UnixMillis(until)) = self.paused_until {
            facts["paused_until_ms"] = json!(until);
        }
        if let Some(Digest { sha256, bytes }) = &self.recording {
            facts["recording"] = json!({ "sha256": sha256, "bytes": bytes });
        }
        let exit_code = closing.exit_code();
        let mut outcome = closing.outcome(exit_code).facts(facts);
        outcome.exit_code = exit_code;
        let mut event = self.common.clone().outcome(outcome).usage(closing.usage);
        event.kind = Kind::SessionClosed;
        event.duration_us = Some(micros(self.began.elapsed()));
        event
    }
}

/// Returns the details that link the two records of a session.
pub(super) fn details(session: SessionId) -> serde_json::Value {
    json!({ "session_id": session.to_string() })
}

impl Closing {
    /// Determines how a session ended. `typed` and `shown` are bytes.
    pub(super) fn of(end: End, run_ended: bool, typed: u64, shown: u64) -> Self {
        use terminal_closed::Reason as Ended;
        let finished = end.finished.as_ref().ok();
        let usage = end.metered.over(finished.map(|finished| finished.usage).unwrap_or_default());
        let usage = Usage {
            cpu_us: usage.cpu_time_us,
            peak_memory_bytes: usage.peak_memory_bytes,
            wall_us: None,
            bytes_in: typed,
            bytes_out: shown,
        };
        let command = match finished.map(|finished| &finished.outcome) {
            Some(Ok(Reply::Command(report))) => Some((**report).clone()),
            _ => None,
        };
        let why = match (end.cause, end.finished) {
            (Some(Cause::Disconnected), _) => Why::Ended(Ended::Disconnected, None),
            (Some(Cause::RunEnded), _) => Why::Ended(Ended::RunEnded, None),
            (Some(Cause::TimedOut(which)), _) => Why::Ended(Ended::TimedOut, Some(which)),
            (Some(Cause::RecordingFull), _) => Why::Ended(Ended::RecordingFull, None),
            (Some(Cause::Refused(refusal)), _) => Why::Refused(refusal),
            (None, Ok(Finished { outcome: Ok(_), .. })) => {
                let timed_out = command.as_ref().is_some_and(|command| command.stop == Stop::Deadline);
                Why::Ended(if timed_out { Ended::TimedOut } else { Ended::Exited }, None)
            }
            // The end of a run ends its worker, too.
            (None, _) if run_ended => Why::Ended(Ended::RunEnded, None),
            (None, Ok(Finished { outcome: Err(failure), .. })) => Why::Refused(failure.into()),
            (None, Err(LaneError::Lost(_))) => Why::Ended(Ended::Lost, None),
            (None, Err(error)) => Why::Refused(failure(&error).into()),
        };
        Self { why, command, usage }
    }

    /// Returns the end of a session that never began.
    pub(super) fn refused(refusal: Refusal) -> Self {
        Self { why: Why::Refused(refusal), command: None, usage: Usage::default() }
    }

    /// Returns the exit code of its program, if no signal ended it.
    fn exit_code(&self) -> Option<i32> {
        match self.command.as_ref()?.exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) | Exit::Unknown => None,
        }
    }

    /// The last message of the stream.
    pub(super) fn message(self) -> Response {
        match self.why {
            Why::Refused(refusal) => Err(refusal.into()),
            Why::Ended(reason, _) => {
                let closed = v1::TerminalClosed {
                    reason: reason.into(),
                    exit_code: self.exit_code(),
                    signal: self.command.as_ref().and_then(|command| command.exit.signal()),
                };
                Ok(v1::OpenTerminalResponse { event: Some(Shown::Closed(closed)) })
            }
        }
    }

    fn outcome(&self, exit_code: Option<i32>) -> Outcome {
        use terminal_closed::Reason as Ended;
        match &self.why {
            Why::Refused(refusal) => {
                Outcome::new(Status::Failed).reason(refusal.reason.as_str()).message(&refusal.message)
            }
            Why::Ended(reason, message) => {
                let fine = match reason {
                    Ended::Exited => exit_code == Some(0),
                    // An operator may leave at any time.
                    Ended::Disconnected => true,
                    _ => false,
                };
                let status = if fine { Status::Succeeded } else { Status::Failed };
                let outcome = Outcome::new(status).reason(reason.as_str_name());
                message.map_or(outcome.clone(), |message| outcome.message(message))
            }
        }
    }
}

/// Returns the record of the end of a session whose daemon died.
pub(super) fn interrupted(opened: &Event, recording: Option<Digest>) -> Event {
    let recording = recording.map(|Digest { sha256, bytes }| json!({ "sha256": sha256, "bytes": bytes }));
    let was_paused = opened.details.as_ref().is_some_and(|details| details.get(PAUSED_SINCE).is_some());
    let message = if was_paused {
        "the daemon ended during the session; the recording ends there, and the session's pause of the run \
         ended at the daemon's next start"
    } else {
        "the daemon ended during the session; the recording ends there"
    };
    let outcome = Outcome::new(Status::Interrupted)
        .reason(Reason::Internal.as_str())
        .message(message)
        .facts(json!({ "recording": recording }));
    let mut event = Event::new(Kind::SessionClosed).outcome(outcome);
    event.run_id.clone_from(&opened.run_id);
    event.principal.clone_from(&opened.principal);
    event.image.clone_from(&opened.image);
    event.details.clone_from(&opened.details);
    event
}

#[cfg(test)]
mod tests {
    use audit::Status;
    use executor::Metered;
    use identity::{RunId, SessionId};
    use operations::{Bound, CommandReport, Exit, KillEvidence, KillMethod, Reason, Stop, ToolFailure};
    use refusal::Refusal;
    use wire::v1::{open_terminal_response::Event as Shown, terminal_closed::Reason as Ended};
    use worker_protocol::client::{CloseReason, Finished, LaneError, Usage};
    use worker_protocol::convert::Reply;

    use super::{Chapter, Closing};
    use crate::session::{Cause, End};

    fn finished(outcome: Result<CommandReport, ToolFailure>) -> Finished<Reply> {
        let usage = Usage { cpu_time_us: Some(5), peak_memory_bytes: Some(6) };
        Finished {
            outcome: outcome.map(|report| Reply::Command(Box::new(report))),
            bound: Bound::default(),
            usage,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    fn exited(exit_code: Option<i32>, signal: Option<i32>) -> Finished<Reply> {
        let kill = KillEvidence {
            ended: 1,
            left: 0,
            method: KillMethod::CgroupV2Kill.into(),
            took_us: 7,
            running: 0,
        };
        let exit = Exit::of(exit_code, signal).unwrap();
        finished(Ok(CommandReport { exit, kill, ..Default::default() }))
    }

    /// Reason and status in the record, and what the client is told: a reason or a stable reason.
    fn comes_to(
        cause: Option<Cause>,
        finished: Result<Finished<Reply>, LaneError>,
        run_ended: bool,
    ) -> (String, Status, String) {
        let chapter = Chapter::new(RunId::new(), SessionId::new(), "uid:0", "sha256:1");
        let closing = Closing::of(End { cause, finished, metered: Metered::default() }, run_ended, 3, 4);
        let event = chapter.closed(&closing);
        assert_eq!(event.usage.map(|usage| (usage.bytes_in, usage.bytes_out)), Some((3, 4)));
        let outcome = event.outcome.unwrap();
        let told = match closing.message() {
            Ok(response) => match response.event {
                Some(Shown::Closed(closed)) => closed.reason().as_str_name().to_owned(),
                other => panic!("{other:?}"),
            },
            Err(status) => format!("status {:?}", status.code()),
        };
        (outcome.reason.unwrap(), outcome.status, told)
    }

    #[test]
    fn every_end_has_its_reason_in_the_record_and_for_the_client() {
        let lost = || Err(LaneError::Lost(CloseReason::Eof));
        let missing = || Ok(finished(Err(ToolFailure::new(Reason::NotFound, "no such program"))));
        let refused = || Some(Cause::Refused(Refusal::invalid("input", "is too long")));
        let said = |reason: Ended, status| {
            (reason.as_str_name().to_owned(), status, reason.as_str_name().to_owned())
        };
        let refusal =
            |reason: &str, code: &str| (reason.to_owned(), Status::Failed, format!("status {code}"));
        let timed_out = Ok(finished(Ok(CommandReport { stop: Stop::Deadline, ..Default::default() })));
        for (cause, finished, run_ended, expected) in [
            (None, Ok(exited(Some(0), None)), false, said(Ended::Exited, Status::Succeeded)),
            (None, Ok(exited(Some(7), None)), false, said(Ended::Exited, Status::Failed)),
            (None, Ok(exited(None, Some(9))), false, said(Ended::Exited, Status::Failed)),
            (None, timed_out, false, said(Ended::TimedOut, Status::Failed)),
            (None, missing(), false, refusal("NOT_FOUND", "NotFound")),
            (None, lost(), false, said(Ended::Lost, Status::Failed)),
            // The run's end takes its worker along.
            (None, lost(), true, said(Ended::RunEnded, Status::Failed)),
            (None, Err(LaneError::Busy), false, refusal("OVERLOADED", "ResourceExhausted")),
            (
                Some(Cause::Disconnected),
                Ok(exited(None, Some(1))),
                false,
                said(Ended::Disconnected, Status::Succeeded),
            ),
            (Some(Cause::RunEnded), lost(), true, said(Ended::RunEnded, Status::Failed)),
            (
                Some(Cause::TimedOut("x")),
                Ok(exited(None, Some(1))),
                false,
                said(Ended::TimedOut, Status::Failed),
            ),
            (
                Some(Cause::RecordingFull),
                Ok(exited(None, Some(1))),
                false,
                said(Ended::RecordingFull, Status::Failed),
            ),
            (refused(), Ok(exited(None, Some(1))), false, refusal("INVALID_ARGUMENT", "InvalidArgument")),
        ] {
            let shown = format!("{cause:?} {finished:?}");
            assert_eq!(comes_to(cause, finished, run_ended), expected, "{shown}");
        }
    }
}
