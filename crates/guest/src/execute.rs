//! Executes a call, from its operation to its outcome.

use operations::{Operation, Reason, ToolFailure};
use worker_protocol::convert::{outcome_to_wire, report_to_wire};

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
    let outcome = match operation {
        Ok(operation) => outcome_of(&mut call, operation, lane).await,
        Err(failure) => outcome_to_wire(Err(failure)),
    };
    // Forget the call before the daemon can know that it is over. So the daemon never has more calls here than it counts.
    lane.calls.forget(call.id);
    call.outbox.outcome(call.id, outcome).await;
}

async fn outcome_of(call: &mut Call, operation: Operation, lane: &Lane) -> wire::worker::v1::Outcome {
    match operation {
        Operation::Exec(exec) => report_to_wire(match call.input.clone() {
            Some(input) => exec::session(call, lane, input, exec).await,
            None => exec::run(call, lane, exec).await,
        }),
        _ if call.input.is_some() => {
            let failure = ToolFailure::new(Reason::InvalidArgument, "only a command gets a terminal");
            outcome_to_wire(Err(failure))
        }
        Operation::Read(read) if read.transfer.is_some() => {
            outcome_to_wire(transfer::run(call, lane, read).await)
        }
        Operation::Shell(shell) => report_to_wire(exec::shell(call, lane, shell).await),
        other => {
            let (outcome, usage) = files::run(call, lane, other).await;
            wire::worker::v1::Outcome { usage, ..outcome_to_wire(outcome) }
        }
    }
}
