//! Decodes a request into an operation, and encodes an outcome in the form in which the client asked.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use dialects::{Dialect, Facts, Limits, Made, ParseFailure, ProcessView};
use gateway::policy::ContainerPaths;
use gateway::{Policy, Profile};
use identity::check_client_name;
use operations::transport::{CONTENT, MAX_SHOWN};
use operations::{CommandLimits, OpResult, Operation, Outcome, ProcessResult, Reason, ToolFailure};
use prost::Message as _;
use refusal::Refusal;
use sha2::{Digest as _, Sha256};
use timestamp::duration_from_wire;
use wire::v1::call_request::Request;
use wire::v1::{self, CallRequest, CallResponse, call_response};

use super::Close;
use super::asked::Asked;

const MAX_NAME: usize = 128;
/// Most bytes of an answer. The rest of its message is for timings and for pieces of output.
const MAX_ANSWER: usize = CONTENT + 64 * 1024;

/// A request, decoded as far as possible.
pub(super) struct Decoded {
    pub(super) operation: Result<Operation, Refusal>,
    /// The sketch of the request, for the record of a call that is refused as malformed.
    pub(super) asked: Asked,
    pub(super) form: ResponseFormat,
    pub(super) agent_id: String,
    pub(super) task_id: String,
    pub(super) correlation_id: String,
    pub(super) limit: Option<Duration>,
}

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

/// Returns the SHA-256 over the fields in which two requests of one id must agree. Empty without an id.
///
/// It leaves out the id, the client's way to wait, and the name of an upload, whose content has a hash. It clears the id and the
/// way to wait in the request.
pub(super) fn digest(request: &mut CallRequest) -> Vec<u8> {
    if take(&mut request.request_id).is_empty() {
        return Vec::new();
    }
    (request.wait_for_approval, request.cancel_on_disconnect) = (false, false);
    request.refuse_awaiting_approval = false;
    let upload_id = uploaded(request).map(|uploaded| take(&mut uploaded.upload_id));
    let digest = Sha256::digest(request.encode_to_vec()).to_vec();
    if let (Some(uploaded), Some(upload_id)) = (uploaded(request), upload_id) {
        uploaded.upload_id = upload_id;
    }
    digest
}

fn uploaded(request: &mut CallRequest) -> Option<&mut v1::UploadedContent> {
    match request.request.as_mut()? {
        Request::Operation(v1::Operation { kind: Some(v1::operation::Kind::Write(write)) }) => {
            write.uploaded.as_mut()
        }
        Request::Operation(_) | Request::Dialect(_) => None,
    }
}

/// Returns the limits for calls of a profile that set none themselves. The daemon's own limit bounds the time of each tool.
pub fn limits(profile: &Profile) -> Limits {
    Limits {
        max_read_bytes: profile.bounds.max_read_bytes.min(MAX_SHOWN),
        max_write_bytes: profile.bounds.max_write_bytes,
        max_edit_bytes: profile.bounds.max_edit_bytes(),
        max_output_bytes: profile.bounds.max_output_bytes,
        default_timeout_s: profile.exec.default_timeout_s,
        max_timeout_s: profile.exec.max_timeout_s,
        command: CommandLimits::of(
            profile.bounds.max_argv_bytes,
            profile.bounds.max_stdin_bytes,
            profile.container_paths == ContainerPaths::Allow,
        ),
    }
}

/// Decodes a request under the limits of the run's profile.
///
/// A command without a timeout gets the profile's. `policy` knows the plain names of upstream servers' tools.
pub(super) fn decode(request: CallRequest, limits: &Limits, policy: &Policy) -> Decoded {
    let CallRequest { agent_id, task_id, correlation_id, timeout, request, .. } = request;
    let limit = limit(timeout.as_ref(), limits);
    let asked = Asked::of(request.as_ref());
    let (parsed, form) = match request {
        Some(Request::Dialect(call)) => {
            dialect(call, (limits, policy), limit.as_ref().ok().copied().flatten())
        }
        Some(Request::Operation(operation)) => (canonical(operation, limits), ResponseFormat::Canonical),
        None => (canonical(v1::Operation::default(), limits), ResponseFormat::Canonical),
    };
    let named = check_client_name("task_id", &task_id)
        .and_then(|()| check_client_name("correlation_id", &correlation_id));
    let operation = match (named, &limit) {
        (Err(refusal), _) => Err(refusal),
        (Ok(()), Err(refusal)) => Err(refusal.clone()),
        (Ok(()), Ok(_)) => parsed,
    };
    Decoded { operation, asked, form, agent_id, task_id, correlation_id, limit: limit.ok().flatten() }
}

fn limit(timeout: Option<&wire::Duration>, limits: &Limits) -> Result<Option<Duration>, Refusal> {
    let Some(timeout) = timeout else { return Ok(None) };
    let longest = limits.longest_timeout();
    let within = duration_from_wire(timeout).filter(|timeout| *timeout <= longest);
    let message = || format!("must be more than zero and at most {} s", longest.as_secs());
    within.map(Some).ok_or_else(|| Refusal::invalid("timeout", message()))
}

fn canonical(operation: v1::Operation, limits: &Limits) -> Result<Operation, Refusal> {
    Ok(Operation::parse_within(operation, limits.canonical())?)
}

fn dialect(
    call: v1::DialectCall,
    (limits, policy): (&Limits, &Policy),
    limit: Option<Duration>,
) -> (Result<Operation, Refusal>, ResponseFormat) {
    let v1::DialectCall { dialect: name, name: tool, arguments_json } = call;
    let dialect = dialects::find(&name);
    let parsed = match dialect {
        None => Err(Refusal::new(
            Reason::NotFound,
            format!(
                "dialect.dialect: there is no such dialect; the dialects are {}",
                dialects::names().join(", ")
            ),
        )
        .with("resource", "dialect")),
        Some(dialect) => parse(dialect, &tool, &arguments_json, (limits, policy)).map_err(|failure| {
            let facts = failure.field.map(|field| ("field", field)).into_iter().chain(failure.details);
            facts.fold(Refusal::new(failure.reason, failure.message), |refusal, (name, value)| {
                refusal.with(name, value)
            })
        }),
    };
    let parsed = parsed.map(|operation| within(operation, limit));
    let operation = parsed.as_ref().ok().cloned().map(Arc::new);
    (parsed, ResponseFormat::Dialect { dialect, name: shorten(name), tool: shorten(tool), operation })
}

/// Parses a tool's call. The dialect's own tools come first: an alias never replaces one.
fn parse(
    dialect: &dyn Dialect,
    tool: &str,
    arguments_json: &str,
    (limits, policy): (&Limits, &Policy),
) -> Result<Operation, ParseFailure> {
    let alias = |name: &str| policy.alias(name).filter(|_| dialect.tool(name).is_err());
    match dialects::parse_upstream(tool, arguments_json, alias) {
        Some(parsed) => parsed,
        None => dialect.parse(tool, arguments_json, limits),
    }
}

/// Puts the call's own limit into the operation: dialects tell their models after which time a command was ended.
fn within(mut operation: Operation, limit: Option<Duration>) -> Operation {
    if let Some(limit) = limit {
        operation.shorten(limit);
    }
    operation
}

fn shorten(name: String) -> String {
    if name.len() <= MAX_NAME { name } else { name.chars().take(MAX_NAME / 4).collect() }
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
    pub(super) fn respond(&self, before: CallResponse, close: &mut Close, mut facts: Facts) -> CallResponse {
        use call_response::Status;
        let (outcome, status, usage) = match &*close {
            Close::Accessed(view) => {
                let response = self.accessed(before.clone(), view);
                if response.encoded_len() <= MAX_ANSWER {
                    return response;
                }
                (Err(too_large(response.encoded_len())), Status::Failed, None)
            }
            Close::Refused(refusal) => (Err(ToolFailure::from(refusal.clone())), Status::Denied, None),
            Close::Broken(refusal) => (Err(ToolFailure::from(refusal.clone())), Status::Failed, None),
            Close::Executed(finished) => {
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
        if let Close::Executed(finished) = close
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
