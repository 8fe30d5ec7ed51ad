//! What a command used is what all used that it started: also what left its parent, and what was killed in the end.
//!
//! The programs here measure themselves: they go on until the kernel says that they have used as much as they are to.

use harness::v1::operation::Kind as Operation;
use harness::v1::{CallResponse, ExecResult, ShellRequest, result};
use harness::{Daemon, RunHandle, calls, record};
use serde_json::Value;

/// A loop of a shell that ends when this very process has used 200 ms: 20 ticks of 10 ms in its `stat` of proc(5).
const BURN: &str = "n=0; while [ $n -lt 20 ]; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; \
    read stat < /proc/$$/stat; set -- $stat; n=$((${14} + ${15})); done";
/// The same without an end. It says how far it is.
const BURN_ON: &str = "while :; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; \
    read stat < /proc/$$/stat; set -- $stat; echo $((${14} + ${15})); done";
const BURNT_US: u64 = 200_000;
/// More than a short command uses, and less than what was burnt.
const SHORT_US: u64 = 150_000;

/// The result of a command, once it is sure that answer, result and receipt say the same.
async fn used(run: &mut RunHandle, operation: Operation) -> (ExecResult, Value) {
    let response: CallResponse = run.call(operation).await.unwrap();
    let result = match response.kind().cloned().unwrap() {
        result::Kind::Exec(result) | result::Kind::Shell(result) => result,
        other => panic!("{other:?}"),
    };
    let usage = response.usage.unwrap();
    assert_eq!(
        (usage.cpu_time_us, usage.peak_memory_bytes),
        (result.cpu_time_us, result.peak_memory_bytes),
        "{result:?}"
    );
    let events = run.clients.of_call(&response.call_id).await;
    let receipt = record(events.last().unwrap());
    assert_eq!(receipt["kind"], "call_receipt");
    assert_eq!(receipt["usage"]["cpu_us"], usage.cpu_time_us);
    assert_eq!(receipt["usage"]["peak_memory_bytes"], usage.peak_memory_bytes);
    (result, receipt)
}

/// A script that starts another one, which is nobody's child at once, and ends when that one says so: by then it is there
/// still, or has ended, and nobody who is asked has waited for it.
fn orphaned(script: &str) -> Operation {
    calls::shell(&format!("(sh -c '{script}' &) | {{ read said; echo $said; }}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_orphans_counts() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;

    // It is killed when the command ends.
    let (result, _) = used(&mut run, orphaned(&format!("{BURN}; echo burnt; sleep 1000"))).await;
    assert_eq!((result.exit_code, result.stdout.as_str()), (Some(0), "burnt\n"), "{result:?}");
    assert!(result.kill.as_ref().is_some_and(|kill| kill.ended >= 1 && kill.left == 0), "{result:?}");
    assert!(result.cpu_time_us >= BURNT_US, "{result:?}");
    // It has ended by itself.
    let (result, _) = used(&mut run, orphaned(&format!("{BURN}; echo burnt"))).await;
    assert!(result.cpu_time_us >= BURNT_US, "{result:?}");
    // What a parent has waited for counts once.
    let (result, _) = used(&mut run, calls::shell(&format!("sh -c '{BURN}'"))).await;
    assert!((BURNT_US..2 * BURNT_US).contains(&result.cpu_time_us), "{result:?}");

    // None of that is the next command's, nor what its process used before it was one.
    for _ in 0..3 {
        let (result, _) = used(&mut run, calls::exec(&["true"])).await;
        assert_eq!(result.exit_code, Some(0));
        assert!((1..SHORT_US).contains(&result.cpu_time_us), "{result:?}");
        assert!((100_000..32 << 20).contains(&result.peak_memory_bytes), "{result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_ended_by_its_timeout_counts() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    // They write down what they have used so far, and never end.
    let script = format!("(sh -c '{BURN_ON}' > one &); (sh -c '{BURN_ON}' > other &); sleep 1000");
    let operation = Operation::Shell(ShellRequest { script, timeout_ms: Some(6_000), ..Default::default() });
    let (result, receipt) = used(&mut run, operation).await;
    assert!(result.timed_out && result.kill.as_ref().is_some_and(|kill| kill.ended >= 3), "{result:?}");
    let ticks = |file: &str| {
        let text = std::fs::read_to_string(workspace.join(file)).unwrap();
        // The last line may be cut off.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().last().and_then(|line| line.parse::<u64>().ok()).unwrap_or_default()
    };
    let burnt = (ticks("one") + ticks("other")) * 10_000;
    assert!(burnt > 0, "{receipt}");
    assert!(result.cpu_time_us >= burnt, "{burnt}: {result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_process_that_is_still_there_counts() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    // A text of 8 MiB, which is more than a short command uses.
    let large = "x=x; i=0; while [ $i -lt 23 ]; do x=$x$x; i=$((i+1)); done; echo ${#x}";
    let (result, _) = used(&mut run, orphaned(&format!("{large}; sleep 1000; :"))).await;
    assert_eq!(result.stdout, "8388608\n");
    assert!(result.peak_memory_bytes >= 8 << 20, "{result:?}");
    // The same, ended by its time.
    let script = format!("(sh -c '{large}; sleep 1000; :' &); sleep 1000");
    let operation = Operation::Shell(ShellRequest { script, timeout_ms: Some(6_000), ..Default::default() });
    let (result, _) = used(&mut run, operation).await;
    assert!(result.timed_out && result.stdout == "8388608\n", "{result:?}");
    assert!(result.peak_memory_bytes >= 8 << 20, "{result:?}");
    // Memory of the command before is no other command's.
    let (result, _) = used(&mut run, calls::exec(&["true"])).await;
    assert!(result.peak_memory_bytes < 8 << 20, "{result:?}");
}
