//! Executes a call, from its operation to its outcome.

use operations::{OpResult, Operation, Outcome, Reason, ToolFailure};
use wire::worker::v1::Usage;

use crate::call::Call;
use crate::lane::Lane;
use crate::{exec, files, fingerprint, transfer};

/// Executes the operation and sends its outcome.
pub(crate) async fn execute(mut call: Call, operation: Result<Operation, ToolFailure>, lane: &Lane) {
    if call.preview {
        let preview = match operation {
            Ok(operation) => fingerprint::preview(&mut call, lane, &operation).await,
            Err(failure) => Err(failure),
        };
        lane.calls.forget(call.id);
        return call.outbox.preview(call.id, preview).await;
    }
    let (outcome, usage) = match operation {
        Ok(operation) => outcome_of(&mut call, operation, lane).await,
        Err(failure) => (Err(failure), None),
    };
    // Forget the call before the daemon can know that it is over. So the daemon never has more calls here than it counts.
    lane.calls.forget(call.id);
    call.outbox.outcome(call.id, outcome, usage).await;
}

async fn outcome_of(call: &mut Call, operation: Operation, lane: &Lane) -> (Outcome, Option<Usage>) {
    let outcome = match operation {
        Operation::Exec(exec) => match call.input.clone() {
            Some(input) => exec::session(call, lane, input, exec).await.map(OpResult::Exec),
            None => exec::run(call, lane, exec).await.map(OpResult::Exec),
        },
        _ if call.input.is_some() => {
            Err(ToolFailure::new(Reason::InvalidArgument, "only a command gets a terminal"))
        }
        Operation::Read(read) if read.transfer.is_some() => transfer::run(call, lane, read).await,
        Operation::Shell(shell) => exec::shell(call, lane, shell).await.map(OpResult::Shell),
        other => return files::run(call, lane, other).await,
    };
    (outcome, None)
}
