//! The identity of a client, its roles and its rights.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::RunId;

/// Role on the API. Not to be confused with an agent's role in the policy.
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
    /// An approver who may also decide on critical calls.
    Director,
}

impl Role {
    /// Roles and their names in the configuration.
    pub const ALL: [(&'static str, Self); 5] = [
        ("operator", Self::Operator),
        ("approver", Self::Approver),
        ("orchestrator", Self::Orchestrator),
        ("auditor", Self::Auditor),
        ("director", Self::Director),
    ];
}

/// Set of roles, stored by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<&'static str>", try_from = "Vec<String>")]
pub struct Roles(u8);

impl From<Roles> for Vec<&'static str> {
    fn from(roles: Roles) -> Self {
        roles.names()
    }
}

impl TryFrom<Vec<String>> for Roles {
    type Error = String;

    /// Parses names of roles; the error is the first unknown name.
    fn try_from(names: Vec<String>) -> Result<Self, String> {
        names.into_iter().try_fold(Self::none(), |roles, name| {
            let role = Role::ALL.into_iter().find(|(known, _)| *known == name);
            role.map(|(_, role)| roles.with(role)).ok_or(name)
        })
    }
}

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

    /// Returns true if `role` is in the set.
    pub fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    /// Returns the names in the configuration.
    pub fn names(self) -> Vec<&'static str> {
        Role::ALL.into_iter().filter(|(_, role)| self.has(*role)).map(|(name, _)| name).collect()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if all of `others` are in the set.
    pub fn covers(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns true if one of `roles` is in the set.
    pub fn has_any(self, roles: &[Role]) -> bool {
        roles.iter().any(|role| self.has(*role))
    }
}

/// Client at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Name in the record: `uid:1000`, `cert:NAME`, `token:NAME`, `oidc:ISSUER:SUBJECT`.
    pub name: String,
    /// User whose rights it has on the host's files; [`NOBODY`] for a caller without a user on this host.
    pub uid: u32,
    pub gid: u32,
    pub roles: Roles,
    /// Run whose token it has presented. It acts for the run's own principal, in this run only.
    pub run: Option<RunId>,
    /// Limits of the API token that it has presented.
    pub scope: Option<Arc<Scope>>,
    /// Address that it connected from; `None` for the Unix socket.
    pub address: Option<IpAddr>,
}

/// Overflow uid, user_namespaces(7): a caller without a user on this host.
pub const NOBODY: u32 = 65_534;

/// Runs to which a token is limited. An empty list limits nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub runs: Vec<RunId>,
    pub profiles: Vec<String>,
}

impl Scope {
    fn has_run(&self, run: RunId) -> bool {
        self.runs.is_empty() || self.runs.contains(&run)
    }

    fn has_profile(&self, profile: &str) -> bool {
        self.profiles.is_empty() || self.profiles.iter().any(|permitted| permitted == profile)
    }
}

impl Principal {
    /// Returns the name in the record for the subject of a client certificate.
    pub fn name_of_certificate(subject: &str) -> String {
        format!("cert:{subject}")
    }

    /// Returns the principal of a client without credentials that did not use the Unix socket. It has no role.
    pub fn anonymous() -> Self {
        Self {
            name: "anonymous".to_owned(),
            uid: NOBODY,
            gid: NOBODY,
            roles: Roles::none(),
            run: None,
            scope: None,
            address: None,
        }
    }

    /// Returns true if it may use the objects of `owner`: its own, and as an operator all.
    ///
    /// With a token that is limited to runs, only [`Self::may_use_run`] grants access.
    pub fn may_use(&self, owner: &str) -> bool {
        self.is_wide() && self.reaches(owner)
    }

    /// Returns true if it may use a run of `owner`.
    pub fn may_use_run(&self, run: RunId, profile: &str, owner: &str) -> bool {
        self.may_use_call(run, owner) && self.scope.as_ref().is_none_or(|scope| scope.has_profile(profile))
    }

    /// Returns true if it may use a call in a run of `owner`, provided that it may use the run.
    pub fn may_use_call(&self, run: RunId, owner: &str) -> bool {
        match self.run {
            Some(own) => own == run,
            None => self.reaches(owner) && self.scope.as_ref().is_none_or(|scope| scope.has_run(run)),
        }
    }

    /// Returns true if it may create a run of this profile.
    pub fn may_make(&self, profile: &str) -> bool {
        let permits = |scope: &Arc<Scope>| scope.runs.is_empty() && scope.has_profile(profile);
        self.run.is_none() && self.scope.as_ref().is_none_or(permits)
    }

    /// Returns true if it may read the objects of `owner`. Reviewers and auditors may read all.
    pub fn may_see(&self, owner: &str) -> bool {
        self.is_wide() && (self.reaches(owner) || self.reviews())
    }

    /// Returns true if it may read a run of `owner`.
    pub fn may_see_run(&self, run: RunId, profile: &str, owner: &str) -> bool {
        let permits = |scope: &Arc<Scope>| scope.has_run(run) && scope.has_profile(profile);
        self.run.is_none()
            && (self.reaches(owner) || self.reviews())
            && self.scope.as_ref().is_none_or(permits)
    }

    fn is_wide(&self) -> bool {
        self.run.is_none() && self.scope.is_none()
    }

    fn reaches(&self, owner: &str) -> bool {
        self.name == owner || self.roles.has(Role::Operator)
    }

    fn reviews(&self) -> bool {
        self.roles.has_any(&[Role::Approver, Role::Director, Role::Auditor])
    }
}

/// Identity in a client certificate, and its rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    /// Common name, or the URI among the alternative names.
    pub subject: String,
    pub roles: Roles,
    /// User and group whose rights it has on the host's files.
    pub user: Option<(u32, u32)>,
}

/// Roles of users and certificates.
#[derive(Debug, Clone)]
pub struct Access {
    own_uid: u32,
    granted: Vec<(u32, Roles)>,
    certified: Vec<Certified>,
}

impl Access {
    /// Creates the table. A listed uid has the listed roles. Otherwise root and the daemon's own uid have every role, and all others none.
    pub fn new(own_uid: u32, granted: Vec<(u32, Roles)>, certified: Vec<Certified>) -> Self {
        Self { own_uid, granted, certified }
    }

    /// Returns the principal with this uid and primary group.
    pub fn principal(&self, uid: u32, gid: u32) -> Principal {
        let listed = self.granted.iter().find(|(listed, _)| *listed == uid).map(|(_, roles)| *roles);
        let roles = match listed {
            Some(roles) => roles,
            None if uid == 0 || uid == self.own_uid => Roles::all(),
            None => Roles::none(),
        };
        Principal { name: format!("uid:{uid}"), uid, gid, roles, ..Principal::anonymous() }
    }

    /// Returns the principal that a certificate names.
    pub fn certified(&self, subject: &str) -> Principal {
        let listed = self.certified.iter().find(|listed| listed.subject == subject);
        let roles = listed.map_or(Roles::none(), |listed| listed.roles);
        let (uid, gid) = listed.and_then(|listed| listed.user).unwrap_or((NOBODY, NOBODY));
        Principal { name: Principal::name_of_certificate(subject), uid, gid, roles, ..Principal::anonymous() }
    }

    /// Returns the roles of the user or the certificate with this name of a principal. `None` if a principal of this name has another
    /// credential.
    pub fn roles_of(&self, name: &str) -> Option<Roles> {
        if let Some(uid) = name.strip_prefix("uid:") {
            return uid.parse().ok().map(|uid| self.principal(uid, NOBODY).roles);
        }
        name.strip_prefix("cert:").map(|subject| self.certified(subject).roles)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Access, Certified, Principal, Role, Roles, Scope};
    use crate::ids::RunId;
    use crate::methods::{METHODS, method};

    fn only(role: Role) -> Principal {
        Access::new(500, vec![(7, Roles::none().with(role))], vec![]).principal(7, 7)
    }

    #[test]
    fn users_without_an_entry_have_no_role() {
        let access = Access::new(500, vec![(7, Roles::none().with(Role::Auditor))], vec![]);
        for principal in [access.principal(1234, 1234), access.certified("ci"), Principal::anonymous()] {
            assert!(principal.roles.is_empty() && principal.run.is_none());
            assert!(!METHODS.iter().any(|method| principal.roles.has_any(method.roles)));
        }
    }

    #[test]
    fn a_name_has_the_roles_of_its_user_or_its_certificate() {
        let ci = Certified { subject: "ci".into(), roles: Roles::none().with(Role::Director), user: None };
        let access = Access::new(500, vec![(7, Roles::none().with(Role::Approver))], vec![ci]);
        let roles = |name: &str| access.roles_of(name).map(Roles::names);
        assert_eq!((roles("uid:7"), roles("cert:ci")), (Some(vec!["approver"]), Some(vec!["director"])));
        assert_eq!((roles("uid:8"), roles("cert:7")), (Some(vec![]), Some(vec![])));
        assert_eq!((roles("token:ci"), roles("oidc:corp:7"), roles("uid:x")), (None, None, None));
    }

    #[test]
    fn root_and_the_daemon_have_every_role_unless_listed() {
        let access = Access::new(500, vec![(0, Roles::none())], vec![]);
        assert_eq!(access.principal(500, 1).roles, Roles::all());
        assert!(access.principal(0, 0).roles.is_empty());
        assert_eq!(Access::new(500, vec![], vec![]).principal(0, 0).roles, Roles::all());
    }

    #[test]
    fn a_certificate_has_the_roles_of_its_subject() {
        let auditor = Roles::none().with(Role::Auditor);
        let listed = |subject: &str, user| Certified { subject: subject.into(), roles: auditor, user };
        let access = Access::new(0, vec![], vec![listed("ci", Some((7, 8))), listed("uid:0", None)]);
        let ci = access.certified("ci");
        assert_eq!((ci.name.as_str(), ci.uid, ci.gid, ci.roles), ("cert:ci", 7, 8, auditor));
        // No subject makes one into a user of the host, and none is found by a part of it.
        assert_eq!(access.certified("uid:0").name, "cert:uid:0");
        assert!(access.certified("c").roles.is_empty() && access.certified("").roles.is_empty());
    }

    #[test]
    fn runs_of_others_are_the_operators_to_use_and_the_auditors_to_see() {
        let orchestrator = only(Role::Orchestrator);
        assert!(
            orchestrator.may_use("uid:7") && !orchestrator.may_use("uid:8") && !orchestrator.may_see("uid:8")
        );
        assert!(only(Role::Operator).may_use("uid:8"));
        assert!(only(Role::Auditor).may_see("uid:8") && !only(Role::Auditor).may_use("uid:8"));
    }

    #[test]
    fn a_run_token_opens_its_run_alone() {
        let (run, other) = (RunId::new(), RunId::new());
        let named = Access::new(0, vec![], vec![]).principal(0, 0);
        let holder = Principal { roles: Roles::none(), run: Some(run), ..named };
        assert!(holder.may_use_run(run, "open", "uid:0") && !holder.may_use_run(other, "open", "uid:0"));
        assert!(!holder.may_use("uid:0") && !holder.may_see("uid:0") && !holder.may_make("open"));
        assert!(!holder.may_see_run(run, "open", "uid:0"));
    }

    /// Whatever roles it has: an operator's token that is limited reaches no further.
    #[test]
    fn a_limited_token_reaches_its_runs_alone() {
        let (run, other) = (RunId::new(), RunId::new());
        let to = |runs: &[RunId], profiles: &[&str]| {
            let profiles = profiles.iter().map(ToString::to_string).collect();
            let scope = Some(Arc::new(Scope { runs: runs.to_vec(), profiles }));
            Principal { scope, roles: Roles::all(), ..only(Role::Operator) }
        };
        for holder in [to(&[run], &[]), to(&[run], &["open"]), to(&[], &["open"])] {
            assert!(!holder.may_use("uid:7") && !holder.may_see("uid:7"));
            assert!(holder.may_use_run(run, "open", "uid:8") && holder.may_see_run(run, "open", "uid:8"));
        }
        let of_run = to(&[run], &[]);
        assert!(!of_run.may_use_run(other, "open", "uid:7") && !of_run.may_see_run(other, "open", "uid:7"));
        assert!(!of_run.may_use_call(other, "uid:7") && !of_run.may_make("open"));
        let of_profile = to(&[], &["open"]);
        assert!(
            !of_profile.may_use_run(run, "build", "uid:7") && !of_profile.may_see_run(run, "build", "uid:7")
        );
        assert!(of_profile.may_make("open") && !of_profile.may_make("build"));
        // Without the role it does not reach others' runs either.
        let plain = Principal { roles: Roles::none().with(Role::Orchestrator), ..to(&[run], &[]) };
        assert!(plain.may_use_run(run, "open", "uid:7") && !plain.may_use_run(run, "open", "uid:8"));
    }

    #[test]
    fn roles_are_kept_by_their_names() {
        let roles = Roles::none().with(Role::Auditor).with(Role::Operator);
        assert_eq!(Roles::try_from(vec!["auditor".to_owned(), "operator".to_owned()]), Ok(roles));
        assert_eq!(Roles::try_from(vec!["king".to_owned()]), Err("king".to_owned()));
        assert!(Roles::all().covers(roles) && roles.covers(roles) && !roles.covers(Roles::all()));
    }

    #[test]
    fn each_role_opens_its_methods() {
        let may_call = |role, path: &str| {
            let method = method(&format!("/cofferdam.v1.{path}")).expect(path);
            Roles::none().with(role).has_any(method.roles)
        };
        assert!(may_call(Role::Approver, "ApprovalService/DecideApproval"));
        assert!(may_call(Role::Director, "ApprovalService/DecideApproval"));
        assert!(!may_call(Role::Operator, "ApprovalService/DecideApproval"));
        assert!(may_call(Role::Operator, "ApprovalService/RevokeConsent"));
        assert!(!may_call(Role::Orchestrator, "ApprovalService/RevokeConsent"));
        assert!(!may_call(Role::Director, "ToolService/Call"));
        assert!(!may_call(Role::Approver, "ToolService/Call"));
        assert!(may_call(Role::Orchestrator, "ToolService/Call"));
        assert!(!may_call(Role::Orchestrator, "AuditService/StreamEvents"));
        assert!(may_call(Role::Auditor, "AuditService/StreamEvents"));
        assert!(!may_call(Role::Orchestrator, "PolicyService/ReplayPolicy"));
        assert!(may_call(Role::Auditor, "AuditService/GetCheckpoint"));
        assert!(!may_call(Role::Auditor, "AuditService/RotateKey"));
        assert!(!may_call(Role::Auditor, "RunService/CreateRun"));
        assert!(!may_call(Role::Auditor, "TrashService/ReadTrash"));
        assert!(may_call(Role::Orchestrator, "TrashService/ReadTrash"));
        assert!(may_call(Role::Auditor, "AlertService/ListAlerts"));
        for path in [
            "PermissionService/GrantPermission",
            "PermissionService/RevokePermission",
            "PermissionService/ListPermissions",
            "AlertService/AcknowledgeAlert",
            "TerminalService/OpenTerminal",
            "TerminalService/ReadRecording",
            "TokenService/CreateToken",
        ] {
            for role in [Role::Approver, Role::Orchestrator, Role::Auditor, Role::Director] {
                assert!(!may_call(role, path), "{role:?} {path}");
            }
            assert!(may_call(Role::Operator, path));
        }
    }
}
