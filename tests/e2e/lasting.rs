//! Runs that last as long as somebody wants them, and no longer: leases, longer ttls, and pauses that keep memory.

use std::time::{Duration, Instant};

use harness::process::command;
use harness::v1::run::{EndCause, State};
use harness::v1::{self, CreateRunRequest, ProcessRequest};
use harness::{Daemon, RunHandle, Setup, reason, record, requests};
use tonic::Status;

const SECOND: Duration = Duration::from_secs(1);

fn leased(lease: Duration) -> CreateRunRequest {
    CreateRunRequest { lease: Some(wire::duration(lease)), ..requests::managed("harness") }
}

fn lasting(ttl: Duration) -> CreateRunRequest {
    CreateRunRequest { ttl: Some(wire::duration(ttl)), ..requests::managed("harness") }
}

async fn keep_alive(run: &mut RunHandle) -> Result<v1::Run, Status> {
    let request = v1::KeepAliveRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.keep_alive_run(request).await.map(|answer| answer.into_inner().run.unwrap())
}

async fn extend(run: &mut RunHandle, ttl: Duration) -> Result<v1::Run, Status> {
    let request = v1::ExtendRunRequest { run_id: run.id().to_owned(), ttl: Some(wire::duration(ttl)) };
    run.clients.runs.extend_run(request).await.map(|answer| answer.into_inner().run.unwrap())
}

async fn last_state(run: &mut RunHandle) -> serde_json::Value {
    let id = run.id().to_owned();
    record(run.clients.events(&id, "run_state").await.last().unwrap())["details"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn leased_run_lives_while_renewed_and_reports_its_end() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(leased(10 * SECOND)).await;
    let began = Instant::now();
    while began.elapsed() < 15 * SECOND {
        let kept = keep_alive(&mut run).await.unwrap();
        assert_eq!(kept.state(), State::Ready);
        assert!(kept.lease_ends_at.is_some());
        tokio::time::sleep(SECOND / 2).await;
    }
    // Calls are no renewal.
    let renewed = Instant::now();
    keep_alive(&mut run).await.unwrap();
    while run.call(harness::calls::exec(&["true"])).await.is_ok() {
        assert!(renewed.elapsed() < 40 * SECOND);
        tokio::time::sleep(SECOND / 5).await;
    }
    let ended = run.ended().await;
    assert!(renewed.elapsed() >= 10 * SECOND, "{:?}", renewed.elapsed());
    assert_eq!((ended.state(), ended.end_cause()), (State::Stopped, EndCause::Lease));
    assert_eq!(last_state(&mut run).await["cause"], "lease");
    assert_eq!(reason(&keep_alive(&mut run).await.unwrap_err()), "RUN_NOT_READY");
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_ttl_holds_from_the_answer_on() {
    let daemon = Daemon::start().await;
    let began = Instant::now();
    let mut run = daemon.run_on(lasting(5 * SECOND)).await;
    let extended = extend(&mut run, 9 * SECOND).await.unwrap();
    assert_eq!(extended.ttl, Some(wire::duration(9 * SECOND)));
    assert_eq!(extend(&mut run, 9 * SECOND).await.unwrap().ttl, extended.ttl, "a repetition is no error");
    assert_eq!(reason(&extend(&mut run, 8 * SECOND).await.unwrap_err()), "PRECONDITION_FAILED");
    assert_eq!(last_state(&mut run).await["ttl_s"], 9);
    let ended = run.ended().await;
    assert!(began.elapsed() >= 9 * SECOND, "{:?}", began.elapsed());
    assert_eq!((ended.state(), ended.end_cause()), (State::Stopped, EndCause::Ttl));
    assert_eq!(reason(&extend(&mut run, 60 * SECOND).await.unwrap_err()), "RUN_NOT_READY");
}

#[tokio::test(flavor = "multi_thread")]
async fn extensions_that_race_with_the_end_take_effect_or_report_the_end() {
    let daemon = Daemon::start().await;
    for round in 0..6_u32 {
        let run = daemon.run_on(lasting(SECOND)).await;
        // Around the moment at which the run ends.
        tokio::time::sleep(SECOND * (8 + round) / 10).await;
        let tries = (0..4_u64).map(|n| {
            let mut run = run.clone();
            tokio::spawn(async move { (n, extend(&mut run, Duration::from_secs(600 + n)).await) })
        });
        let mut best = None;
        for tried in tries.collect::<Vec<_>>() {
            match tried.await.unwrap() {
                (n, Ok(_)) => best = best.max(Some(600 + n)),
                (_, Err(status)) => {
                    assert!(["RUN_NOT_READY", "PRECONDITION_FAILED"].contains(&reason(&status).as_str()));
                }
            }
        }
        let mut run = run;
        match best {
            Some(best) => {
                tokio::time::sleep(SECOND).await;
                let shown = run.show().await;
                assert_eq!(shown.state(), State::Ready, "an answer said that it lives on");
                assert_eq!(shown.ttl, Some(wire::duration(Duration::from_secs(best))));
                run.stop().await;
            }
            None => assert_eq!(run.ended().await.end_cause(), EndCause::Ttl),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_ttls_that_make_no_sense_are_refused() {
    let config = "runs: { max_ttl: 1h }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let lease = |seconds: i64, nanos: i32| CreateRunRequest {
        lease: Some(wire::Duration { seconds, nanos }),
        ..requests::managed("harness")
    };
    for request in [lease(0, 0), lease(0, 999_999_999), lease(-1, 0), lease(i64::MAX, 0), lease(5, -1)] {
        let refused = daemon.run_with(request).await.map(|run| run.run.run_id).unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT");
        assert!(refused.message().contains("lease"), "{}", refused.message());
    }
    let above = daemon.run_with(lasting(3_601 * SECOND)).await.map(|run| run.run.run_id).unwrap_err();
    assert_eq!(reason(&above), "INVALID_ARGUMENT");
    assert!(above.message().contains("runs.max_ttl"), "{}", above.message());
    assert_eq!(daemon.leftovers(), Vec::<String>::new());

    // Who asks for none has the longest.
    let mut run = daemon.run_on(requests::managed("harness")).await;
    assert_eq!(run.show().await.ttl, Some(wire::duration(3_600 * SECOND)));
    assert_eq!(reason(&keep_alive(&mut run).await.unwrap_err()), "PRECONDITION_FAILED", "it has no lease");
    let mut run = daemon.run_on(lasting(60 * SECOND)).await;
    assert_eq!(reason(&extend(&mut run, 3_601 * SECOND).await.unwrap_err()), "INVALID_ARGUMENT");
    let missing = v1::ExtendRunRequest { run_id: run.id().to_owned(), ttl: None };
    assert_eq!(reason(&run.clients.runs.extend_run(missing).await.unwrap_err()), "INVALID_ARGUMENT");
    assert_eq!(extend(&mut run, 3_600 * SECOND).await.unwrap().ttl, Some(wire::duration(3_600 * SECOND)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_run_keeps_its_memory_and_its_ttl_continues() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(lasting(600 * SECOND)).await;
    // What it holds is in its memory and nowhere else.
    let keeps = "n=41; held=$(head -c 200000 /dev/urandom | sha256sum); while read word; do n=$((n+1)); echo $n $held; done";
    let process = ProcessRequest { stdin: true, ..command(&["sh", "-c", keeps]) };
    let id = run.start(process).await.process_id;
    run.feed(&id, 0, b"x\n", false).await.unwrap();
    let before = run.until(&id, "-\n").await.text().trim().to_owned();
    let held = before.strip_prefix("42 ").unwrap().to_owned();
    let asked = v1::PauseRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.pause_run(asked.clone()).await.unwrap();
    tokio::time::sleep(SECOND).await;
    let asked_back = v1::ResumeRunRequest { run_id: run.id().to_owned(), lift_alerts: false };
    run.clients.runs.resume_run(asked_back).await.unwrap();
    run.feed(&id, 2, b"x\n", false).await.unwrap();
    run.until(&id, &format!("43 {held}")).await;

    let mut run = daemon
        .run_on(CreateRunRequest { lease: Some(wire::duration(10 * SECOND)), ..lasting(600 * SECOND) })
        .await;
    let asked = v1::PauseRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.pause_run(asked).await.unwrap();
    // It can be kept alive and extended meanwhile.
    keep_alive(&mut run).await.unwrap();
    assert_eq!(extend(&mut run, 700 * SECOND).await.unwrap().state(), State::Paused);
    assert_eq!(run.ended().await.end_cause(), EndCause::Lease, "its lease went on");
    let mut run = daemon.run_on(lasting(10 * SECOND)).await;
    let asked = v1::PauseRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.pause_run(asked).await.unwrap();
    assert_eq!(run.ended().await.end_cause(), EndCause::Ttl, "its ttl went on");
}
