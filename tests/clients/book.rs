//! The book's blocks of commands, run as they stand. Only the socket and names of this host are others.
//!
//! A page's blocks with the info string `sh test` are one script, in an empty directory beneath the workspace root of a private
//! daemon. `coffer`, `cofferd` and `grpcurl` are in `PATH`. A block of another kind does not run; `tests/spec/blocks.rs` lists
//! the kinds.

use std::fmt::Write as _;
use std::fs::File;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use harness::book::{self, Page};
use harness::{Daemon, binary, dev_image};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Info string of the blocks that run.
const RUN: &str = "sh test";
/// Names that a page uses, which are others for the tests.
const SOCKET: &str = "/run/cofferdam/cofferd.sock";
const ROOT: &str = "/srv/workspaces";
const IMAGE: &str = "cofferdam/dev";
/// Time that the blocks of one page have.
const PATIENCE: Duration = Duration::from_secs(120);
/// Daemons at once.
const AT_ONCE: usize = 3;
/// Sends the trace of the commands to the output, also while a command has its streams redirected.
const TRACE: &str = "exec 9>&2; BASH_XTRACEFD=9; set -x";

/// Returns the commands of a page with the place of each block, or nothing if the page has none.
fn script(page: &Page) -> Option<String> {
    let blocks = page.blocks();
    let mut script = String::new();
    for block in blocks.iter().filter(|block| block.info == RUN) {
        writeln!(script, ": docs/src/{}:{}\n{}", page.name, block.line, page.shown(block)).unwrap();
    }
    (!script.is_empty()).then_some(script)
}

/// Runs commands against a new daemon, and returns the trace with the output if one fails.
async fn run(script: &str) -> Result<(), String> {
    let daemon = Daemon::start().await;
    let place = daemon.roots().join("book");
    std::fs::create_dir(&place).unwrap();
    let mut script = script
        .replace(SOCKET, &daemon.socket().display().to_string())
        .replace(ROOT, &daemon.roots().display().to_string());
    if script.contains(IMAGE) {
        let image = tokio::task::spawn_blocking(dev_image).await.unwrap();
        script = script.replace(IMAGE, &image);
    }
    let tools = [super::grpcurl::binary(), binary("coffer")];
    let tools: Vec<_> = tools.iter().map(|tool| tool.parent().unwrap().display().to_string()).collect();
    let path = format!("{}:{}", tools.join(":"), std::env::var("PATH").unwrap());
    let log = daemon.outside().join("book.log");
    let output = File::create(&log).unwrap();
    let mut command = tokio::process::Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", &format!("{TRACE}\n{script}")])
        .current_dir(&place)
        .env("PATH", path)
        .env("HOME", &place)
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .env_remove("COFFERDAM_TOKEN")
        .env_remove("COFFERDAM_TLS")
        .env_remove("COFFERDAM_RUN")
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "Reader")))
        .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "reader@example.org")))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).unwrap();
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    // Commands in the background have no end of their own.
    let _ = kill_process_group(group, Signal::KILL);
    let trace = || String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
    match ended {
        Ok(status) if status.as_ref().unwrap().success() => Ok(()),
        Ok(status) => Err(format!("{}\n{}", status.unwrap(), trace())),
        Err(_) => Err(format!("the last command does not end\n{}", trace())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_every_page_work_as_they_stand() {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for page in book::pages() {
        let Some(script) = script(&page) else { continue };
        let slots = Arc::clone(&slots);
        tasks.spawn(async move {
            let _slot = slots.acquire().await.unwrap();
            run(&script).await.map_err(|report| format!("docs/src/{}: {report}", page.name))
        });
    }
    assert!(!tasks.is_empty(), "no page has a block of the kind `{RUN}`");
    let failed: Vec<_> = tasks.join_all().await.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_command_is_reported_with_page_block_and_output() {
    let text = "```sh test\na=1\n```\n```sh host\nexit 7\n```\n```sh test\n( echo said; exit $((a + 2)) ) | cat\n```\n";
    let page = Page { name: "a.md".into(), text: text.into() };
    let report = run(&script(&page).unwrap()).await.unwrap_err();
    for part in ["exit status: 3", "docs/src/a.md:1", "docs/src/a.md:7", "said"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let page = Page { name: "b.md".into(), text: "```sh host\nexit 7\n```\n".into() };
    assert!(script(&page).is_none());
}
