//! Builds the answer to a call, in the form in which the client asked.

use std::sync::Arc;

use dialects::{Dialect, Facts, Made, ProcessView};
use operations::transport::CONTENT;
use operations::{OpResult, Operation, Outcome, ProcessResult, Reason, ToolFailure};
use prost::Message as _;
use wire::v1::{self, CallResponse, call_response};

use super::end::CallEnd;

/// Most bytes of an answer. The rest of its message is for timings and for pieces of output.
const MAX_ANSWER: usize = CONTENT + 64 * 1024;

/// The form of the request, and so of the answer.
#[derive(Clone)]
pub(super) enum ResponseFormat {
    /// A typed message.
    Canonical,
    /// An agent's own dialect.
    Dialect {
        /// `None`: there is no such dialect.
        dialect: Option<&'static dyn Dialect>,
        /// The name in the request, for the record.
        name: String,
        tool: String,
        operation: Option<Arc<Operation>>,
    },
}

impl ResponseFormat {
    pub(super) fn is_dialect(&self) -> bool {
        matches!(self, Self::Dialect { .. })
    }

    /// Returns the form of a call that was made before a restart.
    pub(super) fn resumed(dialect: Option<(String, String)>, operation: &Operation) -> Self {
        match dialect {
            None => Self::Canonical,
            Some((name, tool)) => Self::Dialect {
                dialect: dialects::find(&name),
                name,
                tool,
                operation: Some(Arc::new(operation.clone())),
            },
        }
    }

    /// Returns the names of dialect and tool, if the request was in a dialect.
    pub(super) fn dialect(&self) -> Option<(String, String)> {
        match self {
            Self::Canonical => None,
            Self::Dialect { name, tool, .. } => Some((name.clone(), tool.clone())),
        }
    }

    /// Returns the answer to a call that is over. If it is too large for a message, `close` becomes a failure.
    pub(super) fn respond(
        &self,
        before: CallResponse,
        close: &mut CallEnd,
        mut facts: Facts,
    ) -> CallResponse {
        use call_response::Status;
        let (outcome, status, usage) = match &*close {
            CallEnd::Accessed(view) => {
                let response = self.accessed(before.clone(), view);
                if response.encoded_len() <= MAX_ANSWER {
                    return response;
                }
                (Err(too_large(response.encoded_len())), Status::Failed, None)
            }
            CallEnd::Refused(refusal) => (Err(ToolFailure::from(refusal.clone())), Status::Denied, None),
            CallEnd::Broken(refusal) => (Err(ToolFailure::from(refusal.clone())), Status::Failed, None),
            CallEnd::Executed(finished) => {
                let done = finished.outcome.is_ok() && unfinished(&finished.outcome).is_none();
                let status = if done { Status::Succeeded } else { Status::Failed };
                let usage = v1::Usage {
                    cpu_time_us: finished.usage.cpu_time_us.unwrap_or_default(),
                    peak_memory_bytes: finished.usage.peak_memory_bytes.unwrap_or_default(),
                    bytes_in: finished.bytes_in,
                    bytes_out: finished.bytes_out,
                };
                (finished.outcome.clone(), status, Some(usage))
            }
        };
        if let Some(usage) = &usage {
            facts.cpu_time_ms = usage.cpu_time_us / 1_000;
            facts.peak_memory_bytes = usage.peak_memory_bytes;
        }
        let rendered = self.render(&facts, &outcome);
        let mut response = CallResponse {
            call_id: before.call_id.clone(),
            approval_id: before.approval_id.clone(),
            status: status.into(),
            rendered,
            usage,
            ..Default::default()
        };
        response.error = unfinished(&outcome).map(Into::into);
        match outcome {
            Ok(result) => response.result = Some(self.beside(result).into()),
            Err(failure) => response.error = Some(failure.into()),
        }
        if response.encoded_len() > MAX_ANSWER {
            self.leave_out(&mut response);
        }
        let bytes = response.encoded_len();
        if let CallEnd::Executed(finished) = close
            && bytes > MAX_ANSWER
        {
            finished.outcome = Err(too_large(bytes));
            return self.respond(before, close, facts);
        }
        response
    }

    /// Returns the result that goes beside the rendered text. A dialect's text has the file's content, which is not sent twice.
    fn beside(&self, mut result: OpResult) -> OpResult {
        if let OpResult::Read(read) = &mut result
            && self.is_dialect()
        {
            read.content.clear();
        }
        result
    }

    /// Clears the field that repeats the rest of the answer.
    fn leave_out(&self, response: &mut CallResponse) {
        if self.is_dialect() {
            response.result = None;
        } else if response.result.is_some() {
            response.rendered.clear();
        }
    }

    /// Returns the answer to a call that accessed a process.
    fn accessed(&self, before: CallResponse, view: &ProcessView) -> CallResponse {
        let rendered = match self {
            Self::Dialect { dialect: Some(dialect), .. } => dialect.render_process(view),
            Self::Canonical | Self::Dialect { dialect: None, .. } => String::new(),
        };
        let result = match view {
            ProcessView::One(process, _) => {
                Some(OpResult::Process(ProcessResult { process_id: process.process_id.clone() }).into())
            }
            ProcessView::All(_) => None,
        };
        let status = call_response::Status::Succeeded.into();
        CallResponse { call_id: before.call_id, status, rendered, result, ..Default::default() }
    }

    /// Returns the answer to a call that waits for a reviewer, as the model sees it.
    pub(super) fn pending(&self, facts: &Facts, approval_id: &str) -> String {
        match self {
            Self::Dialect { dialect: Some(dialect), tool, operation, .. } => {
                let made = Made::new(tool, operation.as_deref()).with(facts);
                dialect.render_pending(&made, approval_id)
            }
            Self::Canonical | Self::Dialect { dialect: None, .. } => {
                dialects::render_canonical_pending(approval_id)
            }
        }
    }

    fn render(&self, facts: &Facts, outcome: &Outcome) -> String {
        match self {
            Self::Dialect { dialect: Some(dialect), tool, operation, .. } => {
                dialect.render(&Made::new(tool, operation.as_deref()).with(facts), outcome)
            }
            Self::Canonical | Self::Dialect { dialect: None, .. } => dialects::render_canonical(outcome),
        }
    }

    /// Returns the names of dialect and tool, for the record.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Canonical => None,
            Self::Dialect { name, tool, .. } => Some(format!("{name}:{tool}")),
        }
    }
}

/// Returns the failure of a call whose answer has so many bytes.
fn too_large(bytes: usize) -> ToolFailure {
    let message = format!(
        "the call was executed, but its answer of {bytes} bytes is above the limit of {MAX_ANSWER}: ask for \
         a smaller part"
    );
    ToolFailure::new(Reason::ReadLimit, message)
}

/// Returns the failure of a command that ran and was cut short.
fn unfinished(outcome: &Outcome) -> Option<ToolFailure> {
    outcome.as_ref().ok().and_then(operations::cut_short)
}

#[cfg(test)]
mod tests;
