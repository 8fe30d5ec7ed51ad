//! A5: a secret that an agent passes around is on no disk and in no preview afterwards.

use std::fmt::Write as _;
use std::path::Path;

use harness::v1::operation::Kind as Operation;
use harness::v1::{self, CallRequest, ProcessRequest};
use harness::{Daemon, RunHandle, Setup, calls, process, requests};

use crate::inside::{Inside, PROFILES, both_on, contents};

/// Secrets of well-known shapes. Put together here so that no scanner takes them for real ones.
fn secrets() -> Vec<String> {
    vec![
        format!("ghp{}", "_16C7e42F292c6912E7710c838347Ae178B4a"),
        format!("AKIA{}", "Z7QXK3MPLV5WTRND"),
        format!("xoxb{}", "-263594206564-2343594206574-FGqddMF8t08v8N7Oq4i57vs1"),
        format!("sk{}", "-proj-4kNn8TqVz2Lr9WbXc7YdPm3HsJf6Ga1E"),
        format!("glpat{}", "-Xy7Kp2Qm9Rt4Vw8Zb3Nc"),
    ]
}

const PASSWORD: &str = "correct-horse-7-battery";

/// A secret, and it as base64, with each of the three ways that it can be aligned, as hexadecimal digits of either case, and
/// percent-encoded, all of it or what has to be.
fn spellings(secret: &str) -> Vec<Vec<u8>> {
    use base64::Engine as _;
    let percent = |byte: u8| format!("%{byte:02X}");
    let needed = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            percent(byte)
        }
    };
    let mut spelt = vec![
        secret.to_owned(),
        hex::encode(secret),
        hex::encode_upper(secret),
        secret.bytes().map(percent).collect(),
        secret.bytes().map(needed).collect(),
    ];
    for engine in [base64::prelude::BASE64_STANDARD_NO_PAD, base64::prelude::BASE64_URL_SAFE_NO_PAD] {
        for before in 0..3 {
            // Digits that hold bits of what is beside it can be any.
            let aligned = engine.encode([&[0; 3][..before], secret.as_bytes()].concat());
            let whole = (before + secret.len()) / 3 * 4;
            spelt.push(aligned[[0, 2, 3][before]..whole].to_owned());
        }
    }
    spelt.sort();
    spelt.dedup();
    spelt.into_iter().map(String::into_bytes).collect()
}

/// Places in which the secrets are found.
fn leaks(directory: &Path, texts: &[(&str, String)], secrets: &[String]) -> Vec<String> {
    let files = contents(directory).into_iter().map(|(path, content)| (path.display().to_string(), content));
    let texts = texts.iter().map(|(name, text)| ((*name).to_owned(), text.clone().into_bytes()));
    let mut found = Vec::new();
    for (place, content) in files.chain(texts) {
        for secret in secrets {
            if spellings(secret).iter().any(|spelt| contains(&content, spelt)) {
                let text = String::from_utf8_lossy(&content);
                let line = text.lines().find(|line| line.contains(secret.as_str())).unwrap_or_default();
                found.push(format!("{secret} in {place}: {}", line.chars().take(1_000).collect::<String>()));
            }
        }
    }
    found
}

fn contains(content: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(content, wanted).is_some()
}

/// The search finds what it is for: it would pass as well if it found nothing.
#[test]
fn a_secret_is_found_in_every_spelling() {
    use base64::Engine as _;
    let directory = tempfile::tempdir().unwrap();
    let secret = format!("{PASSWORD}/+?");
    let encoded = |text: &str| base64::prelude::BASE64_STANDARD.encode(text);
    for text in [
        secret.clone(),
        hex::encode(&secret),
        hex::encode_upper(&secret),
        encoded(&secret),
        encoded(&format!("x{secret}yz")),
        encoded(&format!("xy{secret}")),
        base64::prelude::BASE64_URL_SAFE.encode(format!("xyz{secret}??")),
        format!("https://u:{PASSWORD}%2F%2B%3F@example.org"),
        secret.bytes().flat_map(|byte| ["%".to_owned(), hex::encode_upper([byte])]).collect(),
    ] {
        std::fs::write(directory.path().join("file"), format!("before {text} after")).unwrap();
        assert_eq!(leaks(directory.path(), &[], std::slice::from_ref(&secret)).len(), 1, "{text}");
    }
    std::fs::write(directory.path().join("file"), encoded("nothing")).unwrap();
    assert!(leaks(directory.path(), &[], &[secret]).is_empty());
}

/// A daemon that says as much as it ever does.
async fn talkative() -> Daemon {
    let config = "log: { level: debug }\nharness_on_bind: allow\n".to_owned();
    Daemon::start_with(Setup { config, ..Default::default() }).await
}

/// Makes these calls, however they end, and looks for the secrets in the daemon's log, the events, and every file that the
/// daemon has ever written: store, journals, audit log and its index, spool, sessions. Not in workspaces, states and
/// trash, which are what an agent writes.
async fn leaks_of(
    daemon: &Daemon,
    runs: &mut [Inside],
    calls: impl Fn(&str) -> Vec<Operation>,
) -> Vec<String> {
    let mut secrets = secrets();
    secrets.push(PASSWORD.to_owned());
    for inside in &mut *runs {
        for secret in &secrets {
            for operation in calls(secret) {
                let request = CallRequest {
                    request: Some(operation.into()),
                    task_id: format!("task token={secret}"),
                    correlation_id: format!("correlation token={secret}"),
                    ..Default::default()
                };
                let _ = inside.run.call_with(request).await;
            }
        }
    }
    found_of(daemon, runs, &secrets, 2 * secrets.len()).await
}

/// Where these are, after so many events of each run.
async fn found_of(daemon: &Daemon, runs: &mut [Inside], secrets: &[String], least: usize) -> Vec<String> {
    let mut streamed = String::new();
    for inside in runs {
        let id = inside.run.id().to_owned();
        let events = inside.run.clients.events(&id, "").await;
        assert!(events.len() > least, "{} events", events.len());
        streamed.extend(events.iter().map(|event| event.record_json.as_str()));
    }
    let texts = [("the log", daemon.log()), ("the event stream", streamed)];
    // The index follows the log: it has all of it once a query was answered.
    let query = v1::QueryEventsRequest { page_size: 1, ..Default::default() };
    daemon.connect().await.audit.query_events(query).await.unwrap();
    let mut found = leaks(&daemon.state_dir().join("audit"), &texts, secrets);
    for entry in std::fs::read_dir(daemon.state_dir()).unwrap() {
        let path = entry.unwrap().path();
        let content = ["mounts", "runs", "roots", "workspaces", "overlays", "host-worker"]
            .iter()
            .any(|name| path.ends_with(name));
        if path.is_dir() && !content {
            found.extend(leaks(&path, &[], secrets));
        } else if path.is_file() {
            let content = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            let none = daemon.state_dir().join("sessions");
            found.extend(leaks(&none, &[(path.to_str().unwrap(), content)], secrets));
        }
    }
    found
}

#[tokio::test]
async fn a5_secrets_given_to_calls_are_not_stored() {
    let (daemon, mut runs) = both_on(talkative().await, v1::CreateRunRequest::default()).await;
    let found = leaks_of(&daemon, &mut runs, |secret| {
        let variables = v1::ExecRequest {
            command: "true".to_owned(),
            env: [("DB_PASSWORD".to_owned(), secret.to_owned())].into(),
            stdin: secret.into(),
            ..Default::default()
        };
        let script = v1::ShellRequest {
            script: format!(
                "true <<'EOF'\npassword: {secret}\nEOF\ntrue --token {secret} \"$DB_PASSWORD\"\n"
            ),
            env: [("DB_PASSWORD".to_owned(), secret.to_owned())].into(),
            stdin: format!("password={secret}\n").into(),
            ..Default::default()
        };
        vec![
            Operation::Shell(script),
            calls::shell(&format!("export DB_PASSWORD='{secret}'; true # {}", "and so on ".repeat(200))),
            // Refused, and in the middle of a script that the record cuts.
            calls::shell(&format!("rm x; true --token '{secret}'")),
            calls::shell(&format!("{} password={secret}\n", "true;".repeat(300))),
            calls::exec(&["true", &format!("--token={secret}")]),
            calls::exec(&["true", "--password", secret]),
            Operation::Exec(variables),
            calls::write("settings", &format!("password = \"{secret}\"\n")),
        ]
    })
    .await;
    assert!(found.is_empty(), "{found:#?}");
}

/// Values that no net would know by their looks: the daemon knows them because it was given them as secrets.
#[tokio::test]
async fn a5_secret_variables_of_a_run_are_visible_nowhere_and_in_no_answer() {
    let daemon = talkative().await;
    let secrets = ["seven green bottles".to_owned(), "standing on a wall".to_owned()];
    let names = ["FIRST", "SECOND"].map(str::to_owned);
    let mut runs = Vec::new();
    for profile in PROFILES {
        let secret_env = names.iter().cloned().zip(secrets.iter().cloned()).collect();
        let workspace = daemon.repository(profile.name, &[("a", "x\n")]);
        let request = v1::CreateRunRequest {
            profile: profile.name.to_owned(),
            secret_env,
            request_id: profile.name.to_owned(),
            ..Default::default()
        };
        let mut inside = Inside::enter_at(&daemon, workspace, request).await;
        let printed = inside.run.exec(&["sh", "-c", "printf '%s, %s' \"$FIRST\" \"$SECOND\""]).await;
        assert_eq!(printed.stdout, secrets.join(", "), "commands have them");
        for secret in &secrets {
            for operation in [
                calls::shell(&format!("echo '{secret}' >&2; exit 3")),
                calls::exec(&["cat", secret]),
                calls::write(&format!("{secret}.txt"), secret),
                calls::exec(&["sh", "-c", "echo $FIRST $SECOND; env; kill -9 $$"]),
            ] {
                let request = CallRequest {
                    request: Some(operation.into()),
                    task_id: format!("task {secret}"),
                    correlation_id: secret.clone(),
                    ..Default::default()
                };
                let _ = inside.run.call_with(request).await;
            }
        }
        if profile.name == "harness" {
            stay(&mut inside.run, &secrets).await;
        }
        let id = inside.run.id().to_owned();
        let mut answers = vec![format!("{:?}", inside.run.show().await), format!("{:?}", inside.run.run)];
        let listed = inside.run.clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap();
        answers.push(format!("{listed:?}"));
        let bundle = v1::CreateBundleRequest { run_id: id.clone(), ..Default::default() };
        let mut bundle = inside.run.clients.audit.create_bundle(bundle).await.unwrap().into_inner();
        let mut whole = Vec::new();
        while let Some(response) = bundle.message().await.unwrap() {
            if let Some(v1::create_bundle_response::Event::Data(data)) = response.event {
                whole.extend(data);
            }
        }
        answers.push(String::from_utf8_lossy(&whole).into_owned());
        for answer in &answers {
            assert!(secrets.iter().all(|secret| !answer.contains(secret.as_str())), "{answer}");
        }
        assert!(answers[0].contains("FIRST"), "names are shown");
        runs.push(inside);
    }
    let found = found_of(&daemon, &mut runs, &secrets, 10).await;
    assert!(found.is_empty(), "{found:#?}");
}

/// A process and a session that have the secrets and print them. What is typed into them is recorded as it is, and is not
/// spoken of here.
async fn stay(run: &mut RunHandle, secrets: &[String]) {
    let (print, whole) = ("echo $FIRST, $SECOND", secrets.join(", ") + "\n");
    for process in [process::script(print), process::command(&["sh", "-c", print, secrets[0].as_str()])] {
        let id = run.start(ProcessRequest { tag: "prints".to_owned(), ..process }).await.process_id;
        assert_eq!(run.all_of(&id).await.text(), whole);
    }
    let session = run.open().await;
    assert_eq!(run.said(&session, print).await.0, whole);
    assert!(run.said(&session, "env").await.0.contains(&secrets[1]));
    run.close(&session).await;
}

/// Outcomes and output are kept for `GetCall` as they were, sealed; the records of them are not.
#[tokio::test]
async fn a5_secrets_in_results_are_not_stored_in_the_clear() {
    let daemon = talkative().await;
    let mut runs = Vec::new();
    for profile in PROFILES {
        let workspace = daemon.repository(profile.name, &[("a", "x\n")]);
        let request = v1::CreateRunRequest { profile: profile.name.to_owned(), ..Default::default() };
        runs.push(Inside::enter_at(&daemon, workspace, request).await);
    }
    let found = leaks_of(&daemon, &mut runs, |secret| {
        vec![
            calls::exec(&["sh", "-c", &format!("echo password={secret} >&2; exit 3")]),
            calls::shell(&format!("echo password={secret}; cat no-such-file-token={secret}")),
            calls::write("settings", &format!("password = \"{secret}\"\n")),
            calls::read("settings"),
            calls::grep("@project", &format!("password = \"{secret}\"")),
            calls::replace("settings", &format!("password = \"{secret}\""), "replaced"),
            calls::read(&format!("no-such-file?token={secret}")),
            calls::git_commit(&format!("use password={secret}")),
            calls::exec(&["echo", &format!("https://user:{secret}@example.invalid/")]),
        ]
    })
    .await;
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn a5_secrets_are_in_no_approval() {
    let daemon = Daemon::start().await;
    let secrets = secrets();
    let workspace = daemon.workspace("w", &[("a", "x\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let mut shown = String::new();
    for secret in &secrets {
        let operations = [
            calls::exec(&["env", &format!("TOKEN={secret}"), "true"]),
            calls::write("settings", &format!("token = \"{secret}\"\n")),
            calls::replace("a", "x", secret),
        ];
        for operation in operations {
            let response = run.call(operation).await.unwrap();
            assert!(!response.approval_id.is_empty(), "{response:?}");
            let request = v1::GetApprovalRequest { approval_id: response.approval_id };
            let approval =
                run.clients.approvals.get_approval(request).await.unwrap().into_inner().approval.unwrap();
            assert!(!approval.preview.is_empty());
            writeln!(shown, "{approval:?}").unwrap();
        }
    }
    let mut run = daemon.run("build", &workspace).await;
    for secret in &secrets {
        let script = format!("deploy --password '{secret}' <<'EOF'\ntoken: {secret}\nEOF\n");
        let asked = run.asks(calls::shell(&script)).await;
        let approval = run.clients.approval(&asked.approval_id).await;
        assert!(approval.preview.contains("  | deploy --password"), "{}", approval.preview);
        writeln!(shown, "{approval:?}").unwrap();
    }
    // Among the files of the daemon is what waits: arguments and contents of calls that nobody has decided on.
    let found = leaks(&daemon.state_dir(), &[("approvals", shown), ("the log", daemon.log())], &secrets);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn a5_a_command_gets_its_secrets_unchanged() {
    let daemon = Daemon::start().await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let secret = &secrets()[0];
    inside.run.ok(calls::write("settings", secret)).await;
    let content = std::fs::read_to_string(inside.workspace.join("settings")).unwrap();
    assert_eq!(&content, secret, "redaction is for records, not for effects");
    let operation = Operation::Exec(v1::ExecRequest {
        command: "cat".to_owned(),
        args: vec!["settings".to_owned()],
        ..Default::default()
    });
    let response = inside.run.call(operation).await.unwrap();
    let Some(v1::result::Kind::Exec(result)) = response.kind().cloned() else { panic!() };
    assert_eq!(&result.stdout, secret);
}

/// Nor is what a run is made of, whether it is made or refused; and what operators say of permissions and alerts.
#[tokio::test]
async fn a5_a_request_for_a_run_leaves_no_secret() {
    let daemon = talkative().await;
    let workspace = daemon.workspace("w", &[("a", "x\n")]);
    let mut clients = daemon.connect().await;
    let mut secrets = secrets();
    secrets.push(PASSWORD.to_owned());
    for secret in secrets.clone() {
        let url = format!("https://user:{secret}@example.org/x.git");
        let bound = || requests::bind("open", &workspace);
        let refused = [
            requests::clone("open", Path::new(&url)),
            requests::clone("open", Path::new(&format!("/{url}"))),
            requests::bind("open", Path::new(&url)),
            v1::CreateRunRequest { image: url.clone(), ..bound() },
            v1::CreateRunRequest { pkg_path: format!("/{url}"), ..bound() },
        ];
        for (number, request) in refused.into_iter().enumerate() {
            let refused = clients.runs.create_run(request).await.unwrap_err();
            assert_eq!(harness::reason(&refused), "INVALID_ARGUMENT", "{number}: {}", refused.message());
            assert!(!refused.message().contains(&secret), "{}", refused.message());
        }
        let labels = [("password".to_owned(), secret.clone()), ("see".to_owned(), url.clone())].into();
        let made = clients.runs.create_run(v1::CreateRunRequest { labels, ..bound() }).await.unwrap();
        let run = made.into_inner().run.unwrap();
        assert!(run.labels.values().all(|value| !value.contains(&secret)), "{:?}", run.labels);
        let permission = v1::Permission {
            subject: Some(v1::permission::Subject::AgentId("tester".to_owned())),
            operation: "read".to_owned(),
            reason: format!("see {url}"),
            ..Default::default()
        };
        let what = Some(v1::grant_permission_request::What::Permission(permission));
        let request = v1::GrantPermissionRequest { what, ..Default::default() };
        let given =
            clients.permissions.grant_permission(request).await.unwrap().into_inner().permission.unwrap();
        let end = v1::RevokePermissionRequest {
            what: Some(v1::revoke_permission_request::What::PermissionId(given.permission_id)),
            reason: format!("password={secret}"),
        };
        clients.permissions.revoke_permission(end).await.unwrap();
        for (words, path) in [
            (vec!["curl".to_owned(), url.clone()], ""),
            (vec!["login".to_owned(), "--password".to_owned(), secret.clone()], ""),
            (Vec::new(), format!("a?password={secret}").as_str()),
        ] {
            let permission = v1::Permission {
                subject: Some(v1::permission::Subject::AgentId("tester".to_owned())),
                operation: if words.is_empty() { "read" } else { "exec" }.to_owned(),
                command_prefix: words,
                path_pattern: path.to_owned(),
                reason: "a test".to_owned(),
                ..Default::default()
            };
            let what = Some(v1::grant_permission_request::What::Permission(permission.clone()));
            let request = v1::GrantPermissionRequest { what, ..Default::default() };
            let refused = clients.permissions.grant_permission(request).await.unwrap_err();
            assert_eq!(harness::reason(&refused), "INVALID_ARGUMENT", "{}", refused.message());
            let what = Some(v1::revoke_permission_request::What::Permission(permission));
            let request = v1::RevokePermissionRequest { what, ..Default::default() };
            let refused = clients.permissions.revoke_permission(request).await.unwrap_err();
            assert_eq!(harness::reason(&refused), "INVALID_ARGUMENT", "{}", refused.message());
        }
        // Words of people, wherever a request has some; and what goes wrong with them.
        let throttle = v1::ThrottleAgentRequest {
            agent_id: "tester".to_owned(),
            per_minute: 100,
            reason: format!("token={secret}"),
            principal: "uid:0".to_owned(),
            duration: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        };
        clients.limits.throttle_agent(throttle).await.unwrap();
        let mut asking = daemon.run("review", &workspace).await;
        let asked = asking.asks(calls::write("settings", &format!("token = \"{secret}\"\n"))).await;
        let decision = v1::DecideApprovalRequest {
            approval_id: asked.approval_id,
            decision: v1::decide_approval_request::Decision::Deny.into(),
            comment: format!("no: password={secret}"),
            ..Default::default()
        };
        clients.approvals.decide_approval(decision).await.unwrap();
        let unknown = v1::CreateRunRequest { profile: format!("password={secret}"), ..bound() };
        clients.runs.create_run(unknown).await.unwrap_err();
        let named = v1::CreateRunRequest { agent_id: format!("password={secret}"), ..bound() };
        clients.runs.create_run(named).await.unwrap_err();
    }
    let found = leaks(&daemon.state_dir(), &[("the log", daemon.log())], &secrets);
    assert!(found.is_empty(), "{found:#?}");
}
