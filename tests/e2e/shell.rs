//! Tests scripts: their shell, their end, and who may run them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::result::Kind as Answer;
use harness::v1::{self, CreateRunRequest, ExecResult, ShellRequest, operation::Kind as Operation};
use harness::{Daemon, Image, RunHandle, binary, calls, reason, record, requests};
use tokio::io::AsyncWriteExt as _;

/// Far less than any script here would take by itself.
const SOON: Duration = Duration::from_secs(20);

async fn open(daemon: &Daemon, files: &[(&str, &str)]) -> RunHandle {
    let workspace = daemon.workspace("w", files);
    daemon.run("open", &workspace).await
}

async fn request(run: &mut RunHandle, request: ShellRequest) -> ExecResult {
    run.ran(Operation::Shell(request)).await
}

async fn shell(run: &mut RunHandle, script: &str) -> ExecResult {
    request(run, ShellRequest { script: script.to_owned(), ..Default::default() }).await
}

/// Must end well without a word on standard error; its standard output.
async fn said(run: &mut RunHandle, script: &str) -> String {
    let result = shell(run, script).await;
    assert_eq!((result.exit_code, result.stderr.as_str()), (Some(0), ""), "{script}: {}", result.stdout);
    result.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_with_all_that_makes_a_shell_one() {
    let daemon = Daemon::start().await;
    let mut run = open(&daemon, &[("src/a.txt", "one\ntwo\n")]).await;

    assert_eq!(
        said(&mut run, "cd src && wc -l < a.txt | cat; for i in 1 2; do echo $i; done").await,
        "2\n1\n2\n"
    );
    assert_eq!(said(&mut run, "echo $HOME; pwd; echo \"$0\"; id -u").await, "/tmp\n/workspace\nsh\n1001\n");
    let result = shell(&mut run, "echo out; echo err >&2; (exit 7)").await;
    let streams = (result.stdout.as_str(), result.stderr.as_str());
    assert_eq!((streams, result.exit_code, result.signal), (("out\n", "err\n"), Some(7), None));
    let result = shell(&mut run, "if then").await;
    assert!(result.exit_code != Some(0) && result.stderr.contains("yntax error"), "{result:?}");

    let asked = ShellRequest {
        script: "read line; echo \"$line $GREETING\" > b.txt; cat b.txt; kill -9 $$".to_owned(),
        cwd: "@project/src".to_owned(),
        env: [("GREETING".to_owned(), "hello".to_owned())].into(),
        stdin: "first\nsecond\n".into(),
        timeout_ms: None,
        ..Default::default()
    };
    let result = request(&mut run, asked).await;
    assert_eq!(
        (result.stdout.as_str(), result.exit_code, result.signal),
        ("first hello\n", Some(137), Some(9))
    );
    assert_eq!(std::fs::read_to_string(daemon.roots().join("w/src/b.txt")).unwrap(), "first hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_in_a_login_bash_if_the_image_has_one() {
    let profile = ("etc/profile", "export FROM_PROFILE=yes\n");
    let image = Image::of_program("bash", Path::new("/bin/bash"), &[profile]);
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let request = CreateRunRequest { image: image.0.clone(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_with(request).await.unwrap();

    let script = "words=(a b); echo \"${#words[@]} ${BASH_VERSION:+bash} $FROM_PROFILE\"; shopt -q login_shell && echo login";
    assert_eq!(said(&mut run, script).await, "2 bash yes\nlogin\n");
    what_a_run_leaves_in_its_home_is_not_read(&mut run).await;
    assert!(said(&mut run, "shopt -q login_shell || echo no login").await.contains("no login"));
}

/// Nobody has consented to that, and it would run before what was consented to.
async fn what_a_run_leaves_in_its_home_is_not_read(run: &mut RunHandle) {
    let plant = "for f in .profile .bash_profile .bash_login .bash_logout .bashrc; do echo 'echo planted' > ~/$f; done";
    assert_eq!(said(run, plant).await, "");
    assert_eq!(said(run, "echo clean; exit").await, "clean\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_image_reads_no_startup_files_either() {
    let daemon = Daemon::start().await;
    let mut run = open(&daemon, &[]).await;
    what_a_run_leaves_in_its_home_is_not_read(&mut run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_a_shell_is_named_in_the_refusal() {
    let image = Image::of_files("shell-less", &[("motd", "nothing\n")], &[]);
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let request = CreateRunRequest { image: image.0.clone(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_with(request).await.unwrap();
    let failure = run.fails(calls::shell("echo x")).await;
    assert_eq!(failure.reason, "NOT_FOUND", "{}", failure.message);
    assert!(failure.message.contains("this image has no shell"), "{}", failure.message);
    assert!(failure.message.contains("use a run whose image has a shell"), "{}", failure.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn background_processes_of_a_script_end_with_it() {
    let daemon = Daemon::start().await;
    let mut run = open(&daemon, &[]).await;
    let result = shell(&mut run, "sleep 60 & (trap '' TERM HUP; sleep 60) & echo started").await;
    assert_eq!((result.stdout.as_str(), result.exit_code), ("started\n", Some(0)));
    let kill = result.kill.unwrap();
    assert!(kill.ended >= 2 && kill.left == 0, "{kill:?}");
    assert!(!harness::processes(&run.run.container_id).iter().any(|line| line.contains("sleep")));
}

#[tokio::test(flavor = "multi_thread")]
async fn script_timeout_ends_all_processes() {
    let daemon = Daemon::start().await;
    let mut run = open(&daemon, &[]).await;
    let asked = ShellRequest {
        script: "echo before; sleep 60 | sleep 60 | sleep 60; echo never".to_owned(),
        timeout_ms: Some(5_000),
        ..Default::default()
    };
    let result = request(&mut run, asked).await;
    assert!(result.timed_out, "{result:?}");
    assert_eq!(result.stdout, "before\n");
    let kill = result.kill.unwrap();
    assert!(kill.ended >= 3 && kill.left == 0, "{kill:?}");

    for timeout_ms in [0, 120_001] {
        let asked =
            ShellRequest { script: "true".to_owned(), timeout_ms: Some(timeout_ms), ..Default::default() };
        assert_eq!(reason(&run.call(Operation::Shell(asked)).await.unwrap_err()), "INVALID_ARGUMENT");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_cut_to_head_and_tail_with_exact_counts() {
    let daemon = Daemon::start().await;
    let mut run = open(&daemon, &[]).await;
    let script = "i=10000; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
    let response = run.call(calls::shell(script)).await.unwrap();
    let Some(Answer::Shell(result)) = response.kind().cloned() else { panic!("{:?}", response.error) };
    assert_eq!(result.stdout_bytes, 110_000);
    assert!(result.stdout.len() <= 17 * 1024 && response.rendered.len() <= 20 * 1024);
    assert!(result.stdout.starts_with("line 10000\n") && result.stdout.ends_with("line 19999\n"));
    assert!((90_000..110_000).contains(&result.stdout_omitted_bytes), "{}", result.stdout_omitted_bytes);
    assert!(response.rendered.starts_with("{\"ok\":true,"), "{}", &response.rendered[..60]);
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_without_shell_refuse_it_and_name_an_alternative() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    for profile in ["review", "strict"] {
        let mut run = daemon.run(profile, &workspace).await;
        let refused = run.call(calls::shell("ls")).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED");
        let said = refused.message();
        assert!(
            said.contains("`shell`") && said.contains(profile) && said.contains("one program at a time"),
            "{said}"
        );
        let id = run.id().to_owned();
        let events = run.clients.events(&id, "call_intent").await;
        let intent = record(events.last().unwrap());
        assert_eq!(intent["operation"], "shell");
        assert_eq!(intent["decision"]["outcome"], "deny");
        assert!(intent["decision"]["rule"].as_str().unwrap().ends_with("operations.shell"), "{intent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deny_list_holds_in_a_script_as_far_as_it_can_be_seen() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("keep", "x\n")]);
    // As an orchestrator's agent has it: the profile's own role.
    let request = CreateRunRequest { role: String::new(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_with(request).await.unwrap();
    for script in [
        "rm keep",
        "true && /bin/RM keep",
        "find . -name keep | xargs rm",
        "echo 'rm keep' | sh",
        "bash <<E\nrm keep\nE",
    ] {
        let refused = run.call(calls::shell(script)).await.unwrap_err();
        assert_eq!(reason(&refused), "COMMAND_NOT_ALLOWED", "{script}");
        assert!(refused.message().starts_with("Command not allowed: "), "{}", refused.message());
    }
    let fed = ShellRequest { script: "sh".to_owned(), stdin: "rm keep\n".into(), ..Default::default() };
    let refused = run.call(Operation::Shell(fed)).await.unwrap_err();
    assert_eq!(
        (reason(&refused).as_str(), refused.message()),
        ("COMMAND_NOT_ALLOWED", "Command not allowed: rm")
    );
    assert!(workspace.join("keep").exists());

    let notes = "cat > notes.md <<'EOF'\nrm -rf build\nsudo make install\nEOF\nwc -l < notes.md";
    assert_eq!(said(&mut run, notes).await.trim(), "2", "text is no command");
}

#[tokio::test(flavor = "multi_thread")]
async fn reviewer_sees_the_whole_script() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("job.sh", "echo harmless\n")]);
    let mut run = daemon.run("build", &workspace).await;
    let long = "# a step that matters\n".repeat(200);
    let script = format!("set -e\n{long}cd . && sh ./job.sh # last\n");

    let asked = run.asks(calls::shell(&script)).await;
    let approval = run.clients.approval(&asked.approval_id).await;
    assert_eq!(approval.operation, "shell");
    for line in script.lines() {
        assert!(approval.preview.contains(&format!("  | {line}\n")), "{line} is not in {}", approval.preview);
    }
    assert!(approval.preview.contains("\ncwd: @project\n"), "{}", approval.preview);
    assert!(approval.preview.contains("\nfile: @project/job.sh sha256 "), "{}", approval.preview);
    run.clients.approve(&asked.approval_id).await.unwrap();
    let call = run.outcome(&asked.call_id).await;
    let Some(Answer::Shell(result)) = call.kind().cloned() else { panic!("{:?}", call.error) };
    assert_eq!((result.exit_code, result.stdout.as_str()), (Some(0), "harmless\n"));

    // What it names was swapped while the reviewer was reading.
    let asked = run.asks(calls::shell(&script)).await;
    std::fs::write(workspace.join("job.sh"), "echo harmful\n").unwrap();
    run.clients.approve(&asked.approval_id).await.unwrap();
    let call = run.outcome(&asked.call_id).await;
    assert_eq!((call.status(), call.error.unwrap().reason.as_str()), (Status::Denied, "PRECONDITION_FAILED"));

    let refused = run.call(calls::shell("sudo sh ./job.sh")).await.unwrap_err();
    assert_eq!(refused.message(), "Command not allowed: sudo", "nobody is asked about that");
}

#[tokio::test(flavor = "multi_thread")]
async fn script_is_recorded_cut_with_its_whole_hash() {
    let daemon = Daemon::start().await;
    let mut run = open(&daemon, &[]).await;
    let script = format!("echo done\n{}", "# word\n".repeat(1_000));
    let response = run.call(calls::shell(&script)).await.unwrap();
    let events = run.clients.of_call(&response.call_id).await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["call_intent", "call_receipt"]);
    let (intent, receipt) = (record(&events[0]), record(&events[1]));
    assert_eq!(
        (&intent["operation"], &intent["input"]["script"]["bytes"]),
        (&"shell".into(), &script.len().into())
    );
    assert!(intent["input"]["script"]["preview"].as_str().unwrap().starts_with("echo done\n# word\n"));
    assert_eq!(intent["input"]["script"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(
        (&receipt["outcome"]["exit_code"], &receipt["outcome"]["status"]),
        (&0.into(), &"succeeded".into())
    );
    assert_eq!(receipt["outcome"]["facts"]["stdout"], "done\n");
}

async fn coffer(daemon: &Daemon, args: &[&str], stdin: &str) -> (i32, String, String) {
    let mut child = tokio::process::Command::new(binary("coffer"))
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).await.unwrap();
    let output =
        tokio::time::timeout(SOON, child.wait_with_output()).await.expect("coffer does not end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_runs_one_by_hand() {
    let daemon = Daemon::start().await;
    let run = open(&daemon, &[("src/a.txt", "one\ntwo\n")]).await;
    let id = run.id();

    let given = coffer(&daemon, &["call", "shell", id, "cat a.txt | tail -n 1", "--cwd", "src"], "").await;
    assert_eq!(given, (0, "two\n".into(), String::new()));
    let (code, out, err) = coffer(&daemon, &["call", "shell", id, "-"], "echo a\necho b >&2\nexit 3\n").await;
    assert_eq!((code, out.as_str()), (3, "a\n"));
    assert!(err.starts_with("b\n") && err.contains("exit code 3"), "{err}");
    let fed = coffer(&daemon, &["call", "shell", id, "wc -l", "--stdin", "-", "--no-stream"], "x\ny\n").await;
    assert_eq!((fed.0, fed.1.trim()), (0, "2"), "{}", fed.2);
    let (code, out, err) = coffer(&daemon, &["call", "shell", id, "sudo ls"], "").await;
    assert_eq!((code, out.as_str()), (126, ""));
    assert!(err.contains("Command not allowed: sudo (COMMAND_NOT_ALLOWED)"), "{err}");
    let json = coffer(&daemon, &["--output", "json", "call", "shell", id, "echo x"], "").await;
    let call: v1::CallResponse = serde_json::from_str(&json.1).unwrap();
    assert!(matches!(call.kind(), Some(Answer::Shell(result)) if result.stdout == "x\n"));
}
