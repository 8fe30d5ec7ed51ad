//! Reads hostile files: every call has an answer or an explained error by its deadline, and the guest stays small.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::v1::{self, CallRequest};
use harness::{Daemon, RunHandle, reason};

use crate::inside::Inside;

/// What a look may take by default.
pub(crate) const DEADLINE: Duration = Duration::from_secs(25);
/// Beyond its deadline a call may still have to be told to stop, on a busy machine.
const SLACK: Duration = Duration::from_secs(15);

/// Most memory that the agent may ever have taken for one look at a time, KiB. See [`assert_modest`].
const AGENT_PEAK: u64 = 24 * 1024;

/// Looks: the answer, or the failure with its stable reason. A call that hangs fails the test.
pub(crate) async fn look(run: &mut RunHandle, operation: Operation) -> Result<Answer, v1::ToolFailure> {
    look_for(run, DEADLINE, operation).await
}

/// The same with a deadline of its own.
pub(crate) async fn look_for(
    run: &mut RunHandle,
    deadline: Duration,
    operation: Operation,
) -> Result<Answer, v1::ToolFailure> {
    let request = CallRequest {
        request: Some(operation.clone().into()),
        timeout: Some(wire::duration(deadline)),
        ..Default::default()
    };
    let answered = tokio::time::timeout(deadline + SLACK, run.call_with(request)).await;
    let answered = answered.unwrap_or_else(|_| panic!("it hangs: {operation:?}"));
    let failure = match answered {
        Ok(response) if response.status() == Status::Succeeded => {
            return Ok(response.kind().cloned().unwrap());
        }
        Ok(response) => response.error.unwrap(),
        Err(status) => v1::ToolFailure {
            reason: reason(&status),
            message: status.message().to_owned(),
            ..Default::default()
        },
    };
    assert!(!failure.reason.is_empty() && !failure.message.is_empty(), "{operation:?}: {failure:?}");
    assert_ne!(failure.reason, "INTERNAL", "a fault, where there is none of ours: {failure:?}");
    assert!(!failure.message.contains("/var/tmp"), "a host path: {}", failure.message);
    assert!(!failure.message.chars().any(char::is_control), "a name acts on a terminal: {failure:?}");
    Err(failure)
}

/// The kind of answer that the operation has.
macro_rules! looks {
    ($($name:ident: $request:ident -> $kind:ident($result:ident)),+) => {$(
        /// An answer that must come.
        pub(crate) async fn $name(run: &mut RunHandle, request: v1::$request) -> v1::$result {
            match look(run, Operation::$kind(request.clone())).await {
                Ok(Answer::$kind(result)) => result,
                other => panic!("{request:?}: {other:?}"),
            }
        }
    )+};
}
looks! {
    read: ReadRequest -> Read(ReadResult),
    list: ListRequest -> List(ListResult),
    glob: GlobRequest -> Glob(GlobResult),
    grep: GrepRequest -> Grep(GrepResult)
}

/// Requests, in short.
pub(crate) mod ask {
    use harness::v1;

    pub(crate) fn read(path: &str) -> v1::ReadRequest {
        v1::ReadRequest { path: path.to_owned(), ..Default::default() }
    }

    pub(crate) fn list(path: &str) -> v1::ListRequest {
        v1::ListRequest { path: path.to_owned(), ..Default::default() }
    }

    /// With everything that may be left out.
    pub(crate) fn glob(pattern: &str) -> v1::GlobRequest {
        v1::GlobRequest { pattern: pattern.to_owned(), include_ignored: true, ..Default::default() }
    }

    pub(crate) fn grep(path: &str, pattern: &str) -> v1::GrepRequest {
        v1::GrepRequest { path: path.to_owned(), pattern: pattern.to_owned(), ..Default::default() }
    }
}

/// The agent's process id on the host.
pub(crate) fn agent_pid(inside: &Inside) -> u32 {
    harness::pid_of(&inside.run.run.container_id, "/.cofferdam/guest serve").expect("the agent serves")
}

/// The agent has never had more memory than it may, and is the one that served all the time.
///
/// It has 4 MiB to begin with. A look adds at most 8 MiB of names, which the allocator rounds up, and blocks of a file, a
/// line, ignore rules, or a pattern and what it is searched with. The worst that is known are 17 MiB, of a pattern.
pub(crate) fn assert_modest(inside: &Inside) {
    assert_within(inside, AGENT_PEAK);
}

/// The same for as many looks at once as the agent makes, which is eight.
pub(crate) fn assert_within(inside: &Inside, most: u64) {
    let peak = harness::memory(agent_pid(inside), "VmHWM");
    println!("the agent's peak: {peak} KiB");
    assert!(peak <= most, "the agent has had {peak} KiB");
}

/// A run on a workspace that is already there, with whatever is in it the run's own.
pub(crate) async fn enter(daemon: &Daemon, workspace: &Path) -> Inside {
    let owned = Command::new("chown").args(["-R", "-h", "4321:4321"]).arg(workspace).status().unwrap();
    assert!(owned.success());
    Inside::enter_at(daemon, workspace.to_owned(), v1::CreateRunRequest::default()).await
}
