//! X2, X3, C4: a command that exceeds a limit ends with a reason that says what to change, and the next call works. An unknown
//! cause is not stated.

use std::process::Command;
use std::time::Duration;

use harness::v1;
use harness::v1::exec_result::{EndedBy, Limit};
use harness::v1::operation::Kind as Operation;
use harness::{Daemon, calls, record};
use libc::{SIGKILL, SIGXFSZ};

use crate::inside::{Inside, PROBE, VARIABLES, both, exec};
use crate::looking::{agent_pid, ask, look, read};

const MIB: u64 = 1 << 20;

/// A run of each profile with these limits.
async fn enter(limits: v1::Limits) -> (Daemon, Vec<Inside>) {
    both(v1::CreateRunRequest { limits: Some(limits), ..Default::default() }).await
}

fn shell(script: &str) -> v1::ExecRequest {
    let args = vec!["-c".to_owned(), script.to_owned()];
    v1::ExecRequest { command: "sh".to_owned(), args, ..Default::default() }
}

/// What ended it, the limits it met, and whether there are words about them.
fn why(result: &v1::ExecResult) -> (EndedBy, Vec<Limit>, bool) {
    (result.ended_by(), result.limits_hit().collect(), !result.hint.is_empty())
}

/// The run has the agent that it had, nothing is left in it, and commands and looks work.
async fn as_before(inside: &mut Inside, agent: u32) {
    inside.assert_idle();
    assert_eq!(agent_pid(inside), agent, "another agent");
    assert_eq!(inside.probe(&["environment"]).await.len(), VARIABLES);
    inside.run.ok(calls::list("@project")).await;
}

#[tokio::test]
async fn x2_a_fork_bomb_is_reported_with_its_limit() {
    let (_daemon, runs) = enter(v1::Limits { pids: 64, cpu_millis: 1000, ..Default::default() }).await;
    for mut inside in runs {
        let agent = agent_pid(&inside);
        let mut bomb = exec(&["bomb"]);
        bomb.timeout_ms = Some(3_000);
        let result = inside.exec(bomb).await;
        assert_eq!(why(&result), (EndedBy::Timeout, vec![Limit::Processes], true), "{result:?}");
        assert!(result.hint.contains("start fewer at once"), "{}", result.hint);
        as_before(&mut inside, agent).await;
        // One that notices by itself says what it likes, and the limit is told all the same.
        let result = inside.exec(exec(&["forks"])).await;
        assert_eq!(
            (result.exit_code, why(&result)),
            (Some(0), (EndedBy::Unspecified, vec![Limit::Processes], true))
        );
        let result = inside.exec(exec(&["environment"])).await;
        assert_eq!(why(&result), (EndedBy::Unspecified, vec![], false), "the limit is met no longer");
    }
}

#[tokio::test]
async fn x2_other_calls_of_the_run_work_during_a_fork_bomb() {
    let (daemon, runs) = enter(v1::Limits { pids: 64, ..Default::default() }).await;
    for mut inside in runs {
        std::fs::write(inside.workspace.join("file"), "needle\n").unwrap();
        let agent = agent_pid(&inside);
        let mut ready = inside.gate("ready");
        let mut bombing = inside.again(&daemon).await;
        let bomb = tokio::spawn(async move {
            let mut bomb = shell(&format!("echo x > ready; exec {PROBE} bomb"));
            bomb.timeout_ms = Some(4_000);
            bombing.exec(bomb).await
        });
        ready.passed().await;
        let mut refused = 0;
        for _ in 0..40 {
            assert_eq!(read(&mut inside.run, ask::read("file")).await.content, "needle\n");
            let found = look(&mut inside.run, calls::grep("@project", "needle")).await.unwrap();
            let v1::result::Kind::Grep(found) = found else { panic!("{found:?}") };
            assert_eq!(found.matches.len(), 1);
            // The run is at its limit: the next process is refused for that reason, or still fits.
            let response = inside.run.call(Operation::Exec(exec(&["environment"]))).await.unwrap();
            if let Some(error) = response.error {
                assert_eq!(error.reason, "OVERLOADED", "{error:?}");
                assert!(error.message.contains("processes"), "{}", error.message);
                refused += 1;
            }
        }
        let result = bomb.await.unwrap();
        assert_eq!(why(&result), (EndedBy::Timeout, vec![Limit::Processes], true));
        assert!(refused > 0, "there was space all the time");
        as_before(&mut inside, agent).await;
    }
}

#[tokio::test]
async fn c4_a_memory_hog_is_distinguished_from_a_killed_command() {
    let (_daemon, runs) = enter(v1::Limits { memory_bytes: 96 * MIB, ..Default::default() }).await;
    for mut inside in runs {
        let agent = agent_pid(&inside);
        let response = inside.run.call(Operation::Exec(exec(&["memory"]))).await.unwrap();
        let Some(v1::result::Kind::Exec(result)) = response.kind() else { panic!("{response:?}") };
        assert_eq!(
            (result.signal, why(result)),
            (Some(SIGKILL), (EndedBy::MemoryLimit, vec![Limit::Memory], true))
        );
        assert!(result.hint.contains("work on less data at a time"), "{}", result.hint);
        let reason = response.error.as_ref().map(|error| error.reason.as_str());
        assert_eq!((response.status(), reason), (v1::call_response::Status::Failed, Some("MEMORY_LIMIT")));
        let records = inside.run.clients.of_call(&response.call_id).await;
        let outcome = &record(records.last().unwrap())["outcome"];
        assert_eq!((&outcome["status"], &outcome["reason"]), (&"failed".into(), &"MEMORY_LIMIT".into()));
        let facts = &outcome["facts"];
        assert_eq!((&facts["ended_by"], &facts["limits_hit"][0]), (&"memory-limit".into(), &"memory".into()));
        as_before(&mut inside, agent).await;

        // A shell lives on, and passes on what happened, or goes on.
        let result = inside.exec(shell(&format!("{PROBE} memory; exit $?"))).await;
        assert_eq!(
            (result.exit_code, why(&result)),
            (Some(137), (EndedBy::MemoryLimit, vec![Limit::Memory], true))
        );
        let result = inside.exec(shell(&format!("{PROBE} memory; exit 3"))).await;
        assert_eq!(
            (result.exit_code, why(&result)),
            (Some(3), (EndedBy::Unspecified, vec![Limit::Memory], true))
        );
        // Nobody knows why somebody is killed.
        let result = inside.exec(shell("kill -9 $$")).await;
        assert_eq!((result.signal, why(&result)), (Some(SIGKILL), (EndedBy::Unspecified, vec![], false)));
        as_before(&mut inside, agent).await;
    }
}

#[tokio::test]
async fn c4_many_hogs_at_once_end_neither_the_guest_nor_the_container() {
    let (_daemon, runs) = enter(v1::Limits { memory_bytes: 64 * MIB, ..Default::default() }).await;
    for mut inside in runs {
        let agent = agent_pid(&inside);
        // Each is smaller than the agent for as long as there are so many.
        let hogs = format!("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do {PROBE} memory & done; wait");
        let result = inside.exec(shell(&hogs)).await;
        assert_eq!(why(&result).1, [Limit::Memory], "{result:?}");
        // They are the first to go whatever their size.
        let result = inside.exec(shell("cat /proc/self/oom_score_adj")).await;
        assert_eq!(result.stdout, "1000\n", "{result:?}");
        as_before(&mut inside, agent).await;
    }
}

#[tokio::test]
async fn c4_a_full_tmp_is_reported_and_leaves_memory_for_the_next_command() {
    // The profile's /tmp is much larger than this memory.
    let (_daemon, runs) = enter(v1::Limits { memory_bytes: 64 * MIB, ..Default::default() }).await;
    for mut inside in runs {
        let agent = agent_pid(&inside);
        let result = inside.exec(shell("head -c 200000000 /dev/zero > /tmp/full")).await;
        assert_ne!(result.exit_code, Some(0), "{result:?}");
        assert_eq!(why(&result), (EndedBy::Unspecified, vec![Limit::TmpSpace], true), "{result:?}");
        assert!(result.hint.contains("/tmp is full: delete"), "{}", result.hint);
        as_before(&mut inside, agent).await;
        // Even a hog beside it finds that it is the one to go.
        let result = inside.exec(exec(&["memory"])).await;
        assert_eq!(why(&result).0, EndedBy::MemoryLimit, "{result:?}");
        as_before(&mut inside, agent).await;

        let result = inside.exec(shell(": > /tmp/full")).await;
        assert_eq!(result.exit_code, Some(0), "{result:?}");
        // Full of files that are empty.
        let lines = inside.probe(&["fill", "/tmp"]).await;
        assert!(lines[2].starts_with("files "), "{lines:?}");
        let result = inside.exec(shell("echo > /tmp/one-more && echo > /tmp/another")).await;
        assert_eq!(why(&result), (EndedBy::Unspecified, vec![Limit::TmpSpace], true), "{result:?}");
        as_before(&mut inside, agent).await;
    }
}

#[tokio::test]
async fn c4_full_shared_memory_is_reported_and_leaves_memory_for_the_next_command() {
    // A quarter is left for the guest and the command. Of 64 MiB that is too little for a guest that is not optimised, and of 128
    // MiB on a machine that is too busy to reclaim memory in time.
    let (_daemon, runs) = enter(v1::Limits { memory_bytes: 192 * MIB, ..Default::default() }).await;
    for mut inside in runs {
        let agent = agent_pid(&inside);
        // Both file systems in memory, as far as they go.
        let script = "head -c 200000000 /dev/zero >/tmp/full; head -c 200000000 /dev/zero >/dev/shm/full";
        let result = inside.exec(shell(script)).await;
        assert_eq!(
            why(&result),
            (EndedBy::Unspecified, vec![Limit::TmpSpace, Limit::ShmSpace], true),
            "{result:?}"
        );
        assert!(result.hint.contains("/dev/shm is full: delete"), "{}", result.hint);
        as_before(&mut inside, agent).await;
        let result = inside.exec(shell(": >/tmp/full; : >/dev/shm/full")).await;
        assert_eq!((why(&result).0, result.limits_hit.len()), (EndedBy::Unspecified, 0), "{result:?}");
    }
}

#[tokio::test]
async fn x3_a_flood_of_gigabytes_ends_with_its_reason() {
    let (_daemon, runs) = enter(v1::Limits::default()).await;
    for mut inside in runs {
        let agent = agent_pid(&inside);
        let result = inside.exec(exec(&["flood", &(8_u64 << 30).to_string()])).await;
        assert_eq!(
            (result.exit_code, why(&result)),
            (Some(143), (EndedBy::OutputLimit, vec![Limit::Output], true))
        );
        assert!(result.hint.contains("send the output to a file"), "{}", result.hint);
        assert!(result.stdout_bytes > 64 * MIB, "{}", result.stdout_bytes);
        as_before(&mut inside, agent).await;
    }
}

#[tokio::test]
async fn c4_a_file_over_its_limit_ends_the_command_with_its_reason() {
    let (_daemon, runs) = enter(v1::Limits { file_size_bytes: MIB, ..Default::default() }).await;
    for mut inside in runs {
        let agent = agent_pid(&inside);
        let result = inside.exec(shell("exec head -c 2000000 /dev/zero > /workspace/large")).await;
        let expected = (EndedBy::FileSizeLimit, vec![Limit::FileSize], true);
        assert_eq!((result.signal, why(&result)), (Some(SIGXFSZ), expected), "{result:?}");
        as_before(&mut inside, agent).await;
    }
}

#[tokio::test]
async fn c4_a_full_workspace_is_reported_and_harms_neither_daemon_nor_record() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("small", &[]);
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=8m,nr_inodes=1000,uid=4321,gid=4321", "none"])
        .arg(&workspace)
        .status()
        .unwrap();
    assert!(mounted.success());
    let mut inside = Inside::enter_at(&daemon, workspace, v1::CreateRunRequest::default()).await;
    let agent = agent_pid(&inside);
    let result = inside.exec(shell("head -c 20000000 /dev/zero > /workspace/full")).await;
    assert_eq!(why(&result), (EndedBy::Unspecified, vec![Limit::ProjectSpace], true), "{result:?}");
    let failure = inside.run.fails(calls::write("new", "some text\n")).await;
    assert_eq!(failure.reason, "WRITE_LIMIT", "{failure:?}");
    assert!(failure.message.contains("no space left"), "{}", failure.message);
    as_before(&mut inside, agent).await;

    std::fs::remove_file(inside.workspace.join("full")).unwrap();
    // Full of names now: there is space, and nothing can be made.
    let result = inside.exec(shell("i=0; while echo > f$i; do i=$((i+1)); done; exit 3")).await;
    assert_eq!(why(&result), (EndedBy::Unspecified, vec![Limit::ProjectSpace], true), "{result:?}");
    as_before(&mut inside, agent).await;
    assert!(inside.run.clients.verify().await.intact, "the record is whole");
    tokio::time::timeout(Duration::from_secs(60), inside.run.stop()).await.expect("the run does not stop");
}
