//! The benchmark of both lanes: calls through the API against the same work by a fresh exec of the engine, `grep` against
//! ripgrep, `git` against the git command, interleaved, so that whatever else the machine does falls on both.
//!
//! It starts a real `cofferd` on the real engine and cleans up behind itself. See `README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up or does not answer ends it

mod agent;
mod args;
mod audit;
mod balanced;
mod companions;
mod contest;
mod egress;
mod engine;
mod forks;
mod host;
mod host_lane;
mod latency;
mod load;
mod observed;
mod program;
mod report;
mod runs;
mod sample;
mod search;
mod stage;
mod table;
mod tree;
mod usage;
mod verdict;
mod workplace;

use std::process::ExitCode;

use crate::args::{Args, Lane};
use crate::host::Host;
use crate::report::Report;
use crate::stage::Stage;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    if args.has(Lane::Runs) {
        return runs::run(&args).await;
    }
    if args.has(Lane::Egress) {
        return egress::run(&args).await;
    }
    if args.has(Lane::Opened) {
        return egress::opened::run(&args).await;
    }
    if args.has(Lane::Companions) {
        return Box::pin(companions::run(&args)).await;
    }
    if args.has(Lane::Forks) {
        return Box::pin(forks::run(&args)).await;
    }
    if args.has(Lane::Observed) {
        return Box::pin(observed::run(&args)).await;
    }
    if args.has(Lane::Balanced) {
        return Box::pin(balanced::run(&args)).await;
    }
    let mut report = Report::new(Host::look());
    if args.has(Lane::Container) {
        container_lane(&args, &mut report).await;
    }
    if args.has(Lane::Host) {
        host_lane::run(&args, &mut report).await;
    }
    if args.has(Lane::Writes) {
        host_lane::writes(&args, &mut report).await;
    }
    if args.has(Lane::Sessions) {
        workplace::sessions(&args, &mut report).await;
    }
    if args.has(Lane::Files) {
        workplace::files(&args, &mut report).await;
    }
    if args.has(Lane::Audit) {
        audit::run(&mut report).await;
    }
    report.finish(Host::look());
    print!("{report}");
    if let Some(path) = &args.json {
        verdict::write(path, &report.json());
    }
    if args.check && !report.met() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn container_lane(args: &Args, report: &mut Report) {
    let stage = Stage::set(args).await;
    report.tree(&stage.tree);
    let first = agent::look(&stage);
    report.footprint(first, "before any work");
    latency::read(&stage, args, report).await;
    latency::list(&stage, args, report).await;
    latency::exec_true(&stage, args, report).await;
    search::run(&stage, args, report).await;
    load::run(&stage, args, report).await;
    report.footprint(agent::idle(&stage, first).await, "idle after all of it");
}
