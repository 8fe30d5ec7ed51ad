use std::sync::Arc;

use operations::{
    Checkpoint, Edit, EditChange, Exec, Git, GitFetch, GitPull, GitPullMode, GitPush, GitPushed, GitRemote,
    GitRevision, GitRevisions, Glob, Grep, List, Operation, Process, ProcessProgram, Read, Reason, Session,
    SessionInput, Shell,
};
use timestamp::UnixMillis;

use super::Gateway;
use crate::admission::Admission;
use crate::measures::{Measure, MeasureScope};
use crate::testing::{
    TestClock, builtin, builtin_and, caller, delete, exec, front_matter, path, run, shell, write,
};
use policy::{Risk, Verdict};

fn gateway() -> Gateway {
    Gateway::new(builtin_and("roles: {reader: {allow: [read]}}"), TestClock::new())
}

fn command(line: &str) -> Operation {
    Operation::Exec(exec(&line.split(' ').collect::<Vec<_>>()))
}

fn script(text: &str) -> Operation {
    Operation::Shell(shell(text))
}

fn reading(text: &str) -> Operation {
    Operation::Read(Read::new(path(text)))
}

fn named(name: &str) -> Operation {
    let dot = || path(".");
    match name {
        "read" => reading("README.md"),
        "list" => Operation::List(List::new(dot())),
        "glob" => Operation::Glob(Glob {
            path: dot(),
            pattern: "*".into(),
            include_ignored: false,
            max_results: 200,
        }),
        "grep" => Operation::Grep(Grep::new(dot(), "fn")),
        "shell" => script("make && make test"),
        "process" => Operation::Process(Process {
            program: ProcessProgram::Script(shell("make && make serve")),
            stdin: false,
            terminal: None,
            tag: String::new(),
            timeout: None,
        }),
        "session" => Operation::Session(Session {
            session_id: "s".to_owned(),
            input: SessionInput::Command("make && make test".to_owned()),
            expect: Vec::new(),
            timeout: std::time::Duration::from_secs(30),
        }),
        "write" => Operation::Write(write("a.txt")),
        "edit" => Operation::Edit(Edit {
            path: path("a.txt"),
            change: EditChange::StrReplace { old: "a".into(), new: "b".into(), replace_all: false },
            if_match_sha256: None,
        }),
        "patch" => front_matter(|update| update.updated_at = Some("now".into())),
        "delete" => Operation::Delete(delete("a.txt")),
        "git.status" => Operation::Git(Git::Status),
        "git.diff" => Operation::Git(Git::Diff { flags: vec![], paths: vec![] }),
        "git.log" => Operation::Git(Git::Log {
            flags: vec![],
            max_count: 100,
            revisions: GitRevisions::default(),
            paths: vec![],
        }),
        "git.show" => Operation::Git(Git::Show {
            flags: vec![],
            revision: GitRevision::default(),
            file: None,
            paths: vec![],
        }),
        "git.add" => Operation::Git(Git::Add { paths: vec![path("a")] }),
        "git.commit" => Operation::Git(Git::Commit { message: "say hi".into() }),
        "git.fetch" => {
            Operation::Git(Git::Fetch(GitFetch { remote: origin(), refs: vec![], tags: false, depth: None }))
        }
        "git.pull" => Operation::Git(Git::Pull(GitPull {
            remote: origin(),
            branch: None,
            mode: GitPullMode::FastForward,
        })),
        "git.push" => Operation::Git(Git::Push(GitPush {
            remote: origin(),
            refs: vec![GitPushed { local: Some(GitRevision::default()), reference: None, expected: None }],
            force: false,
        })),
        "checkpoint.create" => Operation::Checkpoint(Checkpoint::Create { label: String::new() }),
        "checkpoint.list" => Operation::Checkpoint(Checkpoint::List),
        "checkpoint.restore" => Operation::Checkpoint(Checkpoint::Restore { checkpoint_id: "c".to_owned() }),
        line => command(line),
    }
}

fn origin() -> GitRemote {
    GitRemote::Name("origin".to_owned())
}

/// The verdict, and the message when it is `deny`.
fn admitted(gateway: &Gateway, profile: &str, role: &str, operation: Operation) -> (Verdict, String) {
    match gateway.admit(&gateway.policy(), &run(profile), &caller(role), "call-1", operation) {
        Admission::Permit(permit) => {
            assert_eq!(permit.decision().verdict, Verdict::Allow);
            (Verdict::Allow, String::new())
        }
        Admission::Ask(ticket) => {
            assert_eq!(ticket.decision().verdict, Verdict::Ask);
            (Verdict::Ask, String::new())
        }
        Admission::Refuse(refusal) => (Verdict::Deny, refusal.message),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn shipped_profiles_decide_as_listed() {
    use Verdict::{Allow, Ask, Deny};
    const LOOKING: &[&str] = &[
        "read",
        "list",
        "glob",
        "grep",
        "git.status",
        "git.diff",
        "git.log",
        "git.show",
        "cat README.md",
        "find . -name a",
    ];
    const CHANGING: &[&str] = &["write", "edit", "patch", "git.add", "git.commit"];
    // The one critical operation asks everywhere, whoever wants it.
    const DELETING: &[&str] = &["delete", "find . -delete", "env find . -delete", "xargs find . -delete"];
    const TOOLS: &[&str] = &[
        "cargo test",
        "make",
        "python3 -m pytest",
        "npm test",
        "go test ./...",
        "cmake --build b",
        "ls -la",
    ];
    const OTHER: &[&str] =
        &["curl example.com", "find . -exec touch x ;", "python3 x.py", "sh -c make", "env make"];
    const DENIED: &[&str] = &["rm x", "env rm x", "busybox rm", "sudo make"];
    const EXCHANGING: &[&str] = &["git.fetch", "git.pull", "git.push"];
    const SEALING: &[&str] = &["git.commit", "delete"];
    const ARRANGING: &[&str] = &["write", "edit", "patch", "git.add"];
    let gateway = gateway();
    for (profile, role, names, expected) in [
        ("review", "director", LOOKING, Allow),
        ("strict", "director", EXCHANGING, Deny),
        ("review", "director", EXCHANGING, Deny),
        ("build", "director", EXCHANGING, Ask),
        ("open", "director", EXCHANGING, Ask),
        ("harness", "director", EXCHANGING, Allow),
        ("review", "director", CHANGING, Ask),
        ("review", "director", TOOLS, Ask),
        ("review", "director", OTHER, Ask),
        ("build", "director", LOOKING, Allow),
        ("build", "director", CHANGING, Allow),
        ("build", "director", TOOLS, Allow),
        ("build", "director", OTHER, Ask),
        ("open", "director", LOOKING, Allow),
        ("open", "director", CHANGING, Allow),
        ("open", "director", TOOLS, Allow),
        ("open", "director", OTHER, Allow),
        ("strict", "director", LOOKING, Allow),
        ("strict", "director", CHANGING, Ask),
        ("strict", "director", TOOLS, Ask),
        ("strict", "director", OTHER, Ask),
        ("review", "director", DELETING, Ask),
        ("build", "director", DELETING, Ask),
        ("open", "director", DELETING, Ask),
        ("strict", "director", DELETING, Ask),
        // A worker looks, in every profile.
        ("review", "worker", LOOKING, Allow),
        ("build", "worker", LOOKING, Allow),
        ("open", "worker", LOOKING, Allow),
        ("strict", "worker", LOOKING, Allow),
        ("review", "worker", CHANGING, Deny),
        ("build", "worker", CHANGING, Deny),
        ("open", "worker", CHANGING, Deny),
        ("strict", "worker", CHANGING, Deny),
        ("review", "worker", TOOLS, Deny),
        ("build", "worker", TOOLS, Deny),
        ("open", "worker", TOOLS, Deny),
        ("open", "worker", OTHER, Deny),
        ("open", "worker", DELETING, Deny),
        // A manager changes files and runs commands, and neither commits nor deletes.
        ("review", "manager", LOOKING, Allow),
        ("review", "manager", ARRANGING, Ask),
        ("review", "manager", TOOLS, Ask),
        ("build", "manager", ARRANGING, Allow),
        ("build", "manager", TOOLS, Allow),
        ("build", "manager", OTHER, Ask),
        ("open", "manager", ARRANGING, Allow),
        ("open", "manager", OTHER, Allow),
        ("open", "manager", SEALING, Deny),
        ("build", "manager", SEALING, Deny),
        ("review", "manager", SEALING, Deny),
        ("strict", "manager", SEALING, Deny),
        ("open", "manager", &["find . -delete"], Ask),
        ("open", "reader", DELETING, Deny),
        ("review", "director", DENIED, Deny),
        ("build", "director", DENIED, Deny),
        ("open", "director", DENIED, Deny),
        ("strict", "director", DENIED, Deny),
        ("open", "manager", DENIED, Deny),
        ("open", "worker", DENIED, Deny),
        ("open", "reader", CHANGING, Deny),
        ("review", "reader", CHANGING, Deny),
        ("open", "reader", TOOLS, Deny),
        ("open", "reader", &["read"], Allow),
        ("open", "reader", &["list", "cat a"], Deny),
        ("open", "nobody", LOOKING, Deny),
        ("unknown", "worker", LOOKING, Deny),
    ] {
        for name in names {
            let (verdict, message) = admitted(&gateway, profile, role, named(name));
            assert_eq!(verdict, expected, "{profile}, {role}: {name}: {message}");
        }
    }
    let refused = admitted(&gateway, "review", "director", command("rm x"));
    assert_eq!(refused, (Deny, "Command not allowed: rm".to_owned()));
}

#[test]
fn scripts_are_for_profiles_that_turn_them_on() {
    use Verdict::{Allow, Ask, Deny};
    let policy = builtin_and(
        "profiles:\n  attended: {operations: {shell: allow}}\n  asking: {unattended: true, operations: {shell: ask}}\n\
         roles: {runner: {allow: [exec]}, scripter: {allow: [shell]}, asker: {ask: [shell]}}",
    );
    let gateway = Gateway::new(policy, TestClock::new());
    for (profile, role, expected) in [
        ("review", "worker", Deny),
        ("review", "manager", Deny),
        ("review", "director", Deny),
        ("strict", "worker", Deny),
        ("strict", "director", Deny),
        ("build", "worker", Deny),
        ("build", "manager", Deny),
        ("build", "asker", Ask),
        ("build", "director", Ask),
        ("open", "worker", Deny),
        ("open", "manager", Deny),
        // As with `exec`: where nobody watches, what a role would ask for goes as the profile says.
        ("open", "asker", Allow),
        ("open", "director", Allow),
        ("attended", "asker", Ask),
        ("attended", "director", Allow),
        ("asking", "director", Ask),
        // `exec` is not `shell`, and `shell` is not `exec`.
        ("open", "runner", Deny),
        ("open", "scripter", Allow),
    ] {
        let (verdict, message) = admitted(&gateway, profile, role, named("shell"));
        assert_eq!(verdict, expected, "{profile}, {role}: {message}");
        if verdict == Deny {
            assert!(message.contains("`shell`") && message.contains("one program"), "what to try: {message}");
        }
    }
    assert_eq!(admitted(&gateway, "open", "scripter", command("make")).0, Deny);
}

#[test]
fn scripts_are_judged_by_their_visible_commands() {
    use Verdict::{Allow, Ask, Deny};
    let policy = builtin_and(
        "profiles:\n  p:\n    operations: {shell: allow}\n    exec:\n      default: deny\n      deny: [curl]\n      env: [CI]\n      rules:\n        - {prefix: [git, push], decision: deny, justification: nothing leaves}\n        - {prefix: [git, fetch], decision: ask, justification: network}\n        - {prefix: [make], decision: allow, justification: it builds}\n  q: {operations: {shell: allow}, exec: {deny: [bash]}}\n  r: {operations: {shell: ask}, exec: {default: allow, rules: [{prefix: [make], decision: allow, justification: x}]}}\n",
    );
    let gateway = Gateway::new(policy, TestClock::new());
    for (profile, text, expected, message) in [
        ("open", "make 2>&1 | tail -n 5", Allow, ""),
        ("open", "cd a && rm -rf b", Deny, "Command not allowed: rm"),
        ("open", "find . -name '*.o' | xargs /bin/RM -f", Deny, "Command not allowed: /bin/RM"),
        ("open", "cat > a.md <<'EOF'\nrm -rf b\nEOF\n", Allow, ""),
        ("open", "bash <<'EOF'\nrm -rf b\nEOF\n", Deny, "Command not allowed: rm"),
        ("open", "./node_modules/.bin/tsc", Deny, "node_modules/.bin"),
        ("build", "sudo make", Deny, "Command not allowed: sudo"),
        ("build", "cargo test", Ask, ""),
        // Neither the profile's default for commands nor an `allow` rule speaks for or against a script.
        ("p", "ls", Allow, ""),
        ("p", "make", Allow, ""),
        ("p", "make; curl x", Deny, "Command not allowed: curl"),
        ("p", "make; env git push", Deny, "Command not allowed: git"),
        ("p", "git fetch", Ask, ""),
        ("p", "git fetch; git push", Deny, "Command not allowed: git"),
        ("q", "ls", Deny, "Command not allowed: bash"),
        ("r", "make", Ask, ""),
        ("review", "rm x", Deny, "the operation `shell` is denied under the profile `review`"),
    ] {
        let (verdict, said) = admitted(&gateway, profile, "director", script(text));
        assert_eq!(verdict, expected, "{profile}: {text}: {said}");
        assert!(said.contains(message), "{profile}: {text}: {said}");
    }

    let deep = (0..40).fold("ls".to_owned(), |text, n| format!("cat <<E{n}\n$({text}\n)\nE{n}\n"));
    assert!(admitted(&gateway, "open", "director", script(&deep)).1.contains("too complex"));
    let with = |profile: &str, name: &str| {
        let env = [(name.to_owned(), "1".to_owned())].into();
        admitted(&gateway, profile, "director", Operation::Shell(Shell { env, ..shell("ls") })).0
    };
    assert_eq!((with("p", "CI"), with("p", "BASH_ENV"), with("open", "BASH_ENV")), (Allow, Deny, Allow));
    let fed = Operation::Shell(Shell { stdin: b"rm x\n".to_vec(), ..shell("ls; sh") });
    assert_eq!(admitted(&gateway, "open", "director", fed).1, "Command not allowed: rm");
}

#[test]
fn decisions_over_scripts_name_the_most_telling_rule() {
    let policy = builtin_and(
        "profiles: {p: {operations: {shell: ask}, exec: {rules: [{prefix: [git], decision: ask, justification: network}]}}}",
    );
    let gateway = Gateway::new(policy, TestClock::new());
    let asked = |profile: &str, text| match gateway.admit(
        &gateway.policy(),
        &run(profile),
        &caller("director"),
        "c",
        script(text),
    ) {
        Admission::Permit(permit) => permit.decision().clone(),
        Admission::Ask(ticket) => ticket.decision().clone(),
        Admission::Refuse(refusal) => panic!("{refusal}"),
    };
    let rule = |profile, text| {
        let decision = asked(profile, text);
        assert_eq!(decision.risk, Risk::High);
        decision.rule
    };
    assert_eq!(rule("open", "ls"), "profile open: operations.shell");
    assert_eq!(rule("p", "ls"), "profile p: operations.shell");
    assert_eq!(rule("p", "ls; git fetch"), "profile p: exec rule 1: git");
}

#[test]
fn every_operation_is_in_the_table() {
    for name in Operation::NAMES.into_iter().filter(|name| *name != "exec") {
        assert_eq!(named(name).name(), name);
    }
}

#[test]
fn between_allow_and_ask_a_role_makes_the_difference() {
    let policy = builtin_and(
        "profiles: {attended: {operations: {read: allow, write: allow, git.commit: allow, exec: deny}}}\n\
         roles: {asker: {inherits: worker, ask: [write, git.commit]}, writer: {inherits: asker, allow: [write]}}",
    );
    let gateway = Gateway::new(policy, TestClock::new());
    let of = |role, name| admitted(&gateway, "attended", role, named(name)).0;
    assert_eq!(
        ["asker", "writer", "director"].map(|role| of(role, "write")),
        [Verdict::Ask, Verdict::Allow, Verdict::Allow]
    );
    assert_eq!(
        ["asker", "writer", "director"].map(|role| of(role, "git.commit")),
        [Verdict::Ask, Verdict::Ask, Verdict::Allow]
    );
    assert_eq!(of("director", "edit"), Verdict::Deny);
    assert_eq!(of("director", "cat a"), Verdict::Deny);
}

#[test]
fn decisions_name_rule_risk_and_policy() {
    let gateway = gateway();
    let digest = gateway.policy().digest().to_owned();
    let asked_under = |profile: &str, operation| match gateway.admit(
        &gateway.policy(),
        &run(profile),
        &caller("director"),
        "c",
        operation,
    ) {
        Admission::Permit(permit) => permit.decision().clone(),
        Admission::Ask(ticket) => ticket.decision().clone(),
        Admission::Refuse(refusal) => panic!("{refusal}"),
    };
    let asked = |operation| asked_under("review", operation);
    let write = asked(named("write"));
    assert_eq!((write.rule.as_str(), write.risk), ("profile review: operations.write", Risk::High));
    assert_eq!(write.policy_digest, digest);
    assert_eq!(asked(command("make")).rule, "profile review: exec.default");
    for (operation, risk) in [
        (reading("README.md"), Risk::Low),
        (reading(".env"), Risk::Medium),
        (command("cat README.md"), Risk::Low),
        (command("cat deploy/id_rsa"), Risk::Medium),
        (command("find . -delete"), Risk::High),
        (named("git.diff"), Risk::Low),
        (named("git.log"), Risk::Low),
        (named("git.show"), Risk::Low),
        (named("git.commit"), Risk::High),
        (named("patch"), Risk::High),
        (named("delete"), Risk::Critical),
    ] {
        let name = format!("{operation:?}");
        assert_eq!(asked(operation).risk, risk, "{name}");
    }
    // `review` denies these.
    for name in ["git.fetch", "git.pull", "git.push"] {
        let exchange = asked_under("build", named(name));
        let rule = format!("profile build: operations.{name}");
        assert_eq!((exchange.rule, exchange.risk), (rule, Risk::High));
    }
}

#[test]
fn refusals_are_stable_and_recorded_with_their_rule() {
    let gateway = gateway();
    let refused = |profile: &str, role: &str, operation| match gateway.admit(
        &gateway.policy(),
        &run(profile),
        &caller(role),
        "c",
        operation,
    ) {
        Admission::Refuse(refusal) => (refusal.reason, refusal.rule, refusal.policy_digest.len()),
        other => panic!("{other:?}"),
    };
    let expected = |reason, rule: &str| (reason, rule.to_owned(), 64);
    assert_eq!(
        refused("open", "reader", named("write")),
        expected(Reason::PermissionDenied, "role reader: write")
    );
    assert_eq!(
        refused("open", "worker", command("rm")),
        expected(Reason::CommandNotAllowed, "profile open: exec deny list")
    );
    assert_eq!(refused("gone", "worker", named("read")), expected(Reason::PermissionDenied, "profile"));
    assert_eq!(refused("open", "gone", named("read")), expected(Reason::PermissionDenied, "role"));
    let slow = Operation::Exec(Exec { timeout: std::time::Duration::from_secs(100_000), ..exec(&["make"]) });
    assert_eq!(refused("open", "worker", slow), expected(Reason::InvalidArgument, "validation"));
    for protected in [
        Operation::Write(write(".git/a")),
        Operation::Delete(delete(".git")),
        Operation::Delete(delete("node_modules/.bin/tsc")),
        Operation::Delete(delete("@pkg/a")),
        front_matter(|update| {
            update.path = path(".git/description");
            update.updated_at = Some("now".into());
        }),
    ] {
        assert_eq!(refused("open", "worker", protected), expected(Reason::SandboxViolation, "validation"));
    }
}

#[test]
fn a_permit_carries_the_facts_for_its_lane() {
    let policy = builtin_and(
        "profiles: {p: {operations: {exec: allow}, exec: {default: allow, deny: [curl]}, bounds: {max_output_bytes: 999}, commit: {author_name: Bob}}}",
    );
    let gateway = Gateway::new(policy, TestClock::new());
    let operation = Operation::Exec(Exec { stdin: b"in".to_vec(), ..exec(&["make"]) });
    let Admission::Permit(permit) =
        gateway.admit(&gateway.policy(), &run("p"), &caller("director"), "call-7", operation.clone())
    else {
        panic!("not permitted");
    };
    let parts = permit.into_parts();
    assert_eq!(
        (parts.operation, parts.call_id.as_str(), parts.caller),
        (operation, "call-7", caller("director"))
    );
    assert_eq!((parts.bounds.max_output_bytes, parts.bounds.author_name.as_str()), (999, "Bob"));
    assert_eq!((parts.bounds.denied_programs, parts.approval_id), (vec!["curl".to_owned()], None));
}

#[test]
fn reloading_takes_effect_at_once_and_says_whether_anything_changed() {
    let gateway = gateway();
    assert_eq!(admitted(&gateway, "open", "director", named("write")).0, Verdict::Allow);
    assert!(gateway.reload(builtin_and("roles: {other: {allow: [read]}}")));
    assert!(!gateway.reload(builtin_and("# same\nroles: {other: {allow: [read]}}")));
    assert!(gateway.reload(builtin()));
}

#[test]
fn a_permit_after_a_wait_is_of_the_policy_and_the_measures_in_force_then() {
    type Change<'c> = &'c dyn Fn(&Gateway);
    let policy = |verdict: &str, kib: u32| {
        builtin_and(&format!(
            "profiles: {{p: {{operations: {{write: {verdict}}}, bounds: {{max_write_bytes: {kib}}}}}}}"
        ))
    };
    let alert = || {
        let until = UnixMillis(u64::MAX);
        let (rule, justification) = ("loop".to_owned(), "an alert asks for it".to_owned());
        let scope = MeasureScope::Run("run-1".to_owned());
        Measure { alert_id: "a".to_owned(), scope, rule, justification, until }
    };
    let changes: [(Change<'_>, Result<u64, Reason>); 5] = [
        (&|_| {}, Ok(900)),
        (&|gateway| assert!(gateway.reload(policy("allow", 800))), Ok(800)),
        (&|gateway| assert!(gateway.reload(policy("deny", 900))), Err(Reason::PermissionDenied)),
        (&|gateway| assert!(gateway.reload(policy("ask", 900))), Err(Reason::PreconditionFailed)),
        (&|gateway| gateway.impose(alert()), Err(Reason::PreconditionFailed)),
    ];
    for (index, (change, expected)) in changes.into_iter().enumerate() {
        let gateway = Gateway::new(policy("allow", 900), TestClock::new());
        let admission =
            gateway.admit(&gateway.policy(), &run("p"), &caller("director"), "call", named("write"));
        let Admission::Permit(permit) = admission else { panic!("not permitted") };
        change(&gateway);
        let renewed = gateway.renew(permit, &run("p"));
        let bound = renewed.map(|permit| permit.bounds().max_write_bytes).map_err(|refused| refused.reason);
        assert_eq!(bound, expected, "change {index}");
    }
}

#[test]
fn a_decision_takes_microseconds() {
    let gateway = Arc::new(gateway());
    let all = effort::processor_time(|| {
        for _ in 0..1_000 {
            let _ = admitted(&gateway, "build", "director", command("cargo test --workspace"));
        }
    });
    let each = all / 1_000;
    // Generous: this is a debug build. It is to catch a mistake of kind, such as a policy that is read again.
    assert!(each.as_millis() < 5, "{each:?}");
}

#[test]
fn a_role_may_ask_for_consent_beyond_its_profile() {
    let policy = builtin_and(
        "roles: {careful: {inherits: director, consent_from: high}}
profiles: {p: {operations: {exec: allow, write: allow}, exec: {read_only_commands: true, default: allow}}}
",
    );
    let gateway = Gateway::new(policy, TestClock::new());
    let rule = |profile: &str, role: &str, operation| match gateway.admit(
        &gateway.policy(),
        &run(profile),
        &caller(role),
        "c",
        operation,
    ) {
        Admission::Ask(ticket) => ticket.decision().rule.clone(),
        Admission::Permit(_) => String::new(),
        Admission::Refuse(refusal) => panic!("{refusal}"),
    };
    for operation in [Operation::Write(write("a")), Operation::Exec(exec(&["make"]))] {
        assert_eq!(rule("p", "careful", operation.clone()), "role careful: consent_from");
        assert_eq!(rule("p", "director", operation.clone()), "");
        assert_eq!(rule("open", "careful", operation), "", "nobody watches");
    }
    assert_eq!(rule("p", "careful", Operation::Exec(exec(&["cat", "a"]))), "");
}
