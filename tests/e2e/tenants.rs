//! Bounds of tenants: refusals with their figures, many requests at once, restarts, and turns beside a greedy tenant.

use std::time::{Duration, Instant};

use harness::v1::run::{ColdBecause, StartKind};
use harness::v1::{self, CreateRunRequest};
use harness::{Bearer, Daemon, Issuer, RunHandle, Setup, as_user, calls, reason, record, requests};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::cli;

/// Users of the host, each a principal.
const MODEST: [u32; 3] = [4321, 4322, 4323];

fn policy(tenants: &str) -> String {
    format!(
        "profiles:
  p:
    workspace: read-write
    unattended: true
    operations: {{ read: allow, exec: allow, shell: allow }}
    exec: {{ read_only_commands: true, default: allow }}
    limits: {{ memory_mib: 128, cpu_millis: 500, disk_mib: 64, pids: 128 }}
    rate_limits:
      operations: {{ default: {{ minute: unlimited, hour: unlimited, day: unlimited }} }}
      run: {{ minute: unlimited, hour: unlimited, day: unlimited }}
      principal: {{ minute: unlimited, hour: unlimited, day: unlimited }}
    concurrency: {{ run: 64, principal: 256, waiting: 200, wait_s: 120 }}
roles: {{ director: {{ allow: \"*\" }} }}
{tenants}
"
    )
}

fn setup(tenants: &str, config: &str) -> Setup {
    Setup { policy: vec![("p.yaml", policy(tenants))], config: config.to_owned(), ..Setup::default() }
}

/// Brings bounds into force.
async fn reload(daemon: &Daemon, tenants: &str) {
    std::fs::write(daemon.policy_dir().join("p.yaml"), policy(tenants)).unwrap();
    daemon.connect().await.policy.reload_policy(v1::ReloadPolicyRequest {}).await.unwrap();
}

/// Facts of a refusal, by their names.
fn facts<const N: usize>(refused: &Status, names: [&str; N]) -> [String; N] {
    let details = refused.get_error_details();
    let metadata = &details.error_info().unwrap().metadata;
    names.map(|name| metadata[name].clone())
}

async fn refused(daemon: &Daemon) -> Status {
    let refused = daemon.run_with(requests::managed("p")).await.map(|run| run.id().to_owned()).unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "TENANT_LIMIT"));
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn each_bound_refuses_with_its_figures_and_is_on_record() {
    let daemon = Daemon::start_with(setup("", "")).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    for (key, limit, used, wanted) in [
        ("runs", 1, 1, 1),
        ("memory_mib", 200, 128, 128),
        ("cpu_millis", 700, 500, 500),
        ("disk_mib", 100, 64, 64),
    ] {
        reload(&daemon, &format!("tenants: {{ root: {{ match: \"uid:0\", {key}: {limit} }} }}")).await;
        let refused = refused(&daemon).await;
        let found = facts(&refused, ["tenant", "limit", "used", "wanted", "max", "over"]);
        let over = used + wanted - limit;
        let numbers = [used, wanted, limit, over].map(|number: u32| number.to_string());
        let [used, wanted, max, over] = numbers;
        let key = format!("tenants.root.{key}");
        assert_eq!(found, ["root".to_owned(), key, used.clone(), wanted.clone(), max.clone(), over.clone()]);
        let said = refused.message();
        assert!(
            said.contains(&format!("uses {used} of at most {max} "))
                && said.contains(&format!("for {wanted} exceeds that by {over}")),
            "{said}"
        );
    }
    // At once for the first refusal, and then once a minute.
    let mut clients = daemon.connect().await;
    let events = clients.events_when("", "run_refused", |events| !events.is_empty()).await;
    let [event] = &events[..] else { panic!("{events:?}") };
    let event = record(event);
    assert_eq!((&event["principal"], &event["outcome"]["reason"]), (&json!("uid:0"), &json!("TENANT_LIMIT")));
    assert_eq!(
        event["details"],
        json!({ "tenant": "root", "limit": "tenants.root.runs", "used": 1, "wanted": 1, "max": 1, "count": 1 })
    );
    // What a run leaves on the disk counts, and not its quota.
    run.stop().await;
    daemon.run_on(requests::managed("p")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_run_counts_its_files_at_once_and_a_kept_workspace_within_the_quota_of_its_run() {
    let daemon = Daemon::start_with(setup("tenants: { default: { disk_mib: 100 } }", "")).await;
    let mut first = daemon.run_on(requests::managed("p")).await;
    first.exec(&["sh", "-c", "head -c 41943040 /dev/zero > big"]).await;
    first.stop().await;
    // Right after its end: 40 MiB, and the quota of another run of 64.
    let refused = refused(&daemon).await;
    let [used, wanted] = facts(&refused, ["used", "wanted"]);
    assert!((40..50).contains(&used.parse::<u32>().unwrap()) && wanted == "64", "{used} {wanted}");
    // A run in that workspace has these files within its own quota.
    let _second = daemon.run_on(requests::kept("p", first.id())).await;
    let refused = self::refused(&daemon).await;
    assert_eq!(facts(&refused, ["used", "wanted"]), ["64", "64"].map(str::to_owned));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_requests_at_once_never_exceed_a_bound() {
    let daemon = Daemon::start_with(setup("tenants: { default: { runs: 3 } }", "")).await;
    let clients = daemon.connect().await;
    // A client that does not know yet how many requests the daemon takes at once may have some refused.
    clients.clone().runs.list_runs(v1::ListRunsRequest::default()).await.unwrap();
    let mut requested = JoinSet::new();
    for _ in 0..200 {
        let mut clients = clients.clone();
        requested.spawn(async move { clients.runs.create_run(requests::managed("p")).await });
    }
    let answers = requested.join_all().await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (3, 197));
    for refused in refused {
        let refused = refused.unwrap_err();
        assert_eq!(reason(&refused), "TENANT_LIMIT", "{refused}");
    }
    // A run that ends gives its part back.
    let id = made.into_iter().next().unwrap().unwrap().into_inner().run.unwrap().run_id;
    let mut clients = clients;
    clients.runs.stop_run(v1::StopRunRequest { run_id: id }).await.unwrap();
    daemon.run_on(requests::managed("p")).await;
    self::refused(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn use_survives_a_restart_and_a_reload_applies_to_the_next_run() {
    let one = "tenants: { default: { runs: 1, memory_mib: 1000 } }";
    let mut daemon = Daemon::start_with(setup(one, "runs: { on_stop: leave }\n")).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    refused(&daemon).await;
    daemon.relaunch().await;
    let refused = refused(&daemon).await;
    assert_eq!(facts(&refused, ["tenant", "used", "max"]), ["uid:0", "1", "1"].map(str::to_owned));
    reload(&daemon, "tenants: { default: { runs: 2, memory_mib: 1000 } }").await;
    let second = daemon.run_on(requests::managed("p")).await;
    // Lower bounds end nothing.
    reload(&daemon, one).await;
    run.clients = daemon.connect().await;
    assert_eq!(run.exec(&["echo", "on"]).await.stdout, "on\n");
    drop(second);
    self::refused(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_beyond_the_share_of_the_pool_start_cold() {
    let pool = "pool: [{ profile: p, min: 2, max: 2 }]\n";
    let daemon = Daemon::start_with(setup("tenants: { default: { pool_per_minute: 1 } }", pool)).await;
    daemon.pool_is_full(1).await;
    let first = daemon.run_on(requests::managed("p")).await;
    assert_eq!(first.run.start_kind(), StartKind::Warm, "{}", daemon.log());
    let second = daemon.run_on(requests::managed("p")).await;
    assert_eq!(
        (second.run.start_kind(), second.run.cold_because()),
        (StartKind::Cold, ColdBecause::TenantShare),
        "{}",
        daemon.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn coffer_limits_shows_tenants_as_a_table_and_as_json() {
    let tenants = "tenants:\n  root: { match: \"uid:0\", runs: 3, disk_mib: 100 }\n  idle: { match: \"token:*\", runs: 9 }\n";
    let access = "access: [{ uid: 0, roles: [operator, orchestrator, approver, auditor] }, \
                  { uid: 4321, roles: [orchestrator] }]\n";
    let daemon = Daemon::start_with(setup(tenants, access)).await;
    let _run = daemon.run_on(requests::managed("p")).await;
    let table = cli::out(&daemon, &["limits"]).await;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    for expected in [
        vec!["TENANT", "BOUNDS", "OF", "RESOURCE", "USED", "LIMIT", "LEFT"],
        vec!["idle", "idle", "runs", "0", "9", "9"],
        vec!["root", "root", "runs", "1", "3", "2"],
        vec!["root", "-", "memory,", "MiB", "128", "-", "-"],
        vec!["root", "root", "disk,", "MiB", "64", "100", "36"],
    ] {
        assert!(lines.contains(&expected), "{expected:?}:\n{table}");
    }
    let shown = cli::json(&daemon, &["limits", "--tenant-of", "uid:0"]).await;
    assert_eq!(shown["tenants"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(shown["tenants"][0]["tenant"], "root");
    assert_eq!(
        shown["tenants"][0]["resources"][0],
        json!({ "resource": "RUNS", "used": "1", "limit": "3" }),
        "{shown}"
    );
    daemon.expose();
    as_user(MODEST[0], &daemon.socket(), async move |mut clients| {
        let own = clients.limits.get_tenants(v1::GetTenantsRequest::default()).await.unwrap().into_inner();
        let names: Vec<_> = own.tenants.iter().map(|tenant| tenant.tenant.as_str()).collect();
        assert_eq!(names, ["uid:4321"]);
        let others = v1::GetTenantsRequest { principal: "uid:0".to_owned() };
        let refused = clients.limits.get_tenants(others).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_group_share_the_bounds_of_its_tenant_also_after_a_restart() {
    let tenants = "tenants:\n  ml: { groups: [\"lab:ml\", \"corp:ml\"], runs: 2 }\n  rest: { match: \"oidc:*\", runs: 9 }\n";
    let issuer = Issuer::default();
    let grants = "{ claim: iss, value: 'https://login.example.org/', roles: [orchestrator] }";
    let config = format!("runs: {{ on_stop: leave }}\n{}", issuer.config_with_file(grants));
    let mut daemon = Daemon::start_with(setup(tenants, &config)).await;
    let create = async |daemon: &Daemon, subject: &str, groups: &[&str]| {
        let bearer = Bearer::new(&issuer.token(subject, groups, Duration::from_secs(3_600)));
        daemon.connect().await.runs.create_run(bearer.shows(requests::managed("p"))).await
    };
    create(&daemon, "alice", &["all", "ml"]).await.unwrap();
    create(&daemon, "bob", &["ml"]).await.unwrap();
    create(&daemon, "carol", &["ML", "all"]).await.unwrap();
    let refused = create(&daemon, "alice", &["ml"]).await.unwrap_err();
    assert_eq!(
        facts(&refused, ["tenant", "limit", "used"]),
        ["ml", "tenants.ml.runs", "2"].map(str::to_owned)
    );
    let shown = cli::json(&daemon, &["limits", "--tenant-of", "oidc:corp:bob"]).await;
    assert_eq!(shown["tenants"][0]["tenant"], "ml", "{shown}");
    assert_eq!(shown["tenants"][0]["groups"], json!(["lab:ml", "corp:ml"]), "{shown}");

    daemon.stop().await;
    daemon.launch().await;
    // Bob has shown no token to this daemon, and his run counts.
    let refused = create(&daemon, "alice", &["ml"]).await.unwrap_err();
    assert_eq!(facts(&refused, ["tenant", "used"]), ["ml", "2"].map(str::to_owned));
    // The issuer has taken her out of the group, and her run with her.
    create(&daemon, "alice", &["all"]).await.unwrap();
    create(&daemon, "bob", &["ml"]).await.unwrap();
    assert_eq!(reason(&create(&daemon, "bob", &["ml"]).await.unwrap_err()), "TENANT_LIMIT");
}

/// Makes a run and eight calls of a second, one after the other. Returns the time of each.
async fn modest(daemon: &Daemon, uid: u32) -> Vec<Duration> {
    as_user(uid, &daemon.socket(), async move |mut clients| {
        let request: CreateRunRequest = requests::managed("p");
        let run = clients.runs.create_run(request).await.unwrap().into_inner().run.unwrap();
        let mut run = RunHandle { run: Box::new(run), clients };
        let mut times = Vec::new();
        for _ in 0..8 {
            let began = Instant::now();
            run.exec(&["sleep", "1"]).await;
            times.push(began.elapsed());
        }
        run.stop().await;
        times
    })
    .await
}

/// Returns the longest of all calls of the modest tenants: their p99.
async fn longest(daemon: &Daemon) -> Duration {
    let [a, b, c] = MODEST.map(|uid| modest(daemon, uid));
    let (a, b, c) = tokio::join!(a, b, c);
    a.into_iter().chain(b).chain(c).max().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn modest_tenants_are_not_delayed_by_a_greedy_one() {
    let users = MODEST.map(|uid| format!("{{ uid: {uid}, roles: [orchestrator] }}")).join(", ");
    let config = format!(
        "limits: {{ calls: 4 }}\n\
         access: [{{ uid: 0, roles: [operator, orchestrator, approver, auditor] }}, {users}]\n"
    );
    let daemon = Daemon::start_with(setup("", &config)).await;
    daemon.expose();
    let alone = longest(&daemon).await;
    // Sixty calls that wait at any moment: in the order of arrival, each other call would wait for seconds.
    let greedy = daemon.run_on(requests::managed("p")).await;
    let mut calls_of_greedy = JoinSet::<()>::new();
    for _ in 0..60 {
        let mut run = greedy.clone();
        calls_of_greedy.spawn(async move {
            loop {
                let _ = run.call(calls::exec(&["sleep", "0.3"])).await;
            }
        });
    }
    harness::until("the greedy tenant does not wait", async || {
        let request = v1::GetRateLimitsRequest { run_id: greedy.id().to_owned(), ..Default::default() };
        let mut clients = greedy.clients.clone();
        let shown = clients.limits.get_rate_limits(request).await.unwrap().into_inner();
        shown.concurrency[0].running == 4 && shown.concurrency[0].waiting > 40
    })
    .await;
    let beside = longest(&daemon).await;
    calls_of_greedy.shutdown().await;
    // One of them may not be scheduled for a moment, which is less than they would wait.
    let most = 2 * alone + Duration::from_secs(2);
    assert!(beside <= most, "{beside:?} beside a greedy tenant, {alone:?} without it");
}
