//! Runs a command in several runs, as ordinary calls, to see where it succeeds.

use std::sync::Arc;
use std::time::Duration;

use command_context::client::Client;
use presentation::failure::Failure;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use wire::v1::call_response::Status;
use wire::v1::operation::Kind as Operation;
use wire::v1::result::Kind as CallResult;
use wire::v1::run::State;
use wire::v1::{CallRequest, CallResponse, ExecRequest, Run, ShellRequest};

/// Runs in which the command runs at the same time.
const AT_ONCE: usize = 4;

/// Command that is run in each run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) command: String,
    pub(crate) timeout: Option<Duration>,
    /// Wait for approvals.
    pub(crate) wait: bool,
}

/// End of the command in one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    pub(crate) succeeded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    /// Why there is no exit code.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) failure: String,
    pub(crate) took_ms: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) call_id: String,
}

impl Plan {
    /// Runs the command in all runs that live. Returns the ends in the order of the runs.
    pub(crate) async fn run(
        &self,
        client: &Client,
        runs: &[Option<&Run>],
    ) -> Result<Vec<Option<Check>>, Failure> {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut checks = JoinSet::new();
        for (number, run) in runs.iter().enumerate() {
            let Some(run) = run.filter(|run| lives(run)) else { continue };
            let (slots, tools, request) = (slots.clone(), client.tools(), self.request(&run.run_id));
            checks.spawn(async move {
                let _slot = slots.acquire().await;
                let mut tools = tools;
                let answered = tools.call(request).await;
                (number, answered.map_or_else(|status| refused(&status), |call| end(call.get_ref())))
            });
        }
        let mut ends = vec![None; runs.len()];
        while let Some(done) = checks.join_next().await {
            let (number, check) =
                done.map_err(|error| Failure::failed(format!("a check ended without a result: {error}")))?;
            ends[number] = Some(check);
        }
        Ok(ends)
    }

    fn request(&self, run_id: &str) -> CallRequest {
        CallRequest {
            run_id: run_id.to_owned(),
            wait_for_approval: self.wait,
            // An interrupted comparison leaves no commands.
            cancel_on_disconnect: true,
            request: Some(self.operation().into()),
            ..CallRequest::default()
        }
    }

    /// Returns the operation: a command if the text consists of words alone, and a script otherwise.
    fn operation(&self) -> Operation {
        let timeout_ms = self.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " _-./:,+@%=".contains(c);
        let mut words = self.command.split_whitespace().map(str::to_owned);
        match words.next() {
            Some(command) if self.command.chars().all(is_plain) && !command.contains('=') => {
                Operation::Exec(ExecRequest {
                    command,
                    args: words.collect(),
                    timeout_ms,
                    ..ExecRequest::default()
                })
            }
            _ => Operation::Shell(ShellRequest {
                script: self.command.clone(),
                timeout_ms,
                ..ShellRequest::default()
            }),
        }
    }
}

fn lives(run: &Run) -> bool {
    matches!(run.state(), State::Ready | State::Paused)
}

fn end(call: &CallResponse) -> Check {
    let result = match call.kind() {
        Some(CallResult::Exec(result) | CallResult::Shell(result)) => Some(result),
        _ => None,
    };
    let (exit_code, failure) = match result {
        _ if call.status() == Status::PendingApproval => {
            (None, format!("awaits the approval {}", call.approval_id))
        }
        Some(result) if result.timed_out => (None, "timed out".to_owned()),
        Some(result) if result.exit_code.is_some() => (result.exit_code, String::new()),
        Some(result) if result.signal.is_some() => {
            (None, format!("ended by signal {}", result.signal.unwrap_or_default()))
        }
        _ => {
            let error = call.error.as_ref();
            let why = error.map(|error| format!("{} ({})", error.message, error.reason));
            (None, why.unwrap_or_else(|| "has no result".to_owned()))
        }
    };
    Check {
        succeeded: exit_code == Some(0),
        exit_code,
        failure,
        took_ms: call.timings.as_ref().map(|timings| timings.execution_us / 1_000).unwrap_or_default(),
        call_id: call.call_id.clone(),
    }
}

fn refused(status: &tonic::Status) -> Check {
    let failure = status.message().to_owned();
    Check { succeeded: false, exit_code: None, failure, took_ms: 0, call_id: String::new() }
}

#[cfg(test)]
mod tests {
    use wire::v1::{ExecResult, Timings, ToolFailure};

    use super::*;

    #[test]
    fn words_are_a_command_and_everything_else_is_a_script() {
        let operation = |command: &str| {
            let timeout = Some(Duration::from_secs(2));
            Plan { command: command.to_owned(), timeout, wait: false }.operation()
        };
        let expected = ExecRequest {
            command: "make".into(),
            args: ["-C", "src", "test", "V=1"].map(Into::into).into(),
            timeout_ms: Some(2_000),
            ..ExecRequest::default()
        };
        assert_eq!(operation("make -C src test V=1"), Operation::Exec(expected));
        for script in ["make && true", "echo $X", "A=1 make", "ls *.rs", "echo 'a b'", ""] {
            let expected = ShellRequest {
                script: script.to_owned(),
                timeout_ms: Some(2_000),
                ..ShellRequest::default()
            };
            assert_eq!(operation(script), Operation::Shell(expected), "{script}");
        }
    }

    #[test]
    fn every_end_has_an_exit_code_or_a_reason() {
        let ended = |result: ExecResult| {
            let timings = Some(Timings { execution_us: 2_500, ..Timings::default() });
            end(&CallResponse {
                status: Status::Succeeded.into(),
                result: Some(CallResult::Exec(result).into()),
                timings,
                ..CallResponse::default()
            })
        };
        let good = ended(ExecResult { exit_code: Some(0), ..ExecResult::default() });
        assert!(good.succeeded && good.failure.is_empty() && good.took_ms == 2, "{good:?}");
        let bad = ended(ExecResult { exit_code: Some(2), ..ExecResult::default() });
        assert_eq!((bad.succeeded, bad.exit_code), (false, Some(2)));
        let late = ended(ExecResult { timed_out: true, exit_code: Some(0), ..ExecResult::default() });
        assert_eq!((late.succeeded, late.failure.as_str()), (false, "timed out"));
        let killed = ended(ExecResult { signal: Some(9), ..ExecResult::default() });
        assert_eq!(killed.failure, "ended by signal 9");

        let denied = ToolFailure { reason: "DENIED".into(), message: "no".into(), ..ToolFailure::default() };
        let denied = CallResponse { error: Some(denied), ..CallResponse::default() };
        assert_eq!(end(&denied).failure, "no (DENIED)");
        let asked = CallResponse {
            status: Status::PendingApproval.into(),
            approval_id: "a".into(),
            ..CallResponse::default()
        };
        assert_eq!(end(&asked).failure, "awaits the approval a");
        assert_eq!(end(&CallResponse::default()).failure, "has no result");
        assert_eq!(refused(&tonic::Status::not_found("gone")).failure, "gone");
    }

    #[test]
    fn only_runs_that_live_are_checked() {
        let run = |state: State| Run { state: state.into(), ..Run::default() };
        assert!(lives(&run(State::Ready)) && lives(&run(State::Paused)));
        assert!(!lives(&run(State::Stopped)) && !lives(&run(State::Failed)) && !lives(&run(State::Creating)));
    }
}
