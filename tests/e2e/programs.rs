//! Programs that people develop with, started in a run as their users start them. `images/programs/start.sh` has the list.

use harness::v1::{self, CreateRunRequest};
use harness::{Daemon, calls, programs_image, requests};

/// With `tests/run.sh --long`: its image is large.
#[tokio::test(flavor = "multi_thread")]
async fn real_programs_start_in_a_run() {
    let daemon = Daemon::start().await;
    let request = CreateRunRequest { image: programs_image(), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;
    let v1::operation::Kind::Exec(all) = calls::exec(&["start-programs"]) else { unreachable!() };
    let all = v1::ExecRequest { timeout_ms: Some(3_600_000), ..all };
    let response = run.call(v1::operation::Kind::Exec(all)).await.unwrap();
    let Some(v1::result::Kind::Exec(result)) = response.into_kind() else { panic!("not a command's result") };
    let failed: Vec<&str> = result.stdout.lines().filter(|line| !line.ends_with(" ok")).collect();
    assert_eq!((failed, result.stdout.lines().count()), (vec![], 12), "{result:?}");

    // On a read-only root, for which it is: tests, and the servers that they need.
    let request = CreateRunRequest { image: programs_image(), ..requests::managed("open") };
    let mut run = daemon.run_on(request).await;
    let argv = [
        "start-programs",
        "postgresql",
        "redis",
        "pytest_xdist",
        "multiprocessing",
        "java_main",
        "go_test",
        "cargo_test",
    ];
    let v1::operation::Kind::Exec(tests) = calls::exec(&argv) else { unreachable!() };
    let tests = v1::ExecRequest { timeout_ms: Some(120_000), ..tests };
    let response = run.call(v1::operation::Kind::Exec(tests)).await.unwrap();
    let Some(v1::result::Kind::Exec(result)) = response.into_kind() else { panic!("not a command's result") };
    let failed: Vec<&str> = result.stdout.lines().filter(|line| !line.ends_with(" ok")).collect();
    assert_eq!((failed, result.stdout.lines().count()), (vec![], argv.len() - 1), "{result:?}");
}
