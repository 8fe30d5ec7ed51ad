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

use harness::book::{self, Block, Page};
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

/// Expected output of one block.
struct Expected {
    page: &'static str,
    /// Word of the block's commands, by which the block is found.
    command: &'static str,
    /// Words that the output has.
    has: &'static [&'static str],
    /// Words that the output lacks.
    lacks: &'static [&'static str],
}

const EXPECTED: [Expected; 1] = [Expected {
    page: "start.md",
    command: "grpcurl ",
    has: &["cofferdam.v1.ToolService", "SUCCEEDED", "\"exec\"", "call_receipt"],
    lacks: &["FAILED", "DENIED"],
}];

/// Returns the place of a block, which the trace has before the block's commands.
fn place(page: &Page, block: &Block) -> String {
    format!("docs/src/{}:{}", page.name, block.line)
}

/// Returns the commands of a page with the place of each block, or nothing if the page has none.
fn script(page: &Page) -> Option<String> {
    let blocks = page.blocks();
    let mut script = String::new();
    for block in blocks.iter().filter(|block| block.info == RUN) {
        writeln!(script, ": {}\n{}", place(page, block), page.shown(block)).unwrap();
    }
    (!script.is_empty()).then_some(script)
}

/// Returns the output of a block, without the commands.
fn output_of(page: &Page, block: &Block, trace: &str) -> String {
    let begin = format!("+ : {}", place(page, block));
    let lines = trace.lines().skip_while(|line| *line != begin).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("+ : docs/src/"));
    lines.filter(|line| !line.starts_with('+')).collect::<Vec<_>>().join("\n")
}

/// Returns the difference between a page's output and the expected one, if there is one.
fn difference(page: &Page, expected: &Expected, trace: &str) -> Option<String> {
    let blocks = page.blocks();
    let block = blocks.iter().find(|block| block.info == RUN && block.content.contains(expected.command));
    let Some(block) = block else { return Some(format!("no block has `{}`", expected.command)) };
    let output = output_of(page, block, trace);
    let missing = expected.has.iter().find(|word| !output.contains(**word));
    let surplus = expected.lacks.iter().find(|word| output.contains(**word));
    let report = |is: &str, word: &str| format!("{}: `{word}` {is}:\n{output}", place(page, block));
    missing.map(|word| report("is missing", word)).or_else(|| surplus.map(|word| report("is there", word)))
}

/// Runs commands against a new daemon, and returns the trace with the output, as an error if a command fails.
async fn run(script: &str) -> Result<String, String> {
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
        Ok(status) if status.as_ref().unwrap().success() => Ok(trace()),
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
            let trace = run(&script).await.map_err(|report| format!("docs/src/{}: {report}", page.name))?;
            let mut expected = EXPECTED.iter().filter(|expected| expected.page == page.name);
            expected.find_map(|expected| difference(&page, expected, &trace)).map_or(Ok(()), Err)
        });
    }
    assert!(!tasks.is_empty(), "no page has a block of the kind `{RUN}`");
    for expected in &EXPECTED {
        assert!(book::pages().iter().any(|page| page.name == expected.page), "{} is no page", expected.page);
    }
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

#[test]
fn an_output_other_than_the_expected_one_is_reported() {
    let text = "```sh test\necho one\n```\n```sh test\necho two; echo FAILED\n```\n";
    let page = Page { name: "a.md".into(), text: text.into() };
    let trace =
        "+ : docs/src/a.md:1\n+ echo one\none\n+ : docs/src/a.md:4\n+ echo two\ntwo\n+ echo FAILED\nFAILED\n";
    let reported =
        |command, has, lacks| difference(&page, &Expected { page: "a.md", command, has, lacks }, trace);
    assert_eq!(reported("one", &["one"], &["two", "echo", "FAILED"]), None);
    assert_eq!(reported("two", &["two", "FAILED"], &["one"]), None);
    let missing = reported("one", &["one", "two"], &[]).unwrap();
    assert_eq!(missing, "docs/src/a.md:1: `two` is missing:\none");
    let surplus = reported("two", &["two"], &["FAILED"]).unwrap();
    assert_eq!(surplus, "docs/src/a.md:4: `FAILED` is there:\ntwo\nFAILED");
    assert_eq!(reported("three", &[], &[]).unwrap(), "no block has `three`");
}
