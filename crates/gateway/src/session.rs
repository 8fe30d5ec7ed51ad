//! Terminals: the permission for an operator to open a terminal in a run.
//!
//! Typed text is not judged: no rule could read it, and the deny list and the command rules are about what an *agent*
//! may ask for. So only two questions remain: is the caller an operator, and is the run's profile still in force? The
//! answer is a separate kind of permit, which only the executor's terminal accepts. The container confines all typed
//! commands, as it does for agents.

use operations::{Bounds, Exec, Reason};

use crate::decision::{Decision, Refusal};
use crate::gateway::Gateway;
use crate::permission::refusal;
use policy::{Risk, RunScope, Verdict};

/// Name of the rule in the record.
const RULE: &str = "operator session";

/// A request for a terminal: the caller, the run and the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// UUIDv7 that names the session in the record.
    pub session_id: String,
    pub run_id: String,
    pub principal: String,
    /// True if the API's roles make the caller an operator.
    pub is_operator: bool,
    /// The command to start on the terminal.
    pub command: SessionCommand,
}

/// The program that a session starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCommand {
    /// The command. Its standard input and its timeout mean nothing on a terminal.
    pub exec: Exec,
    /// Runs the image's login shell instead of command and arguments.
    pub login_shell: bool,
}

/// Permission for one session to begin once. [`SessionPermit::into_parts`] spends it.
///
/// Like a [`crate::Permit`] it can be neither copied nor made by hand:
///
/// ```compile_fail,E0451
/// fn forge(parts: Box<cofferdam_gateway::SessionParts>) -> cofferdam_gateway::SessionPermit {
///     cofferdam_gateway::SessionPermit { parts }
/// }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is dropped is a session that never begins"]
pub struct SessionPermit {
    parts: Box<SessionParts>,
}

/// Contents of a session's permit, once it is spent.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionParts {
    /// The request that the permit covers.
    pub request: SessionRequest,
    pub bounds: Bounds,
    /// The decision that let the session through.
    pub decision: Decision,
}

impl SessionPermit {
    /// Returns the decision that let the session through.
    pub fn decision(&self) -> &Decision {
        &self.parts.decision
    }

    /// Spends the permit.
    pub fn into_parts(self) -> SessionParts {
        *self.parts
    }
}

impl Gateway {
    /// Decides on an operator's session at a terminal.
    pub fn admit_session(&self, run: &RunScope, request: SessionRequest) -> Result<SessionPermit, Refusal> {
        let policy = self.policy();
        let refuse = |message: &str, rule: &str| {
            Err(refusal(&policy, Reason::PermissionDenied, message.to_owned(), rule))
        };
        if !request.is_operator {
            return refuse("a terminal in a run is for operators: ask for a role, or use calls", RULE);
        }
        let Some(profile) = policy.profile(&run.profile) else {
            return refuse("the policy no longer has the profile of this run", "profile");
        };
        let decision = Decision {
            verdict: Verdict::Allow,
            rule: RULE.to_owned(),
            risk: Risk::High,
            policy_digest: policy.digest().to_owned(),
            justification: "an operator at a terminal: everything is recorded, the container confines"
                .to_owned(),
        };
        // The recording bounds the output of a terminal, and no program is denied on it.
        let bounds =
            Bounds { max_spool_bytes: u64::MAX, denied_programs: Vec::new(), ..profile.call_bounds() };
        Ok(SessionPermit { parts: Box::new(SessionParts { request, bounds, decision }) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use operations::{Exec, Reason};
    use timestamp::SystemClock;

    use super::{RULE, SessionCommand, SessionRequest};
    use crate::Gateway;
    use policy::{Policy, RunScope, Verdict};

    fn request(is_operator: bool) -> SessionRequest {
        let shell = Exec::new("sh", ["-l"]);
        SessionRequest {
            session_id: "s".to_owned(),
            run_id: "r".to_owned(),
            principal: "uid:0".to_owned(),
            is_operator,
            command: SessionCommand { exec: shell, login_shell: true },
        }
    }

    fn scope(profile: &str) -> RunScope {
        RunScope { profile: profile.to_owned(), image_id: "sha256:1".to_owned() }
    }

    fn gateway() -> Gateway {
        Gateway::new(Policy::builtin().unwrap(), Arc::new(SystemClock))
    }

    #[test]
    fn an_operator_gets_a_permit_under_the_policy_in_force() {
        let gateway = gateway();
        for profile in ["review", "build", "open", "strict"] {
            let permit = gateway.admit_session(&scope(profile), request(true)).unwrap();
            let decision = permit.decision();
            assert_eq!((decision.verdict, decision.rule.as_str()), (Verdict::Allow, RULE));
            assert_eq!(decision.policy_digest, gateway.policy().digest());
            assert_eq!(permit.into_parts().request, request(true));
        }
    }

    #[test]
    fn others_and_runs_without_a_profile_are_refused() {
        let gateway = gateway();
        let refused = |scope, request| gateway.admit_session(&scope, request).unwrap_err();
        let other = refused(scope("open"), request(false));
        assert_eq!((other.reason, other.rule.as_str()), (Reason::PermissionDenied, RULE));
        let unknown = refused(scope("gone"), request(true));
        assert_eq!((unknown.reason, unknown.rule.as_str()), (Reason::PermissionDenied, "profile"));
    }
}
