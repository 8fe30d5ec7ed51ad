//! Tests start and stop of the daemon: it names missing things, and leaves things of others alone.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Output;

use harness::{Daemon, Setup, binary, calls, record, requests, v1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn cofferd(arguments: &[&str], config: &Path) -> Output {
    let mut command = tokio::process::Command::new(binary("cofferd"));
    command.arg("--config").arg(config).args(arguments).kill_on_drop(true);
    tokio::time::timeout(std::time::Duration::from_secs(60), command.output())
        .await
        .expect("it does not end")
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn written(directory: &Path, text: &str) -> std::path::PathBuf {
    let path = directory.join("cofferd.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn a_bad_configuration_is_refused_with_every_problem_named() {
    let directory = tempfile::tempdir().unwrap();
    let config = written(
        directory.path(),
        "listen: { unix: { path: run.sock, mode: \"0666\" } }\n\
         workspace_roots: [/, /no/such/directory]\n\
         approvals: { timeout: soon }\n\
         pool: { min: 3, max: 2 }\n",
    );
    let keys = [
        (1, "listen.unix.path"),
        (1, "listen.unix.mode"),
        (2, "workspace_roots[0]"),
        (2, "workspace_roots[1]"),
        (3, "approvals.timeout"),
        (4, "pool.min"),
    ];
    for arguments in [&["--check-config"][..], &[]] {
        let output = cofferd(arguments, &config).await;
        assert_eq!(output.status.code(), Some(1));
        let said = said(&output);
        assert!(said.contains("6 problems in the configuration:"), "{said}");
        for (line, key) in keys {
            assert!(said.contains(&format!("/cofferd.yaml:{line}: {key}: ")), "{key}: {said}");
        }
    }
    for (text, told) in [
        ("state_dri: /x\n", ":1: state_dri: unknown key (did you mean `state_dir`?)"),
        ("state_dir: /a\nstate_dir: /b\n", ":2: state_dir: given more than once"),
        ("limits: { runs: many }\nspool: { max_total: 4GB }\n", "2 problems"),
        ("spool:\n  max_total: 4GB\n", "(did you mean `4GiB`?)"),
        ("a: [", "1 problem in the configuration"),
    ] {
        let output = cofferd(&["--check-config"], &written(directory.path(), text)).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(told), "{}", said(&output));
    }
    let output = cofferd(&["--check-config"], &directory.path().join("none.yaml")).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("cannot be read"), "{}", said(&output));
}

#[tokio::test]
async fn a_daemon_without_an_engine_reports_it_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    let config = written(
        directory.path(),
        &format!(
            "listen: {{ unix: {{ path: {root}/cofferd.sock }} }}\nstate_dir: {root}/state\n\
             docker: {{ endpoint: \"unix://{root}/no-engine.sock\" }}\n"
        ),
    );
    let output = cofferd(&["--check-config"], &config).await;
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("note: ") && said(&output).contains("no-engine.sock"),
        "{}",
        said(&output)
    );
    let output = cofferd(&[], &config).await;
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    let last = said.trim_end().lines().last().unwrap();
    assert!(last.starts_with("cofferd: ") && last.contains("no-engine.sock"), "{said}");
    assert!(!directory.path().join("cofferd.sock").exists());
}

/// Answers as an engine would until the test ends, with one of two texts.
fn serve_engine(socket: &Path, version: &'static str, info: &'static str) {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await.unwrap();
            let line =
                String::from_utf8_lossy(&request[..read]).lines().next().unwrap_or_default().to_owned();
            let body = if line.contains("/info") { info } else { version };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
    });
}

#[tokio::test]
async fn an_engine_that_no_run_can_use_is_refused_at_the_start() {
    let docker = r#"{"Version": "26.1.5", "ApiVersion": "1.45", "Components": [{"Name": "Engine", "Version": "26.1.5"}]}"#;
    let podman = r#"{"Version": "4.3.1", "ApiVersion": "1.41", "Components": [{"Name": "Podman Engine", "Version": "4.3.1"}]}"#;
    let rooted = r#"{"SecurityOptions": ["name=seccomp,profile=default"]}"#;
    let rootless = r#"{"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}"#;
    for (version, info, words) in [
        (podman, rooted, "the engine is Podman 4.3.1, API 1.41: "),
        (docker, rootless, "the engine is Docker 26.1.5, API 1.45, rootless: "),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().display();
        serve_engine(&directory.path().join("engine.sock"), version, info);
        let config = written(
            directory.path(),
            &format!(
                "listen: {{ unix: {{ path: {root}/cofferd.sock }} }}\nstate_dir: {root}/state\n\
                 docker: {{ endpoint: \"unix://{root}/engine.sock\" }}\n"
            ),
        );
        let output = cofferd(&[], &config).await;
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let last = said.trim_end().lines().last().unwrap();
        let is_explained = last.contains(words) && last.contains("no run would become ready");
        assert!(last.starts_with("cofferd: ") && is_explained, "{said}");
        assert!(!directory.path().join("cofferd.sock").exists());
    }
}

#[tokio::test]
async fn a_bad_policy_keeps_the_daemon_from_starting_and_fails_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    std::fs::create_dir(directory.path().join("policy")).unwrap();
    std::fs::write(
        directory.path().join("policy/a.yaml"),
        "profiles:\n  x: { operations: { read: perhaps } }\n",
    )
    .unwrap();
    let config = written(
        directory.path(),
        &format!(
            "listen: {{ unix: {{ path: {root}/cofferd.sock }} }}\nstate_dir: {root}/state\npolicy_dir: {root}/policy\n"
        ),
    );
    for arguments in [&["--check-config"][..], &[]] {
        let output = cofferd(arguments, &config).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = said(&output);
        assert!(said.contains("a.yaml:2") && said.contains("perhaps"), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    // Nor is the check content with a directory that is not there, or with what keeps the socket from being made.
    std::fs::write(directory.path().join("cofferd.sock"), "").unwrap();
    for (line, told) in [
        (format!("policy_dir: {root}/none"), "the policy directory cannot be read"),
        (format!("listen: {{ unix: {{ path: {root}/cofferd.sock }} }}"), "is not a socket"),
        (format!("state_dir: {root}/cofferd.sock"), "is not a directory"),
    ] {
        let output = cofferd(&["--check-config"], &written(directory.path(), &line)).await;
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(said(&output).contains(told), "{line}: {}", said(&output));
    }
}

#[tokio::test]
async fn signed_consent_without_a_console_is_a_problem_of_the_policy() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    std::fs::create_dir(directory.path().join("policy")).unwrap();
    let policy = "profiles: { p: { operations: { write: ask }, approvals: { passkey: high } } }\nroles: { worker: { allow: \"*\" } }\n";
    std::fs::write(directory.path().join("policy/a.yaml"), policy).unwrap();
    let text = format!(
        "listen: {{ unix: {{ path: {root}/cofferd.sock }} }}\nstate_dir: {root}/state\npolicy_dir: {root}/policy\n"
    );
    let config = written(directory.path(), &text);
    for arguments in [&["--check-config"][..], &[]] {
        let output = cofferd(arguments, &config).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = said(&output);
        assert!(said.contains("profiles.p.approvals.passkey: needs a console with a name"), "{said}");
    }
    let address = "console: { listen: '127.0.0.1:0', origin: 'https://192.0.2.7' }\n";
    let output = cofferd(&["--check-config"], &written(directory.path(), &format!("{text}{address}"))).await;
    assert!(said(&output).contains("approvals.passkey"), "{}", said(&output));
    let console = "console: { listen: '127.0.0.1:0' }\n";
    let output = cofferd(&["--check-config"], &written(directory.path(), &format!("{text}{console}"))).await;
    assert!(output.status.success(), "{}", said(&output));
}

/// A policy whose rules and placeholders name the secret `model`.
const NEEDS_MODEL: &str = "\
profiles:
  p:
    operations: { read: allow }
    egress:
      rules:
        - host: model.internal
          ports: [80]
          scheme: http
          upstream: \"https://api.example.org\"
          inject: { header: x-api-key, value: \"${secret:model}\" }
          decision: allow
      placeholders: { MODEL_API_KEY: { secret: model, shape: \"key-{40}\" } }
roles: { worker: { allow: \"*\" } }
";

#[tokio::test]
async fn secrets_that_are_missing_or_cannot_be_read_are_reported_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    std::fs::create_dir(directory.path().join("policy")).unwrap();
    std::fs::write(directory.path().join("policy/a.yaml"), NEEDS_MODEL).unwrap();
    let text = format!(
        "listen: {{ unix: {{ path: {root}/cofferd.sock }} }}\nstate_dir: {root}/state\npolicy_dir: {root}/policy\n"
    );
    let config = written(directory.path(), &text);
    for arguments in [&["--check-config"][..], &[]] {
        let output = cofferd(arguments, &config).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = said(&output);
        assert!(said.contains("profiles.p.egress: needs the secret model: add it to `secrets`"), "{said}");
    }

    let file = directory.path().join("model");
    let command = "[/no/such/program, --name, model]";
    let secrets =
        format!("secrets: {{ model: {{ file: {root}/model }}, other: {{ command: {command} }} }}\n");
    let config = written(directory.path(), &(text + &secrets));
    for (mode, note) in [
        (None, Some("note: the secret model cannot be read: its file cannot be read (entity not found)")),
        (Some(0o644), Some("note: the secret model cannot be read: its file is open to other users")),
        (Some(0o600), None),
    ] {
        if let Some(mode) = mode {
            std::fs::write(&file, "hunter2\n").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let output = cofferd(&["--check-config"], &config).await;
        let said = said(&output);
        assert!(output.status.success() && !said.contains("hunter2"), "{said}");
        assert!(
            note.map_or_else(|| !said.contains("the secret model"), |note| said.contains(note)),
            "{said}"
        );
        assert!(said.contains("note: the secret other cannot be read: /no/such/program"), "{said}");
    }
    let printed = String::from_utf8(cofferd(&["--print-config"], &config).await.stdout).unwrap();
    assert!(printed.contains("/model") && !printed.contains("hunter2"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_needs_a_missing_secret_keeps_the_old_policy() {
    let policy = "profiles: { p: { operations: { read: allow } } }\nroles: { worker: { allow: \"*\" } }\n";
    let policy = vec![("a.yaml", policy.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let mut clients = daemon.connect().await;
    let old = clients.policy.get_policy(v1::GetPolicyRequest {}).await.unwrap().into_inner();
    std::fs::write(daemon.policy_dir().join("a.yaml"), NEEDS_MODEL).unwrap();
    let refused = clients.policy.reload_policy(v1::ReloadPolicyRequest {}).await.unwrap_err();
    let needed = ["the old one stays in force", "profiles.p.egress: needs the secret model"];
    assert!(needed.iter().all(|words| refused.message().contains(words)), "{refused:?}");
    let policy = clients.policy.get_policy(v1::GetPolicyRequest {}).await.unwrap().into_inner();
    assert_eq!(policy.digest, old.digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_core_is_dumped() {
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    // The daemon reads each secret when it starts.
    let script = format!("cat /proc/self/limits >{0}.new && mv {0}.new {0} && echo value", told.display());
    let config = format!("secrets: {{ one: {{ command: [/bin/sh, -c, '{script}'] }} }}\n");
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    harness::until("the command of a secret is not run", async || told.exists()).await;
    for limits in [Path::new(&format!("/proc/{}/limits", daemon.pid())), told.as_path()] {
        let limits = std::fs::read_to_string(limits).unwrap();
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        // A byte is too little for a file, and the kernel gives nothing to a program either.
        assert_eq!(core.split_whitespace().collect::<Vec<_>>(), ["1", "1", "bytes"]);
    }
}

#[tokio::test]
async fn a_usage_error_shows_no_option_that_a_variable_has_set() {
    let refused = async |file: Option<&str>| {
        let mut command = tokio::process::Command::new(binary("cofferd"));
        command.arg("--no-such-option").env_remove("COFFERDAM_CONFIG");
        let output = command.envs(file.map(|file| ("COFFERDAM_CONFIG", file))).output().await.unwrap();
        assert_eq!(output.status.code(), Some(2));
        said(&output)
    };
    assert_eq!(refused(Some("/nowhere/cofferd.yaml")).await, refused(None).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_has_one_daemon() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    let output = cofferd(&[], &daemon.config_path()).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("another cofferd uses state_dir"), "{}", said(&output));
    assert_eq!(run.exec(&["id", "-u"]).await.stdout, "1001\n", "the first one does not mind");

    let socket = std::fs::metadata(daemon.socket()).unwrap();
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o660);
    assert_eq!(std::fs::metadata(daemon.state_dir()).unwrap().permissions().mode() & 0o777, 0o711);

    daemon.stop().await;
    assert!(!daemon.socket().exists());
    assert_eq!(daemon.containers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_daemons_on_one_engine_leave_each_other_alone() {
    let one = Daemon::start().await;
    let mut run = one.run_on(requests::managed("open")).await;
    let mut other = Daemon::start().await;
    let theirs = other.run_on(requests::managed("open")).await;
    assert_eq!((one.containers().len(), other.containers().len()), (1, 1));
    assert_ne!(one.containers(), other.containers());
    let mut clients = other.connect().await;
    let runs = clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert_eq!(runs.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), [theirs.id()]);

    // Neither a crash nor the taking over after it touches the neighbour.
    let (neighbour, own) = (one.containers(), other.containers());
    other.relaunch().await;
    assert_eq!((one.containers(), other.containers()), (neighbour, own));
    assert_eq!(run.exec(&["id", "-u"]).await.stdout, "1001\n");
    run.ok(calls::write("a.txt", "x")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_loads_the_policy_again() {
    let review = include_str!("../../crates/policy/policies/review.yaml");
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    let policy = vec![("review.yaml", review.to_owned()), ("roles.yaml", roles)];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let mut clients = daemon.connect().await;
    let filter = v1::EventFilter { kinds: vec!["policy_loaded".to_owned()], ..Default::default() };
    let request = v1::StreamEventsRequest { filter: Some(filter), follow: true, ..Default::default() };
    let mut loaded = clients.audit.stream_events(request).await.unwrap().into_inner();
    let mut next = async || record(&loaded.message().await.unwrap().unwrap().event.unwrap());
    let first = next().await;
    std::fs::write(daemon.policy_dir().join("review.yaml"), review.replace("edit: ask", "edit: deny"))
        .unwrap();
    let config = std::fs::read_to_string(daemon.config_path()).unwrap();
    std::fs::write(daemon.config_path(), config + "limits: { runs: 7 }\n").unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    let second = next().await;
    assert_eq!(second["principal"], "signal:SIGHUP");
    assert_ne!(first["details"]["digest"], second["details"]["digest"]);
    // It is on record before it is in force.
    let in_force = async {
        loop {
            let policy = clients.policy.get_policy(v1::GetPolicyRequest {}).await.unwrap().into_inner();
            if second["details"]["digest"] == policy.digest {
                return policy;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let policy = tokio::time::timeout(std::time::Duration::from_secs(30), in_force).await;
    let policy = policy.expect("the new policy does not come into force");
    assert!(policy.profiles == ["review"] && policy.yaml.contains("edit: deny"), "{}", policy.yaml);
    // A key that needs a restart is named.
    let named = async {
        while !daemon.log().contains("needs_restart=\"limits.runs\"") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let named = tokio::time::timeout(std::time::Duration::from_secs(30), named).await;
    assert!(named.is_ok(), "{}", daemon.log());
}

#[tokio::test]
async fn a_daemon_without_a_jail_reports_it_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    let config = written(
        directory.path(),
        &format!("listen: {{ unix: {{ path: {root}/cofferd.sock }} }}\nstate_dir: {root}/state\n"),
    );
    // As on a host that allows no user namespaces, without any privilege.
    let none = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \
                --ambient-caps=-all --securebits=+noroot \"$@\"";
    let mut command = tokio::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", none, "sh"]);
    command.arg(binary("cofferd")).arg("--config").arg(&config).kill_on_drop(true);
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), command.output()).await;
    let output = output.expect("it does not end").unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    let last = said.trim_end().lines().last().unwrap();
    assert!(last.starts_with("cofferd: the host lane's jail cannot be set up: "), "{said}");
    for word in ["user namespace", "run the daemon as root", "host_lane: { accept: landlock-only }"] {
        assert!(last.contains(word), "{word}: {said}");
    }
}

/// The other half of the next test: starts a daemon with a run, and never ends.
#[tokio::test]
async fn a_test_that_never_ends() {
    let Some(told) = std::env::var_os("COFFERDAM_TEST_NEVER_ENDS") else { return };
    let daemon = Daemon::start().await;
    let run = daemon.run_on(requests::managed("open")).await;
    let told_first = format!("{} {}", daemon.outside().display(), run.run.container_id);
    std::fs::write(&told, told_first).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_test_that_is_killed_leaves_no_daemon_and_no_container() {
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    // As the test runner does at a time limit: the whole process group, and the daemon with it.
    for spared in [true, false] {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "startup::a_test_that_never_ends"]).env("COFFERDAM_TEST_NEVER_ENDS", &told);
        std::os::unix::process::CommandExt::process_group(&mut test, 0);
        let mut test = test.stdout(std::process::Stdio::null()).spawn().unwrap();
        let mut words = String::new();
        harness::until("it does not start", async || {
            words = std::fs::read_to_string(&told).unwrap_or_default();
            words.contains(' ')
        })
        .await;
        let (directory, container) = words.split_once(' ').unwrap();
        let pid = rustix::process::Pid::from_child(&test);
        if spared {
            test.kill().unwrap();
        } else {
            rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap();
        }
        test.wait().unwrap();
        harness::until("the daemon's directory stays", async || !Path::new(directory).exists()).await;
        let line = format!("{directory}/cofferd.yaml");
        let daemons = std::fs::read_dir("/proc").unwrap().filter(|entry| {
            let cmdline = entry.as_ref().unwrap().path().join("cmdline");
            std::fs::read(cmdline).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&line))
        });
        assert_eq!(daemons.count(), 0, "a daemon stays");
        let listed = std::process::Command::new("docker").args(["inspect", container]).output().unwrap();
        assert!(!listed.status.success(), "its container stays");
        std::fs::remove_file(&told).unwrap();
    }
}
