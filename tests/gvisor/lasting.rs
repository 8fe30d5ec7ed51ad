//! Secret variables of a run, and runs that last as long as somebody wants them.

use std::time::{Duration, Instant};

use harness::v1::run::{EndCause, State};
use harness::v1::{self, CreateRunRequest};
use harness::{RunHandle, calls, reason};
use tonic::Status;

use crate::enter_with;
use crate::inside::PROBE;

const SECOND: Duration = Duration::from_secs(1);
const SECRET: &str = "seven green bottles";

/// What every process but the command itself has in its environment, as far as the kernel shows it.
const ENVIRONMENTS: &str = r#"
for process in /proc/[0-9]*; do
    line=$(tr '\0' ' ' < "$process/cmdline")
    case $line in /.cofferdam/guest*) tr '\0' '\n' < "$process/environ" && echo "seen $line" ;; esac
done; exit 0"#;

#[tokio::test(flavor = "multi_thread")]
async fn v6_secret_variables_reach_commands_and_are_visible_nowhere() {
    let secret_env = [("KEY".to_owned(), SECRET.to_owned())].into();
    let env = [("MODE".to_owned(), "a b".to_owned())].into();
    let (daemon, mut inside) = enter_with(CreateRunRequest { env, secret_env, ..Default::default() }).await;
    let run = &mut inside.run;
    let show = "printf '%s, %s\n' \"$MODE\" \"$KEY\"";
    let whole = format!("a b, {SECRET}\n");
    assert_eq!(run.exec(&["sh", "-c", show]).await.stdout, whole);
    assert_eq!(run.ran(calls::shell(show)).await.stdout, whole);
    // gVisor shows the environment of what serves them to every command.
    let seen = run.ran(calls::shell(ENVIRONMENTS)).await.stdout;
    assert!(seen.contains("seen /.cofferdam/guest serve"), "{seen}");
    assert!(!seen.contains(SECRET), "{seen}");
    // Those of a guest that was lost are the next one's.
    let lost = run.call(calls::exec(&[PROBE, "signal-all", "9"])).await.unwrap();
    assert_eq!(lost.error.expect("the guest was lost under the call").reason, "CANCELLED");
    assert_eq!(run.exec(&["sh", "-c", show]).await.stdout, whole);

    let shown = inside.run.show().await;
    assert_eq!(shown.secret_env, ["KEY"]);
    let id = inside.run.id().to_owned();
    let events = inside.run.clients.events(&id, "").await;
    let records: String = events.iter().map(|event| event.record_json.as_str()).collect();
    let inspected = harness::inspect(&inside.run.run.container_id).to_string();
    for (place, text) in [("the run", format!("{shown:?}")), ("records", records), ("the log", daemon.log())]
    {
        assert!(!text.contains(SECRET), "{place}: {text}");
    }
    assert!(!inspected.contains(SECRET), "the engine: {inspected}");
}

async fn keep_alive(run: &mut RunHandle) -> Result<v1::Run, Status> {
    let request = v1::KeepAliveRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.keep_alive_run(request).await.map(|answer| answer.into_inner().run.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn v6_lease_is_renewed_and_ends_its_run_when_it_expires() {
    let lease = Some(wire::duration(8 * SECOND));
    let (daemon, mut inside) = enter_with(CreateRunRequest { lease, ..Default::default() }).await;
    let run = &mut inside.run;
    let began = Instant::now();
    while began.elapsed() < 12 * SECOND {
        assert_eq!(keep_alive(run).await.unwrap().state(), State::Ready);
        tokio::time::sleep(SECOND / 2).await;
    }
    assert_eq!(run.exec(&["true"]).await.exit_code, Some(0));
    let renewed = Instant::now();
    keep_alive(run).await.unwrap();
    let ended = run.ended().await;
    assert!(renewed.elapsed() >= 8 * SECOND, "{:?}", renewed.elapsed());
    assert_eq!((ended.state(), ended.end_cause()), (State::Stopped, EndCause::Lease));
    assert_eq!(reason(&keep_alive(run).await.unwrap_err()), "RUN_NOT_READY");
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn v6_a_longer_ttl_holds_from_the_answer_on() {
    let ttl = Some(wire::duration(8 * SECOND));
    let began = Instant::now();
    let (daemon, mut inside) = enter_with(CreateRunRequest { ttl, ..Default::default() }).await;
    let run = &mut inside.run;
    let request =
        v1::ExtendRunRequest { run_id: run.id().to_owned(), ttl: Some(wire::duration(12 * SECOND)) };
    let extended = run.clients.runs.extend_run(request).await.unwrap().into_inner().run.unwrap();
    assert_eq!(extended.ttl, Some(wire::duration(12 * SECOND)));
    let ended = run.ended().await;
    assert!(began.elapsed() >= 12 * SECOND, "{:?}", began.elapsed());
    assert_eq!((ended.state(), ended.end_cause()), (State::Stopped, EndCause::Ttl));
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}
