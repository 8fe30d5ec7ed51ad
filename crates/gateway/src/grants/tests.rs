use std::sync::Arc;
use std::time::Duration;

use operations::{Exec, Git, Grep, List, Operation, Read};
use timestamp::{Clock as _, UnixMillis};

use super::{BadPermission, Effect, MAX_IN_FORCE, PathPattern, Permission, Permissions, Scope, Subject};
use crate::admission::Admission;
use crate::approvals::{Ballot, Choice, Review, Reviewer};
use crate::gateway::Gateway;
use crate::testing::{TestClock, builtin, builtin_and, caller, delete, exec, path, run, shell, write};
use policy::Level;
use policy::Verdict::{self, Allow, Ask, Deny};

const NOW: UnixMillis = UnixMillis(1_000_000);

fn permission(effect: Effect, subject: Subject, operation: Option<&str>) -> Permission {
    Permission {
        id: format!("{effect:?}-{subject}-{operation:?}"),
        effect,
        subject,
        scope: Scope { operation: operation.map(str::to_owned), ..Scope::default() },
        preapproved: false,
        reason: "for a test".into(),
        by: "uid:0".into(),
        at: NOW,
        expires_at: None,
        ended: None,
    }
}

fn grant(operation: &str) -> Permission {
    permission(Effect::Grant, Subject::Agent("alice".into()), Some(operation))
}

fn revocation(operation: &str) -> Permission {
    permission(Effect::Revocation, Subject::Agent("alice".into()), Some(operation))
}

fn preapproved(permission: Permission) -> Permission {
    Permission { preapproved: true, ..permission }
}

fn at(permission: Permission, pattern: &str) -> Permission {
    let scope = Scope { path: Some(PathPattern::parse(pattern).unwrap()), ..permission.scope.clone() };
    Permission { scope, ..permission }
}

fn command(permission: Permission, words: &str) -> Permission {
    let command = words.split(' ').map(str::to_owned).collect();
    let scope = Scope { command, ..permission.scope.clone() };
    Permission { scope, ..permission }
}

fn gateway(permissions: impl IntoIterator<Item = Permission>) -> (Gateway, Arc<TestClock>) {
    let clock = TestClock::new();
    let policy = builtin_and(
        "roles: {reader: {allow: [read]}, denied: {allow: [read], deny: [write]}}
teams: {core: {agents: [alice, 'ci-*'], allow: [list]}}
",
    );
    let gateway = Gateway::new(policy, clock.clone());
    for (number, permission) in permissions.into_iter().enumerate() {
        let permission = Permission { id: format!("p{number}"), ..permission };
        assert_eq!(permission.check(&gateway.policy(), clock.now()), Ok(()), "{permission:?}");
        gateway.set_permissions(gateway.permissions().with(permission, clock.now()).unwrap());
    }
    (gateway, clock)
}

/// The verdict, and the rule that says it.
fn says(gateway: &Gateway, profile: &str, role: &str, operation: Operation) -> (Verdict, String) {
    match gateway.admit(&gateway.policy(), &run(profile), &caller(role), "call-1", operation) {
        Admission::Permit(permit) => (Allow, permit.decision().rule.clone()),
        Admission::Ask(ticket) => (Ask, ticket.decision().rule.clone()),
        Admission::Refuse(refusal) => (Deny, refusal.rule),
    }
}

fn verdict(permissions: &[Permission], profile: &str, role: &str, operation: Operation) -> Verdict {
    says(&gateway(permissions.iter().cloned()).0, profile, role, operation).0
}

fn run_line(line: &str) -> Operation {
    Operation::Exec(exec(&line.split(' ').collect::<Vec<_>>()))
}

fn read(at: &str) -> Operation {
    Operation::Read(Read::new(path(at)))
}

fn grep(at: &str) -> Operation {
    Operation::Grep(Grep::new(path(at), "x"))
}

#[test]
fn a_grant_extends_the_role_and_the_profile_still_decides() {
    let writing = || Operation::Write(write("a"));
    assert_eq!(verdict(&[], "open", "reader", writing()), Deny);
    let (given, _) = gateway([grant("write")]);
    assert_eq!(says(&given, "open", "reader", writing()).0, Allow);
    assert_eq!(says(&given, "review", "reader", writing()).0, Ask, "the profile asks");
    let (none, _) = gateway([grant("shell")]);
    assert_eq!(
        says(&none, "review", "reader", Operation::Shell(shell("ls"))),
        (Deny, "profile review: operations.shell".into()),
        "what the profile denies stays denied"
    );
    assert_eq!(verdict(&[grant("write")], "open", "denied", writing()), Deny, "what the role denies, too");
}

#[test]
fn a_grant_of_a_command_gives_nothing_where_a_run_can_replace_programs() {
    let test = command(preapproved(grant("exec")), "cargo test");
    let any = [test.clone(), grant("exec"), at(grant("write"), "docs/**")];
    let line = || run_line("cargo test");
    for (profile, by_command) in [("open", Allow), ("harness", Deny)] {
        assert_eq!(verdict(std::slice::from_ref(&test), profile, "reader", line()), by_command, "{profile}");
        assert_eq!(verdict(&any, profile, "reader", line()), Allow, "{profile}");
        assert_eq!(verdict(&any, profile, "reader", Operation::Write(write("docs/a"))), Allow, "{profile}");
        assert_eq!(verdict(&[], profile, "reader", line()), Deny, "{profile}");
    }
}

#[test]
fn consent_beforehand_replaces_consent_and_nothing_else() {
    let writing = |at: &str| Operation::Write(write(at));
    let docs = [at(preapproved(grant("write")), "docs/**")];
    let (gateway_, _) = gateway(docs.clone());
    assert_eq!(says(&gateway_, "review", "director", writing("docs/a.md")), (Allow, "permission p0".into()));
    assert_eq!(says(&gateway_, "review", "director", writing("src/a.rs")).0, Ask);
    assert_eq!(says(&gateway_, "review", "reader", writing("docs/a.md")).0, Allow);

    let test = [command(preapproved(grant("exec")), "cargo test")];
    for (line, expected) in [
        ("cargo test --workspace", Allow),
        ("/usr/bin/cargo test", Allow),
        ("cargo publish", Ask),
        ("cargo test --config x", Ask),
        ("/workspace/cargo test", Ask),
        ("CARGO test", Ask),
        ("env cargo test", Ask),
        ("sh -c cargo", Ask),
        ("rm -rf x", Deny),
    ] {
        assert_eq!(verdict(&test, "review", "director", run_line(line)), expected, "{line}");
    }
    let preloaded = Exec { env: [("TERM".into(), "x".into())].into(), ..exec(&["cargo", "test"]) };
    assert_eq!(verdict(&test, "review", "director", Operation::Exec(preloaded)), Allow);
    let redirected = Exec { env: [("PATH".into(), "x".into())].into(), ..exec(&["cargo", "test"]) };
    assert_eq!(
        verdict(&test, "open", "director", Operation::Exec(redirected)),
        Allow,
        "open runs it by itself"
    );
}

#[test]
fn critical_wrapped_and_git_writes_cannot_be_preapproved() {
    let policy = builtin();
    let refused =
        |permission: &Permission| permission.check(&policy, NOW).map_err(|BadPermission { field, .. }| field);
    for operation in ["delete", "shell", "git.add", "git.commit", "git.fetch", "git.pull", "git.push", "exec"]
    {
        assert_eq!(refused(&preapproved(grant(operation))), Err("preapproved"), "{operation}");
    }
    for line in
        ["env cargo", "sh -c ls", "bash", "busybox ls", "xargs ls", "rm -rf target", "find . -exec ls"]
    {
        let permission = command(preapproved(grant("exec")), line);
        assert_eq!(refused(&permission), Err("preapproved"), "{line}");
    }
    assert_eq!(refused(&preapproved(revocation("read"))), Err("preapproved"));
    // Critical by the profile's own word: the grant holds, and a reviewer is asked all the same.
    let critical = builtin_and(
        "profiles: {p: {operations: {exec: allow}, exec: {default: ask}, risk: {exec: critical}}}",
    );
    let gateway = Gateway::new(critical, TestClock::new());
    let permission = command(preapproved(grant("exec")), "make");
    gateway.set_permissions(Permissions::default().with(permission, NOW).unwrap());
    let (verdict, rule) = says(&gateway, "p", "director", run_line("make"));
    assert_eq!((verdict, rule.as_str()), (Ask, "risk: critical"));
}

#[test]
fn a_revocation_beats_role_team_and_grant() {
    let (gateway_, _) = gateway([preapproved(grant("read")), revocation("read")]);
    for role in ["worker", "director", "reader"] {
        let (verdict, rule) = says(&gateway_, "open", role, read("a"));
        assert_eq!((verdict, rule.as_str()), (Deny, "permission p1"), "{role}");
    }
    let everything = permission(Effect::Revocation, Subject::Role("director".into()), None);
    assert_eq!(
        verdict(std::slice::from_ref(&everything), "open", "director", Operation::Git(Git::Status)),
        Deny
    );
    assert_eq!(verdict(&[everything], "open", "worker", Operation::Git(Git::Status)), Allow);
    let team = permission(Effect::Revocation, Subject::Team("core".into()), Some("list"));
    let listing = Operation::List(List::new(path(".")));
    assert_eq!(verdict(&[], "open", "reader", listing.clone()), Allow, "the team has it");
    assert_eq!(verdict(&[team], "open", "reader", listing), Deny);
}

#[test]
fn a_revocation_is_matched_loosely() {
    let make = [command(revocation("exec"), "make")];
    for line in [
        "make",
        "/usr/bin/make all",
        "MAKE x",
        "env make",
        "sh -c make",
        "busybox make",
        "find . -exec make ;",
    ] {
        assert_eq!(verdict(&make, "open", "director", run_line(line)), Deny, "{line}");
    }
    assert_eq!(verdict(&make, "open", "director", run_line("cmake x")), Allow);
    let anywhere = permission(Effect::Revocation, Subject::Agent("alice".into()), None);
    let anywhere = [command(anywhere, "make")];
    assert_eq!(verdict(&anywhere, "open", "director", Operation::Shell(shell("cd a && make"))), Deny);
    assert_eq!(verdict(&anywhere, "open", "director", read("make")), Allow);

    let everything = permission(Effect::Revocation, Subject::Agent("alice".into()), None);
    let secret = [at(everything, "conf/secret/**")];
    let diff = |paths: &[&str]| {
        Operation::Git(Git::Diff { flags: vec![], paths: paths.iter().map(|at| path(at)).collect() })
    };
    for (operation, expected) in [
        (read("conf/secret/a"), Deny),
        (read("conf/open"), Allow),
        (Operation::Write(write("conf/secret/b/c")), Deny),
        (Operation::Delete(delete("conf/secret/a")), Deny),
        (grep("conf/secret/a"), Deny),
        // These would show what is beneath.
        (grep("."), Deny),
        (grep("conf"), Deny),
        (grep("src"), Allow),
        (diff(&[]), Deny),
        (diff(&["conf"]), Deny),
        (diff(&["src"]), Allow),
        (run_line("cat conf/secret/a"), Deny),
        (run_line("cat src/a"), Allow),
        (Operation::Shell(shell("cd conf && cat secret/a")), Deny),
        (Operation::Git(Git::Status), Allow),
    ] {
        assert_eq!(verdict(&secret, "open", "director", operation.clone()), expected, "{operation:?}");
    }
}

#[test]
fn grants_expire_and_revive_when_the_clock_goes_back() {
    let hour = Duration::from_secs(3_600);
    let until = Permission { expires_at: Some(NOW.after(hour)), ..grant("write") };
    let (gateway, clock) = gateway([until]);
    let now = |gateway: &Gateway| says(gateway, "open", "reader", Operation::Write(write("a"))).0;
    assert_eq!(now(&gateway), Allow);
    clock.advance(Duration::from_millis(3_599_999));
    assert_eq!(now(&gateway), Allow);
    clock.advance(Duration::from_millis(1));
    assert_eq!(now(&gateway), Deny);
    assert_eq!(gateway.permissions().in_force(clock.now()).count(), 0);
    assert_eq!(gateway.permissions().in_force(NOW).count(), 1);
}

#[test]
fn a_revocation_counts_for_a_call_that_waits() {
    let (gateway, clock) = gateway([]);
    let asked = gateway.admit(
        &gateway.policy(),
        &run("review"),
        &caller("director"),
        "call-1",
        Operation::Write(write("a")),
    );
    let Admission::Ask(ticket) = asked else { panic!("{asked:?}") };
    let approval = gateway.request_approval(&ticket, Review::default(), None).unwrap();
    let reviewer = Reviewer { principal: "uid:7".into(), level: Level::Approver, may_decide_own: false };
    gateway.decide(&approval.approval_id, &reviewer, &Ballot::once(Choice::Approve, "")).unwrap();
    let revoked = gateway.permissions().with(revocation("write"), clock.now()).unwrap();
    gateway.set_permissions(revoked);
    let refused = gateway.redeem(&approval.approval_id, &ticket).unwrap_err();
    assert!(refused.rule.starts_with("permission "), "{refused:?}");
    gateway.set_permissions(Permissions::default());
    assert!(gateway.redeem(&approval.approval_id, &ticket).is_err(), "it does not come back");
}

#[test]
fn invalid_permissions_are_refused_with_their_field() {
    let policy = builtin();
    let field = |permission: &Permission| permission.check(&policy, NOW).unwrap_err();
    let role = permission(Effect::Grant, Subject::Role("wroker".into()), Some("read"));
    assert_eq!(field(&role).to_string(), "the policy has no such role (did you mean `worker`?)");
    assert_eq!(field(&permission(Effect::Grant, Subject::Team("x".into()), Some("read"))).field, "team");
    assert_eq!(field(&permission(Effect::Grant, Subject::Agent("a b".into()), Some("read"))).field, "agent");
    assert_eq!(
        field(&grant("raed")),
        BadPermission {
            field: "operation",
            message: "there is no such operation (did you mean `read`?)".into()
        }
    );
    assert_eq!(field(&permission(Effect::Grant, Subject::Agent("a".into()), None)).field, "operation");
    assert_eq!(field(&command(grant("read"), "cat")).field, "command");
    assert_eq!(field(&at(grant("exec"), "src/**")).field, "path");
    assert_eq!(field(&at(revocation("git.status"), "src/**")).field, "path");
    assert_eq!(field(&Permission { reason: " ".into(), ..grant("read") }).field, "reason");
    assert_eq!(field(&Permission { expires_at: Some(NOW), ..grant("read") }).field, "expires_at");
    for bad in [
        "",
        "/e*/x",
        "/**",
        "/",
        "//etc/a",
        "/@state/x",
        "../x",
        "a//b",
        "@host/x",
        "a/[",
        "a\\b",
        "{a",
        &"x".repeat(2_000),
    ] {
        assert!(PathPattern::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn permissions_are_bounded_and_expired_ones_are_evicted() {
    let permissions = Permissions::of((0..MAX_IN_FORCE).map(|number| Permission {
        id: number.to_string(),
        subject: Subject::Agent(format!("agent-{number}")),
        expires_at: (number == 0).then(|| NOW.after(Duration::from_secs(1))),
        ..grant("read")
    }));
    assert!(permissions.with(Permission { id: "more".into(), ..grant("read") }, NOW).is_err());
    let later = NOW.after(Duration::from_secs(1));
    let more = permissions.with(Permission { id: "more".into(), ..grant("read") }, later).unwrap();
    assert!(more.get("0", NOW).is_none() && more.get("more", later).is_some());
    assert!(more.without("more").get("more", later).is_none());
}

#[test]
fn permissions_survive_serialisation() {
    let permission = Permission {
        expires_at: Some(UnixMillis(9)),
        ..command(at(revocation("exec"), "src/**"), "make all")
    };
    let kept = serde_json::to_string(&permission).unwrap();
    assert_eq!(serde_json::from_str::<Permission>(&kept).unwrap(), permission);
}
