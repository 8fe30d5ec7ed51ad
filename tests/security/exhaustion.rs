//! C4 and the limits of a container: too much of everything ends the command, not the run.

use harness::v1::kill_evidence::Method;
use harness::{Daemon, Setup, until, v1};
use libc::{EFBIG, ENOSPC, SIGKILL};

use crate::inside::{Inside, VARIABLES, both, both_on, exec, lenient, outcomes};

fn limited(limits: v1::Limits) -> v1::CreateRunRequest {
    v1::CreateRunRequest { limits: Some(limits), ..Default::default() }
}

/// The last number of a line.
fn number(line: &str) -> u64 {
    line.rsplit_once(' ').map_or(line, |(_, number)| number).parse().unwrap_or_else(|_| panic!("{line}"))
}

#[tokio::test]
async fn c4_memory_over_the_limit_ends_the_command() {
    let (_daemon, runs) = both(limited(v1::Limits { memory_bytes: 96 << 20, ..Default::default() })).await;
    for mut inside in runs {
        let result = inside.exec(exec(&["memory"])).await;
        assert_eq!(
            (result.exit_code, result.signal, result.timed_out),
            (Some(137), Some(SIGKILL), false),
            "{result:?}"
        );
        assert!(result.peak_memory_bytes < 96 << 20, "{}", result.peak_memory_bytes);
        assert_eq!(inside.probe(&["environment"]).await.len(), VARIABLES, "the run lives");
    }
}

#[tokio::test]
async fn c4_processes_end_at_the_limit() {
    let (_daemon, runs) = both(limited(v1::Limits { pids: 64, ..Default::default() })).await;
    for mut inside in runs {
        let result = inside.exec(exec(&["forks"])).await;
        let forks = number(result.stdout.trim());
        assert!((16..64).contains(&forks), "{forks}");
        let kill = result.kill.unwrap();
        // `harness` keeps them, and they count until they are ended.
        assert_eq!((u64::from(kill.ended + kill.running), kill.left), (forks, 0), "{kill:?}");
        inside.end_left().await;
        inside.assert_idle();
        assert_eq!(inside.probe(&["environment"]).await.len(), VARIABLES, "the next command has space");
    }
}

#[tokio::test]
async fn x5_orphans_are_reaped() {
    let (_daemon, runs) = both(limited(v1::Limits { pids: 64, ..Default::default() })).await;
    for mut inside in runs {
        // Two processes each time for every branch: without a reaper the limit is reached in the sixth round.
        for round in 0..12 {
            let lines = inside.probe(&["tree", "double-fork", "6", "leave"]).await;
            assert_eq!(lines, ["ready"], "round {round}");
            inside.end_left().await;
        }
        inside.assert_idle();
    }
}

#[tokio::test]
async fn x2_a_fork_bomb_ends_with_its_time() {
    let (_daemon, runs) =
        both(limited(v1::Limits { pids: 64, cpu_millis: 1000, ..Default::default() })).await;
    for mut inside in runs {
        let mut bomb = exec(&["bomb"]);
        bomb.timeout_ms = Some(3_000);
        let result = inside.exec(bomb).await;
        assert!(result.timed_out);
        let kill = result.kill.unwrap();
        assert!(kill.ended >= 16, "{kill:?}");
        assert_eq!(kill.left, 0, "{kill:?}");
        inside.assert_idle();
        assert_eq!(inside.probe(&["environment"]).await.len(), VARIABLES, "the run lives");
    }
}

#[tokio::test]
async fn x2_a_fork_bomb_of_thousands_costs_no_run() {
    let daemon = lenient().await;
    let limits = v1::Limits { pids: 4_096, ..Default::default() };
    let mut inside = Inside::harness(&daemon, "w", limited(limits)).await;
    for _ in 0..2 {
        let mut bomb = exec(&["bomb"]);
        bomb.timeout_ms = Some(4_000);
        let response = inside.run.call(v1::operation::Kind::Exec(bomb)).await.unwrap();
        // A worker that gets no turn for too long is lost with the call, and not with its run. On a busy host the kernel takes longer
        // to end thousands of processes than a call waits for that.
        if let Some(v1::result::Kind::Exec(result)) = response.kind() {
            assert!(result.timed_out && result.kill.unwrap().ended > 1_000, "{result:?}");
        } else {
            let reason = &response.error.as_ref().unwrap().reason;
            assert!(["CANCELLED", "TIMED_OUT"].contains(&reason.as_str()), "{response:?}");
        }
        until("the bomb to end", async || {
            let processes = harness::processes(&inside.run.run.container_id);
            processes.iter().all(|process| process.starts_with("/.cofferdam/guest "))
        })
        .await;
        assert_eq!(inside.probe(&["environment"]).await.len(), VARIABLES, "the next call works");
        inside.assert_idle();
    }
    // The guest comes first, and what it starts does not.
    for _ in 0..2 {
        let nice = inside.run.exec(&["cut", "-d", " ", "-f", "19", "/proc/self/stat"]).await;
        assert_eq!(nice.stdout, "0\n", "{nice:?}");
    }
}

/// The five seconds that a command has to end by itself are not for one that makes ever more processes in them.
#[tokio::test]
async fn x2_bombs_that_multiply_have_no_grace() {
    let (_daemon, runs) =
        both(limited(v1::Limits { pids: 128, cpu_millis: 1000, ..Default::default() })).await;
    for mut inside in runs {
        let mut took = Vec::new();
        // All of them are deaf to SIGTERM.
        for command in [&["tree", "deaf", "6", "stay"][..], &["bomb"], &["chains", "24"]] {
            let mut request = exec(command);
            request.timeout_ms = Some(3_000);
            let result = inside.exec(request).await;
            assert!(result.timed_out, "{command:?}: {result:?}");
            let kill = result.kill.unwrap();
            assert!(
                kill.left == 0
                    && kill.ended >= 6
                    && matches!(kill.method(), Method::CgroupV2Kill | Method::CgroupV1Freezer),
                "{command:?}: {kill:?}"
            );
            took.push(kill.took_us);
            inside.assert_idle();
        }
        assert!(took[0] >= 5_000_000, "who is merely deaf has its time: {took:?}");
        assert!(took[1] < took[0] && took[2] < took[0], "{took:?}");
        // The record says it, too.
        let id = inside.run.id().to_owned();
        let receipts = inside.run.clients.events(&id, "call_receipt").await;
        let recorded: Vec<_> = receipts
            .iter()
            .map(|event| harness::record(event)["outcome"]["facts"]["kill"]["took_us"].clone())
            .collect();
        assert_eq!(recorded, took);
        let quick = inside.exec(exec(&["environment"])).await.kill.unwrap();
        assert_eq!((quick.method(), quick.took_us), (Method::NoneNeeded, 0));
    }
}

#[tokio::test]
async fn c4_files_end_at_their_limit() {
    let (_daemon, runs) = both(limited(v1::Limits { file_size_bytes: 1 << 20, ..Default::default() })).await;
    for mut inside in runs {
        for (place, bytes, errno, size) in [
            ("/workspace/a", "1048576", 0, 1 << 20),
            ("/workspace/b", "1048577", EFBIG, 1 << 20),
            ("/state/c", "2097152", EFBIG, 1 << 20),
        ] {
            let lines = inside.probe(&["file", place, bytes]).await;
            assert_eq!(outcomes(&lines[..1]), [("file".to_owned(), errno)], "{place}");
            assert_eq!(number(&lines[1]), size, "{place}");
        }
    }
}

#[tokio::test]
async fn c4_full_tmp_does_not_harm_others() {
    let small = |text: &str, size: &str| {
        let policy = text.replace(size, "tmp_mib: 8");
        assert_ne!(policy, text);
        policy
    };
    let open = small(include_str!("../../crates/policy/policies/open.yaml"), "tmp_mib: 1024");
    let harness = small(include_str!("../../crates/policy/policies/harness.yaml"), "tmp_mib: 2048");
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    let policy = vec![("open.yaml", open), ("harness.yaml", harness), ("roles.yaml", roles)];
    let config = "harness_on_bind: allow\n".to_owned();
    let daemon = Daemon::start_with(Setup { policy, config, ..Default::default() }).await;
    let (_daemon, runs) = both_on(daemon, v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        let lines = inside.probe(&["fill", "/tmp"]).await;
        assert_eq!(lines[0], format!("data {ENOSPC}"));
        assert_eq!(number(&lines[1]), 8 << 20);
        assert_eq!(lines[2], format!("files {ENOSPC}"));
        let files = number(&lines[3]);
        assert!((1000..=65_536).contains(&files), "{files}");
        let made = inside.probe(&["file", "/workspace/still", "10"]).await;
        assert_eq!(made, ["file ok", "size 10"]);
    }
}

/// A file system of its own for the spool, far smaller than what it may hold.
fn spool_of_one_mib(daemon: &Daemon) {
    let spool = daemon.state_dir().join("spool");
    let mount = ["-t", "tmpfs", "-o", "size=1m,mode=0700", "none"];
    assert!(std::process::Command::new("mount").args(mount).arg(spool).status().unwrap().success());
}

#[tokio::test]
async fn c4_full_spool_does_no_harm() {
    let config = "spool: { min_free: 0 }\n".to_owned();
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    daemon.stop().await;
    spool_of_one_mib(&daemon);
    daemon.launch().await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let id = inside.run.id().to_owned();
    let mut kept = Vec::new();
    for _ in 0..4 {
        let result = inside.exec(exec(&["flood", "10000000"])).await;
        assert_eq!(
            (result.exit_code, result.stdout_bytes),
            (Some(0), 10_000_000),
            "the command is not harmed"
        );
        // It is on record what is missing, and so it is through the API.
        let receipt = inside.run.clients.events(&id, "call_receipt").await.pop().unwrap();
        let recorded = harness::record(&receipt)["outcome"]["facts"]["stdout_kept_bytes"].as_u64().unwrap();
        let request = v1::GetCallRequest {
            call_id: receipt.call_id,
            stdout_offset: Some(0),
            max_output_bytes: 1 << 20,
            ..Default::default()
        };
        let answer = inside.run.clients.tools.get_call(request).await.unwrap().into_inner();
        let chunk = answer.stdout.unwrap();
        assert!(chunk.complete && chunk.kept_bytes == recorded && recorded <= 1 << 20, "{recorded}");
        assert_eq!(chunk.data.len() as u64, recorded);
        kept.push(recorded);
    }
    assert!(kept[0] >= 512 << 10, "what there was space for is kept: {kept:?}");
    // Neither the daemon nor its record, nor the commands after.
    assert_eq!(inside.probe(&["file", "/workspace/still", "10"]).await, ["file ok", "size 10"]);
    inside.run.ok(harness::calls::write("a.txt", "one\n")).await;
    assert!(inside.run.clients.verify().await.intact);
    let said = daemon.log().matches("the output of a command is no longer stored").count();
    assert!((1..=2).contains(&said), "{said} lines of the log for 4 commands");

    // With its run it goes, and the next has space again.
    inside.run.stop().await;
    inside.run.delete().await;
    let mut next = Inside::enter(&daemon, "next").await;
    assert_eq!(next.exec(exec(&["flood", "500000"])).await.stdout_bytes, 500_000);
    let id = next.run.id().to_owned();
    let receipt = next.run.clients.events(&id, "call_receipt").await.pop().unwrap();
    assert_eq!(harness::record(&receipt)["outcome"]["facts"]["stdout_kept_bytes"], serde_json::Value::Null);
}
