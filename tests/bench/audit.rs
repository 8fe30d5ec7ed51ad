//! Measures the audit log: the writer's throughput, its share of a call's time, and queries of a long log.

use std::path::Path;
use std::time::{Duration, Instant};

use ::audit::{Decision, Event, Kind, Outcome, Status, Usage, Verdict, Writer};
use harness::v1::{EventFilter, QueryEventsRequest, RebuildIndexRequest};
use harness::{Clients, Daemon, calls, requests};
use serde_json::json;

use crate::report::{Goal, Report};
use crate::sample::Sample;

/// Records of the log that is searched.
const RECORDS: u64 = 1_000_000;
/// Records that the writer's rate is taken from.
const WRITTEN: u64 = 200_000;
/// Events of one group commit, as the daemon's writer takes them.
const BATCH: usize = 512;
/// Runs in the log.
const RUNS: u64 = 2_000;
/// Queries of each kind.
const QUERIES: u64 = 300;
/// Reads.
const READS: usize = 3_000;

pub(crate) async fn run(report: &mut Report) {
    written(report);
    read(report).await;
    long(report).await;
}

/// The two records of a call that reads, alternately.
fn event(number: u64) -> Event {
    let call = number / 2;
    let event = Event::new(if number.is_multiple_of(2) { Kind::CallIntent } else { Kind::CallReceipt })
        .run(run_id(call % RUNS))
        .call(format!("0198a1b2-0000-7000-9000-{call:012x}"))
        .principal("uid:1000")
        .agent(format!("agent-{}", call % 20))
        .role("worker")
        .operation(["read", "list", "grep", "write", "exec"][usize::try_from(call % 5).unwrap()]);
    if number.is_multiple_of(2) {
        let decision = Decision::new(Verdict::Allow)
            .rule("profile.build.operations.read")
            .reason("the profile lets it run by itself")
            .policy_digest("5f4dcc3b5aa765d61d8327deb882cf995f4dcc3b5aa765d61d8327deb882cf99");
        let input =
            json!({ "path": format!("src/module_{}/file.rs", call % 997), "startLine": 1, "endLine": 200 });
        return event.input(input).decision(decision).details(json!({ "risk": "low" }));
    }
    let outcome = match call % 10 {
        0 => Outcome::new(Status::Failed).reason("NOT_FOUND").message("there is no such file"),
        1 => Outcome::new(Status::Denied).reason("COMMAND_NOT_ALLOWED").message("a rule denies it"),
        _ => Outcome::new(Status::Succeeded).facts(json!({ "size_bytes": 5_120, "returned_bytes": 4_096 })),
    };
    let usage = Usage {
        cpu_us: Some(80),
        peak_memory_bytes: None,
        wall_us: Some(210),
        bytes_in: 120,
        bytes_out: 4_300,
    };
    event.outcome(outcome).duration_us(350_u64).usage(usage)
}

fn run_id(run: u64) -> String {
    format!("0198a1b2-0000-7000-8000-{run:012x}")
}

fn write(directory: &Path, records: u64) -> Duration {
    let (mut writer, _) = Writer::open(directory).unwrap();
    let mut spent = Duration::ZERO;
    for first in (0..records).step_by(BATCH) {
        let events = (first..records.min(first + BATCH as u64)).map(event).collect();
        let began = Instant::now();
        writer.append_all(events).unwrap();
        spent += began.elapsed();
    }
    spent
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn written(report: &mut Report) {
    let directory = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let spent = write(&directory.path().join("log"), WRITTEN);
    let rate = WRITTEN as f64 / spent.as_secs_f64();
    report.goal(Goal::rate_at_least("records a second, group commit of 512", rate, 20_000.0));
}

/// What of a read's time goes into its records.
async fn read(report: &mut Report) {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", &"a line that an agent reads\n".repeat(150))]);
    let mut run = daemon.run("open", &workspace).await;
    let (mut whole, mut recording) = (Sample::default(), Sample::default());
    for _ in 0..READS {
        let began = Instant::now();
        let response = run.call(calls::read("a.txt")).await.unwrap();
        whole.add(began.elapsed());
        recording.add(Duration::from_micros(response.timings.unwrap().audit_us));
    }
    report.goal(Goal::share_at_most(
        "audit's share of a read, medians",
        recording.median(),
        whole.median(),
        15.0,
    ));
}

/// A log of a million records.
async fn long(report: &mut Report) {
    let mut daemon = Daemon::start().await;
    daemon.run_on(requests::managed("open")).await;
    daemon.stop().await;
    write(&daemon.state_dir().join("audit"), RECORDS);
    daemon.launch().await;
    let mut clients = daemon.connect().await;
    // What came while the daemon was not there is indexed first.
    ready(&mut clients).await;

    let began = Instant::now();
    let mut steps = clients.audit.rebuild_index(RebuildIndexRequest {}).await.unwrap().into_inner();
    let mut last = 0;
    while let Some(step) = steps.message().await.unwrap() {
        last = step.indexed_through;
    }
    assert!(last >= RECORDS);
    report.goal(Goal::millis_at_most("index of 1,000,000 records made anew", began.elapsed(), 30_000.0));

    let by_run = |n: u64| EventFilter { run_id: run_id(n * 7 % RUNS), ..Default::default() };
    queries(&mut clients, report, "query by run, p95 of 1,000,000 records", by_run).await;
    let (first, past) = (at(&mut clients, false).await, at(&mut clients, true).await);
    let span = (past - first).max(1);
    let by_time = |n: u64| {
        let from = first + span * i128::from(n * 37 % QUERIES) / i128::from(QUERIES);
        EventFilter {
            from: Some(timestamp(from)),
            until: Some(timestamp(from + span / 100)),
            ..Default::default()
        }
    };
    queries(&mut clients, report, "query by time, p95 of 1,000,000 records", by_time).await;
    let by_both =
        |n: u64| EventFilter { status: "denied".to_owned(), run_id: run_id(n * 11 % RUNS), ..by_time(n) };
    queries(&mut clients, report, "query by run, status and time, p95", by_both).await;
}

async fn ready(clients: &mut Clients) {
    loop {
        let request = QueryEventsRequest { page_size: 1, ..Default::default() };
        if let Ok(page) = clients.audit.query_events(request).await.map(tonic::Response::into_inner)
            && page.indexed_through >= page.head_sequence
        {
            return;
        }
    }
}

async fn queries(
    clients: &mut Clients,
    report: &mut Report,
    what: &str,
    filter: impl Fn(u64) -> EventFilter,
) {
    let mut sample = Sample::default();
    for n in 0..QUERIES {
        let request = QueryEventsRequest { filter: Some(filter(n)), page_size: 100, ..Default::default() };
        let began = Instant::now();
        clients.audit.query_events(request).await.unwrap();
        sample.add(began.elapsed());
    }
    report.goal(Goal::millis_at_most(what, sample.p95(), 50.0));
}

/// When the second record was written, or the last one: nanoseconds.
async fn at(clients: &mut Clients, last: bool) -> i128 {
    use harness::v1::query_events_request::Order::{NewestFirst, OldestFirst};
    let order = if last { NewestFirst } else { OldestFirst };
    let filter = EventFilter { agent_id: "agent-1".to_owned(), ..Default::default() };
    let request =
        QueryEventsRequest { filter: Some(filter), order: order.into(), page_size: 1, ..Default::default() };
    let page = clients.audit.query_events(request).await.unwrap().into_inner();
    let time = page.events[0].time.unwrap();
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos)
}

fn timestamp(nanos: i128) -> wire::Timestamp {
    wire::Timestamp {
        seconds: i64::try_from(nanos / 1_000_000_000).unwrap(),
        nanos: i32::try_from(nanos % 1_000_000_000).unwrap(),
    }
}
