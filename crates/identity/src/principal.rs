//! Who connected, and what they may call.
//!
//! One layer over the whole server asks before any service sees a request, reflection and health included: a method that is not
//! in the table needs a role all the same, so that none can be forgotten.

use gateway::Level;

use crate::ids::RunId;

/// A role on the API. Not to be confused with an agent's role in the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs the daemon: everything but deciding on approvals.
    Operator,
    /// Decides on approvals, except those of critical calls.
    Approver,
    /// Makes runs and calls.
    Orchestrator,
    /// Reads the audit log.
    Auditor,
    /// An approver whose word goes as far as critical calls.
    Director,
}

impl Role {
    /// As the configuration names them.
    pub const ALL: [(&'static str, Self); 5] = [
        ("operator", Self::Operator),
        ("approver", Self::Approver),
        ("orchestrator", Self::Orchestrator),
        ("auditor", Self::Auditor),
        ("director", Self::Director),
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    pub fn none() -> Self {
        Self(0)
    }

    pub fn all() -> Self {
        Role::ALL.into_iter().fold(Self::none(), |roles, (_, role)| roles.with(role))
    }

    #[must_use]
    pub fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u8)
    }

    /// Whether `role` is among them.
    pub fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    /// As the configuration names them.
    pub fn names(self) -> Vec<&'static str> {
        Role::ALL.into_iter().filter(|(_, role)| self.has(*role)).map(|(name, _)| name).collect()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether one of `roles` is among them.
    pub fn has_any(self, roles: &[Role]) -> bool {
        roles.iter().any(|role| self.has(*role))
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// As the record names it: `uid:1000`.
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub roles: Roles,
    /// It has presented this run's token: it acts for the run's own principal, in this run and nowhere else.
    pub run: Option<RunId>,
}

/// nobody's, user_namespaces(7): nothing is ever done with it.
const NOBODY: u32 = 65_534;

impl Principal {
    /// Whoever did not come over the Unix socket: the kernel says nothing of them, and they have no role.
    pub fn anonymous() -> Self {
        Self { name: "stranger".to_owned(), uid: NOBODY, gid: NOBODY, roles: Roles::none(), run: None }
    }

    /// Whether it may use what `owner` made: its own, and an operator everything. With a run's token nothing but what
    /// [`Self::may_use_run`] says.
    pub fn may_use(&self, owner: &str) -> bool {
        self.run.is_none() && (self.name == owner || self.roles.has(Role::Operator))
    }

    /// Whether it may use a run of `owner`'s, and the calls in it.
    pub fn may_use_run(&self, run: RunId, owner: &str) -> bool {
        self.run.map_or_else(|| self.may_use(owner), |own| own == run)
    }

    /// Whether it may look at what `owner` made: reviewers and auditors have to.
    pub fn may_see(&self, owner: &str) -> bool {
        self.may_use(owner)
            || self.run.is_none() && self.roles.has_any(&[Role::Approver, Role::Director, Role::Auditor])
    }

    /// How far its word goes on approvals.
    pub fn level(&self) -> Option<Level> {
        if self.roles.has(Role::Director) {
            Some(Level::Director)
        } else {
            self.roles.has(Role::Approver).then_some(Level::Approver)
        }
    }
}

/// Which uid has which roles.
#[derive(Debug, Clone)]
pub struct Access {
    own_uid: u32,
    granted: Vec<(u32, Roles)>,
}

impl Access {
    /// Root and the daemon's own uid have every role, the listed ones what is listed, everybody else none.
    pub fn new(own_uid: u32, granted: Vec<(u32, Roles)>) -> Self {
        Self { own_uid, granted }
    }

    /// The principal with this uid and primary group.
    pub fn principal(&self, uid: u32, gid: u32) -> Principal {
        let listed = self.granted.iter().find(|(listed, _)| *listed == uid).map(|(_, roles)| *roles);
        let roles = match listed {
            Some(roles) => roles,
            None if uid == 0 || uid == self.own_uid => Roles::all(),
            None => Roles::none(),
        };
        Principal { name: format!("uid:{uid}"), uid, gid, roles, run: None }
    }
}

/// Whether `roles` may call the method with this path, such as `/cofferdam.v1.ToolService/Call`.
pub fn may_call(roles: Roles, path: &str) -> bool {
    use Role::{Approver, Auditor, Director, Operator, Orchestrator};
    let Some((service, method)) = path.trim_start_matches('/').split_once('/') else { return false };
    match (service, method) {
        ("cofferdam.v1.RunService", "GetRun" | "ListRuns" | "WatchRuns") => {
            roles.has_any(&[Operator, Orchestrator, Auditor, Approver, Director])
        }
        ("cofferdam.v1.RunService" | "cofferdam.v1.ToolService" | "cofferdam.v1.TrashService", _) => {
            roles.has_any(&[Operator, Orchestrator])
        }
        ("cofferdam.v1.ApprovalService", "DecideApproval") => roles.has_any(&[Approver, Director]),
        // Others than operators and auditors have it of their own runs.
        ("cofferdam.v1.AuditService", "CreateBundle") => roles.has_any(&[Operator, Auditor, Orchestrator]),
        // It only takes away.
        ("cofferdam.v1.ApprovalService", "RevokeConsent") => roles.has_any(&[Operator, Approver, Director]),
        ("cofferdam.v1.ApprovalService", _) => roles.has_any(&[Operator, Orchestrator, Approver, Director]),
        ("cofferdam.v1.PolicyService", "ReloadPolicy")
        | ("cofferdam.v1.LimitService", "ThrottleAgent")
        | ("cofferdam.v1.AlertService", "AcknowledgeAlert")
        | ("cofferdam.v1.AuditService", "RotateKey" | "RebuildIndex")
        | ("cofferdam.v1.PermissionService" | "cofferdam.v1.TerminalService", _) => roles.has(Operator),
        ("cofferdam.v1.AuditService", _) | ("cofferdam.v1.PolicyService", "ReplayPolicy") => {
            roles.has_any(&[Operator, Auditor])
        }
        _ => !roles.is_empty(),
    }
}

/// Whether the holder of a run's token may call the method with this path: the tools, and nothing else.
pub fn may_call_with_token(path: &str) -> bool {
    let method = path.strip_prefix("/cofferdam.v1.ToolService/");
    method.is_some_and(|method| {
        matches!(method, "Call" | "CallStream" | "GetCall" | "CancelCall" | "ListTools" | "StepTranscript")
    })
}

#[cfg(test)]
mod tests {
    use gateway::Level;

    use super::{Access, Principal, Role, Roles, may_call, may_call_with_token};
    use crate::ids::RunId;

    #[test]
    fn strangers_may_call_nothing() {
        let access = Access::new(500, vec![(7, Roles::none().with(Role::Auditor))]);
        let stranger = access.principal(1234, 1234);
        for path in [
            "/cofferdam.v1.ToolService/Call",
            "/cofferdam.v1.PolicyService/GetPolicy",
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/no.such.Service/Method",
            "nonsense",
        ] {
            assert!(!may_call(stranger.roles, path), "{path}");
        }
    }

    #[test]
    fn who_did_not_come_over_the_socket_has_no_role_even_where_nobody_has_one() {
        let stranger = Principal::anonymous();
        assert!(stranger.roles.is_empty() && stranger.level().is_none() && stranger.run.is_none());
        for path in ["/cofferdam.v1.ToolService/ListTools", "/grpc.health.v1.Health/Check", ""] {
            assert!(!may_call(stranger.roles, path), "{path}");
        }
    }

    #[test]
    fn root_and_the_daemon_have_every_role_unless_listed() {
        let access = Access::new(500, vec![(0, Roles::none())]);
        assert_eq!(access.principal(500, 1).roles, Roles::all());
        assert!(access.principal(0, 0).roles.is_empty());
        assert_eq!(Access::new(500, vec![]).principal(0, 0).roles, Roles::all());
    }

    #[test]
    fn runs_of_others_are_the_operators_to_use_and_the_auditors_to_see() {
        let only = |role| Access::new(500, vec![(7, Roles::none().with(role))]).principal(7, 7);
        let orchestrator = only(Role::Orchestrator);
        assert!(
            orchestrator.may_use("uid:7") && !orchestrator.may_use("uid:8") && !orchestrator.may_see("uid:8")
        );
        assert!(only(Role::Operator).may_use("uid:8"));
        assert!(only(Role::Auditor).may_see("uid:8") && !only(Role::Auditor).may_use("uid:8"));
    }

    #[test]
    fn a_director_s_word_goes_further() {
        let level = |roles| Principal { name: String::new(), uid: 7, gid: 7, roles, run: None }.level();
        let (approver, director) = (Roles::none().with(Role::Approver), Roles::none().with(Role::Director));
        assert_eq!(level(approver), Some(Level::Approver));
        assert_eq!(level(director), Some(Level::Director));
        assert_eq!(level(Roles::all()), Some(Level::Director));
        assert_eq!(level(Roles::none().with(Role::Operator)), None);
    }

    #[test]
    fn a_run_token_opens_the_tools_of_its_run() {
        for path in [
            "/cofferdam.v1.ToolService/",
            "/cofferdam.v1.ToolService/Call/",
            "cofferdam.v1.ToolService/Call",
            "/cofferdam.v1.RunService/GetRun",
            "/cofferdam.v1.ApprovalService/DecideApproval",
            "/cofferdam.v1.PermissionService/GrantPermission",
            "/cofferdam.v1.AuditService/StreamEvents",
            "/cofferdam.v1.HostService/ExamineHost",
            "/grpc.health.v1.Health/Check",
        ] {
            assert!(!may_call_with_token(path), "{path}");
        }
        assert!(may_call_with_token("/cofferdam.v1.ToolService/Call"));
        let (run, other) = (RunId::new(), RunId::new());
        let named = Access::new(0, vec![]).principal(0, 0);
        let holder = Principal { roles: Roles::none(), run: Some(run), ..named };
        assert!(holder.may_use_run(run, "uid:0") && !holder.may_use_run(other, "uid:0"));
        assert!(!holder.may_use("uid:0") && !holder.may_see("uid:0"));
    }

    #[test]
    fn each_role_opens_its_own_doors() {
        let only = |role| Roles::none().with(role);
        assert!(may_call(only(Role::Approver), "/cofferdam.v1.ApprovalService/DecideApproval"));
        assert!(may_call(only(Role::Director), "/cofferdam.v1.ApprovalService/DecideApproval"));
        assert!(!may_call(only(Role::Operator), "/cofferdam.v1.ApprovalService/DecideApproval"));
        assert!(may_call(only(Role::Operator), "/cofferdam.v1.ApprovalService/RevokeConsent"));
        assert!(!may_call(only(Role::Orchestrator), "/cofferdam.v1.ApprovalService/RevokeConsent"));
        assert!(!may_call(only(Role::Director), "/cofferdam.v1.ToolService/Call"));
        assert!(!may_call(only(Role::Approver), "/cofferdam.v1.ToolService/Call"));
        assert!(may_call(only(Role::Orchestrator), "/cofferdam.v1.ToolService/Call"));
        assert!(!may_call(only(Role::Orchestrator), "/cofferdam.v1.AuditService/StreamEvents"));
        assert!(may_call(only(Role::Auditor), "/cofferdam.v1.AuditService/StreamEvents"));
        for method in ["GrantPermission", "RevokePermission", "ListPermissions"] {
            let path = format!("/cofferdam.v1.PermissionService/{method}");
            for role in [Role::Approver, Role::Orchestrator, Role::Auditor] {
                assert!(!may_call(only(role), &path), "{role:?} {method}");
            }
            assert!(may_call(only(Role::Operator), &path));
        }
        assert!(!may_call(only(Role::Orchestrator), "/cofferdam.v1.PolicyService/ReplayPolicy"));
        assert!(may_call(only(Role::Auditor), "/cofferdam.v1.AuditService/GetCheckpoint"));
        assert!(!may_call(only(Role::Auditor), "/cofferdam.v1.AuditService/RotateKey"));
        assert!(!may_call(only(Role::Auditor), "/cofferdam.v1.RunService/CreateRun"));
        assert!(!may_call(only(Role::Auditor), "/cofferdam.v1.TrashService/ReadTrash"));
        assert!(may_call(only(Role::Orchestrator), "/cofferdam.v1.TrashService/ReadTrash"));
        assert!(may_call(only(Role::Auditor), "/grpc.health.v1.Health/Check"));
        assert!(may_call(only(Role::Auditor), "/cofferdam.v1.AlertService/ListAlerts"));
        for role in [Role::Approver, Role::Orchestrator, Role::Auditor] {
            assert!(!may_call(only(role), "/cofferdam.v1.AlertService/AcknowledgeAlert"), "{role:?}");
        }
        for role in [Role::Approver, Role::Orchestrator, Role::Auditor] {
            assert!(!may_call(only(role), "/cofferdam.v1.TerminalService/OpenTerminal"), "{role:?}");
        }
        assert!(may_call(only(Role::Operator), "/cofferdam.v1.TerminalService/OpenTerminal"));
    }
}
