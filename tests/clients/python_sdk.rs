//! The Python SDK's own tests, as pytest runs them, against a real daemon.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Daemon, binary, dev_image};
use tokio::process::Command;

use crate::tool_lists::python;

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/python");

/// Before the test runner ends this test.
const PATIENCE: Duration = Duration::from_secs(280);

/// Options of pytest for the two halves of the scenarios. Together they choose every test.
pub(crate) const BLOCKING: [&str; 2] = ["-k", "not async"];
pub(crate) const ASYNCHRONOUS: [&str; 2] = ["-k", "async"];

/// One with the gRPC of two years ago: `COFFERDAM_FORMER_PYTHON`, or where `tests/run.sh` installs it.
pub(crate) fn former_python() -> PathBuf {
    let installed = || concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/former/bin/python").into();
    let python = std::env::var_os("COFFERDAM_FORMER_PYTHON").map_or_else(installed, PathBuf::from);
    assert!(
        python.exists(),
        "gRPC of two years ago is not installed: tests/run.sh does it, or set COFFERDAM_FORMER_PYTHON"
    );
    python
}

/// The tests of one file.
async fn pass(file: &str) {
    pass_with(&python(), file, &[]).await;
}

/// The tests of one file, or those that options of pytest choose.
async fn pass_with(python: &Path, file: &str, options: &[&str]) {
    let image = tokio::task::spawn_blocking(dev_image).await.unwrap();
    let daemon = Daemon::start().await;
    let mut suite = suite(python, file, options);
    suite
        .env("COFFERDAM_TEST_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .env("COFFERDAM_TEST_ROOTS", daemon.roots())
        .env("COFFERDAM_TEST_IMAGE", image);
    assert!(passes(suite).await > 0);
}

/// Returns the command that runs these tests. Its environment has to name a daemon.
pub(crate) fn suite(python: &Path, file: &str, options: &[&str]) -> Command {
    let mut suite = Command::new(python);
    suite
        .args(["-m", "pytest", "-p", "no:cacheprovider", &format!("tests/test_{file}.py")])
        .args(options)
        .current_dir(SDK)
        .env("COFFERDAM_TEST_COFFERD", binary("cofferd"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .kill_on_drop(true);
    suite
}

/// Runs tests, which must all pass; their number.
pub(crate) async fn passes(mut suite: Command) -> usize {
    let output = tokio::time::timeout(PATIENCE, suite.output()).await.expect("they do not end").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let (before, _) = said.rsplit_once(" passed").unwrap_or_else(|| panic!("{said}"));
    let passed = before.split_whitespace().next_back();
    passed.and_then(|passed| passed.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scenarios_of_all_sdks_hold_blocking() {
    pass_with(&python(), "scenarios", &BLOCKING).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scenarios_of_all_sdks_hold_asynchronous() {
    pass_with(&python(), "scenarios", &ASYNCHRONOUS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_works_with_grpc_of_two_years_ago() {
    pass_with(&former_python(), "errors", &[]).await;
    pass_with(&former_python(), "connections", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scenarios_hold_with_grpc_of_two_years_ago_blocking() {
    pass_with(&former_python(), "scenarios", &BLOCKING).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scenarios_hold_with_grpc_of_two_years_ago_asynchronous() {
    pass_with(&former_python(), "scenarios", &ASYNCHRONOUS).await;
}

suites! {
    each_status_becomes_its_error: "errors",
    lost_connections_and_daemons_lose_nothing_and_repeat_nothing: "connections",
    commands_in_the_background_outlive_connections_clients_and_daemons: "processes",
    files_of_any_size_go_both_ways_over_connections_and_daemons_that_are_lost: "transfers",
    no_directory_that_is_copied_leads_out_of_itself: "archives",
    bases_of_samples_are_made_once_and_shared: "bases",
    forks_are_compared_kept_or_accepted_and_the_others_end: "forks",
    companions_are_reached_by_their_names_and_their_logs_are_read: "companions",
    compose_files_of_tasks_are_read_or_refused_by_their_lines: "compose",
    sessions_outlive_daemons_watches_end_and_leases_are_kept: "sessions",
    servers_in_a_sandbox_have_a_local_address: "forward",
    python_sdk_connects_over_tls_by_certificate_or_token: "endpoints",
    bad_tokens_broken_callbacks_and_cancelled_calls_do_no_harm: "hostile",
    an_interrupt_ends_the_wait_of_a_caller_and_its_run_ends_later: "interrupts",
    the_integrations_work_as_far_as_no_framework_is_needed: "integrations",
    a_model_repairs_a_hundred_rollouts_run_and_bots_approve_and_review: "examples",
    both_sdks_have_the_same_methods_arguments_results_and_errors: "parity",
    the_examples_of_its_readme_work_as_they_stand: "readme",
    methods_are_repeated_as_the_api_says: "methods",
    a_trace_is_sent_if_a_span_is_active_or_given: "traces",
    each_request_names_the_node_of_its_ids: "nodes",
    a_fleet_is_asked_side_by_side_and_never_makes_a_run_twice: "fleet",
}

#[test]
fn no_file_of_tests_is_left_out() {
    let files = std::fs::read_dir(format!("{SDK}/tests")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let tests: BTreeSet<_> = files.filter(|file| file.starts_with("test_")).collect();
    let known = SUITES.iter().chain(&["scenarios"]);
    let known: BTreeSet<_> = known.map(|name| format!("test_{name}.py")).collect();
    assert_eq!(tests, known);
}
