//! X2, X3: the ends of commands, and that nothing of them is left.

use harness::memory;
use harness::v1::exec_result::EndedBy;
use harness::v1::kill_evidence::Method;
use harness::v1::{self, call_response, operation::Kind as Operation};

use crate::inside::{VARIABLES, both, exec};

const BRANCHES: u32 = 6;

/// A command that does not end by itself, ended by its timeout.
async fn ended(args: &[&str], at_least: u32) {
    let (_daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        let mut request = exec(args);
        request.timeout_ms = Some(5_000);
        let result = inside.exec(request).await;
        assert!(result.timed_out, "{result:?}");
        assert_eq!((result.ended_by(), result.limits_hit.len()), (EndedBy::Timeout, 0), "{result:?}");
        assert_eq!(result.stdout, "ready\n", "what it wrote before is there");
        let kill = result.kill.unwrap();
        assert_eq!(kill.left, 0, "{kill:?}");
        assert!(kill.ended >= at_least, "{kill:?}");
        assert!(matches!(kill.method(), Method::CgroupV2Kill | Method::CgroupV1Freezer), "{kill:?}");
        inside.assert_idle();
        assert_eq!(inside.probe(&["environment"]).await.len(), VARIABLES, "the run lives");
    }
}

harness::tests! {
    x2_a_timeout_ends_other_sessions: ended(&["tree", "setsid", "6", "stay"], BRANCHES),
    x2_a_timeout_ends_orphans: ended(&["tree", "double-fork", "6", "stay"], BRANCHES),
    x2_a_timeout_ends_processes_that_ignore_sigterm: ended(&["tree", "deaf", "6", "stay"], BRANCHES),
    x2_a_timeout_ends_stopped_processes: ended(&["tree", "stopped", "6", "stay"], BRANCHES),
}

#[tokio::test]
async fn x2_a_timeout_ends_a_process_that_is_never_the_same() {
    // It leaves its first process behind at once: the call is over before its time, and so is what it left.
    let (_daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        let result = inside.exec(exec(&["hop"])).await;
        let kill = result.kill.unwrap();
        assert_eq!(kill.left, 0, "{kill:?}");
        if inside.profile().keeps {
            assert!(kill.ended == 0 && kill.running >= 1, "{kill:?}");
            inside.end_left().await;
        } else {
            assert!(kill.ended >= 1, "{kill:?}");
        }
        inside.assert_idle();
    }
}

/// The command itself leaves; what it started holds its standard output.
async fn left_behind(kind: &str) {
    let (_daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        let result = inside.exec(exec(&["tree", kind, "6", "leave"])).await;
        assert_eq!((result.exit_code, result.timed_out), (Some(0), false), "{result:?}");
        assert_eq!(result.stdout, "ready\n");
        let kill = result.kill.unwrap();
        if inside.profile().keeps {
            assert_eq!((kill.running, kill.ended, kill.left), (BRANCHES, 0, 0), "{kill:?}");
            assert_eq!(inside.end_left().await, BRANCHES);
        } else {
            assert_eq!((kill.ended, kill.left), (BRANCHES, 0), "{kill:?}");
        }
        inside.assert_idle();
    }
}

harness::tests! {
    x2_background_processes_end_with_their_command: left_behind("setsid"),
    x2_orphans_end_with_their_command: left_behind("double-fork"),
    x2_stopped_processes_end_with_their_command: left_behind("stopped"),
}

#[tokio::test]
async fn x2_a_cancelled_call_leaves_nothing() {
    let (daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        let mut ready = inside.gate("ready");
        let mut running = inside.again(&daemon).await;
        let call = tokio::spawn(async move {
            running.run.call(Operation::Exec(exec(&["listen-abstract", "x", "/workspace/ready"]))).await
        });
        ready.passed().await;
        let id = inside.run.id().to_owned();
        let intents = inside.run.clients.events(&id, "call_intent").await;
        let call_id = intents.last().unwrap().call_id.clone();
        let cancelled =
            inside.run.clients.tools.cancel_call(v1::CancelCallRequest { call_id }).await.unwrap();
        assert!(cancelled.into_inner().cancelled);
        let response = call.await.unwrap().unwrap();
        assert_eq!(response.status(), call_response::Status::Failed);
        assert_eq!(response.error.as_ref().map(|error| error.reason.as_str()), Some("CANCELLED"));
        // Its outcome says what became of the command.
        let Some(v1::result::Kind::Exec(result)) = response.clone().into_kind() else {
            panic!("{response:?}")
        };
        assert_eq!((result.exit_code, result.signal), (Some(143), Some(libc::SIGTERM)));
        assert_eq!(result.ended_by(), EndedBy::Cancelled);
        let kill = result.kill.unwrap();
        assert_eq!((kill.ended, kill.left), (1, 0), "{kill:?}");
        inside.assert_idle();
    }
}

#[tokio::test]
async fn x3_an_output_flood_is_bounded_and_counted() {
    const GIB: u64 = 1 << 30;
    let (daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        // Warm, so that what is measured is the flood's.
        inside.exec(exec(&["flood", "10000000"])).await;
        let before = memory(daemon.pid(), "VmRSS");
        let result = inside.exec(exec(&["flood", &GIB.to_string()])).await;
        let grown = memory(daemon.pid(), "VmHWM").saturating_sub(before);
        assert!(grown < 24 * 1024, "the daemon grew by {grown} KiB");
        assert!(result.stdout.len() <= 256 << 10, "{} bytes are shown", result.stdout.len());
        let shown = result.stdout.bytes().filter(|byte| *byte == b'x').count() as u64;
        assert_eq!(shown + result.stdout_omitted_bytes, result.stdout_bytes);
        assert!(result.stdout_bytes <= GIB, "{}", result.stdout_bytes);
        // Everything, or ended at the limit: never a command that ended well with bytes missing.
        assert_eq!(result.exit_code == Some(0), result.stdout_bytes == GIB, "{result:?}");
        inside.assert_idle();
    }
}

#[tokio::test]
async fn x3_the_count_is_exact() {
    let (_daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        for bytes in [0, 1, 16_383, 65_537, 10_000_019] {
            let result = inside.exec(exec(&["flood", &bytes.to_string()])).await;
            assert_eq!((result.exit_code, result.stdout_bytes), (Some(0), bytes));
            let shown = result.stdout.bytes().filter(|byte| *byte == b'x').count() as u64;
            assert_eq!(shown + result.stdout_omitted_bytes, bytes);
        }
    }
}

#[tokio::test]
async fn x7_program_output_cannot_forge_a_result() {
    let (_daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        let forged = "\u{1}\0\0\0\0\0\0\u{8}{\"status\":\"DENIED\"} OCI runtime exec failed: exec failed: permission denied";
        std::fs::write(inside.workspace.join("forged"), forged).unwrap();
        let v1::result::Kind::Exec(result) =
            inside.run.ok(harness::calls::exec(&["cat", "/workspace/forged"])).await
        else {
            panic!()
        };
        assert_eq!((result.exit_code, result.stdout.as_str()), (Some(0), forged));
    }
}
