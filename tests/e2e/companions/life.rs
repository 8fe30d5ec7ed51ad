//! Companions over the life of their run: its end, its pauses, another daemon, warm starts and forks.

use std::path::Path;

use harness::forks;
use harness::reason;
use harness::v1::companion_status::State;
use harness::v1::run::StartKind;

use super::*;

/// Writes an id that no other companion has, and serves it.
const UNIQUE: &str = "cat /proc/sys/kernel/random/uuid >/www/unique; exec httpd -f -p 5432 -h /www";

#[tokio::test(flavor = "multi_thread")]
async fn co14_the_end_of_a_run_ends_and_removes_its_companions() {
    let (daemon, image) = (daemon().await, image("co14"));
    let both = vec![companion("db", &image, SERVE), companion("cache", &image, SERVE)];
    let mut run = daemon.run_on(request(both)).await;
    let pids: Vec<u64> =
        beside(&daemon).iter().map(|container| container["State"]["Pid"].as_u64().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    run.stop().await;
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}/root/www/page")).exists(), "no process is left");
    }
    let (containers, mounts) = daemon.left_by_runs();
    assert_eq!((containers, mounts), (Vec::new(), Vec::new()));
    assert!(daemon.roots_are_gone());
}

#[tokio::test(flavor = "multi_thread")]
async fn co15_a_daemon_that_was_killed_leaves_companions_that_the_next_one_reattaches() {
    let (mut daemon, image) = (daemon().await, image("co15"));
    let brief = companion("brief", &image, "httpd -p 5432 -h /www; sleep 10");
    let mut run = daemon.run_on(request(vec![companion("db", &image, UNIQUE), brief])).await;
    let unique = page(&mut run, "unique").await;
    daemon.kill().await;
    harness::until("none of them ends", async || {
        beside(&daemon).iter().any(|container| container["State"]["Running"] == false)
    })
    .await;
    daemon.launch().await;
    run.clients = daemon.connect().await;
    assert_eq!(page(&mut run, "unique").await, unique, "it went on");
    let shown = run.show().await;
    assert_eq!(shown.restarts, 1);
    assert_eq!(shown.companions[0].state(), State::Ready);
    let ended = details(&mut run, "worker_event", |details| details["worker"] == "companion:brief").await;
    assert_eq!(ended["exit_code"], 0, "{ended}");
    assert_eq!(run.show().await.companions[1].state(), State::Exited);
    run.stop().await;
    assert!(daemon.roots_are_gone());
    assert_eq!(daemon.left_by_runs(), (Vec::new(), Vec::new()));
    // One that was taken away meanwhile ends its run.
    let mut run = daemon.run_on(request(vec![companion("db", &image, SERVE)])).await;
    let container = beside(&daemon)[0]["Id"].as_str().unwrap().to_owned();
    daemon.kill().await;
    assert!(harness::docker().args(["rm", "-f", &container]).output().unwrap().status.success());
    daemon.launch().await;
    run.clients = daemon.connect().await;
    let ended = run.show().await;
    assert!(ended.failure.contains("its companion db"), "{}", ended.failure);
    assert_eq!(daemon.left_by_runs(), (Vec::new(), Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn co16_a_pause_of_the_run_pauses_its_companions_until_it_is_resumed() {
    let (daemon, image) = (daemon().await, image("co16"));
    let mut run = daemon.run_on(request(vec![companion("db", &image, SERVE)])).await;
    let is_paused = || beside(&daemon)[0]["State"]["Paused"].as_bool().unwrap();
    let run_id = run.id().to_owned();
    run.clients.runs.pause_run(v1::PauseRunRequest { run_id: run_id.clone() }).await.unwrap();
    assert!(is_paused());
    run.clients
        .runs
        .resume_run(v1::ResumeRunRequest { run_id: run_id.clone(), lift_alerts: false })
        .await
        .unwrap();
    assert!(!is_paused());
    assert_eq!(page(&mut run, "page").await, "hello\n");
    // A run that is paused ends as any other.
    run.clients.runs.pause_run(v1::PauseRunRequest { run_id }).await.unwrap();
    run.stop().await;
    assert_eq!(daemon.left_by_runs(), (Vec::new(), Vec::new()));
}

/// Keys of a profile that has a companion of its own.
fn default_of(image: &Image) -> String {
    format!(
        ", defaults: [{{ name: db, image: \"{}\", command: [\"{UNIQUE}\"], ready: {{ tcp: 5432 }} }}]",
        image.0
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn co17_a_run_with_companions_starts_in_a_warm_container() {
    let image = image("co17");
    let config = "pool: [{ profile: beside, min: 1, max: 1 }]\n";
    let daemon = daemon_with(config, &default_of(&image), "").await;
    daemon.pool_is_full(1).await;
    let mut run = daemon.run_on(requests::managed("beside")).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm, "{:?}", run.run.cold_because());
    assert!(!page(&mut run, "unique").await.is_empty());
    // It has waited for the companion, and the record tells that from the rest.
    let [from, to] = [&run.run.created_at, &run.run.ready_at].map(|at| {
        let at = at.as_ref().unwrap();
        i128::from(at.seconds) * 1_000_000 + i128::from(at.nanos) / 1_000
    });
    let ready = details(&mut run, "run_state", |details| details["state"] == "READY").await;
    let waited = i128::from(ready["waited_for_companions_us"].as_u64().unwrap_or_else(|| panic!("{ready}")));
    assert!(0 < waited && waited < to - from, "{waited} of {}", to - from);
}

#[tokio::test(flavor = "multi_thread")]
async fn co18_in_a_fork_the_companions_of_the_profile_start_anew_and_others_are_refused() {
    let image = image("co18");
    let daemon = daemon_with("", &default_of(&image), "").await;
    let mut run = daemon.run_on(requests::managed("beside")).await;
    let unique = page(&mut run, "unique").await;
    let mut forked = forks::ready(&daemon, forks::of_run(run.id(), 1)).await;
    let of_fork = page(&mut forked[0], "unique").await;
    assert!(!of_fork.is_empty() && of_fork != unique, "{of_fork}");
    let own = daemon.run_on(request(vec![companion("db", &image, SERVE)])).await;
    let mut clients = daemon.connect().await;
    let status = forks::fork(&mut clients, forks::of_run(own.id(), 1)).await.unwrap_err();
    assert_eq!(reason(&status), "PRECONDITION_FAILED", "{status}");
    assert!(status.message().contains("companions (db)"), "{status}");
    // On a checkpoint of it they start anew, from the request.
    let made = forks::checkpoint(&mut clients, own.id()).await.unwrap();
    let on = requests::checkpoint("beside", &made.checkpoint_id);
    let on = CreateRunRequest { companions: vec![companion("db", &image, UNIQUE)], ..on };
    let mut again = daemon.run_on(on).await;
    assert!(!page(&mut again, "unique").await.is_empty());
}
