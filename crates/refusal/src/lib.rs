#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use node_id::NodeId;
use operations::{Evidence, Fault, Hint, Malformed, Origin, Reason, ToolFailure};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use wire::v1;

/// The `domain` of every `ErrorInfo`.
pub const DOMAIN: &str = "cofferdam";

/// The fact that says when to try again, milliseconds; it becomes `RetryInfo` as well.
const RETRY_AFTER: &str = "retry_after_ms";

/// The facts that say whose failure it is and whether a repetition is safe, and the beginning of the names of those that show it.
const FAULT: &str = "fault";
const RETRY_SAFE: &str = "retry_safe";
const EVIDENCE: &str = "evidence.";

/// A request that was refused or could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    /// A sentence for the client.
    pub message: String,
    /// Facts to act on; they become `ErrorInfo.metadata`.
    pub metadata: Vec<(Cow<'static, str>, String)>,
    /// Advice that each kind of caller words differently.
    pub hints: Vec<Hint>,
    /// Node that made the id of what was not found.
    pub made_by: Option<NodeId>,
    /// Knowledge of whose failure it is, beyond its reason.
    pub origin: Origin,
}

/// Fact that shows that no engine answers.
pub const NO_ENGINE: (&str, &str) = ("engine.state", "unreachable");

impl Refusal {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let (metadata, hints) = (Vec::new(), Vec::new());
        Self { reason, message: message.into(), metadata, hints, origin: Origin::default(), made_by: None }
    }

    /// Returns true if it shows that no engine answers at all. No request and no program of a run can bring that about.
    pub fn shows_no_engine(&self) -> bool {
        self.origin.evidence.iter().any(|fact| (fact.what.as_ref(), fact.value.as_str()) == NO_ENGINE)
    }

    /// Refuses a request for something that is not here. A client learns which other node made the id, if one did.
    pub fn absent(resource: &'static str, id: impl fmt::Display, message: impl Into<String>) -> Self {
        let made_by = NodeId::of_text(&id.to_string());
        Self { made_by, ..Self::new(Reason::NotFound, message).with("resource", resource) }
    }

    /// Refuses a request for the node `asked`, on the node `own`, or on a daemon that is no node.
    pub fn wrong_node(asked: NodeId, own: Option<NodeId>) -> Self {
        let here = own.map_or_else(|| "a daemon without a node id".to_owned(), |own| format!("node {own}"));
        let message = format!("this is {here}, and the request is for node {asked}: send it there");
        let refusal = Self::new(Reason::WrongNode, message).with("asked", asked.to_string());
        match own {
            Some(own) => refusal.with("node", own.to_string()),
            None => refusal,
        }
    }

    /// Returns true if another node made the id of what was not found.
    pub fn is_of_another_node(&self) -> bool {
        self.elsewhere(NodeId::own()).is_some()
    }

    /// Returns the node other than `own` that made the id of what was not found.
    fn elsewhere(&self, own: Option<NodeId>) -> Option<NodeId> {
        self.made_by.filter(|node| self.reason == Reason::NotFound && Some(*node) != own)
    }

    /// Names the other node of an id that is not found on the node `own`.
    fn on(self, own: Option<NodeId>) -> Self {
        match self.elsewhere(own) {
            Some(node) => Self::wrong_node(node, own),
            None => self,
        }
    }

    /// A request that is malformed in `field`.
    pub fn invalid(field: &'static str, message: impl fmt::Display) -> Self {
        Self::new(Reason::InvalidArgument, format!("{field}: {message}")).with("field", field)
    }

    /// Returns the refusal for a fault of the daemon. The error goes to the log, not to the client.
    pub fn internal(what: &str, error: &dyn fmt::Display) -> Self {
        tracing::error!(error = %error, "{what}");
        Self::new(Reason::Internal, format!("{what}: an internal error; see the daemon's log"))
    }

    /// It goes through after this time, if nothing else comes before. Rounded up to milliseconds.
    #[must_use]
    pub fn retry_after(self, time: Duration) -> Self {
        let millis = time.as_nanos().div_ceil(1_000_000);
        self.with(RETRY_AFTER, millis.to_string())
    }

    /// With a fact more.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.metadata.push((name.into(), value.into()));
        self
    }

    /// Puts the refusal down to this party, and not to that of its reason.
    #[must_use]
    pub fn by(mut self, fault: Fault) -> Self {
        self.origin.fault = Some(fault);
        self
    }

    /// States whether a repetition is safe: nothing was done, and nothing can have been done.
    #[must_use]
    pub fn retry_safe(mut self, is_safe: bool) -> Self {
        self.origin.retry_safe = Some(is_safe);
        self
    }

    /// Adds a fact that shows whose failure it is.
    #[must_use]
    pub fn shown_by(mut self, evidence: Evidence) -> Self {
        self.origin.add(evidence);
        self
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        let message = malformed.to_string();
        Self::new(malformed.reason, message).with("field", malformed.field)
    }
}

impl From<v1::ToolFailure> for Refusal {
    fn from(failure: v1::ToolFailure) -> Self {
        let reason = Reason::parse(&failure.reason).unwrap_or(Reason::Internal);
        let origin = Origin::of_wire(failure.fault, failure.retry_safe, failure.evidence);
        let refusal = Self { origin, ..Self::new(reason, failure.message) };
        failure.details.into_iter().fold(refusal, |refusal, (name, value)| refusal.with(name, value))
    }
}

impl From<Refusal> for ToolFailure {
    fn from(refusal: Refusal) -> Self {
        let details = refusal.metadata.into_iter().map(|(name, value)| (name.into_owned(), value)).collect();
        let Refusal { reason, message, hints, origin, .. } = refusal;
        Self { reason, message, details, hints, origin }
    }
}

impl From<ToolFailure> for Refusal {
    fn from(failure: ToolFailure) -> Self {
        let ToolFailure { reason, message, details, hints, origin } = failure;
        let refusal = Self { hints, origin, ..Self::new(reason, message) };
        details.into_iter().fold(refusal, |refusal, (name, value)| refusal.with(name, value))
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let failure = ToolFailure::from(refusal.on(NodeId::own())).told(|hint| Some(hint.canonical()));
        let blame = [
            (FAULT.to_owned(), failure.fault().as_str().to_owned()),
            (RETRY_SAFE.to_owned(), failure.is_retry_safe().to_string()),
        ];
        let shown = failure.origin.evidence.iter();
        let shown: Vec<_> =
            shown.map(|fact| (format!("{EVIDENCE}{}", fact.what), fact.value.clone())).collect();
        let refusal = Refusal::from(failure);
        let code = code(&refusal);
        let facts = refusal.metadata.into_iter().map(|(name, value)| (name.into_owned(), value));
        // The last one counts, so that no detail of a worker replaces one of these.
        let facts = facts.filter(|(name, _)| !name.starts_with(EVIDENCE));
        let metadata: HashMap<String, String> = facts.chain(blame).chain(shown).collect();
        let retry =
            metadata.get(RETRY_AFTER).and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        let mut details = ErrorDetails::with_error_info(refusal.reason.as_str(), DOMAIN, metadata);
        if let Some(retry) = retry {
            details.set_retry_info(Some(retry));
        }
        Self::with_error_details(code, refusal.message, details)
    }
}

fn code(refusal: &Refusal) -> Code {
    match refusal.reason {
        // A balancer takes a node out of service for UNAVAILABLE in a row. An image or an unusual request can have an engine that
        // works fail, and no client may take out a node for others.
        Reason::EngineUnavailable if !refusal.shows_no_engine() => Code::Internal,
        Reason::SandboxViolation
        | Reason::PermissionDenied
        | Reason::CommandNotAllowed
        | Reason::ImageNotAllowed
        | Reason::ApprovalDenied
        | Reason::ApprovalExpired => Code::PermissionDenied,
        Reason::RateLimited
        | Reason::Overloaded
        | Reason::ReadLimit
        | Reason::WriteLimit
        | Reason::MemoryLimit
        | Reason::TenantLimit => Code::ResourceExhausted,
        // Not UNAVAILABLE, for which clients and balancers try the same address again: neither a lost run nor a run of another
        // node is there after a pause.
        Reason::PreconditionFailed
        | Reason::RunNotReady
        | Reason::RunLost
        | Reason::AwaitingApproval
        | Reason::WrongNode => Code::FailedPrecondition,
        Reason::InvalidFrontmatter | Reason::InvalidArgument | Reason::ImageUnusable => Code::InvalidArgument,
        Reason::NotFound | Reason::ImageMissing => Code::NotFound,
        Reason::AlreadyExists => Code::AlreadyExists,
        Reason::TimedOut => Code::DeadlineExceeded,
        Reason::Cancelled => Code::Cancelled,
        Reason::AuditUnavailable
        | Reason::EngineUnavailable
        | Reason::UpstreamFailed
        | Reason::DaemonStopping
        | Reason::NodeDrained => Code::Unavailable,
        Reason::Internal => Code::Internal,
    }
}

/// Returns the message `start`, which has to open a stream within `time`.
///
/// `came` is the first message, `None` at the end of the stream, or the error of a wait that was too long.
pub fn stream_start<T, Elapsed>(
    came: Result<Option<Result<T, Status>>, Elapsed>,
    time: Duration,
) -> Result<T, Refusal> {
    match came {
        Ok(Some(Ok(message))) => Ok(message),
        Ok(Some(Err(_)) | None) => Err(Refusal::invalid("start", "must be the first message of the stream")),
        Err(_) => Err(Refusal::invalid("start", format!("did not come within {time:?}"))),
    }
}

/// Returns the refusal of a stream that its client does not read: it has left, or has taken nothing within `limit`.
pub fn unread(has_left: bool, limit: Duration) -> Refusal {
    if has_left {
        return Refusal::new(Reason::Cancelled, "the client left before it had all");
    }
    let message = format!("the client has read nothing for {} seconds", limit.as_secs());
    Refusal::new(Reason::TimedOut, message)
}

/// An error with its causes, for the log.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use node_id::NodeId;
    use operations::Reason;
    use tonic::{Code, Status};
    use tonic_types::StatusExt as _;

    use super::{DOMAIN, Duration, Evidence, Fault, NO_ENGINE, Refusal, stream_start};

    #[test]
    fn a_stream_without_a_start_is_refused_with_what_was_missing() {
        let limit = Duration::from_secs(10);
        let refused =
            |came: Result<Option<Result<(), Status>>, ()>| stream_start(came, limit).unwrap_err().message;
        assert_eq!(stream_start(Ok::<_, ()>(Some(Ok(7))), limit), Ok(7));
        for came in [None, Some(Err(Status::cancelled("")))] {
            assert_eq!(refused(Ok(came)), "start: must be the first message of the stream");
        }
        assert_eq!(refused(Err(())), "start: did not come within 10s");
    }

    #[test]
    fn a_status_carries_the_stable_reason() {
        let refusal =
            Refusal::new(Reason::CommandNotAllowed, "Command not allowed: rm").with("command", "rm");
        let status = Status::from(refusal);
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "Command not allowed: rm"));
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("COMMAND_NOT_ALLOWED", DOMAIN));
        assert_eq!(info.metadata.get("command").map(String::as_str), Some("rm"));
    }

    #[test]
    fn only_an_engine_that_does_not_answer_makes_the_node_unavailable() {
        let refusal = Refusal::new(Reason::EngineUnavailable, "no container");
        let code = |refusal: &Refusal| {
            let status = Status::from(refusal.clone());
            assert_eq!(status.get_details_error_info().unwrap().reason, "ENGINE_UNAVAILABLE");
            status.code()
        };
        assert_eq!(code(&refusal), Code::Internal);
        let shown = |state: &str| refusal.clone().shown_by(Evidence::new(NO_ENGINE.0, state));
        assert_eq!(code(&shown("no answer in time")), Code::Internal);
        assert_eq!(code(&shown(NO_ENGINE.1)), Code::Unavailable);
    }

    #[test]
    fn a_status_says_whose_failure_it_is_and_shows_it() {
        let refusal = Refusal::new(Reason::WriteLimit, "full")
            .with("fault", "CALLER")
            .with("evidence.forged", "1")
            .by(Fault::Infrastructure)
            .shown_by(Evidence::new("disk.state", "full"));
        let facts = |status: Status| status.get_details_error_info().unwrap().metadata;
        let told = facts(Status::from(refusal.clone()));
        assert_eq!((told["fault"].as_str(), told["retry_safe"].as_str()), ("INFRASTRUCTURE", "false"));
        assert_eq!(told["evidence.disk.state"], "full");
        assert!(!told.contains_key("evidence.forged"), "{told:?}");
        assert_eq!(facts(Status::from(refusal.retry_safe(true)))["retry_safe"], "true");
        let plain = facts(Status::from(Refusal::new(Reason::RateLimited, "later")));
        assert_eq!((plain["fault"].as_str(), plain["retry_safe"].as_str()), ("POLICY", "true"));
    }

    #[test]
    fn retryable_refusal_has_a_delay() {
        let refusal =
            Refusal::new(Reason::RateLimited, "later").retry_after(Duration::from_micros(12_000_001));
        let status = Status::from(refusal);
        assert_eq!(status.code(), Code::ResourceExhausted);
        let delay = status.get_details_retry_info().unwrap().retry_delay;
        assert_eq!(delay, Some(Duration::from_millis(12_001)));
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.metadata.get("retry_after_ms").map(String::as_str), Some("12001"));
    }

    #[test]
    fn another_nodes_id_that_is_not_found_is_refused_with_both_nodes() {
        let node = |number| NodeId::try_from(number).unwrap();
        let absent = |id: &str| Refusal::absent("run", id, "there is no such run");
        let id = node(7).new_id().to_string();
        let here = [("asked".into(), "7".to_owned()), ("node".into(), "8".to_owned())];
        let refused = absent(&id).on(Some(node(8)));
        assert_eq!((refused.reason, &refused.metadata[..]), (Reason::WrongNode, &here[..]));
        assert_eq!(refused.message, "this is node 8, and the request is for node 7: send it there");
        let without = absent(&id).on(None);
        assert_eq!((without.reason, &without.metadata[..]), (Reason::WrongNode, &here[..1]));
        for found in [absent(&id).on(Some(node(7))), absent("no id").on(Some(node(7)))] {
            assert_eq!(found.reason, Reason::NotFound);
            assert_eq!(found.metadata, [("resource".into(), "run".to_owned())]);
        }
        // This process is no node.
        let status = Status::from(absent(&id));
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(status.get_details_error_info().unwrap().reason, "WRONG_NODE");
        assert!(absent(&id).is_of_another_node() && !absent("no id").is_of_another_node());
        let internal = Refusal { reason: Reason::Internal, ..absent(&id) };
        assert_eq!(internal.on(None).reason, Reason::Internal, "only what is not found is elsewhere");
    }

    #[test]
    fn no_reason_is_an_ok() {
        for reason in Reason::ALL {
            assert_ne!(super::code(&Refusal::new(reason, "")), Code::Ok, "{reason}");
            assert_ne!(super::code(&Refusal::new(reason, "")), Code::Unknown, "{reason}");
        }
    }
}
