//! CO: containers beside a run, reached by their names and ended with it. Their images are of the host's busybox.

mod bounds;
mod compose;
mod faults;
mod life;
mod way_out;

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use harness::v1::{self, CreateRunRequest};
use harness::{Daemon, Image, RunHandle, Setup, calls, inspect_all, record, requests};
use tonic::Status;
use v1::readiness::Check;

/// The program of most companions: files over HTTP.
const SERVE: &str = "exec httpd -f -p 5432 -h /www";

/// An image with busybox, a page, a volume, and a program that belongs to root with its set-id bit.
fn image(name: &str) -> Image {
    let make = |root: &std::path::Path| {
        for directory in ["bin", "www", "data"] {
            std::fs::create_dir(root.join(directory)).unwrap();
        }
        for (name, mode) in [("busybox", 0o755), ("busybox-set-id", 0o4755)] {
            let path = root.join("bin").join(name);
            std::fs::copy("/bin/busybox", &path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        for applet in ["sh", "httpd", "sleep", "dd", "id", "cat", "test"] {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        std::fs::write(root.join("www/page"), "hello\n").unwrap();
    };
    let changes = [
        "ENTRYPOINT [\"/bin/sh\", \"-c\"]",
        "CMD [\"exec httpd -f -p 5432 -h /www\"]",
        "VOLUME /data",
        "ENV MODE=image",
    ];
    Image::of_tree(&format!("companion-{name}"), make, &changes)
}

/// A daemon with the profile `beside`, whose `companions` has these further keys.
async fn daemon_with(config: &str, keys: &str, more: &str) -> Daemon {
    let policy = format!(
        "profiles:\n  beside:\n    workspace: read-write\n    operations: {{ shell: allow, exec: allow, write: allow }}\n    \
         limits: {{ disk_mib: 64, memory_mib: 256 }}\n    exec: {{ default: allow, deny_list: off }}\n    \
         rate_limits: {{ operations: {{ default: {{ minute: unlimited, hour: unlimited, day: unlimited }} }} }}\n    \
         companions: {{ images: [\"cofferdam-test/companion-*\"], memory_mib: 256{keys} }}\n{more}  \
         alone:\n    operations: {{ shell: allow }}\n    exec: {{ default: allow }}\nroles: {{ director: {{ allow: \"*\" }} }}\n"
    );
    let policy = vec![("beside.yaml", policy)];
    Daemon::start_with(Setup { config: config.to_owned(), policy, ..Setup::default() }).await
}

async fn daemon() -> Daemon {
    daemon_with("", "", "").await
}

fn tcp(port: u32) -> v1::Readiness {
    v1::Readiness { check: Some(Check::Tcp(port)), ..v1::Readiness::default() }
}

/// A companion that is ready when its port 5432 accepts.
fn companion(name: &str, image: &Image, script: &str) -> v1::Companion {
    v1::Companion {
        name: name.to_owned(),
        image: image.0.clone(),
        command: vec![script.to_owned()],
        ready: Some(tcp(5432)),
        ..v1::Companion::default()
    }
}

fn request(companions: Vec<v1::Companion>) -> CreateRunRequest {
    CreateRunRequest { companions, ..requests::managed("beside") }
}

async fn refused(daemon: &Daemon, companions: Vec<v1::Companion>) -> Status {
    daemon.run_with(request(companions)).await.map(|run| run.run.run_id).unwrap_err()
}

async fn shell(run: &mut RunHandle, script: &str) -> (Option<i32>, String) {
    let ran = run.ran(calls::shell(script)).await;
    (ran.exit_code, format!("{}{}", ran.stdout, ran.stderr))
}

/// Returns a page of the companion `db`.
async fn page(run: &mut RunHandle, path: &str) -> String {
    let (code, said) = shell(run, &format!("wget -qO- http://db:5432/{path}")).await;
    assert_eq!(code, Some(0), "{said}");
    said
}

/// Returns the engine's word on the containers of companions, oldest first.
fn beside(daemon: &Daemon) -> Vec<serde_json::Value> {
    let ids = daemon.containers();
    let mut found = inspect_all(ids.iter().map(String::as_str));
    found.retain(|container| container["Args"] == serde_json::json!(["companion"]));
    found.sort_by_key(|container| container["State"]["StartedAt"].as_str().unwrap().to_owned());
    found
}

/// Waits until the log has an event of this kind whose details `are` as they have to be.
async fn details(
    run: &mut RunHandle,
    kind: &str,
    are: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let id = run.id().to_owned();
    let of = |event: &v1::AuditEvent| record(event)["details"].clone();
    let events =
        run.clients.events_when(&id, kind, |events| events.iter().any(|event| are(&of(event)))).await;
    let found = events.iter().map(of).find(|details| are(details));
    found.unwrap_or_else(|| panic!("no such event {kind}: {events:?}"))
}

/// Waits until the run shows its first companion in this state.
async fn becomes(run: &mut RunHandle, state: v1::companion_status::State) -> v1::CompanionStatus {
    for _ in 0..1_200 {
        let shown = run.show().await.companions.remove(0);
        if shown.state() == state {
            return shown;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the companion does not become {state:?}")
}

fn map(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn co1_a_companion_is_reached_by_its_name_and_on_record() {
    let (daemon, image) = (daemon().await, image("co1"));
    let mut run = daemon.run_on(request(vec![companion("db", &image, SERVE)])).await;
    let [db] = &run.run.companions[..] else { panic!("{:?}", run.run.companions) };
    assert_eq!((db.name.as_str(), &db.image, &db.ports[..]), ("db", &image.0, &[5432][..]));
    assert_eq!(db.state(), v1::companion_status::State::Ready);
    assert!(db.image_digest.starts_with("sha256:"), "{db:?}");
    assert_eq!(page(&mut run, "page").await, "hello\n");
    let address = run.show().await.companions[0].address.clone();
    let (_, resolved) = shell(&mut run, "nslookup db").await;
    assert!(!address.is_empty() && resolved.contains(&address), "{address}: {resolved}");
    let to_db = |details: &serde_json::Value| details["host"] == "companion:db" && details["port"] == 5432;
    assert_eq!(details(&mut run, "egress_intent", to_db).await["rule"], "companion: db");
    assert_eq!(details(&mut run, "egress_receipt", to_db).await["cause"], "closed");
    let created = details(&mut run, "run_created", |_| true).await;
    assert_eq!(created["companions"][0]["name"], "db", "{created}");
    let tools = v1::ListToolsRequest { run_id: run.id().to_owned(), ..v1::ListToolsRequest::default() };
    let tools = run.clients.tools.list_tools(tools).await.unwrap().into_inner();
    assert!(tools.network.contains("db (5432)"), "the agent knows it: {}", tools.network);
    // Nothing else is open, and the name means nothing in another run.
    assert_ne!(shell(&mut run, "wget -qO- http://files.example.org/").await.0, Some(0));
    let mut other = daemon.run_on(requests::managed("alone")).await;
    assert_ne!(shell(&mut other, "wget -qO- http://db:5432/page").await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn co2_companions_start_after_those_that_they_depend_on() {
    let (daemon, image) = (daemon().await, image("co2"));
    let mut app = companion("app", &image, SERVE);
    app.depends_on = vec!["db".to_owned()];
    let slow = format!("sleep 2; {SERVE}");
    let run = daemon.run_on(request(vec![app, companion("db", &image, &slow)])).await;
    let names: Vec<&str> = run.run.companions.iter().map(|companion| companion.name.as_str()).collect();
    assert_eq!(names, ["db", "app"]);
    let [db, app] = &beside(&daemon)[..] else { panic!("not two companions") };
    let started = |container: &serde_json::Value| {
        let text = container["State"]["StartedAt"].as_str().unwrap().to_owned();
        // Both are of the same minute, or of two.
        let seconds: f64 = text[17..text.len() - 1].parse().unwrap();
        text[14..16].parse::<f64>().unwrap() * 60.0 + seconds
    };
    let between = (started(app) - started(db)).rem_euclid(3600.0);
    assert!((2.0..60.0).contains(&between), "{between}");
}

#[tokio::test(flavor = "multi_thread")]
async fn co3_a_command_says_that_a_companion_is_ready() {
    let (daemon, image) = (daemon().await, image("co3"));
    let script = format!("[ \"$MODE\" = test ] && (sleep 1; echo >/data/ready) & {SERVE}");
    let mut db = companion("db", &image, &script);
    let check = ["sh", "-c", "[ \"$MODE\" = test ] && [ -e /data/ready ]"].map(str::to_owned).to_vec();
    let check = Some(Check::Command(v1::readiness::Command { args: check }));
    db.ready = Some(v1::Readiness { check, timeout_seconds: 20, interval_milliseconds: 50 });
    db.ports = vec![5432];
    db.env = map(&[("MODE", "test")]);
    let mut run = daemon.run_on(request(vec![db])).await;
    assert_eq!(page(&mut run, "page").await, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn co4_the_output_of_a_companion_is_read_and_followed() {
    let (daemon, image) = (daemon().await, image("co4"));
    let script = format!("echo first; echo second >&2; (sleep 3; echo third) & {SERVE}");
    let mut run = daemon.run_on(request(vec![companion("db", &image, &script)])).await;
    let run_id = run.id().to_owned();
    let asked = |tail_bytes, follow| v1::ReadCompanionLogsRequest {
        run_id: run_id.clone(),
        companion: "db".to_owned(),
        tail_bytes,
        follow,
    };
    let mut log = run.clients.runs.read_companion_logs(asked(0, true)).await.unwrap().into_inner();
    let mut text = String::new();
    while !text.contains("third") {
        let message = tokio::time::timeout(Duration::from_secs(30), log.message()).await.unwrap().unwrap();
        text.push_str(&String::from_utf8(message.expect("the log has ended").data).unwrap());
    }
    let mut lines: Vec<&str> = text.lines().collect();
    lines[..2].sort_unstable();
    assert_eq!(lines, ["first", "second", "third"]);
    let mut end = run.clients.runs.read_companion_logs(asked(3, false)).await.unwrap().into_inner();
    assert_eq!(end.message().await.unwrap().unwrap().data, b"rd\n");
    assert!(end.message().await.unwrap().is_none());
    let unknown = v1::ReadCompanionLogsRequest { companion: "x".to_owned(), ..asked(0, false) };
    let status = run.clients.runs.read_companion_logs(unknown).await.unwrap_err();
    assert_eq!(harness::reason(&status), "NOT_FOUND");
    // Its stream ends with the run.
    run.stop().await;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(30), log.message()).await.unwrap() {}
}
