//! Failures of commands: one sentence, a hint, and the exit code.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;

use certificates::CertificateError;
use cofferdam_client::Connect;
use serde::Serialize;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::broken;
use crate::exit::Exit;
use crate::time;

/// Reasons that mean "refused" for every gRPC code.
const REFUSALS: [&str; 5] =
    ["PERMISSION_DENIED", "COMMAND_NOT_ALLOWED", "RATE_LIMITED", "APPROVAL_DENIED", "APPROVAL_EXPIRED"];

/// Message of tonic for a request whose time limit has passed.
const TIMEOUT: &str = "Timeout expired";

/// Failure of a command.
#[derive(Debug, Serialize)]
pub struct Failure {
    #[serde(skip)]
    exit: Exit,
    #[serde(skip)]
    reader_left: bool,
    /// True if the connection ended and the daemon gave no reason.
    #[serde(skip)]
    broke: bool,
    /// Stable reason, if the daemon gave one.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

/// Result of a command: its exit code, or its failure.
pub type Ended = Result<Exit, Failure>;

impl Failure {
    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            reader_left: false,
            broke: false,
            reason: String::new(),
            message: message.into(),
            hint: String::new(),
            metadata: BTreeMap::new(),
        }
    }

    /// Creates the failure that the command line, or an object that it names, is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Creates the failure that an attempt did not succeed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Exit::Unreachable, message)
    }

    /// Creates the failure that this user may not use the daemon.
    pub fn not_permitted(message: impl Into<String>) -> Self {
        Self::new(Exit::Denied, message)
    }

    /// Returns it on one line, for talk about one of several daemons or connections.
    pub fn on_one_line(&self) -> String {
        self.to_string().replace("\nhint: ", "; hint: ")
    }

    /// Sets the hint, which says what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Adds another hint.
    #[must_use]
    pub fn and_hint(mut self, hint: &str) -> Self {
        if !hint.is_empty() && !self.hint.is_empty() {
            self.hint.push_str("; ");
        }
        self.hint.push_str(hint);
        self
    }

    /// Adds the reasons for which a daemon may have ended this connection.
    #[must_use]
    pub fn over(self, daemon: &Connect) -> Self {
        if self.broke { self.and_hint(broken::hint(daemon)) } else { self }
    }

    #[must_use]
    pub fn beside_a_command(mut self) -> Self {
        self.exit = self.exit.beside_a_command();
        self
    }

    /// Returns the daemon's reason; empty if it gave none.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns true if the reader of standard output has gone, as with `| head`. This is not reported as an error.
    pub fn reader_left(&self) -> bool {
        self.reader_left
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\nhint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let mut failure = Self::failed(error.to_string());
        failure.reader_left = error.kind() == io::ErrorKind::BrokenPipe;
        failure
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        if error.is_io() {
            return io::Error::from(error).into();
        }
        Self::failed(format!("the daemon's answer cannot be shown as JSON: {error}"))
    }
}

impl From<tryout::Failure> for Failure {
    fn from(failure: tryout::Failure) -> Self {
        let exit = match failure {
            tryout::Failure::Usage { .. } => Exit::Usage,
            tryout::Failure::Failed { .. } => Exit::Failed,
            tryout::Failure::Interrupted(signal) => Exit::Command(128 + (signal & 0x7f)),
        };
        Self::new(exit, failure.to_string()).with_hint(failure.next())
    }
}

impl From<CertificateError> for Failure {
    fn from(error: CertificateError) -> Self {
        let failure = match error {
            CertificateError::NotEmpty(_) | CertificateError::Days(_) => Self::usage(error.to_string()),
            _ => Self::failed(error.to_string()),
        };
        error.hint().into_iter().fold(failure, Self::with_hint)
    }
}

impl From<serde_yaml::Error> for Failure {
    fn from(error: serde_yaml::Error) -> Self {
        Self::failed(format!("the daemon's answer cannot be shown as YAML: {error}"))
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        let reason = info.map(|info| info.reason.clone()).unwrap_or_default();
        let metadata: BTreeMap<_, _> =
            info.map(|info| info.metadata.clone().into_iter().collect()).unwrap_or_default();

        if let Some(alert) = broken::alert(&status) {
            return Self::unreachable(broken::message(&alert)).with_hint(broken::GIVE);
        }
        let exit = exit_of(&status, &reason);
        let message = match (exit, status.message()) {
            (Exit::Unreachable, _) => {
                "the connection to the daemon broke, or it took too long to answer".to_owned()
            }
            (_, "") => format!("the daemon refused without a message: {}", status.code().description()),
            (_, message) => message.to_owned(),
        };
        let retry = details.retry_info().and_then(|info| info.retry_delay).map(time::brief);
        let hint = hint_for(&reason, &metadata, exit, retry.as_deref());
        Self { broke: broke(&status), reason, metadata, ..Self::new(exit, message) }.with_hint(hint)
    }
}

/// Returns true if the connection broke before the answer came: the status is the transport's, and not the daemon's.
pub fn broke(status: &Status) -> bool {
    status.source().is_some() && status.message() != TIMEOUT
}

fn exit_of(status: &Status, reason: &str) -> Exit {
    if REFUSALS.contains(&reason) {
        return Exit::Denied;
    }
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => Exit::Denied,
        Code::InvalidArgument => Exit::Usage,
        // A status with a cause, or without a reason, comes from the transport and not from the daemon.
        _ if status.source().is_some() => Exit::Unreachable,
        Code::Unavailable | Code::DeadlineExceeded if reason.is_empty() => Exit::Unreachable,
        Code::Cancelled if status.message() == TIMEOUT => Exit::Unreachable,
        _ => Exit::Failed,
    }
}

fn hint_for(reason: &str, metadata: &BTreeMap<String, String>, exit: Exit, retry: Option<&str>) -> String {
    let resource = metadata.get("resource").map(String::as_str);
    match (reason, retry) {
        (_, Some(delay)) => format!("try again in {delay}"),
        ("RUN_NOT_READY", _) => "`coffer run list` shows its state".into(),
        ("RUN_LOST", _) => "`coffer run show RUN` says how it ended; make another run".into(),
        ("AWAITING_APPROVAL", _) => {
            "`coffer approval list` shows the calls that wait; `coffer approval approve ID` approves one"
                .into()
        }
        // The API refuses, and not the policy of a run. The message names the roles.
        ("PERMISSION_DENIED", _) if metadata.contains_key("roles") => String::new(),
        ("NOT_FOUND", _) if resource == Some("run") => {
            "`coffer run list` shows your runs; only operators see those of other users".into()
        }
        ("PERMISSION_DENIED", _) if metadata.contains_key("credential") => {
            credential_hint(&metadata["credential"]).into()
        }
        // Only the policy names a rule. Other refusals with this reason say in their message what lacks.
        ("PERMISSION_DENIED", _) if !metadata.contains_key("rule") => String::new(),
        ("PERMISSION_DENIED" | "COMMAND_NOT_ALLOWED", _) => {
            "`coffer policy show` prints what the run's profile and role allow".into()
        }
        ("AUDIT_UNAVAILABLE", _) => {
            "the daemon refuses calls that it cannot record: check its log and its disk space".into()
        }
        ("WRONG_NODE", _) => {
            "--endpoint takes the address of that node, or the one address of the fleet".into()
        }
        ("OVERLOADED", _) => "try again in a moment".into(),
        ("APPROVAL_EXPIRED", _) => "make the call again, and decide with `coffer approval approve ID`".into(),
        _ if exit == Exit::Unreachable => "`coffer doctor` says whether the daemon answers".into(),
        _ => String::new(),
    }
}

/// Returns the hint for a credential that the daemon does not accept, or that it lacks.
fn credential_hint(kind: &str) -> &'static str {
    match kind {
        "none" => {
            "COFFERDAM_TOKEN or --token gives a token, and COFFERDAM_TLS or --tls the directory of a client certificate"
        }
        "token" => {
            "ask an operator for a new token (`coffer token create`), and set COFFERDAM_TOKEN or --token; \
             operators see all tokens with `coffer token list --all`"
        }
        "issuer_token" => "get a new token from its issuer, and set COFFERDAM_TOKEN or --token",
        "certificate" => {
            "ask an operator for a certificate (`coffer tls client`), and name its directory with COFFERDAM_TLS or --tls"
        }
        "ended" => "ask an operator for a new token or certificate, and call again with it",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use tonic_types::ErrorDetails;

    use super::*;

    fn status(code: Code, reason: &str) -> Status {
        let mut details = ErrorDetails::new();
        details.set_error_info(reason, "cofferdam", HashMap::from([("run".to_owned(), "a".to_owned())]));
        Status::with_error_details(code, "no such run", details)
    }

    #[test]
    fn a_failure_with_its_hint_fits_on_one_line() {
        let failure = Failure::unreachable("down").with_hint("start it");
        assert_eq!(failure.to_string(), "down\nhint: start it");
        assert_eq!(failure.on_one_line(), "down; hint: start it");
    }

    #[test]
    fn the_reason_decides_before_the_code() {
        let exit = |code, reason| Failure::from(status(code, reason)).exit();
        assert_eq!(exit(Code::NotFound, "NOT_FOUND"), Exit::Failed);
        assert_eq!(exit(Code::InvalidArgument, "INVALID_ARGUMENT"), Exit::Usage);
        assert_eq!(exit(Code::PermissionDenied, "PERMISSION_DENIED"), Exit::Denied);
        assert_eq!(exit(Code::ResourceExhausted, "RATE_LIMITED"), Exit::Denied);
        assert_eq!(exit(Code::ResourceExhausted, "OVERLOADED"), Exit::Failed);
        assert_eq!(exit(Code::FailedPrecondition, "APPROVAL_DENIED"), Exit::Denied);
        assert_eq!(exit(Code::Unavailable, "AUDIT_UNAVAILABLE"), Exit::Failed);
        assert_eq!(Failure::from(Status::unavailable("transport error")).exit(), Exit::Unreachable);
        assert_eq!(Failure::from(Status::cancelled("Timeout expired")).exit(), Exit::Unreachable);
    }

    #[test]
    fn a_status_of_the_transport_is_a_broken_connection_whatever_its_code_is() {
        let of_transport = |code, message: &str| {
            let mut status = Status::new(code, message);
            status.set_source(std::sync::Arc::new(io::Error::from(io::ErrorKind::BrokenPipe)));
            status
        };
        for code in [Code::Unavailable, Code::Unknown, Code::Cancelled] {
            assert!(broke(&of_transport(code, "connection closed")), "{code:?}");
            assert!(!broke(&Status::new(code, "of the daemon")), "{code:?}");
        }
        assert!(!broke(&of_transport(Code::Cancelled, TIMEOUT)));
    }

    #[test]
    fn reads_as_a_sentence_with_reason_and_hint() {
        let failure = Failure::from(status(Code::FailedPrecondition, "RUN_NOT_READY"));
        assert_eq!(
            failure.to_string(),
            "no such run (RUN_NOT_READY)\nhint: `coffer run list` shows its state"
        );
        assert_eq!(
            serde_json::to_value(&failure).unwrap(),
            serde_json::json!({
                "reason": "RUN_NOT_READY",
                "message": "no such run",
                "hint": "`coffer run list` shows its state",
                "metadata": {"run": "a"},
            })
        );
    }

    #[test]
    fn a_missing_role_and_another_users_run_give_different_messages() {
        let of = |code, reason, about: (&str, &str)| {
            let mut details = ErrorDetails::new();
            let metadata = HashMap::from([(about.0.to_owned(), about.1.to_owned())]);
            details.set_error_info(reason, "cofferdam", metadata);
            let failure = Failure::from(Status::with_error_details(code, "it says why", details));
            (failure.exit(), failure.hint)
        };
        let role = of(Code::PermissionDenied, "PERMISSION_DENIED", ("roles", "operator"));
        assert_eq!(role, (Exit::Denied, String::new()), "the message says all");
        let policy = of(Code::PermissionDenied, "PERMISSION_DENIED", ("rule", "exec"));
        assert!(policy.1.contains("policy show"), "{policy:?}");
        let run = of(Code::NotFound, "NOT_FOUND", ("resource", "run"));
        assert!(run.0 == Exit::Failed && run.1.contains("shows your runs"), "{run:?}");
    }

    #[test]
    fn only_the_policy_is_given_as_the_reason_where_a_rule_refused() {
        let hint = |reason, about: (&str, &str)| {
            let mut details = ErrorDetails::new();
            details.set_error_info(
                reason,
                "cofferdam",
                HashMap::from([(about.0.to_owned(), about.1.to_owned())]),
            );
            Failure::from(Status::with_error_details(Code::PermissionDenied, "it says why", details)).hint
        };
        for reason in ["PERMISSION_DENIED", "COMMAND_NOT_ALLOWED"] {
            assert!(hint(reason, ("rule", "exec")).contains("coffer policy show"), "{reason}");
        }
        for (kind, word) in [
            ("none", "COFFERDAM_TLS"),
            ("token", "coffer token create"),
            ("issuer_token", "issuer"),
            ("certificate", "coffer tls client"),
            ("ended", "new token or certificate"),
        ] {
            let told = hint("PERMISSION_DENIED", ("credential", kind));
            assert!(told.contains(word) && !told.contains("policy"), "{kind}: {told}");
        }
        for other in [("setting", "approvals.allow_self_approval"), ("credential", "of a later release")] {
            assert_eq!(hint("PERMISSION_DENIED", other), "", "{other:?}");
        }
    }

    #[test]
    fn a_refusal_shows_the_retry_time() {
        let mut details = ErrorDetails::with_retry_info(Some(Duration::from_secs(12)));
        details.set_error_info("RATE_LIMITED", "cofferdam", HashMap::new());
        let failure =
            Failure::from(Status::with_error_details(Code::ResourceExhausted, "too many reads", details));
        assert_eq!(failure.to_string(), "too many reads (RATE_LIMITED)\nhint: try again in 12.0 s");
    }

    #[test]
    fn closed_reader_is_not_a_failure() {
        assert!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).reader_left());
        assert!(!Failure::from(io::Error::from(io::ErrorKind::Other)).reader_left());
    }
}
