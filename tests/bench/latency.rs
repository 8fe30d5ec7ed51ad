//! Single calls, one after the other: `read`, `list` and `exec`, each against the engine's own exec.

use std::process::Stdio;
use std::time::Instant;

use harness::calls;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use tokio::process::Command;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::args::Args;
use crate::contest::{self, Act, Contender, Parts, hold};
use crate::report::{Goal, Report};
use crate::stage::{ENTRIES, FILE_BYTES, INSIDE, Stage};

/// Times in each round, for what takes well under a millisecond and for what takes a few.
const QUICK: usize = 100;
const MIDDLING: usize = 10;

/// `read` of 4 KiB.
pub(crate) async fn read(stage: &Stage, args: &Args, report: &mut Report) {
    let parts = Parts::default();
    let contenders = vec![
        Contender::new("read", QUICK, call(stage, calls::read("file"), &parts).await),
        Contender::new("empty RPC", QUICK, empty(stage).await),
        Contender::new("docker exec cat, engine API", 1, exec(stage, ["cat", &inside("file")])),
        Contender::new("docker exec cat, command line", 1, command_line(stage, ["cat", &inside("file")])),
    ];
    let [read, empty, exec, _] = report.contest("read of 4 KiB", hold(contenders, args.rounds).await, &parts);
    report.goal(Goal::ratio_at_least("read is faster than docker exec cat", exec, read, 100.0));
    report.goal(Goal::ratio_at_most("read against an empty RPC", read, empty, 3.0));
}

/// `list` of 200 entries.
pub(crate) async fn list(stage: &Stage, args: &Args, report: &mut Report) {
    let parts = Parts::default();
    let contenders = vec![
        Contender::new("list", QUICK, call(stage, calls::list("many"), &parts).await),
        Contender::new("docker exec ls, engine API", 1, exec(stage, ["ls", &inside("many")])),
    ];
    let [_, _] = report.contest("list of 200 entries", hold(contenders, args.rounds).await, &parts);
}

/// `exec` of `true`.
pub(crate) async fn exec_true(stage: &Stage, args: &Args, report: &mut Report) {
    let parts = Parts::default();
    let contenders = vec![
        Contender::new("exec true", MIDDLING, call(stage, calls::exec(&["true"]), &parts).await),
        Contender::new("docker exec true, engine API", 1, exec(stage, ["true", ""])),
    ];
    let [exec, _] = report.contest("exec of true", hold(contenders, args.rounds).await, &parts);
    report.goal(Goal::millis_at_most("exec true, median", exec, 3.0));
}

fn inside(name: &str) -> String {
    format!("{INSIDE}/{name}")
}

/// A call on a connection of its own.
async fn call<'a>(stage: &'a Stage, operation: Operation, parts: &Parts) -> Act<'a> {
    let called = contest::call(stage, operation, parts, |answer| match answer {
        Answer::Read(read) => assert_eq!(read.content.len(), FILE_BYTES),
        Answer::List(list) => assert_eq!(list.entries.len(), ENTRIES),
        Answer::Exec(exec) => assert_eq!(exec.exit_code, Some(0)),
        other => panic!("{other:?}"),
    });
    called.await
}

/// A call of the same server that does nothing: is it well?
async fn empty<'a>(stage: &Stage) -> Act<'a> {
    let health = HealthClient::new(stage.connect().await);
    Box::new(move || {
        let mut health = health.clone();
        Box::pin(async move {
            let began = Instant::now();
            health.check(HealthCheckRequest::default()).await.unwrap();
            began.elapsed()
        })
    })
}

fn exec<'a>(stage: &'a Stage, argv: [&str; 2]) -> Act<'a> {
    let argv = argv.map(str::to_owned);
    Box::new(move || {
        let argv = argv.clone();
        Box::pin(async move {
            let argv: Vec<_> = argv.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
            let began = Instant::now();
            stage.exec(&argv).await;
            began.elapsed()
        })
    })
}

fn command_line<'a>(stage: &'a Stage, argv: [&str; 2]) -> Act<'a> {
    let argv = argv.map(str::to_owned);
    Box::new(move || {
        let mut command = Command::new("docker");
        command.args(["exec", stage.container()]).args(&argv).stdin(Stdio::null()).stdout(Stdio::null());
        Box::pin(async move {
            let began = Instant::now();
            assert!(command.status().await.unwrap().success());
            began.elapsed()
        })
    })
}
