//! X1: commands against the agent, which has their uid.

use std::time::Duration;

use harness::v1;
use harness::v1::operation::Kind as Operation;

use crate::attempts;
use crate::inside::{Inside, PROBE, VARIABLES, both, every, exec, outcomes};

#[tokio::test]
async fn x1_the_guest_can_be_neither_read_nor_forged() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_way_to_the_agent(&mut inside).await;
    }
}

/// The first process has a handler for none, and the worker ignores all that can be ignored.
#[tokio::test]
async fn x1_no_signal_of_a_command_ends_the_first_process() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        let lines = inside.probe(&["signal-first"]).await;
        let sent = outcomes(&lines);
        let reached =
            |way: &str| sent.iter().filter(|(name, errno)| name.starts_with(way) && *errno == 0).count();
        for way in ["kill ", "sigqueue ", "pidfd "] {
            assert!(reached(way) >= 64, "{way}: {lines:?}");
        }
        assert_eq!(reached("broadcast "), 124, "{lines:?}");
        assert_eq!(reached("queue"), 1, "the queue of signals was full: {lines:?}");
        for call in [
            harness::calls::shell("kill 1; kill -9 1; kill -TERM -1"),
            Operation::Exec(exec(&["environment"])),
        ] {
            inside.run.ok(call).await;
        }
        inside.assert_idle();
        let id = inside.run.id().to_owned();
        assert!(inside.run.clients.events(&id, "worker_event").await.is_empty());
    }
}

/// SIGKILL and SIGSTOP of the same user cannot be forbidden. They cost only the run's own calls.
async fn the_run_survives(attack: &str, why: &str) {
    let (daemon, runs) = Box::pin(both(v1::CreateRunRequest::default())).await;
    let mut bystander = Box::pin(Inside::enter(&daemon, "bystander")).await;
    for mut inside in runs {
        // What the command has left by then is not to outlive the agent either.
        let script = format!("{PROBE} tree setsid 6 leave; {attack}");
        let response = inside.run.call(harness::calls::exec(&["sh", "-c", &script])).await.unwrap();
        let error = response.error.expect("the agent was lost under the call");
        assert_eq!(error.reason, "CANCELLED", "{}", error.message);
        let told = format!(
            "The worker was {why}; it is restarting. The call may have taken effect; check before retrying."
        );
        assert_eq!(error.message, told);

        // The loss is answered before the new worker is there: the next call waits for that.
        assert_eq!(inside.probe(&["environment"]).await.len(), VARIABLES);
        inside.assert_idle();
        let id = inside.run.id().to_owned();
        let events = inside.run.clients.events(&id, "worker_event").await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(harness::record(&events[0])["details"]["why"], why);
        assert_eq!(bystander.probe(&["environment"]).await.len(), VARIABLES, "another run notices nothing");
    }
}

const KILLED: &str = "ended by signal 9, probably by a command of this run";

#[tokio::test]
async fn x1_killing_the_guest_fails_only_the_calls_of_its_run() {
    the_run_survives(&format!("exec {PROBE} signal-agent 9"), KILLED).await;
}

#[tokio::test]
async fn x1_a_command_that_kills_all_others_without_end_costs_one_worker() {
    // The shell itself sends it, to all but itself; nothing but the daemon ends it.
    the_run_survives("(while :; do kill -9 -1; done) & wait", KILLED).await;
}

#[tokio::test]
async fn x1_stopping_the_guest_is_noticed() {
    let why = "ended because it did not answer; a command of this run may have stopped it";
    the_run_survives(&format!("exec {PROBE} signal-all 19"), why).await;
}

#[tokio::test]
async fn x1_a_run_that_keeps_killing_its_worker_ends_with_that_reason() {
    let (daemon, runs) = Box::pin(both(v1::CreateRunRequest::default())).await;
    let mut bystander = Box::pin(Inside::enter(&daemon, "bystander")).await;
    for mut inside in runs {
        let mut ended = inside.again(&daemon).await;
        let ended = tokio::spawn(async move { ended.run.ended().await });
        let mut told = Vec::new();
        // Until the run takes no more. A call that comes before its next worker fails without having done anything.
        while let Ok(response) = inside.run.call(Operation::Exec(exec(&["signal-all", "9"]))).await {
            told.extend(response.error.map(|error| error.message));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let ended = ended.await.unwrap();
        let why = format!("its worker was lost 4 times within a minute; the last time it was {KILLED}");
        assert_eq!((ended.state(), ended.failure.as_str()), (v1::run::State::Failed, why.as_str()));
        assert!(told.iter().any(|message| message.starts_with(&format!("The run ends: {why}."))), "{told:?}");
        let id = inside.run.id().to_owned();
        assert_eq!(inside.run.clients.events(&id, "worker_event").await.len(), 4);
        assert_eq!(bystander.probe(&["environment"]).await.len(), VARIABLES, "another run notices nothing");
    }
}
