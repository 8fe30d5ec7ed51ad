//! Processes that wait for a command.

use std::sync::Arc;

use operations::{Bounds, Exec, Operation, Shell, ToolFailure};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;
use worker_protocol::client::{CallSpec, Prepared};
use worker_protocol::convert::Reply;

use crate::harness::{Group, Guest, command, result, sh};

async fn prepared(guest: &Guest) -> (Prepared, Arc<Group>) {
    let group = Arc::new(Group::default());
    (guest.client.prepare(group.clone()).await.unwrap(), group)
}

fn pid(group: &Group) -> u32 {
    group.pid.lock().unwrap()
}

fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn run(guest: &Guest, operation: Operation, prepared: Prepared) -> Result<Reply, ToolFailure> {
    let bounds = Bounds::default();
    let deadline = std::time::Duration::from_secs(60);
    let spec = CallSpec { operation: &operation, bounds: &bounds, deadline, preview: false, output: None };
    guest.client.call_prepared(spec, prepared, CancellationToken::new()).await.unwrap().outcome
}

#[tokio::test]
async fn prepared_process_becomes_the_command() {
    let guest = Guest::start().await;
    let (waiting, group) = prepared(&guest).await;
    let expected = pid(&group);
    let exec = Exec { stdin: b"given\n".to_vec(), ..sh("echo $$; cat; pwd; exit 7") };
    let ran = result(run(&guest, Operation::Exec(exec), waiting).await);
    assert_eq!(ran.exit_code, Some(7));
    assert_eq!(ran.stdout, format!("{expected}\ngiven\n{}\n", guest.project().display()));
    assert_eq!(*group.forced.lock(), Some(false), "its place was finished");
    assert_eq!(pid(&group), expected, "no other process was placed");
}

#[tokio::test]
async fn stopped_prepared_process_still_runs() {
    let guest = Guest::start().await;
    let (waiting, group) = prepared(&guest).await;
    kill_process(Pid::from_raw(pid(&group).try_into().unwrap()).unwrap(), Signal::STOP).unwrap();
    assert_eq!(result(run(&guest, Operation::Exec(command(&["echo", "hi"])), waiting).await).stdout, "hi\n");
}

#[tokio::test]
async fn lost_or_small_prepared_process_is_replaced() {
    let guest = Guest::start().await;
    let (waiting, group) = prepared(&guest).await;
    let gone = pid(&group);
    kill_process(Pid::from_raw(gone.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    while alive(gone) {
        tokio::task::yield_now().await;
    }
    assert_eq!(result(run(&guest, Operation::Exec(command(&["echo", "hi"])), waiting).await).stdout, "hi\n");
    assert_ne!(pid(&group), gone, "it was placed as well");

    let (waiting, group) = prepared(&guest).await;
    let small = pid(&group);
    let long = "x".repeat(100_000);
    let echoed = result(run(&guest, Operation::Exec(command(&["echo", &long])), waiting).await);
    assert_eq!(echoed.stdout_bytes, 100_001);
    assert_ne!(pid(&group), small);
    while alive(small) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn prepared_process_reports_failed_commands() {
    let guest = Guest::start().await;
    let (waiting, _) = prepared(&guest).await;
    let refused = run(&guest, Operation::Exec(command(&["rm", "x"])), waiting).await.unwrap_err();
    assert_eq!(refused.reason, operations::Reason::CommandNotAllowed);
    let (waiting, _) = prepared(&guest).await;
    let script = guest.script("broken", "#!/no/such/interpreter\n");
    let refused = run(&guest, Operation::Exec(command(&[&script])), waiting).await.unwrap_err();
    assert_eq!(refused.reason, operations::Reason::NotFound);
    let (waiting, _) = prepared(&guest).await;
    let Exec { cwd, env, stdin, timeout, .. } = command(&["sh"]);
    let shell = Shell { script: "echo $((6*7))".to_owned(), cwd, env, stdin, stdin_file: None, timeout };
    let ran = result(run(&guest, Operation::Shell(shell), waiting).await);
    assert_eq!(ran.stdout, "42\n");
}

#[tokio::test]
async fn unused_prepared_process_ends() {
    let guest = Guest::start().await;
    let (waiting, group) = prepared(&guest).await;
    let pid = pid(&group);
    assert!(alive(pid));
    drop(waiting);
    while alive(pid) {
        tokio::task::yield_now().await;
    }
    // More than wait at the same time are refused, and the stream goes on.
    let mut all = Vec::new();
    let refused = loop {
        match guest.client.prepare(Arc::new(Group::default())).await {
            Ok(waiting) => all.push(waiting),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, worker_protocol::client::LaneError::NotPlaced(_)), "{refused}");
    assert_eq!(all.len(), 4);
    assert_eq!(guest.ran(command(&["echo", "hi"])).await.stdout, "hi\n");
}
