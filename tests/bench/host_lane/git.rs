//! `status` and `diff` of a large repository, against the git command in the same directory as the same user.
//!
//! The command gets what makes it quick by default (an index that it has refreshed itself, two threads), and none of the
//! caches that have to be turned on.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::v1::{CancelCallRequest, GitStatus, git_request};
use harness::{calls, git};
use tokio::process::Command;

use crate::args::Args;
use crate::contest::{self, Act, Contender, Parts, hold};
use crate::report::{Goal, Report};
use crate::stage::Stage;

/// Files of the repository.
const FILES: usize = 50_000;
/// Files in a directory.
const WIDTH: usize = 50;
/// Files that differ from the index.
const CHANGED: usize = 20;
/// Whose workspace it is; the harness gives it to this user.
const OWNER: u32 = 4321;
/// Times in each round.
const TURNS: usize = 1;

pub(crate) async fn run(args: &Args, report: &mut Report) {
    let stage = Stage::set_with(|place| {
        fill(place);
        git(place, &["init", "-q", "-b", "main"]);
        git(place, &["add", "-A"]);
        git(place, &["commit", "-q", "-m", "first"]);
    })
    .await;
    // The command runs as the owner, who has to get there.
    stage.daemon.expose();
    // The owner has changed since: let both find an index that is fresh.
    assert!(command(&stage, STATUS).status().await.unwrap().success());
    compare(&stage, args, report, "git status, 50,000 files, clean", status(), STATUS).await;
    for number in 0..CHANGED {
        let file = stage.workspace().join(path(number * FILES / CHANGED));
        fs::write(file, format!("changed {number}\n")).unwrap();
        fs::write(stage.workspace().join(format!("new-{number}")), "new\n").unwrap();
    }
    let title = format!("git status, 50,000 files, {CHANGED} changed and {CHANGED} new");
    compare(&stage, args, report, &title, status(), STATUS).await;
    let title = format!("git diff, 50,000 files, {CHANGED} changed");
    compare(&stage, args, report, &title, calls::git_diff(&[]), DIFF).await;
    consent(&stage, args, report).await;
}

/// What it takes until somebody is asked for consent to a command: nearly all of it is the look at all files, to which the
/// consent is bound.
async fn consent(stage: &Stage, args: &Args, report: &mut Report) {
    const TITLE: &str = "consent to a command, 50,000 files";
    let tools = stage.tools().await;
    let asks = || -> Act<'_> {
        Box::new(|| {
            let (mut tools, mut run) = (tools.clone(), stage.run.clone());
            // The one that asks under `open`.
            let request = stage.call(calls::exec(&["find", "no-such-directory", "-delete"]));
            Box::pin(async move {
                let began = Instant::now();
                let asked = tools.call(request).await.unwrap().into_inner();
                let took = began.elapsed();
                assert_eq!(asked.status(), Status::PendingApproval, "{:?}", asked.error);
                let cancel = CancelCallRequest { call_id: asked.call_id.clone() };
                tools.cancel_call(cancel).await.unwrap();
                while run.get(&asked.call_id).await.status() == Status::PendingApproval {}
                took
            })
        })
    };
    let contenders = vec![
        Contender::new("until somebody is asked", TURNS, asks()),
        Contender::new("git status by the git command", TURNS, command_line(stage, STATUS)),
    ];
    let [ours, command] = report.contest(TITLE, hold(contenders, args.rounds).await, &Parts::default());
    report.goal(Goal::ratio_at_most(format!("{TITLE}, against git status"), ours, command, 1.5));
}

const STATUS: &[&str] = &["status", "--porcelain=v1", "--branch"];
const DIFF: &[&str] = &["diff", "--no-color"];

async fn compare(
    stage: &Stage,
    args: &Args,
    report: &mut Report,
    title: &str,
    ours: Operation,
    theirs: &'static [&'static str],
) {
    same_answer(stage, &ours, theirs).await;
    let parts = Parts::default();
    let contenders = vec![
        Contender::new("through the API", TURNS, contest::call(stage, ours, &parts, |_| {}).await),
        Contender::new("the git command", TURNS, command_line(stage, theirs)),
    ];
    let [api, command] = report.contest(title, hold(contenders, args.rounds).await, &parts);
    if theirs == STATUS {
        report.goal(Goal::ratio_at_most(format!("{title}, against git"), api, command, 2.5));
    }
}

fn status() -> Operation {
    calls::git(git_request::Command::Status(GitStatus {}))
}

/// The file of this number.
fn path(number: usize) -> String {
    let directory = number / WIDTH;
    format!("area-{}/module-{directory}/file-{number}.txt", directory / WIDTH)
}

fn fill(place: &Path) {
    for number in 0..FILES {
        let file = place.join(path(number));
        if number % WIDTH == 0 {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        fs::write(file, format!("the file of number {number}\n")).unwrap();
    }
}

/// The git command as the owner, as a person would use it.
fn command(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(stage.workspace())
        .args(["-c", "safe.directory=*"])
        .args(arguments)
        .env("HOME", "/nonexistent")
        .uid(OWNER)
        .gid(OWNER)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn command_line<'a>(stage: &'a Stage, arguments: &'static [&'static str]) -> Act<'a> {
    Box::new(move || {
        let mut command = command(stage, arguments);
        Box::pin(async move {
            let began = Instant::now();
            assert!(command.status().await.unwrap().success());
            began.elapsed()
        })
    })
}

/// Both must say the same, but for how long the ids of objects are.
async fn same_answer(stage: &Stage, operation: &Operation, arguments: &[&str]) {
    let Answer::Git(ours) = crate::stage::succeeded(
        stage.tools().await.call(stage.call(operation.clone())).await.unwrap().into_inner(),
    ) else {
        panic!("no answer of git")
    };
    let theirs = command(stage, arguments).stdout(Stdio::piped()).output().await.unwrap();
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    let [ours, theirs] = [&ours.output, &theirs]
        .map(|text| text.lines().filter(|line| !line.starts_with("index ")).collect::<Vec<_>>());
    assert_eq!(ours, theirs);
}
