//! C5: two runs beside each other.

use std::collections::BTreeSet;

use harness::v1;
use harness::v1::operation::Kind as Operation;
use libc::{ECONNREFUSED, ENOENT};

use crate::inside::{Inside, exec, lenient, outcomes, read};

harness::tests! {
    c5_runs_see_nothing_of_each_other: Box::pin(see_nothing_of_each_other("open", "open")),
    c5_runs_with_a_writable_root_see_nothing_of_each_other: Box::pin(see_nothing_of_each_other("harness", "harness")),
    c5_runs_of_other_profiles_see_nothing_of_each_other: Box::pin(see_nothing_of_each_other("open", "harness")),
}

async fn see_nothing_of_each_other(one: &str, other: &str) {
    let daemon = lenient().await;
    let of = |profile: &str| v1::CreateRunRequest { profile: profile.to_owned(), ..Default::default() };
    let mut one = Box::pin(Inside::enter_with(&daemon, "one", of(one))).await;
    let mut other = Box::pin(Inside::enter_with(&daemon, "other", of(other))).await;
    let marker = "the-marker-of-run-one";

    let mut ready = one.gate("ready");
    let mut listening = one.again(&daemon).await;
    let listener = tokio::spawn(async move {
        let request = exec(&["listen-abstract", "the-marker-of-run-one", "/workspace/ready"]);
        listening.run.call(Operation::Exec(request)).await
    });
    ready.passed().await;
    for place in ["/workspace", "/state", "/tmp"] {
        let made = one.probe(&["file", &format!("{place}/{marker}"), "1"]).await;
        assert_eq!(made, ["file ok", "size 1"]);
    }
    // It is there to be found.
    let found = one.probe(&["find", marker]).await;
    for place in ["/workspace", "/state", "/tmp"] {
        assert!(found.contains(&format!("{place}/{marker}")), "{found:?}");
    }

    assert_eq!(other.probe(&["find", marker]).await, Vec::<String>::new());
    let its_own = ["/.cofferdam/guest hold", "/.cofferdam/guest serve", "/workspace/probe processes"];
    assert_eq!(processes(&mut other).await, its_own);
    let reached = other.probe(&["connect", &format!("abstract:{marker}")]).await;
    assert_eq!(outcomes(&reached)[0].1, ECONNREFUSED);
    let host_path = one.workspace.join(marker).display().to_string();
    assert_eq!(other.probe(&["read", &host_path]).await, [format!("{host_path} {ENOENT}")]);
    assert_eq!(read(&mut other.run, "the-marker-of-run-one").await, Err("NOT_FOUND".to_owned()));
    assert_eq!(read(&mut other.run, &host_path).await, Err(other.profile().nowhere.to_owned()));

    one.run.stop().await;
    let _ = listener.await.unwrap();
    assert_eq!(processes(&mut other).await, its_own, "the other run goes on");
}

/// Command lines of what a run sees, each once: a copy of the agent may wait for the next command.
async fn processes(inside: &mut Inside) -> Vec<String> {
    let lines = inside.probe(&["processes"]).await;
    let lines: BTreeSet<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    lines.into_iter().map(ToOwned::to_owned).collect()
}
