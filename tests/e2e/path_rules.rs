//! A profile's rules for paths: each operation, by each name of a file.

use std::os::unix::fs::symlink;

use harness::files::{archive, contents};
use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::v1::{self, Verdict, git_request::Command as Git};
use harness::{Daemon, RunHandle, Setup, binary, calls, reason, requests};

const SECRET: &str = "the secret";

const PROFILE: &str = r#"
roles: {director: {allow: '*'}}
profiles:
  p:
    workspace: read-write
    container_paths: allow
    operations: {read: allow, list: allow, glob: allow, grep: allow, write: allow, edit: allow, patch: allow, delete: allow, exec: allow, shell: allow,
      git.status: allow, git.diff: allow, git.log: allow, git.show: allow, git.add: allow}
    exec: {deny_list: 'off', default: allow}
    paths:
      - {path: ["secrets/**", "**/*.pem", "/tmp/closed/**"], decision: deny, justification: Keys are kept from agents., match: [secrets/key, src/a.pem], not_match: [src/a.rs]}
      - {path: "**", except: ["src/**"], access: write, decision: ask, justification: Only src is the agent's., match: [README.md], not_match: [src/a.rs]}
      - {path: "private/**", access: read, decision: ask, justification: A person's notes.}
    approvals: {freeze: false}
    rate_limits:
      operations: {default: {minute: unlimited, hour: unlimited, day: unlimited}}
      run: {minute: unlimited, hour: unlimited, day: unlimited}
      principal: {minute: unlimited, hour: unlimited, day: unlimited}
"#;

async fn start() -> (Daemon, RunHandle) {
    let setup = Setup {
        config: "harness_on_bind: allow\n".to_owned(),
        policy: vec![("p.yaml", PROFILE.to_owned())],
        ..Default::default()
    };
    let daemon = Daemon::start_with(setup).await;
    let files = [
        ("README.md", "read me\n"),
        ("secrets/key", SECRET),
        ("secrets/deep/key", SECRET),
        ("src/a.rs", "one\n"),
        ("src/b.rs", "one\n"),
        ("src/a.pem", SECRET),
        ("private/notes", "a note\n"),
    ];
    let workspace = daemon.repository("w", &files);
    for (link, target) in [
        ("src/to_file", "../secrets/key"),
        ("src/to_directory", "../secrets"),
        ("src/to_pem", "a.pem"),
        ("src/to_notes", "../private/notes"),
        ("src/to_source", "a.rs"),
    ] {
        symlink(target, workspace.join(link)).unwrap();
    }
    let request = v1::CreateRunRequest { role: "director".into(), ..requests::bind("p", &workspace) };
    let run = daemon.run_on(request).await;
    (daemon, run)
}

/// End of a call: `allow`, `ask`, `deny` by the gateway, or the reason of the lane that refuses the path.
async fn ends(run: &mut RunHandle, operation: Operation) -> String {
    match run.call(operation).await {
        Err(refused) => {
            assert_eq!(reason(&refused), "PERMISSION_DENIED", "{refused:?}");
            "deny".to_owned()
        }
        Ok(call) if call.status() == Status::PendingApproval => {
            run.clients.decide(&call.approval_id, v1::decide_approval_request::Decision::Deny).await.unwrap();
            run.outcome(&call.call_id).await;
            "ask".to_owned()
        }
        Ok(call) => call.error.map_or_else(
            || "allow".to_owned(),
            |error| error.details.get("refusal").cloned().unwrap_or(error.reason + ": " + &error.message),
        ),
    }
}

fn add(path: &str) -> Operation {
    let beside = format!("src/beside/{path}");
    calls::patch(&format!(
        "*** Begin Patch\n*** Add File: {beside}\n+new\n*** Add File: {path}\n+new\n*** End Patch\n"
    ))
}

fn cat(path: &str) -> Operation {
    calls::exec(&["cat", path])
}

fn show(file: &str) -> Operation {
    calls::git(Git::Show(v1::GitShow { revision: format!("HEAD:{file}"), ..Default::default() }))
}

fn diff(path: &str) -> Operation {
    calls::git(Git::Diff(v1::GitDiff { paths: vec![path.into()], ..Default::default() }))
}

fn with_input(path: &str) -> Operation {
    Operation::Exec(v1::ExecRequest { command: "true".into(), stdin_file: path.into(), ..Default::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_apply_to_each_operation_by_each_name_of_a_file() {
    let (_daemon, mut run) = start().await;
    let mut wrong = Vec::new();
    for (operation, expected) in [
        (calls::read("README.md"), "allow"),
        (calls::read("secrets/key"), "deny"),
        (calls::read("secrets/missing"), "deny"),
        (calls::read("./secrets//deep/./key"), "deny"),
        (calls::read("@project/secrets/key"), "deny"),
        (calls::read("/workspace/secrets/key"), "deny"),
        (calls::read("src/a.pem"), "deny"),
        (calls::read("src/to_file"), "path_denied"),
        (calls::read("src/to_directory/deep/key"), "path_denied"),
        (calls::read("src/to_pem"), "path_denied"),
        (calls::read("src/to_source"), "allow"),
        (calls::read("private/notes"), "ask"),
        (calls::read("src/to_notes"), "path_asks"),
        (calls::read("/tmp/closed/a"), "deny"),
        (calls::list("secrets/deep"), "deny"),
        (calls::grep("secrets/key", "s"), "deny"),
        (calls::grep("src/to_file", "s"), "path_denied"),
        (calls::write("src/new/a.rs", "new\n"), "allow"),
        (calls::write("src/new/a.pem", "new\n"), "deny"),
        (calls::write("secrets/new/a", "new\n"), "deny"),
        (calls::write("README.md", "new\n"), "ask"),
        (calls::write("new.md", "new\n"), "ask"),
        (calls::write("/workspace/new.md", "new\n"), "ask"),
        (calls::write("/tmp/closed/a", "new\n"), "deny"),
        (calls::write("/tmp/open", "new\n"), "allow"),
        (calls::replace("src/a.rs", "one", "two"), "allow"),
        (calls::replace("README.md", "me", "you"), "ask"),
        (calls::replace("secrets/key", "the", "a"), "deny"),
        (add("src/new/b.rs"), "allow"),
        (add("secrets/new"), "deny"),
        (add("new.md"), "ask"),
        (calls::delete("src/new/b.rs"), "allow"),
        (calls::delete("README.md"), "ask"),
        (calls::delete("secrets/key"), "deny"),
        (calls::git_add(&["src/a.rs"]), "allow"),
        (calls::git_add(&["src/a.rs", "secrets/key"]), "deny"),
        (calls::git_add(&["README.md"]), "ask"),
        (show("src/b.rs"), "allow"),
        (show("secrets/key"), "deny"),
        (diff("src"), "allow"),
        (diff("secrets/key"), "deny"),
        (cat("src/a.rs"), "allow"),
        (cat("secrets/key"), "deny"),
        (cat("src/to_file"), "path_denied"),
        (calls::exec(&["find", "src"]), "deny"),
        (with_input("src/a.rs"), "allow"),
        (with_input("secrets/key"), "deny"),
        (with_input("src/to_file"), "path_denied"),
        // Other commands are not seen through.
        (calls::shell("cat secrets/key"), "allow"),
        (calls::exec(&["sh", "-c", "cat secrets/key"]), "allow"),
    ] {
        let shown = format!("{operation:?}");
        let met = ends(&mut run, operation).await;
        if met != expected {
            wrong.push(format!("{shown}: {met}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // A consent is to the named paths.
    let (_, answer) = run.consented(calls::read("private/notes")).await;
    assert!(matches!(answer.into_kind(), Some(Answer::Read(read)) if read.content == "a note\n"));
    let (_, answer) = run.consented(calls::write("README.md", "approved\n")).await;
    assert_eq!(answer.status(), Status::Succeeded, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_diffs_and_archives_omit_and_count_ruled_paths() {
    let (daemon, mut run) = start().await;
    let workspace = daemon.roots().join("w");

    let Answer::Grep(grep) = run.ok(calls::grep(".", "e")).await else { panic!() };
    assert!(grep.matches.iter().all(|found| !found.text.contains(SECRET)), "{grep:?}");
    assert!(grep.matches.iter().any(|found| found.path.ends_with("src/a.rs")), "{grep:?}");
    // secrets/key, secrets/deep, src/a.pem, private/notes.
    assert_eq!(grep.left_out.unwrap().withheld, 4, "{}", grep.hint);
    assert!(grep.hint.contains("4 kept from this call by the profile's rules for paths"), "{}", grep.hint);
    let glob = v1::GlobRequest { pattern: "**/key".into(), ..Default::default() };
    let Answer::Glob(glob) = run.ok(Operation::Glob(glob)).await else { panic!() };
    assert_eq!((glob.paths.len(), glob.left_out.unwrap().withheld), (0, 4));
    for directory in ["secrets", "src/to_directory"] {
        let Answer::List(list) = run.ok(calls::list(directory)).await else { panic!() };
        assert_eq!((list.entries.len(), list.left_out.unwrap().withheld), (0, 2), "{directory}");
    }

    let packed = run.download_archive(".").await.unwrap();
    let files = contents(&packed.data);
    assert!(files.iter().any(|file| file == b"one\n"));
    assert!(files.iter().all(|file| file != SECRET.as_bytes() && file != b"a note\n"));
    assert_eq!(reason(&run.download("secrets/key", 0).await.unwrap_err()), "PERMISSION_DENIED");
    let refused = run.upload_archive("src", &archive(&[("ok.rs", b"x".as_slice()), ("x.pem", b"x")])).await;
    assert_eq!(reason(&refused.unwrap_err()), "PERMISSION_DENIED");
    assert!(!workspace.join("src/ok.rs").exists(), "nothing is unpacked before the refusal");
    run.upload_archive("src/up", &archive(&[("ok.rs", b"x".as_slice())])).await.unwrap();

    for name in ["secrets/key", "src/a.rs", "secrets/untracked"] {
        std::fs::write(workspace.join(name), format!("{SECRET}, changed in {name}\n")).unwrap();
    }
    let mut output = async |operation| match run.ok(operation).await {
        Answer::Git(git) => git.output,
        other => panic!("{other:?}"),
    };
    let kept = "kept from this call by the profile's rules for paths";
    let log = v1::GitLog { flags: vec!["--stat".into()], ..Default::default() };
    for (operation, shown) in [
        (calls::git_diff(&[]), "changed in src/a.rs"),
        (calls::git_diff(&["--stat"]), "src/a.rs"),
        (calls::git_diff(&["--name-only"]), "src/a.rs"),
        (calls::git_show("HEAD"), "src/a.rs"),
        (calls::git(Git::Log(log)), "src/a.rs"),
        (calls::git(Git::Status(v1::GitStatus {})), "src/a.rs"),
        (show("secrets"), "tree"),
    ] {
        let output = output(operation.clone()).await;
        assert!(output.contains(shown) && output.contains(kept), "{operation:?}: {output}");
        for hidden in ["secrets/key", "deep", "untracked", "a.pem"] {
            assert!(!output.contains(hidden), "{operation:?}: {output}");
        }
    }
    let id = harness::git(&workspace, &["rev-parse", "HEAD:secrets/key"]);
    assert_eq!(run.fails(calls::git_show(id.trim())).await.reason, "PERMISSION_DENIED");
    assert_eq!(run.fails(calls::git_add(&["."])).await.reason, "PERMISSION_DENIED");
    assert_eq!(harness::git(&workspace, &["diff", "--cached", "--name-only"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn explanations_and_lists_of_permissions_know_the_rules() {
    let (daemon, mut run) = start().await;
    for (operation, verdict, rule) in [
        (calls::read("secrets/key"), Verdict::Deny, "profile p: paths[0]"),
        (calls::write("a", "x"), Verdict::Ask, "profile p: paths[1]"),
        (calls::write("src/a", "x"), Verdict::Allow, "profile p: operations.write"),
    ] {
        let call = v1::CallRequest {
            run_id: run.id().to_owned(),
            request: Some(operation.into()),
            ..Default::default()
        };
        let request = v1::ExplainPolicyRequest { call: Some(call) };
        let answer = run.clients.policy.explain_policy(request).await.unwrap().into_inner();
        let decides = answer.considered.iter().find(|one| one.decides).unwrap();
        assert_eq!((answer.verdict(), decides.rule.as_str()), (verdict, rule));
    }
    let listed = run.clients.permissions.list_permissions(v1::ListPermissionsRequest::default()).await;
    let rules = listed.unwrap().into_inner().path_rules;
    assert_eq!((rules.len(), rules[1].rule.as_str(), rules[1].access.as_str()), (3, "paths[1]", "write"));

    let listed = std::process::Command::new(binary("coffer"))
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .args(["permission", "list"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.contains("paths[1]") && text.contains("@project/src/**"), "{text} {listed:?}");
}
