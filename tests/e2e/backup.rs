//! `coffer backup`: made while calls go on, restored into another state directory, and what was in it is found.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::v1::backup_service_client::BackupServiceClient;
use harness::v1::token_service_client::TokenServiceClient;
use harness::{
    Certificates, Clients, Daemon, RunHandle, Setup, as_user, binary, calls, reason, record, requests, v1,
};

use crate::cli;

/// Exit code, standard output, standard error.
async fn coffer(daemon: &Daemon, line: &[&str]) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(binary("coffer"));
    command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display())).args(line);
    command.env("NO_COLOR", "1").kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(120), command.output()).await;
    let output = output.expect("coffer does not end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Must succeed; its standard output and error.
async fn done(daemon: &Daemon, line: &[&str]) -> (String, String) {
    let (code, out, err) = coffer(daemon, line).await;
    assert_eq!(code, 0, "{line:?}: {out}{err}");
    (out, err)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes calls until it is told to stop, and returns the id of the last one.
fn busy(run: &RunHandle, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<(u64, String)> {
    let mut run = RunHandle { run: run.run.clone(), clients: run.clients.clone() };
    tokio::spawn(async move {
        let (mut number, mut last) = (0, String::new());
        while !stop.load(Ordering::Acquire) {
            let response = run.call(calls::write("busy.txt", &number.to_string())).await.unwrap();
            (number, last) = (number + 1, response.call_id);
        }
        (number, last)
    })
}

async fn token(clients: &Clients) -> v1::CreateTokenResponse {
    let mut tokens = TokenServiceClient::new(clients.channel.clone());
    let token =
        v1::Token { name: "ci".to_owned(), roles: vec!["orchestrator".to_owned()], ..Default::default() };
    let request = v1::CreateTokenRequest { token: Some(token), ..Default::default() };
    tokens.create_token(request).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_is_restored_and_everything_is_found() {
    let certificates = Certificates::make(&["op"]);
    let tcp = certificates.listen("tokens: {}");
    let mut daemon = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run_on(requests::managed("open")).await;
    let mut reviewed = daemon.run("review", &workspace).await;
    let before = run.call(calls::write("kept.txt", "kept")).await.unwrap().call_id;
    let asked = reviewed.asks(calls::replace("a.txt", "one", "two")).await;
    let made = token(&run.clients).await;
    let (stop, place) = (Arc::new(AtomicBool::new(false)), daemon.outside().to_owned());
    let (file, key) = (place.join("all.backup"), place.join("backup.key"));
    let load = busy(&run, stop.clone());

    let (_, told) = done(&daemon, &["backup", "create", text(&file), "--key-file", text(&key)]).await;

    stop.store(true, Ordering::Release);
    let (calls_made, last) = load.await.unwrap();
    assert!(calls_made > 0 && told.contains("verified"), "{calls_made} {told}");
    let sha256 = told.split("sha256 ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    for path in [&file, &key] {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777,
            0o600,
            "{}",
            path.display()
        );
    }
    let on_record = run.clients.events("", "backup_created").await;
    let states: Vec<_> = on_record.iter().map(|event| record(event)["details"]["state"].clone()).collect();
    assert_eq!(states, ["begun", "sent"]);
    assert_eq!(record(&on_record[1])["details"]["sha256"], sha256.as_str());
    done(&daemon, &["backup", "verify", text(&file), "--key-file", text(&key)]).await;
    // Another key, no key, and a file that is there.
    let other = place.join("other.key");
    std::fs::write(&other, [1; 32]).unwrap();
    let state = place.join("other-state");
    for key in [&["--key-file", text(&other)][..], &[]] {
        let line = [&["backup", "restore", text(&file), "--state-dir", text(&state)][..], key].concat();
        let (code, _, err) = coffer(&daemon, &line).await;
        assert!(code == 1 && err.contains("key"), "{err}");
    }
    assert!(!state.exists(), "nothing is made for a backup that does not open");
    assert_eq!(coffer(&daemon, &["backup", "create", text(&file)]).await.0, 1, "no file is replaced");

    daemon.stop().await;
    std::fs::rename(daemon.state_dir(), place.join("lost")).unwrap();
    let line = ["backup", "restore", text(&file), "--state-dir"];
    let state = daemon.state_dir();
    let line = [&line[..], &[text(&state), "--key-file", text(&key), "--sha256", &sha256]].concat();
    done(&daemon, &line).await;
    let (code, _, err) = coffer(&daemon, &line).await;
    assert!(code == 1 && err.contains("is not empty"), "a restore replaces nothing: {err}");
    daemon.launch().await;

    let clients = daemon.connect().await;
    let mut run = RunHandle { run: run.run.clone(), clients: clients.clone() };
    let mut reviewed = RunHandle { run: reviewed.run.clone(), clients: clients.clone() };
    let verified = run.clients.verify().await;
    assert!(verified.intact && verified.unvouched.is_empty(), "{verified:?}");
    let restored = run.clients.events("", "state_restored").await;
    assert_eq!(restored.len(), 1);
    let details = record(&restored[0])["details"].clone();
    assert_eq!((&details["lost"]["runs"], &details["lost"]["workspaces"]), (&2.into(), &1.into()));
    // It comes before the record of the start.
    let starts = run.clients.events("", "daemon_started").await;
    let start = starts.iter().find(|event| event.sequence > restored[0].sequence).unwrap();
    assert!(
        starts
            .iter()
            .filter(|event| event.sequence < start.sequence)
            .all(|event| event.sequence < restored[0].sequence)
    );
    for run in [&mut run, &mut reviewed] {
        let shown = run.show().await;
        assert_eq!(shown.state(), v1::run::State::Failed);
        assert!(shown.failure.contains("continues from a backup"), "{}", shown.failure);
    }
    assert_eq!(run.get(&before).await.call_id, before);
    harness::until("the approval does not end with its run", async || {
        reviewed.clients.approval(&asked.approval_id).await.state() == v1::approval::State::Cancelled
    })
    .await;
    let mut tokens = TokenServiceClient::new(clients.channel.clone());
    let listed = tokens.list_tokens(v1::ListTokensRequest::default()).await.unwrap().into_inner();
    assert!(listed.tokens.iter().any(|token| token.name == "ci"), "{listed:?}");
    let mut command = tokio::process::Command::new(binary("coffer"));
    command.env("COFFERDAM_ENDPOINT", daemon.url("https")).env("COFFERDAM_TOKEN", &made.secret);
    let output =
        command.arg("--ca").arg(certificates.authority()).args(["run", "list"]).output().await.unwrap();
    assert!(output.status.success(), "the token works: {}", String::from_utf8_lossy(&output.stderr));
    // Calls after the backup are not in it; the log says so by its end.
    assert!(run.clients.of_call(&last).await.len() <= 2);
    // The daemon takes runs and calls again.
    let mut next = daemon.run_on(requests::managed("open")).await;
    next.ok(calls::write("b.txt", "again")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_node_is_still_drained() {
    let config = "node: { id: 7 }\n".to_owned();
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    done(&daemon, &["node", "drain", "--reason", "an incident"]).await;
    let (place, state) = (daemon.outside().to_owned(), daemon.state_dir());
    let file = place.join("drained.backup");
    done(&daemon, &["backup", "create", text(&file)]).await;
    daemon.stop().await;
    std::fs::rename(&state, place.join("lost")).unwrap();
    done(&daemon, &["backup", "restore", text(&file), "--state-dir", text(&state)]).await;
    // The new host has another number.
    let config = std::fs::read_to_string(daemon.config_path()).unwrap();
    std::fs::write(daemon.config_path(), config.replace("id: 7", "id: 8")).unwrap();
    daemon.launch().await;

    let shown = cli::json(&daemon, &["node", "show"]).await;
    assert_eq!((&shown["nodeId"], &shown["state"]), (&8.into(), &"DRAINED".into()), "{shown}");
    assert_eq!(shown["drain"]["reason"], "an incident", "{shown}");
    let made = daemon.run_with(requests::managed("open")).await.map(|run| run.id().to_owned());
    assert_eq!(reason(&made.unwrap_err()), "NODE_DRAINED");
    done(&daemon, &["node", "undrain"]).await;
    daemon.run_on(requests::managed("open")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_in_person_get_a_backup_and_every_try_is_on_record() {
    let config = "access: [{ uid: 4711, roles: [auditor, orchestrator, approver] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    daemon.expose();
    let refused = as_user(4711, &daemon.socket(), async |clients: Clients| {
        let mut backups = BackupServiceClient::new(clients.channel.clone());
        backups.create_backup(v1::CreateBackupRequest {}).await.map(drop).unwrap_err()
    })
    .await;
    assert_eq!(reason(&refused), "PERMISSION_DENIED");
    let mut clients = daemon.connect().await;
    assert!(clients.events("", "backup_created").await.is_empty());
    assert_eq!(clients.events("", "escalation_attempt").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_daemon_starts_beside_a_restore_that_was_not_finished() {
    let mut daemon = Daemon::start().await;
    daemon.stop().await;
    std::fs::write(daemon.state_dir().join("restoring"), "").unwrap();
    let mut command = tokio::process::Command::new(binary("cofferd"));
    let output = command.arg("--config").arg(daemon.config_path()).kill_on_drop(true).output();
    let output =
        tokio::time::timeout(Duration::from_secs(60), output).await.expect("it must not start").unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("was not finished"), "{told}");
}
