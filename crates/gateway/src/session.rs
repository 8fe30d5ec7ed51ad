//! Terminals: the permission for an operator to open a terminal in a run.
//!
//! Typed text is not judged: no rule could read it, and the deny list and the command rules are about what an *agent*
//! may ask for. So only two questions remain: who asks, and is the run's profile still in force? The answer is a
//! permit of its own kind, which only the executor's terminal takes. The container confines all typed commands, as it
//! does for agents.

use ops::{Bounds, Exec, Reason};

use crate::caller::RunScope;
use crate::decision::{Decision, Refusal, Risk, Verdict};
use crate::gateway::Gateway;
use crate::permission::refusal;

/// As the record names it.
const RULE: &str = "operator session";

/// Who wants a terminal, where, and with what on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// UUIDv7 that names the session in the record.
    pub session_id: String,
    pub run_id: String,
    pub principal: String,
    /// Whether the API's roles make them an operator.
    pub is_operator: bool,
    /// What to start on the terminal.
    pub command: SessionCommand,
}

/// What a session starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCommand {
    /// The command. Its standard input and its timeout mean nothing on a terminal.
    pub exec: Exec,
    /// The image's login shell takes the place of command and arguments.
    pub login_shell: bool,
}

/// Leave for one session to begin once. Spent by [`SessionPermit::into_parts`].
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

/// What a session's permit covers, once it is spent.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionParts {
    /// Who may begin it, where, and with what.
    pub request: SessionRequest,
    pub bounds: Bounds,
    /// Why it may begin.
    pub decision: Decision,
}

impl SessionPermit {
    /// Why the session may begin.
    pub fn decision(&self) -> &Decision {
        &self.parts.decision
    }

    /// Spends the permit.
    pub fn into_parts(self) -> SessionParts {
        *self.parts
    }
}

impl Gateway {
    /// Decides over a session of an operator at a terminal.
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
        // What a terminal shows is bounded by its recording, and nothing on it is denied.
        let bounds =
            Bounds { max_spool_bytes: u64::MAX, denied_programs: Vec::new(), ..profile.call_bounds() };
        Ok(SessionPermit { parts: Box::new(SessionParts { request, bounds, decision }) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use jail::SandboxPath;
    use ops::{Exec, Reason};

    use super::{RULE, SessionCommand, SessionRequest};
    use crate::{Gateway, Policy, RunScope, SystemClock, Verdict};

    fn request(is_operator: bool) -> SessionRequest {
        let shell = Exec {
            command: "sh".to_owned(),
            args: vec!["-l".to_owned()],
            cwd: SandboxPath::parse("@project").unwrap(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            stdin_file: None,
            timeout: Duration::from_secs(1),
            only_reads: false,
        };
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
    fn nobody_else_does_and_no_run_without_a_profile() {
        let gateway = gateway();
        let refused = |scope, request| gateway.admit_session(&scope, request).unwrap_err();
        let stranger = refused(scope("open"), request(false));
        assert_eq!((stranger.reason, stranger.rule.as_str()), (Reason::PermissionDenied, RULE));
        let unknown = refused(scope("gone"), request(true));
        assert_eq!((unknown.reason, unknown.rule.as_str()), (Reason::PermissionDenied, "profile"));
    }
}
