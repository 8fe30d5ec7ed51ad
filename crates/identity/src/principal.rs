//! Who connected, and what is theirs.

use std::net::IpAddr;
use std::sync::Arc;

use gateway::Level;
use serde::{Deserialize, Serialize};

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

/// Kept by their names.
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

    /// By their names; the error is the first name that is none.
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

    /// Whether all of `others` are among them.
    pub fn covers(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether one of `roles` is among them.
    pub fn has_any(self, roles: &[Role]) -> bool {
        roles.iter().any(|role| self.has(*role))
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// As the record names it: `uid:1000`, `cert:NAME`, `token:NAME`, `oidc:ISSUER:SUBJECT`.
    pub name: String,
    /// Whose rights it has on the host's files; [`NOBODY`] where that is nobody in particular.
    pub uid: u32,
    pub gid: u32,
    pub roles: Roles,
    /// It has presented this run's token: it acts for the run's own principal, in this run and nowhere else.
    pub run: Option<RunId>,
    /// It has presented an API token that is limited to these runs.
    pub scope: Option<Arc<Scope>>,
    /// Where it connected from, unless by the Unix socket.
    pub address: Option<IpAddr>,
}

/// The overflow uid, user_namespaces(7): a caller without a user on this host.
pub const NOBODY: u32 = 65_534;

/// The runs to which a token is limited. An empty list limits nothing.
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
    /// What the record calls the subject of a client certificate.
    pub fn name_of_certificate(subject: &str) -> String {
        format!("cert:{subject}")
    }

    /// A client without a credential that did not come over the Unix socket. It has no role.
    pub fn anonymous() -> Self {
        Self {
            name: "stranger".to_owned(),
            uid: NOBODY,
            gid: NOBODY,
            roles: Roles::none(),
            run: None,
            scope: None,
            address: None,
        }
    }

    /// Whether it may use what `owner` made: its own, and an operator everything. With a token that is limited to runs nothing
    /// but what [`Self::may_use_run`] says.
    pub fn may_use(&self, owner: &str) -> bool {
        self.is_wide() && self.reaches(owner)
    }

    /// Whether it may use a run of `owner`'s.
    pub fn may_use_run(&self, run: RunId, profile: &str, owner: &str) -> bool {
        self.may_use_call(run, owner) && self.scope.as_ref().is_none_or(|scope| scope.has_profile(profile))
    }

    /// Whether it may use a call in a run of `owner`'s, as long as it may use the run.
    pub fn may_use_call(&self, run: RunId, owner: &str) -> bool {
        match self.run {
            Some(own) => own == run,
            None => self.reaches(owner) && self.scope.as_ref().is_none_or(|scope| scope.has_run(run)),
        }
    }

    /// Whether it may make a run of this profile.
    pub fn may_make(&self, profile: &str) -> bool {
        let permits = |scope: &Arc<Scope>| scope.runs.is_empty() && scope.has_profile(profile);
        self.run.is_none() && self.scope.as_ref().is_none_or(permits)
    }

    /// Whether it may look at what `owner` made: reviewers and auditors have to.
    pub fn may_see(&self, owner: &str) -> bool {
        self.is_wide() && (self.reaches(owner) || self.reviews())
    }

    /// Whether it may look at a run of `owner`'s.
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

    /// How far its word goes on approvals.
    pub fn level(&self) -> Option<Level> {
        if self.roles.has(Role::Director) {
            Some(Level::Director)
        } else {
            self.roles.has(Role::Approver).then_some(Level::Approver)
        }
    }
}

/// Whom a client certificate names, and what that is worth here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    /// The common name, or the URI among the alternative names.
    pub subject: String,
    pub roles: Roles,
    /// Whose rights it has on the host's files.
    pub user: Option<(u32, u32)>,
}

/// Who has which roles.
#[derive(Debug, Clone)]
pub struct Access {
    own_uid: u32,
    granted: Vec<(u32, Roles)>,
    certified: Vec<Certified>,
}

impl Access {
    /// Root and the daemon's own uid have every role, the listed ones what is listed, everybody else none.
    pub fn new(own_uid: u32, granted: Vec<(u32, Roles)>, certified: Vec<Certified>) -> Self {
        Self { own_uid, granted, certified }
    }

    /// The principal with this uid and primary group.
    pub fn principal(&self, uid: u32, gid: u32) -> Principal {
        let listed = self.granted.iter().find(|(listed, _)| *listed == uid).map(|(_, roles)| *roles);
        let roles = match listed {
            Some(roles) => roles,
            None if uid == 0 || uid == self.own_uid => Roles::all(),
            None => Roles::none(),
        };
        Principal { name: format!("uid:{uid}"), uid, gid, roles, ..Principal::anonymous() }
    }

    /// The principal whom a certificate names.
    pub fn certified(&self, subject: &str) -> Principal {
        let listed = self.certified.iter().find(|listed| listed.subject == subject);
        let roles = listed.map_or(Roles::none(), |listed| listed.roles);
        let (uid, gid) = listed.and_then(|listed| listed.user).unwrap_or((NOBODY, NOBODY));
        Principal { name: Principal::name_of_certificate(subject), uid, gid, roles, ..Principal::anonymous() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gateway::Level;

    use super::{Access, Certified, Principal, Role, Roles, Scope};
    use crate::ids::RunId;
    use crate::methods::{METHODS, method};

    fn only(role: Role) -> Principal {
        Access::new(500, vec![(7, Roles::none().with(role))], vec![]).principal(7, 7)
    }

    #[test]
    fn strangers_have_no_role() {
        let access = Access::new(500, vec![(7, Roles::none().with(Role::Auditor))], vec![]);
        for stranger in [access.principal(1234, 1234), access.certified("ci"), Principal::anonymous()] {
            assert!(stranger.roles.is_empty() && stranger.level().is_none() && stranger.run.is_none());
            assert!(!METHODS.iter().any(|method| stranger.roles.has_any(method.roles)));
        }
    }

    #[test]
    fn root_and_the_daemon_have_every_role_unless_listed() {
        let access = Access::new(500, vec![(0, Roles::none())], vec![]);
        assert_eq!(access.principal(500, 1).roles, Roles::all());
        assert!(access.principal(0, 0).roles.is_empty());
        assert_eq!(Access::new(500, vec![], vec![]).principal(0, 0).roles, Roles::all());
    }

    #[test]
    fn a_certificate_is_worth_what_is_listed_for_its_subject() {
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
    fn a_director_s_word_goes_further() {
        let level = |roles| Principal { roles, ..Principal::anonymous() }.level();
        let (approver, director) = (Roles::none().with(Role::Approver), Roles::none().with(Role::Director));
        assert_eq!(level(approver), Some(Level::Approver));
        assert_eq!(level(director), Some(Level::Director));
        assert_eq!(level(Roles::all()), Some(Level::Director));
        assert_eq!(level(Roles::none().with(Role::Operator)), None);
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
    fn each_role_opens_its_own_doors() {
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
            "TokenService/CreateToken",
        ] {
            for role in [Role::Approver, Role::Orchestrator, Role::Auditor, Role::Director] {
                assert!(!may_call(role, path), "{role:?} {path}");
            }
            assert!(may_call(Role::Operator, path));
        }
    }
}
