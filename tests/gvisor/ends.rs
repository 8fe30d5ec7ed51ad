//! Tests that no process of a command is left after its end, by the sandbox's own table of processes.

use harness::v1::kill_evidence::Method;
use harness::{calls, until, v1};

use crate::inside::{Inside, exec};
use crate::{IDLE, enter, processes};

const BRANCHES: u32 = 6;

async fn ended(kind: &str, end: &str) {
    let (_daemon, mut inside) = enter().await;
    let request = v1::ExecRequest { timeout_ms: Some(10_000), ..exec(&["tree", kind, "6", end]) };
    let result = inside.exec(request).await;
    assert_eq!((result.stdout.as_str(), result.timed_out), ("ready\n", end == "stay"), "{result:?}");
    let kill = result.kill.unwrap();
    assert_eq!(kill.left, 0, "{kill:?}");
    // The kernel itself ends stopped processes whose session has lost its leader, if it comes first.
    if kind != "stopped" {
        assert!(kill.ended >= BRANCHES && kill.method() == Method::Descendants, "{kill:?}");
    }
    assert_eq!(processes(&mut inside).await, IDLE);
}

harness::tests! {
    v2_a_timeout_ends_other_sessions: ended("setsid", "stay"),
    v2_a_timeout_ends_orphans: ended("double-fork", "stay"),
    v2_a_timeout_ends_processes_that_ignore_sigterm: ended("deaf", "stay"),
    v2_a_timeout_ends_stopped_processes: ended("stopped", "stay"),
    v2_orphans_end_with_their_command: ended("double-fork", "leave"),
    v2_stopped_processes_end_with_their_command: ended("stopped", "leave"),
}

/// Each hop is between two looks at the sandbox, perhaps, or within one.
#[tokio::test]
async fn v2_a_process_that_is_never_the_same_ends_with_its_command_or_its_container() {
    let (daemon, mut inside) = enter().await;
    for chase in 0..effort::cases(60, 3_000) {
        let kill = inside.exec(exec(&["hop"])).await.kill.unwrap();
        if kill.left == 0 {
            assert_eq!(processes(&mut inside).await, IDLE, "{kill:?}");
        } else {
            assert_eq!(inside.run.ended().await.state(), v1::run::State::Failed, "{kill:?}");
            inside = Inside::enter(&daemon, &format!("after-{chase}")).await;
        }
    }
}

/// One command's end takes nothing of another that runs beside it.
#[tokio::test]
async fn v2_a_command_beside_it_continues() {
    let (daemon, mut inside) = enter().await;
    let mut beside = inside.again(&daemon).await;
    let other = tokio::spawn(async move {
        // Processes that come and go all the time are not taken for what the others leave.
        let script =
            "(sleep 4; echo late) & while kill -0 $! 2>&-; do /bin/true; echo > begun; done; wait; echo over";
        beside.run.ran(calls::shell(script)).await
    });
    until("it does not begin", async || inside.workspace.join("begun").exists()).await;
    for _ in 0..20 {
        let result = inside.exec(exec(&["tree", "double-fork", "6", "leave"])).await;
        assert_eq!(result.kill.unwrap().left, 0);
    }
    let result = other.await.unwrap();
    assert_eq!((result.exit_code, result.stdout.as_str()), (Some(0), "late\nover\n"));
    assert_eq!(processes(&mut inside).await, IDLE);
}

#[tokio::test]
async fn v2_a_hundred_random_ends_leave_nothing() {
    let (_daemon, mut inside) = enter().await;
    let kinds = ["setsid", "double-fork", "deaf", "stopped"];
    for round in 0..effort::cases(24, 1_000) {
        let kind = kinds[round as usize % kinds.len()];
        let result = inside.exec(exec(&["tree", kind, "3", "leave"])).await;
        assert_eq!(result.kill.unwrap().left, 0, "{kind}");
    }
    assert_eq!(processes(&mut inside).await, IDLE);
}
