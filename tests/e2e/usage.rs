//! Tests the usage of calls: the kernel's figures, in the answer and on record. Usage that cannot be separated is left out.

use harness::v1::{CallResponse, Usage};
use harness::{Daemon, RunHandle, calls, record};
use serde_json::Value;

/// A call's answer, and the usage in its receipt.
async fn measured(run: &mut RunHandle, operation: harness::v1::operation::Kind) -> (Usage, Value) {
    let response: CallResponse = run.call(operation).await.unwrap();
    let usage = response.usage.expect("a call that was made has used something");
    let events = run.clients.of_call(&response.call_id).await;
    let receipt = record(events.last().unwrap());
    assert_eq!(receipt["kind"], "call_receipt");
    let recorded = receipt["usage"].clone();
    assert_eq!(recorded["cpu_us"], usage.cpu_time_us);
    assert_eq!(
        (&recorded["bytes_in"], &recorded["bytes_out"]),
        (&usage.bytes_in.into(), &usage.bytes_out.into())
    );
    let wall = recorded["wall_us"].as_u64().unwrap();
    assert!(wall > 0 && wall <= receipt["duration_us"].as_u64().unwrap(), "{receipt}");
    // Of two processors' worth at the most, and what was made before it.
    assert!(usage.cpu_time_us <= wall * 64 + 100_000, "{receipt}");
    (usage, recorded)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_call_has_its_figures() {
    let daemon = Daemon::start().await;
    let text = "a line that an agent reads\n".repeat(2_000);
    let files: Vec<_> = (0..200).map(|n| (format!("src/{n}.txt"), text.clone())).collect();
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let workspace = daemon.repository("w", &files);
    let mut run = daemon.run("open", &workspace).await;

    // In the agent, whose memory is no call's.
    let (read, recorded) = measured(&mut run, calls::read("src/1.txt")).await;
    assert!(read.cpu_time_us > 0 && read.bytes_out > 50_000, "{read:?}");
    assert_eq!((read.peak_memory_bytes, recorded.get("peak_memory_bytes")), (0, None));
    let (list, _) = measured(&mut run, calls::list("src")).await;
    assert!(list.cpu_time_us > 0, "{list:?}");
    let (grep, recorded) = measured(&mut run, calls::grep("@project", "no such text")).await;
    // Ten megabytes in two hundred files: more than one read, whichever threads searched them.
    assert!(grep.cpu_time_us > read.cpu_time_us, "{grep:?} {read:?}");
    assert!(recorded.get("peak_memory_bytes").is_none());

    // In processes of their own.
    for operation in [
        calls::write("new.txt", &text),
        calls::replace("src/2.txt", &text, "x"),
        calls::git_diff(&["--stat"]),
    ] {
        let (usage, recorded) = measured(&mut run, operation).await;
        assert!(usage.cpu_time_us > 0 && usage.peak_memory_bytes > 500_000, "{usage:?}");
        assert_eq!(recorded["peak_memory_bytes"], usage.peak_memory_bytes);
    }
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let (busy, _) = measured(&mut run, calls::shell(script)).await;
    assert!(busy.cpu_time_us > 5_000 && busy.peak_memory_bytes > 100_000, "{busy:?}");

    // One that failed has used something, one that was refused has not been made.
    let (missing, _) = measured(&mut run, calls::read("missing.txt")).await;
    assert!(missing.cpu_time_us > 0, "{missing:?}");
    run.call(calls::exec(&["sudo", "id"])).await.unwrap_err();
    let events = run.clients.events(run.run.run_id.clone().as_str(), "call_receipt").await;
    assert!(record(events.last().unwrap()).get("usage").is_none());
}
