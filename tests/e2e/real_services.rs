//! A test suite of Django against PostgreSQL and Redis beside its run, in the profile for unattended work: a person consents
//! to the command, because the profile does not know it. With `tests/run.sh --long`: the image is large.

use harness::v1::companion_status::State;
use harness::v1::readiness::{Check, Command};
use harness::v1::run::StartKind;
use harness::v1::{
    Companion, CreateRunRequest, ExecRequest, ReadCompanionLogsRequest, Readiness, call_response::Status,
    operation::Kind as Operation, result::Kind as Answer,
};
use harness::{Daemon, RunHandle, Setup, inspect_all, requests, services_image};

const PASSWORD: &str = "a-password-of-the-test";
/// Tests of the suite.
const TESTS: &str = "Ran 7 tests";

#[tokio::test(flavor = "multi_thread")]
async fn a_django_suite_passes_against_databases_beside_its_run() {
    let image = services_image();
    let daemon = Daemon::start_with(setup(&image)).await;
    daemon.pool_is_full(1).await;
    let mut run = daemon.run_on(request(&daemon, &image)).await;
    let mut states: Vec<(&str, State)> =
        run.run.companions.iter().map(|status| (status.name.as_str(), status.state())).collect();
    states.sort_unstable_by_key(|(name, _)| *name);
    assert_eq!(states, [("cache", State::Ready), ("db", State::Ready)]);
    assert_eq!(run.run.start_kind(), StartKind::Warm, "{:?}", run.run.cold_because());

    let suite = ExecRequest {
        command: "python3".to_owned(),
        args: ["manage.py", "test", "--noinput"].map(str::to_owned).to_vec(),
        timeout_ms: Some(110_000),
        ..Default::default()
    };
    let (approval, ended) = run.consented(Operation::Exec(suite)).await;
    assert_eq!(approval.operation, "exec", "{}", approval.preview);
    assert_eq!(ended.status(), Status::Succeeded, "{:?}", ended.error);
    let Some(Answer::Exec(result)) = ended.into_kind() else { panic!("not a command's result") };
    assert_eq!(result.exit_code, Some(0), "{}{}", result.stdout, result.stderr);
    assert!(result.stderr.contains(TESTS), "{}", result.stderr);

    let log = log_of(&mut run, "db").await;
    assert!(log.contains("database system is ready to accept connections"), "{log}");
    assert_eq!(run.show().await.companions.len(), 2);
    no_place_shows_the_password(&daemon, &log);
    run.stop().await;
}

/// The built-in profile with a database and a cache of this image, and with a variable for the password.
fn setup(image: &str) -> Setup {
    let build = include_str!("../../crates/policy/policies/build.yaml");
    let companions = format!(
        "    companions:\n      images: ['{image}']\n      max: 2\n      memory_mib: 1024\n      defaults:\n        \
         - {{ name: cache, image: '{image}', command: [redis], ready: {{ tcp: 6379 }} }}\n        \
         - {{ name: db, image: '{image}', ports: [5432] }}\n"
    );
    let profile = build.replace("        - CI\n", "        - CI\n        - PGPASSWORD\n") + &companions;
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    Setup {
        policy: vec![("build.yaml", profile), ("roles.yaml", roles)],
        config: format!("pool: [{{ profile: build, image: '{image}', min: 1, max: 1 }}]\n"),
        ..Default::default()
    }
}

/// The request has another database in place of the profile's, because only a request has secrets.
fn request(daemon: &Daemon, image: &str) -> CreateRunRequest {
    let workspace = daemon.workspace(
        "shop",
        &[
            ("manage.py", include_str!("real_services/manage.py")),
            ("shop/__init__.py", ""),
            ("shop/models.py", include_str!("real_services/shop/models.py")),
            ("shop/settings.py", include_str!("real_services/shop/settings.py")),
            ("shop/tests.py", include_str!("real_services/shop/tests.py")),
            ("shop/views.py", include_str!("real_services/shop/views.py")),
        ],
    );
    let script = "/usr/lib/postgresql/*/bin/pg_isready --quiet --host 127.0.0.1";
    let args = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let check = Some(Check::Command(Command { args }));
    let db = Companion {
        name: "db".to_owned(),
        image: image.to_owned(),
        secret_env: [("POSTGRES_PASSWORD".to_owned(), PASSWORD.to_owned())].into(),
        ready: Some(Readiness { check, ..Default::default() }),
        memory_mib: 512,
        ports: vec![5432],
        ..Default::default()
    };
    CreateRunRequest {
        image: image.to_owned(),
        secret_env: [("PGPASSWORD".to_owned(), PASSWORD.to_owned())].into(),
        companions: vec![db],
        ..requests::bind("build", &workspace)
    }
}

/// Returns what a companion has written.
async fn log_of(run: &mut RunHandle, companion: &str) -> String {
    let request = ReadCompanionLogsRequest {
        run_id: run.id().to_owned(),
        companion: companion.to_owned(),
        ..Default::default()
    };
    let mut parts = run.clients.runs.read_companion_logs(request).await.unwrap().into_inner();
    let mut log = Vec::new();
    while let Some(part) = parts.message().await.unwrap() {
        log.extend(part.data);
    }
    String::from_utf8_lossy(&log).into_owned()
}

/// Looks for the password in the engine's descriptions of the containers, in the daemon's log and in the companion's.
fn no_place_shows_the_password(daemon: &Daemon, log: &str) {
    let containers = daemon.containers();
    assert!(containers.len() >= 3, "the run and two companions: {containers:?}");
    let described = serde_json::to_string(&inspect_all(containers.iter().map(String::as_str))).unwrap();
    let daemon_log = daemon.log();
    for (place, text) in [
        ("docker inspect", described.as_str()),
        ("the daemon's log", &daemon_log),
        ("the companion's log", log),
    ] {
        assert!(!text.contains(PASSWORD), "{place}");
    }
}
