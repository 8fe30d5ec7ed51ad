//! Tests that no process of a command is left, whatever it does.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use operations::{Bounds, Exec, ExecResult, KillMethod, Operation};
use tokio_util::sync::CancellationToken;
use worker_protocol::client::CloseReason;

use crate::harness::{Group, Guest, command, given_enough, nap, peak_kib, result, running, sh, until};

fn limited(timeout: Duration, exec: Exec) -> Exec {
    Exec { timeout, ..exec }
}

/// Runs it with a limit of so many milliseconds, or with a longer one where it does not get to say this.
async fn ran_until_it_said(said: &str, millis: u64, guest: &Guest, exec: Exec) -> ExecResult {
    let run = async |limit| guest.ran(limited(limit, exec.clone())).await;
    given_enough(Duration::from_millis(millis), run, |done: &ExecResult| done.stdout.starts_with(said)).await
}

#[tokio::test]
async fn a_timeout_ends_a_command_and_keeps_its_output() {
    let guest = Guest::start().await;
    let nap = nap(1);
    let script = format!("sleep {nap} & echo before; wait; echo after");
    let done = ran_until_it_said("before\n", 300, &guest, sh(&script)).await;
    assert!(done.timed_out);
    assert_eq!((done.stdout.as_str(), done.signal), ("before\n", Some(15)));
    assert_eq!(
        (
            done.kill.as_ref().unwrap().ended,
            done.kill.as_ref().unwrap().left,
            done.kill.as_ref().unwrap().method()
        ),
        (2, 0, KillMethod::Descendants)
    );
    assert!(done.wall_time_us >= 300_000, "{done:?}");
    assert_eq!(running(&nap), 0);
}

#[tokio::test]
async fn sessions_forks_stops_and_deafness_do_not_help() {
    let guest = Guest::start().await;
    let nap = nap(2);
    let script = format!(
        "trap '' TERM
         (setsid setsid sleep {nap} &) &
         sleep {nap} & kill -STOP $!
         setsid sh -c 'sleep {nap} & sleep {nap} & echo ready; wait' &
         sleep {nap}; sleep {nap}; sleep {nap}"
    );
    let done = ran_until_it_said("ready\n", 500, &guest, sh(&script)).await;
    assert!(done.timed_out && done.stdout == "ready\n", "{done:?}");
    // It is deaf, so it was killed after the grace.
    assert_eq!(done.signal, Some(9));
    assert!(done.kill.as_ref().unwrap().ended >= 6 && done.kill.as_ref().unwrap().left == 0, "{done:?}");
    assert_eq!(running(&nap), 0);
}

#[tokio::test]
async fn process_that_keeps_forking_is_ended_or_counted() {
    let guest = Guest::start().await;
    let marker = nap(7);
    let hop = "use POSIX; $SIG{TERM} = 'IGNORE'; POSIX::setsid(), $p = fork, $p && exit while 1";
    for _ in 0..20 {
        let kill = guest.ran(command(&["perl", "-e", hop, &marker])).await.kill.unwrap();
        assert!(kill.ended > 0 && (kill.left > 0 || running(&marker) == 0), "{kill:?}");
    }
}

#[tokio::test]
async fn a_background_process_never_holds_a_call_open() {
    let guest = Guest::start().await;
    let nap = nap(3);
    for script in
        [format!("sleep {nap} & echo hi"), format!("(setsid sh -c 'sleep {nap} & sleep {nap}' &) ; echo hi")]
    {
        let done = guest.ran(sh(&script)).await;
        assert_eq!((done.exit_code, done.stdout.as_str(), done.timed_out), (Some(0), "hi\n", false));
        assert!(done.kill.as_ref().unwrap().ended >= 1 && done.kill.as_ref().unwrap().left == 0, "{done:?}");
        assert_eq!(running(&nap), 0);
    }
}

#[tokio::test]
async fn one_command_does_not_end_another() {
    let guest = Arc::new(Guest::start().await);
    let other = Arc::clone(&guest);
    let script = "(until [ -e go ]; do sleep 0.02; done; echo late) & : > begun; wait; echo end";
    let exec = limited(Duration::from_secs(60), sh(script));
    let long = tokio::spawn(async move { other.ran(exec).await });
    until(|| guest.project().join("begun").exists()).await;
    for _ in 0..20 {
        let done = guest.ran(sh("sleep 100 & exit 0")).await;
        assert_eq!((done.kill.as_ref().unwrap().ended, done.kill.as_ref().unwrap().left), (1, 0));
    }
    fs::write(guest.project().join("go"), "").unwrap();
    let done = long.await.unwrap();
    assert_eq!((done.exit_code, done.stdout.as_str()), (Some(0), "late\nend\n"));
}

#[tokio::test]
async fn flood_is_cut_and_does_not_block_others() {
    let guest = Arc::new(Guest::start().await);
    let flooding = Arc::clone(&guest);
    let flood = tokio::spawn(async move {
        let bounds = Bounds { max_spool_bytes: 32 << 20, max_output_bytes: 1000, ..Bounds::default() };
        let exec = Operation::Exec(command(&["yes"]));
        result(flooding.finish(exec, bounds, None, CancellationToken::new()).await.unwrap().outcome)
    });
    for _ in 0..10 {
        assert_eq!(guest.ran(command(&["echo", "quick"])).await.stdout, "quick\n");
    }
    let done = flood.await.unwrap();
    assert_eq!((done.signal, done.timed_out), (Some(15), false));
    assert!(done.stdout_bytes >= 32 << 20, "{}", done.stdout_bytes);
    assert!(done.stdout.len() < 1100 && done.stdout_omitted_bytes > (32 << 20) - 1000);
    let peak = peak_kib(guest.pid);
    assert!(peak < 32 * 1024, "{peak} KiB");
}

#[tokio::test]
async fn a_cancelled_command_is_ended() {
    let guest = Arc::new(Guest::start().await);
    let nap = nap(4);
    let cancel = CancellationToken::new();
    let (calling, exec) = (Arc::clone(&guest), sh(&format!("echo $$ > started; sleep {nap}")));
    let token = cancel.clone();
    let call =
        tokio::spawn(
            async move { calling.finish(Operation::Exec(exec), Bounds::default(), None, token).await },
        );
    until(|| running(&nap) > 0).await;
    cancel.cancel();
    let done = result(call.await.unwrap().unwrap().outcome);
    assert_eq!((done.signal, done.timed_out, done.kill.as_ref().unwrap().left), (Some(15), false, 0));
    assert_eq!(running(&nap), 0);
}

#[tokio::test]
async fn a_placed_command_is_ended_by_the_daemon() {
    let guest = Guest::start().await;
    let group = Arc::new(Group::default());
    let run = async |limit| {
        let exec = Operation::Exec(limited(limit, sh("trap '' TERM; echo hi; sleep 1000")));
        let done = guest.finish(exec, Bounds::default(), Some(group.clone()), CancellationToken::new()).await;
        result(done.unwrap().outcome)
    };
    let said = |done: &ExecResult| done.stdout.starts_with("hi\n");
    let done = given_enough(Duration::from_millis(200), run, said).await;
    assert_eq!((done.timed_out, done.signal, done.stdout.as_str()), (true, Some(9), "hi\n"));
    assert_eq!(
        (*group.forced.lock(), done.kill.as_ref().unwrap().method()),
        (Some(true), KillMethod::CgroupV2Kill)
    );
}

#[tokio::test]
async fn the_end_of_the_stream_ends_everything() {
    let mut guest = Guest::start().await;
    let nap = nap(5);
    let script = format!("trap '' TERM; (setsid sleep {nap} &); sleep {nap}; sleep {nap}");
    let client = guest.client.clone();
    let operation = Operation::Exec(sh(&script));
    let call = tokio::spawn(async move {
        let bounds = Bounds::default();
        let deadline = Duration::from_secs(60);
        let spec = worker_protocol::client::CallSpec {
            operation: &operation,
            bounds: &bounds,
            deadline,
            preview: false,
            output: None,
        };
        client.call(spec, None, CancellationToken::new()).await
    });
    until(|| running(&nap) > 2).await;
    guest.client.shutdown().await;
    assert!(guest.process.wait().await.unwrap().success());
    assert_eq!(running(&nap), 0);
    assert_eq!(call.await.unwrap(), Err(worker_protocol::client::LaneError::Lost(CloseReason::Shutdown)));
}

#[tokio::test]
async fn commands_end_with_a_killed_guest() {
    let mut guest = Guest::start().await;
    let nap = nap(6);
    let client = guest.client.clone();
    let operation = Operation::Exec(command(&["sleep", &nap]));
    tokio::spawn(async move {
        let bounds = Bounds::default();
        let deadline = Duration::from_secs(60);
        let spec = worker_protocol::client::CallSpec {
            operation: &operation,
            bounds: &bounds,
            deadline,
            preview: false,
            output: None,
        };
        client.call(spec, None, CancellationToken::new()).await
    });
    until(|| running(&nap) > 0).await;
    guest.process.kill().await.unwrap();
    assert_eq!(guest.client.closed().await, CloseReason::Eof);
    until(|| running(&nap) == 0).await;
}
