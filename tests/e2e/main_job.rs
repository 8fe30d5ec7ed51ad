//! The main job, whole: an agent works on a clone of a repository, within what the policy and its human allow, and
//! all of it is on record.

use harness::v1::call_response::Status;
use harness::v1::entry::Type;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, calls, git, reason, record, requests, v1};

/// What a call is to leave in the log: operation, the gateway's verdict, how it ended.
type Left = (&'static str, &'static str, &'static str);

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_changes_and_commits_within_its_limits() {
    let daemon = Daemon::start().await;
    let files = [("README.md", "# A pump\n\nIt keeps the dam dry.\n"), ("src/main.rs", "fn main() {}\n")];
    let source = daemon.repository("source", &files);
    let mut run = daemon.run_on(requests::clone("review", &source)).await;
    let workspace = std::path::PathBuf::from(&run.run.workspace_path);
    assert!(
        run.run.hardening.iter().any(|fact| fact.name == "network" && fact.value == "none"),
        "{:?}",
        run.run
    );

    looks_around(&mut run).await;

    let refused = run.call(calls::exec(&["rm", "-rf", "."])).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (tonic::Code::PermissionDenied, "Command not allowed: rm")
    );
    assert_eq!(reason(&refused), "COMMAND_NOT_ALLOWED");

    edits_with_consent(&mut run, &workspace).await;

    let Answer::Git(diff) = run.ok(calls::git_diff(&[])).await else { panic!("not git") };
    assert!(diff.output.contains("+It keeps the dam very dry.\n"), "{}", diff.output);
    let added = run.waits(calls::git_add(&["README.md"]));
    consent(&mut run).await;
    assert_eq!(added.await.unwrap().unwrap().status(), Status::Succeeded);
    let committed = run.waits(calls::git_commit("Say how dry"));
    let preview = consent(&mut run).await.preview;
    assert!(preview.contains("Say how dry") && preview.contains("README.md"), "{preview}");
    let Some(Answer::Git(commit)) = committed.await.unwrap().unwrap().into_kind() else { panic!("not git") };

    assert_eq!(git(&workspace, &["log", "--format=%H %s", "-1"]), format!("{} Say how dry\n", commit.commit));
    assert_eq!(git(&workspace, &["log", "--format=%s"]), "Say how dry\nfirst\n");
    assert_eq!(git(&workspace, &["status", "--porcelain"]), "");
    assert_eq!(git(&source, &["log", "--format=%s"]), "first\n", "the clone is the run's own");

    is_on_record(
        &mut run,
        &[
            ("list", "allow", "succeeded"),
            ("read", "allow", "succeeded"),
            ("grep", "allow", "succeeded"),
            ("exec", "allow", "succeeded"),
            ("exec", "deny", "denied"),
            ("edit", "ask", "succeeded"),
            ("git.diff", "allow", "succeeded"),
            ("git.add", "ask", "succeeded"),
            ("git.commit", "ask", "succeeded"),
        ],
    )
    .await;

    assert_eq!(run.stop().await.state(), v1::run::State::Stopped);
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
    assert!(workspace.join("README.md").exists(), "the workspace stays for its reader");
    let late = run.call(calls::read("README.md")).await.unwrap_err();
    assert_eq!(reason(&late), "RUN_NOT_READY");
    run.delete().await;
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
    assert!(source.join("README.md").exists());
    assert!(run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_is_shown_and_on_record() {
    let daemon = Daemon::start().await;
    let source = daemon.repository("source", &[("README.md", "# A pump\n")]);
    for role in ["worker", "manager", "director"] {
        let mut create = requests::clone("review", &source);
        create.role = role.to_owned();
        let mut run = daemon.run_on(create).await;
        let Answer::Git(log) = run.ok(calls::git_log("HEAD")).await else { panic!("not git") };
        assert!(log.output.contains("\n    first\n"), "{}", log.output);
        let Answer::Git(show) = run.ok(calls::git_show("HEAD:README.md")).await else { panic!("not git") };
        assert_eq!(show.output, "# A pump\n");
        let native = v1::DialectCall {
            dialect: "native".to_owned(),
            name: "git_operation".to_owned(),
            arguments_json: r#"{"operation": "log", "args": ["-1", "--oneline", "--name-only"]}"#.to_owned(),
        };
        let said = run.call(native).await.unwrap().rendered;
        assert!(said.trim_end().ends_with(" first\nREADME.md"), "{said}");
        let failure = run.call(calls::git_show("nothing")).await.unwrap();
        assert_eq!(failure.error.unwrap().reason, "NOT_FOUND");
        is_on_record(
            &mut run,
            &[
                ("git.log", "allow", "succeeded"),
                ("git.show", "allow", "succeeded"),
                ("git.log", "allow", "succeeded"),
                ("git.show", "allow", "failed"),
            ],
        )
        .await;
        run.stop().await;
    }
}

async fn looks_around(run: &mut harness::RunHandle) {
    let Answer::List(list) = run.ok(calls::list(".")).await else { panic!("not a list") };
    let names: Vec<_> = list.entries.iter().map(|entry| (entry.path.as_str(), entry.r#type())).collect();
    assert_eq!(names, [("@project/README.md", Type::File), ("@project/src", Type::Directory)]);

    let Answer::Read(read) = run.ok(calls::read("@project/README.md")).await else { panic!("not a read") };
    assert_eq!(read.content, "# A pump\n\nIt keeps the dam dry.\n");
    assert_eq!((read.size_bytes, read.total_lines, read.truncated), (32, 3, false));

    let Answer::Grep(grep) = run.ok(calls::grep("@project", "fn main")).await else { panic!("not a grep") };
    let found: Vec<_> = grep.matches.iter().map(|m| (m.path.as_str(), m.line, m.text.as_str())).collect();
    assert_eq!(found, [("@project/src/main.rs", 1, "fn main() {}")]);

    let wc = run.exec(&["wc", "-l", "README.md"]).await;
    assert_eq!((wc.stdout.trim(), wc.exit_code), ("3 README.md", Some(0)));
}

/// Answered at once with what it waits for; runs by itself once a reviewer has seen the difference and consented.
async fn edits_with_consent(run: &mut harness::RunHandle, workspace: &std::path::Path) {
    let asked = run.asks(calls::replace("README.md", "dam dry", "dam very dry")).await;
    let request =
        v1::ListApprovalsRequest { state: v1::approval::State::Pending.into(), run_id: run.id().to_owned() };
    let pending = run.clients.approvals.list_approvals(request).await.unwrap().into_inner().approvals;
    let [approval] = pending.as_slice() else { panic!("{pending:?}") };
    assert_eq!((&approval.approval_id, &approval.call_id), (&asked.approval_id, &asked.call_id));
    assert_eq!((approval.operation.as_str(), approval.risk.as_str()), ("edit", "high"));
    assert_eq!((approval.agent_id.as_str(), approval.requested_by.as_str()), ("tester", "uid:0"));
    assert!(
        approval.preview.contains("-It keeps the dam dry.\n+It keeps the dam very dry.\n"),
        "{}",
        approval.preview
    );
    let content = || std::fs::read_to_string(workspace.join("README.md")).unwrap();
    assert!(!content().contains("very"), "nothing happens before consent");

    let decided = run.clients.approve(&asked.approval_id).await.unwrap();
    assert_eq!((decided.state(), decided.decided_by.as_str()), (v1::approval::State::Approved, "uid:0"));
    let call = run.outcome(&asked.call_id).await;
    assert_eq!(call.status(), Status::Succeeded, "{:?}", call.error);
    let Some(Answer::Edit(edit)) = call.kind().cloned() else { panic!("not an edit") };
    assert_eq!(edit.replacements, 1);
    assert_eq!(edit.diff, approval.preview, "what was shown is what was done");
    assert_eq!(content(), "# A pump\n\nIt keeps the dam very dry.\n");
}

/// Consents to what waits.
async fn consent(run: &mut harness::RunHandle) -> v1::Approval {
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    run.clients.approve(&approval.approval_id).await.unwrap()
}

/// Exactly one intent and one receipt for each call, the intent first, the calls in their order.
async fn is_on_record(run: &mut harness::RunHandle, expected: &[Left]) {
    let id = run.id().to_owned();
    let events = run.clients.events(&id, "").await;
    let mut left = Vec::new();
    for intent in events.iter().filter(|event| event.kind == "call_intent") {
        let of_call: Vec<_> = events.iter().filter(|event| event.call_id == intent.call_id).collect();
        let kinds: Vec<_> = of_call.iter().map(|event| event.kind.as_str()).collect();
        let decision = record(intent)["decision"]["outcome"].as_str().unwrap().to_owned();
        let asked = ["call_intent", "approval_requested", "approval_decided", "call_receipt"];
        let plain = ["call_intent", "call_receipt"];
        assert_eq!(kinds, if decision == "ask" { &asked[..] } else { &plain[..] });
        assert!(
            of_call.iter().all(|event| event.agent_id == "tester" && event.principal == "uid:0"),
            "{of_call:?}"
        );
        let receipt = record(of_call.last().unwrap());
        left.push((
            intent.operation.clone(),
            decision,
            receipt["outcome"]["status"].as_str().unwrap().to_owned(),
        ));
    }
    let expected: Vec<_> =
        expected.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect();
    assert_eq!(left, expected);
    let receipts = events.iter().filter(|event| event.kind == "call_receipt").count();
    assert_eq!(receipts, expected.len());
    let verified = run.clients.verify().await;
    assert!(verified.intact, "{}", verified.damage);
    assert!(verified.valid_records >= events.len() as u64);
}
