//! Parses a request into an operation, as far as possible.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use dialects::{Dialect, Limits, ParseFailure};
use identity::check_client_name;
use operations::transport::MAX_SHOWN;
use operations::{CommandLimits, Operation, Reason};
use policy::{ContainerPaths, Policy, Profile};
use prost::Message as _;
use refusal::Refusal;
use sha2::{Digest as _, Sha256};
use timestamp::duration_from_wire;
use wire::v1::call_request::Request;
use wire::v1::{self, CallRequest};

use super::asked::Asked;
use super::respond::ResponseFormat;

const MAX_NAME: usize = 128;

/// A request, parsed as far as possible.
pub(super) struct Parsed {
    pub(super) operation: Result<Operation, Refusal>,
    /// The sketch of the request, for the record of a call that is refused as malformed.
    pub(super) asked: Asked,
    pub(super) form: ResponseFormat,
    pub(super) agent_id: String,
    pub(super) task_id: String,
    pub(super) correlation_id: String,
    pub(super) limit: Option<Duration>,
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

/// Parses a request under the limits of the run's profile.
///
/// A command without a timeout gets the profile's. `policy` knows the plain names of upstream servers' tools.
pub(super) fn parse(request: CallRequest, limits: &Limits, policy: &Policy) -> Parsed {
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
    Parsed { operation, asked, form, agent_id, task_id, correlation_id, limit: limit.ok().flatten() }
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
        Some(dialect) => tool_call(dialect, &tool, &arguments_json, (limits, policy)).map_err(|failure| {
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
fn tool_call(
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
