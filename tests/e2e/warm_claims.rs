//! H: what a run brings to the container that waited for it.

use std::collections::BTreeMap;

use harness::v1::run::StartKind;
use harness::v1::{self, CallResponse, CreateRunRequest};
use harness::{calls, inspect, pid_of, requests, until};

use crate::warm::pooled;

fn map(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h12_a_warm_run_has_its_variables_and_no_other_run_has_them() {
    let daemon = pooled("[{ profile: open, min: 1, max: 2 }]").await;
    daemon.pool_is_full(1).await;
    let env = map(&[("MODE", "a b=c\nd")]);
    let secret_env = map(&[("KEY", "open sesame")]);
    let with = CreateRunRequest { env, secret_env, ..requests::managed("open") };
    let mut run = daemon.run_on(with).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm, "{}", daemon.log());
    let show = r#"printf '%s\n' "$MODE" "$KEY""#;
    // More than the processes that waited.
    for _ in 0..3 {
        assert_eq!(run.exec(&["sh", "-c", show]).await.stdout, "a b=c\nd\nopen sesame\n");
    }
    assert_eq!(run.ran(calls::shell(show)).await.stdout, "a b=c\nd\nopen sesame\n");
    let shown = run.show().await;
    assert_eq!((shown.env, shown.secret_env), (map(&[("MODE", "a b=c\nd")]), vec!["KEY".to_owned()]));
    // A lost guest is replaced by one that has them.
    let guest = pid_of(&run.run.container_id, "/.cofferdam/guest serve").unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(guest).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("the next guest does not serve", async || {
        let answer = run.call(calls::exec(&["sh", "-c", show])).await;
        let kind = answer.ok().and_then(CallResponse::into_kind);
        matches!(kind, Some(v1::result::Kind::Exec(ran)) if ran.stdout == "a b=c\nd\nopen sesame\n")
    })
    .await;
    run.stop().await;

    daemon.pool_is_full(2).await;
    let mut other = daemon.run_on(requests::managed("open")).await;
    assert_eq!(other.run.start_kind(), StartKind::Warm);
    let seen = other
        .ran(calls::shell("env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"));
    let seen = seen.await.stdout;
    assert!(!seen.contains("sesame") && !seen.contains("MODE="), "{seen}");
    // No value is in the log or in what the engine knows.
    let told = format!("{}{}", daemon.log(), inspect(&other.run.container_id));
    assert!(!told.contains("sesame"), "a secret value is told");
    other.stop().await;
}
