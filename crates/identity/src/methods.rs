//! The access rules of each method: the required roles, and the accepted credentials.
//!
//! A method without a row is closed to every caller. `crates/daemon` tests that every method of the descriptors has a row.

use crate::principal::Role::{self, Approver, Auditor, Director, Operator, Orchestrator};

/// Proof of a caller's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// User id of the peer on the Unix socket, as the kernel reports it.
    Uid,
    /// Client certificate that the configured authority has signed.
    Certificate,
    /// API token, or token of an issuer.
    Token,
    /// Token that is limited to profiles or runs.
    NarrowToken,
    /// Token of one run.
    RunToken,
}

impl Credential {
    pub const ALL: [Self; 5] = [Self::Uid, Self::Certificate, Self::Token, Self::NarrowToken, Self::RunToken];
}

/// Method with its required roles and accepted credentials.
#[derive(Debug)]
pub struct Method {
    /// Path, such as `/cofferdam.v1.ToolService/Call`.
    pub path: &'static str,
    /// Roles of which the caller needs one, except with a run's token.
    pub roles: &'static [Role],
    pub credentials: &'static [Credential],
    /// True for short methods that stop, list, renew or decide. A part of each request quota is reserved for them.
    pub steers: bool,
    /// True if a client certificate opens it without a role: the health that a balancer asks for.
    pub admits_certificates: bool,
}

/// Credentials of people and machines with a lasting identity.
///
/// For methods that give rights to others, and for decisions that a person has to make.
const IN_PERSON: &[Credential] = &[Credential::Uid, Credential::Certificate];
/// Credentials for methods that concern the daemon as a whole.
const WIDE: &[Credential] = &[Credential::Uid, Credential::Certificate, Credential::Token];
/// Credentials for methods that concern runs, and return only runs that the caller may see.
const RUNS: &[Credential] =
    &[Credential::Uid, Credential::Certificate, Credential::Token, Credential::NarrowToken];
/// Credentials for the tools of a run, and the processes that they start.
const TOOLS: &[Credential] = &Credential::ALL;

const EVERYBODY: &[Role] = &[Operator, Approver, Orchestrator, Auditor, Director];
const MAKERS: &[Role] = &[Operator, Orchestrator];
const REVIEWERS: &[Role] = &[Operator, Orchestrator, Approver, Director];
const READERS: &[Role] = &[Operator, Auditor];

const fn row(path: &'static str, roles: &'static [Role], credentials: &'static [Credential]) -> Method {
    Method { path, roles, credentials, steers: false, admits_certificates: false }
}

const fn steers(path: &'static str, roles: &'static [Role], credentials: &'static [Credential]) -> Method {
    Method { steers: true, ..row(path, roles, credentials) }
}

/// The check of a balancer, whose certificate has no role, because each of its clients would have it.
const HEALTH: Method =
    Method { admits_certificates: true, ..steers("/grpc.health.v1.Health/Check", EVERYBODY, RUNS) };

/// Access rules of every method that is served.
pub const METHODS: &[Method] = &[
    steers("/cofferdam.v1.AlertService/AcknowledgeAlert", &[Operator], WIDE),
    steers("/cofferdam.v1.AlertService/GetAlert", EVERYBODY, WIDE),
    steers("/cofferdam.v1.AlertService/ListAlerts", EVERYBODY, WIDE),
    row("/cofferdam.v1.AlertService/WatchAlerts", EVERYBODY, WIDE),
    steers("/cofferdam.v1.ApprovalService/DecideApproval", &[Approver, Director], RUNS),
    steers("/cofferdam.v1.ApprovalService/GetApproval", REVIEWERS, RUNS),
    steers("/cofferdam.v1.ApprovalService/ListApprovals", REVIEWERS, RUNS),
    steers("/cofferdam.v1.ApprovalService/ListConsents", REVIEWERS, RUNS),
    // It only takes rights away.
    steers("/cofferdam.v1.ApprovalService/RevokeConsent", &[Operator, Approver, Director], WIDE),
    row("/cofferdam.v1.ApprovalService/WatchApprovals", REVIEWERS, RUNS),
    // A caller who is neither operator nor auditor gets bundles only of the runs that it owns.
    row("/cofferdam.v1.AuditService/CreateBundle", &[Operator, Auditor, Orchestrator], WIDE),
    row("/cofferdam.v1.AuditService/GetCheckpoint", READERS, WIDE),
    row("/cofferdam.v1.AuditService/QueryEvents", READERS, WIDE),
    row("/cofferdam.v1.AuditService/RebuildIndex", &[Operator], WIDE),
    row("/cofferdam.v1.AuditService/RotateKey", &[Operator], IN_PERSON),
    row("/cofferdam.v1.AuditService/StreamEvents", READERS, WIDE),
    row("/cofferdam.v1.AuditService/VerifyLog", READERS, WIDE),
    // It holds the keys of the daemon.
    row("/cofferdam.v1.BackupService/CreateBackup", &[Operator], IN_PERSON),
    row("/cofferdam.v1.BaseService/CreateBase", MAKERS, WIDE),
    row("/cofferdam.v1.BaseService/DeleteBase", MAKERS, WIDE),
    // Files leave the host, and come to it from another one.
    row("/cofferdam.v1.BaseService/ExportBase", &[Operator], IN_PERSON),
    row("/cofferdam.v1.BaseService/GetBase", MAKERS, WIDE),
    row("/cofferdam.v1.BaseService/ImportBase", &[Operator], IN_PERSON),
    row("/cofferdam.v1.BaseService/ListBases", MAKERS, WIDE),
    row("/cofferdam.v1.BaseService/VerifyBase", MAKERS, WIDE),
    row("/cofferdam.v1.CheckpointService/CheckpointRun", MAKERS, RUNS),
    row("/cofferdam.v1.CheckpointService/CompareRuns", MAKERS, RUNS),
    row("/cofferdam.v1.CheckpointService/DeleteCheckpoint", MAKERS, WIDE),
    row("/cofferdam.v1.CheckpointService/ForkRun", MAKERS, WIDE),
    row("/cofferdam.v1.CheckpointService/GetRunCheckpoint", MAKERS, WIDE),
    row("/cofferdam.v1.CheckpointService/ListCheckpoints", MAKERS, WIDE),
    row("/cofferdam.v1.CheckpointService/RestoreRun", MAKERS, RUNS),
    // The link opens no more than the credential of its maker, and ends with it.
    row("/cofferdam.v1.ConsoleService/CreateConsoleLink", EVERYBODY, RUNS),
    steers("/cofferdam.v1.ConsoleService/GetViewer", EVERYBODY, RUNS),
    steers("/cofferdam.v1.DaemonService/GetDaemonStatus", EVERYBODY, WIDE),
    row("/cofferdam.v1.DaemonService/ReloadDaemon", &[Operator], WIDE),
    steers("/cofferdam.v1.DaemonService/SetLogLevel", &[Operator], WIDE),
    steers("/cofferdam.v1.EgressService/GetEgress", EVERYBODY, TOOLS),
    steers("/cofferdam.v1.EgressService/NarrowEgress", MAKERS, RUNS),
    row("/cofferdam.v1.EgressService/WatchConnections", EVERYBODY, RUNS),
    // It gives rights that the policy does not.
    row("/cofferdam.v1.EgressService/WidenEgress", &[Operator], WIDE),
    row("/cofferdam.v1.FileService/DownloadArchive", MAKERS, TOOLS),
    row("/cofferdam.v1.FileService/DownloadFile", MAKERS, TOOLS),
    row("/cofferdam.v1.FileService/GetUpload", MAKERS, TOOLS),
    row("/cofferdam.v1.FileService/UploadArchive", MAKERS, TOOLS),
    row("/cofferdam.v1.FileService/UploadFile", MAKERS, TOOLS),
    row("/cofferdam.v1.ForwardService/ForwardPort", MAKERS, TOOLS),
    row("/cofferdam.v1.HostService/ExamineHost", EVERYBODY, WIDE),
    steers("/cofferdam.v1.HostService/GetPool", EVERYBODY, WIDE),
    row("/cofferdam.v1.ImageService/BuildImage", &[Operator], WIDE),
    row("/cofferdam.v1.ImageService/ExportImage", &[Operator], IN_PERSON),
    row("/cofferdam.v1.ImageService/ImportImage", &[Operator], WIDE),
    row("/cofferdam.v1.ImageService/ListImages", &[Operator], WIDE),
    steers("/cofferdam.v1.LimitService/GetRateLimits", EVERYBODY, WIDE),
    steers("/cofferdam.v1.LimitService/GetTenants", EVERYBODY, WIDE),
    steers("/cofferdam.v1.LimitService/ThrottleAgent", &[Operator], WIDE),
    steers("/cofferdam.v1.NodeService/DrainNode", &[Operator], WIDE),
    steers("/cofferdam.v1.NodeService/GetNode", EVERYBODY, WIDE),
    steers("/cofferdam.v1.NodeService/UndrainNode", &[Operator], WIDE),
    row("/cofferdam.v1.NodeService/WatchNode", EVERYBODY, WIDE),
    steers("/cofferdam.v1.PasskeyService/BeginConsent", &[Approver, Director], RUNS),
    row("/cofferdam.v1.PasskeyService/BeginRegistration", &[Approver, Director], WIDE),
    row("/cofferdam.v1.PasskeyService/FinishRegistration", &[Approver, Director], WIDE),
    steers("/cofferdam.v1.PasskeyService/ListPasskeys", &[Operator, Auditor, Approver, Director], WIDE),
    // With a stolen token, a passkey could be replaced.
    steers("/cofferdam.v1.PasskeyService/RemovePasskey", &[Operator], IN_PERSON),
    row("/cofferdam.v1.PermissionService/GrantPermission", &[Operator], WIDE),
    steers("/cofferdam.v1.PermissionService/ListPermissions", &[Operator], WIDE),
    steers("/cofferdam.v1.PermissionService/RevokePermission", &[Operator], WIDE),
    row("/cofferdam.v1.PolicyService/ExplainPolicy", EVERYBODY, WIDE),
    row("/cofferdam.v1.PolicyService/GetPolicy", EVERYBODY, WIDE),
    row("/cofferdam.v1.PolicyService/ReloadPolicy", &[Operator], WIDE),
    row("/cofferdam.v1.PolicyService/ReplayPolicy", READERS, WIDE),
    row("/cofferdam.v1.ProcessService/AttachProcess", MAKERS, TOOLS),
    steers("/cofferdam.v1.ProcessService/ListProcesses", MAKERS, TOOLS),
    row("/cofferdam.v1.ProcessService/ResizeTerminal", MAKERS, TOOLS),
    steers("/cofferdam.v1.ProcessService/SignalProcess", MAKERS, TOOLS),
    row("/cofferdam.v1.ProcessService/StartProcess", MAKERS, TOOLS),
    row("/cofferdam.v1.ProcessService/WaitProcess", MAKERS, TOOLS),
    row("/cofferdam.v1.ProcessService/WriteStdin", MAKERS, TOOLS),
    row("/cofferdam.v1.PushService/GetPushKey", &[Approver, Director], WIDE),
    row("/cofferdam.v1.PushService/ListSubscriptions", &[Approver, Director], WIDE),
    row("/cofferdam.v1.PushService/Subscribe", &[Approver, Director], WIDE),
    row("/cofferdam.v1.PushService/Unsubscribe", &[Approver, Director], WIDE),
    row("/cofferdam.v1.RunService/AcceptRun", MAKERS, RUNS),
    row("/cofferdam.v1.RunService/CreateRun", MAKERS, RUNS),
    steers("/cofferdam.v1.RunService/DeleteRun", MAKERS, RUNS),
    row("/cofferdam.v1.RunService/DeleteWorkspace", MAKERS, WIDE),
    row("/cofferdam.v1.RunService/DiffRun", MAKERS, RUNS),
    row("/cofferdam.v1.RunService/DiscardRun", MAKERS, RUNS),
    steers("/cofferdam.v1.RunService/ExtendRun", MAKERS, RUNS),
    steers("/cofferdam.v1.RunService/GetRun", EVERYBODY, RUNS),
    // A limited token could otherwise outlive itself in a run token without limits.
    steers("/cofferdam.v1.RunService/IssueRunToken", MAKERS, WIDE),
    steers("/cofferdam.v1.RunService/KeepAliveRun", MAKERS, RUNS),
    steers("/cofferdam.v1.RunService/ListRuns", EVERYBODY, RUNS),
    row("/cofferdam.v1.RunService/ListWorkspaces", MAKERS, WIDE),
    steers("/cofferdam.v1.RunService/PauseRun", MAKERS, RUNS),
    // Output of a program, which the agent may have caused, and which no caller of tools needs.
    row("/cofferdam.v1.RunService/ReadCompanionLogs", MAKERS, RUNS),
    row("/cofferdam.v1.RunService/ResumeRun", MAKERS, RUNS),
    steers("/cofferdam.v1.RunService/StopRun", MAKERS, RUNS),
    row("/cofferdam.v1.RunService/WatchRuns", EVERYBODY, RUNS),
    steers("/cofferdam.v1.SessionService/CloseSession", MAKERS, TOOLS),
    steers("/cofferdam.v1.SessionService/InterruptSession", MAKERS, TOOLS),
    steers("/cofferdam.v1.SessionService/ListSessions", MAKERS, TOOLS),
    row("/cofferdam.v1.SessionService/OpenSession", MAKERS, TOOLS),
    row("/cofferdam.v1.SessionService/RunInSession", MAKERS, TOOLS),
    row("/cofferdam.v1.TerminalService/OpenTerminal", &[Operator], IN_PERSON),
    // It shows what a person saw at a terminal.
    row("/cofferdam.v1.TerminalService/ReadRecording", &[Operator], IN_PERSON),
    row("/cofferdam.v1.TokenService/CreateToken", &[Operator], IN_PERSON),
    steers("/cofferdam.v1.TokenService/ListTokens", &[Operator], IN_PERSON),
    steers("/cofferdam.v1.TokenService/RevokeToken", &[Operator], IN_PERSON),
    row("/cofferdam.v1.ToolService/Call", MAKERS, TOOLS),
    row("/cofferdam.v1.ToolService/CallStream", MAKERS, TOOLS),
    steers("/cofferdam.v1.ToolService/CancelCall", MAKERS, TOOLS),
    row("/cofferdam.v1.ToolService/GetCall", MAKERS, TOOLS),
    row("/cofferdam.v1.ToolService/ListTools", MAKERS, TOOLS),
    row("/cofferdam.v1.ToolService/StepTranscript", MAKERS, TOOLS),
    row("/cofferdam.v1.TrashService/ListTrash", MAKERS, RUNS),
    row("/cofferdam.v1.TrashService/ReadTrash", MAKERS, RUNS),
    // Use beyond that of its own runs is shown to operators and auditors only.
    row("/cofferdam.v1.UsageService/GetUsage", EVERYBODY, RUNS),
    HEALTH,
    row("/grpc.health.v1.Health/Watch", EVERYBODY, RUNS),
    row("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", EVERYBODY, RUNS),
    row("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", EVERYBODY, RUNS),
];

/// Returns the row of the method with this path.
pub fn method(path: &str) -> Option<&'static Method> {
    let at = METHODS.binary_search_by_key(&path, |method| method.path).ok()?;
    METHODS.get(at)
}

#[cfg(test)]
mod tests {
    use super::{Credential, METHODS, Role, method};

    #[test]
    fn a_certificate_alone_opens_the_check_of_health_and_nothing_else() {
        let open: Vec<&str> =
            METHODS.iter().filter(|method| method.admits_certificates).map(|method| method.path).collect();
        assert_eq!(open, ["/grpc.health.v1.Health/Check"]);
    }

    #[test]
    fn the_table_is_sorted_and_each_row_is_found_by_its_path_alone() {
        assert!(METHODS.is_sorted_by(|one, next| one.path < next.path));
        for one in METHODS {
            assert_eq!(method(one.path).map(|found| found.path), Some(one.path));
            assert!(!one.roles.is_empty() && !one.credentials.is_empty(), "{}", one.path);
            for near in [&one.path[1..], &format!("{}/", one.path), &one.path.to_uppercase()] {
                assert!(method(near).is_none(), "{near}");
            }
        }
        assert!(method("").is_none() && method("/cofferdam.v1.ToolService/").is_none());
    }

    /// Which role may call what came with runs that last, and with which credentials: nothing of it is for the agent in a run.
    #[test]
    fn lasting_runs_and_bases_are_for_their_makers_and_images_for_operators() {
        use Credential::{Certificate, NarrowToken, RunToken, Token, Uid};
        let table: [(&str, &[Role], bool); 9] = [
            ("RunService/ExtendRun", &[Role::Operator, Role::Orchestrator], true),
            ("RunService/KeepAliveRun", &[Role::Operator, Role::Orchestrator], true),
            ("RunService/IssueRunToken", &[Role::Operator, Role::Orchestrator], false),
            ("BaseService/CreateBase", &[Role::Operator, Role::Orchestrator], false),
            ("BaseService/VerifyBase", &[Role::Operator, Role::Orchestrator], false),
            ("BaseService/DeleteBase", &[Role::Operator, Role::Orchestrator], false),
            ("ImageService/BuildImage", &[Role::Operator], false),
            ("ImageService/ImportImage", &[Role::Operator], false),
            ("ImageService/ListImages", &[Role::Operator], false),
        ];
        for (name, roles, narrow) in table {
            let row = method(&format!("/cofferdam.v1.{name}")).unwrap();
            assert_eq!(row.roles, roles, "{name}");
            let opens = |credential| row.credentials.contains(&credential);
            assert!(opens(Uid) && opens(Certificate) && opens(Token), "{name}");
            assert_eq!((opens(NarrowToken), opens(RunToken)), (narrow, false), "{name}");
        }
    }

    /// An export takes files off the host, and an import of a base brings them without a look at their content.
    #[test]
    fn exports_and_imports_of_bases_are_for_operators_in_person() {
        use Credential::{Certificate, Uid};
        for name in ["ImageService/ExportImage", "BaseService/ExportBase", "BaseService/ImportBase"] {
            let row = method(&format!("/cofferdam.v1.{name}")).unwrap();
            assert_eq!(row.roles, [Role::Operator], "{name}");
            assert_eq!(row.credentials, [Uid, Certificate], "{name}");
            assert!(!row.steers, "{name}");
        }
    }

    /// A terminal may pause its run (`paused`), which asks for no role of its own.
    #[test]
    fn roles_that_open_terminals_may_pause_runs() {
        let row = |name: &str| method(&format!("/cofferdam.v1.{name}")).unwrap();
        let (opens, pauses) = (row("TerminalService/OpenTerminal"), row("RunService/PauseRun"));
        assert!(opens.roles.iter().all(|role| pauses.roles.contains(role)));
        assert!(opens.credentials.iter().all(|credential| pauses.credentials.contains(credential)));
    }

    /// A method that waits, streams or executes would use up the part that is kept for stopping it.
    #[test]
    fn the_methods_that_steer_neither_wait_nor_execute() {
        let steers = |name: &str| method(&format!("/cofferdam.v1.{name}")).unwrap().steers;
        for name in [
            "ApprovalService/DecideApproval",
            "ApprovalService/ListApprovals",
            "ProcessService/SignalProcess",
            "RunService/DeleteRun",
            "RunService/GetRun",
            "RunService/IssueRunToken",
            "RunService/KeepAliveRun",
            "RunService/ListRuns",
            "RunService/StopRun",
            "TokenService/RevokeToken",
            "ToolService/CancelCall",
        ] {
            assert!(steers(name), "{name}");
        }
        let waits = [
            "Watch", "Wait", "Attach", "Stream", "Upload", "Download", "Call", "Run", "Start", "Open",
            "Create", "Write",
        ];
        for one in METHODS.iter().filter(|one| one.steers) {
            let name = one.path.rsplit('/').next().unwrap();
            assert!(!waits.iter().any(|verb| name.starts_with(verb)), "{}", one.path);
        }
    }

    #[test]
    fn a_run_s_token_opens_the_tools_and_no_token_makes_another() {
        let with = |credential| METHODS.iter().filter(move |one| one.credentials.contains(&credential));
        let of_tools = [
            "ToolService",
            "ProcessService",
            "SessionService",
            "FileService",
            "ForwardService",
            "EgressService",
        ]
        .map(|service| format!("/cofferdam.v1.{service}/"));
        let is_tool = |path: &str| of_tools.iter().any(|service| path.starts_with(service));
        assert!(with(Credential::RunToken).all(|one| is_tool(one.path)));
        for token in [Credential::Token, Credential::NarrowToken, Credential::RunToken] {
            assert!(!with(token).any(|one| one.path.contains("TokenService")));
        }
        // A wider credential opens all that a narrower one opens.
        for narrow in with(Credential::RunToken) {
            assert_eq!(narrow.credentials, Credential::ALL, "{}", narrow.path);
        }
        for narrow in with(Credential::NarrowToken) {
            assert!(narrow.credentials.contains(&Credential::Token), "{}", narrow.path);
        }
    }
}
