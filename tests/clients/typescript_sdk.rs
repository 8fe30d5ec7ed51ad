//! The TypeScript SDK's own tests, as Node.js runs them, against a real daemon.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use harness::{Daemon, binary, dev_image};

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/typescript");

/// Before the test runner ends this test.
const PATIENCE: Duration = Duration::from_secs(280);

/// `COFFERDAM_NODE`, or the one that `tests/run.sh` installs.
pub(crate) fn node() -> PathBuf {
    let usual = || concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/conformance/bin/node").into();
    let node = std::env::var_os("COFFERDAM_NODE").map_or_else(usual, PathBuf::from);
    assert!(node.exists(), "Node.js is not installed: tests/run.sh does it, or set COFFERDAM_NODE");
    node
}

/// The oldest that the SDK promises: `COFFERDAM_NODE20`, or the one that `tests/run.sh` installs.
fn oldest_node() -> PathBuf {
    let usual = || concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/node20/bin/node").into();
    let node = std::env::var_os("COFFERDAM_NODE20").map_or_else(usual, PathBuf::from);
    assert!(node.exists(), "Node.js 20 is not installed: tests/run.sh does it, or set COFFERDAM_NODE20");
    node
}

/// Compiles the package and its tests as the owner of the sources, unless they are compiled already: while other tests run
/// what was compiled, nothing may be written. The lock keeps those that come later waiting.
fn compile() {
    let compiler = Path::new(SDK).join("node_modules/typescript/bin/tsc");
    assert!(
        compiler.exists(),
        "the tools of the TypeScript SDK are not installed: tests/run.sh does it, or npm ci in clients/typescript"
    );
    let config = File::open(Path::new(SDK).join("tsconfig.json")).unwrap();
    config.lock().unwrap();
    let stamp = Path::new(SDK).join("dist/compiled");
    let written = ["src", "tests"].into_iter().map(|part| newest(&Path::new(SDK).join(part))).max().unwrap();
    if changed(&stamp).is_some_and(|made| made > written) {
        return;
    }
    let owner = config.metadata().unwrap();
    let output = Command::new(node())
        .arg(compiler)
        .current_dir(SDK)
        .gid(owner.gid())
        .uid(owner.uid())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    std::fs::write(stamp, "").unwrap();
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// When a directory, or anything in it, was changed last.
fn newest(directory: &Path) -> SystemTime {
    let within = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let within = within.map(|path| if path.is_dir() { newest(&path) } else { changed(&path).unwrap() });
    within.chain(changed(directory)).max().unwrap()
}

/// The tests of one file.
async fn pass(file: &str) {
    pass_with(&node(), file).await;
}

/// The tests of one file, by this Node.js.
async fn pass_with(node: &Path, file: &str) {
    let image = tokio::task::spawn_blocking(dev_image).await.unwrap();
    let daemon = Daemon::start().await;
    let mut suite = suite(node, file).await;
    suite
        .env("COFFERDAM_TEST_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .env("COFFERDAM_TEST_ROOTS", daemon.roots())
        .env("COFFERDAM_TEST_IMAGE", image);
    assert!(passes(suite).await > 1);
}

/// Compiles the tests. Returns the command that runs those of one file; its environment has to name a daemon.
pub(crate) async fn suite(node: &Path, file: &str) -> tokio::process::Command {
    tokio::task::spawn_blocking(compile).await.unwrap();
    let mut suite = tokio::process::Command::new(node);
    suite
        // Without `--test` it is one process, which can be ended.
        .args(["--test-reporter=tap", &format!("dist/tests/{file}.test.js")])
        .current_dir(SDK)
        .env("COFFERDAM_TEST_COFFERD", binary("cofferd"))
        .kill_on_drop(true);
    suite
}

/// Runs tests, which must all pass; their number.
pub(crate) async fn passes(mut suite: tokio::process::Command) -> usize {
    let output = tokio::time::timeout(PATIENCE, suite.output()).await.expect("they do not end").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("\n# skipped 0\n"), "{said}");
    let passed = said.lines().find_map(|line| line.strip_prefix("# pass ")).expect("it counts the tests");
    passed.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_sdk_works_with_the_oldest_supported_node() {
    let version = Command::new(oldest_node()).arg("--version").output().unwrap().stdout;
    assert!(version.starts_with(b"v20."), "{}", String::from_utf8_lossy(&version));
    pass_with(&oldest_node(), "scenarios").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_streams_and_endpoints_work_with_the_oldest_node_js() {
    for file in ["transfers", "streams", "endpoints"] {
        pass_with(&oldest_node(), file).await;
    }
}

suites! {
    the_scenarios_of_all_sdks_hold: "scenarios",
    lost_connections_and_daemons_lose_nothing_and_repeat_nothing: "connections",
    commands_in_the_background_outlive_connections_clients_and_daemons: "processes",
    files_and_directories_of_any_size_outlive_connections_and_daemons: "transfers",
    forks_are_compared_kept_or_accepted_and_the_others_end: "forks",
    companions_are_reached_by_their_names_and_their_logs_are_read: "companions",
    a_false_archive_from_a_run_leads_nowhere: "archive",
    servers_in_a_sandbox_have_a_local_address: "forward",
    sessions_and_leases_outlive_connections_and_daemons: "sessions",
    changes_of_files_are_seen_and_streams_of_requests_are_sent: "streams",
    typescript_sdk_connects_over_tls_by_certificate_or_token: "endpoints",
    stock_clients_of_node_js_connect_by_the_socket_and_over_tcp: "stock",
    the_claude_agent_sdk_finds_its_process_in_a_sandbox: "claude",
    bad_tokens_broken_callbacks_and_aborted_calls_do_no_harm: "hostile",
    the_ai_sdk_calls_its_tools_in_whole_runs: "ai",
    the_examples_of_its_readme_work_as_they_stand: "readme",
    methods_are_repeated_as_the_api_says: "methods",
    a_trace_is_sent_if_a_span_is_active_or_given: "traces",
    a_lost_answer_is_told_from_a_refusal: "lost",
    each_request_names_the_node_of_its_ids: "nodes",
    a_fleet_is_asked_side_by_side_and_never_makes_a_run_twice: "fleet",
}

#[test]
fn no_file_of_tests_is_left_out() {
    let files = std::fs::read_dir(format!("{SDK}/tests")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let tests: BTreeSet<_> = files.filter(|file| file.ends_with(".test.ts")).collect();
    let known: BTreeSet<_> = SUITES.iter().map(|name| format!("{name}.test.ts")).collect();
    assert_eq!(tests, known);
}
