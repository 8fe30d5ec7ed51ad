use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::{Decision, Event, Head, Kind, Limits, Outcome, Policy, Record, Status, Verdict, Writer};
use operations::Reason;
use refusal::Refusal;
use tokio::sync::watch;
use wire::v1::EventFilter;

use super::query::Query;
use super::{CATCH_UP, Index, Page, State};
use crate::Filter;

/// A log, its index, and what a query should find by looking at every record.
struct Log {
    directory: tempfile::TempDir,
    writer: Writer,
    head: watch::Sender<Option<Head>>,
    records: Vec<Record>,
    random: u64,
}

impl Log {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (writer, _) = Writer::open_with(directory.path(), limits).unwrap();
        Self { directory, writer, head: watch::Sender::new(None), records: Vec::new(), random: 7 }
    }

    fn index(&self) -> Arc<Index> {
        Arc::new(Index::start(self.directory.path(), self.head.subscribe(), Arc::default()).unwrap())
    }

    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*: no two test runs differ.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn event(&mut self) -> Event {
        let run = format!("run-{}", self.below(3));
        let call = format!("call-{}", self.below(40));
        let operation = ["read", "write", "exec"][usize::try_from(self.below(3)).unwrap()];
        let base = |kind| Event::new(kind).run(&run).call(&call).operation(operation).principal("uid:0");
        match self.below(5) {
            0 => Event::new(Kind::PolicyLoaded).principal(format!("uid:{}", self.below(2))),
            1 => base(Kind::CallIntent).agent("alice").decision(Decision::new(Verdict::Allow).reason("why")),
            2 => base(Kind::CallIntent)
                .agent("bob")
                .decision(Decision::new(Verdict::Deny).reason("RATE_LIMITED")),
            3 => base(Kind::ApprovalRequested).approval(format!("approval-{}", self.below(5))),
            _ => {
                let reason = ["NOT_FOUND", "RATE_LIMITED"][usize::try_from(self.below(2)).unwrap()];
                let failed = Outcome::new(Status::Failed).reason(reason).message("No such FILE \"näh\"");
                let good = Outcome::new(Status::Succeeded);
                let receipt = base(Kind::CallReceipt).agent("alice");
                receipt.outcome(if self.below(2) == 0 { failed } else { good })
            }
        }
    }

    fn add(&mut self, count: usize) {
        let events: Vec<_> = (0..count).map(|_| self.event()).collect();
        self.records.extend(self.writer.append_batch(&events).unwrap());
        self.head.send_replace(self.writer.head());
    }

    fn expected(&self, filter: &EventFilter, newest_first: bool) -> Vec<u64> {
        let filter = Filter::from_wire(filter.clone()).unwrap();
        let line = |record: &Record| serde_json::to_string(&record.event).unwrap();
        let mut found: Vec<_> = self
            .records
            .iter()
            .filter(|record| filter.matches(record, &line(record)))
            .map(|record| record.sequence)
            .collect();
        if newest_first {
            found.reverse();
        }
        found
    }
}

fn query(filter: &EventFilter, newest_first: bool, size: usize, start: Option<u64>) -> Query {
    Query { filter: Filter::from_wire(filter.clone()).unwrap(), newest_first, size, start }
}

fn sequences(page: &Page) -> Vec<u64> {
    page.lines.iter().map(|line| line.record.sequence).collect()
}

/// Asks until the answer is of all that has been written. A busy machine takes longer to index that than a query waits; none
/// answers without it before that.
async fn up_to_date(index: &Arc<Index>, query: Query) -> Page {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        match index.query(query.clone()).await {
            Ok(page) if page.through >= index.head() => return page,
            Ok(page) => assert!(asked.elapsed() >= CATCH_UP, "only {} records at once", page.through),
            Err(refusal) => assert_eq!(refusal.reason, Reason::AuditUnavailable, "{refusal:?}"),
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the index does not come to {}", index.head());
    }
}

async fn all(index: &Arc<Index>, filter: &EventFilter, newest_first: bool, size: usize) -> Vec<u64> {
    let (mut found, mut start) = (Vec::new(), None);
    loop {
        let page = up_to_date(index, query(filter, newest_first, size, start)).await;
        assert!(page.lines.len() <= size);
        found.extend(sequences(&page));
        start = page.next;
        if start.is_none() {
            return found;
        }
    }
}

async fn patiently(index: &Arc<Index>) -> Result<Page, Refusal> {
    for _ in 0..100 {
        let page = index.query(query(&EventFilter::default(), false, 10_000, None)).await;
        if page.is_ok() {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    index.query(query(&EventFilter::default(), false, 10_000, None)).await
}

fn filters(records: &[Record]) -> Vec<EventFilter> {
    let moment = |at: usize| {
        let time = records[at].time;
        let nanos = i32::try_from(time.subsecond_nanos()).unwrap();
        Some(wire::Timestamp { seconds: time.unix_seconds(), nanos })
    };
    let middle = records.len() / 2;
    let some = |fill: fn(&mut EventFilter)| {
        let mut filter = EventFilter::default();
        fill(&mut filter);
        filter
    };
    vec![
        EventFilter::default(),
        some(|filter| filter.run_id = "run-1".into()),
        some(|filter| filter.run_id = "no such run".into()),
        some(|filter| filter.call_id = "call-7".into()),
        some(|filter| filter.agent_id = "bob".into()),
        some(|filter| filter.principal = "uid:1".into()),
        some(|filter| filter.operation = "exec".into()),
        some(|filter| filter.status = "failed".into()),
        some(|filter| filter.status = "interrupted".into()),
        some(|filter| filter.reason = "RATE_LIMITED".into()),
        some(|filter| filter.approval_id = "approval-3".into()),
        some(|filter| filter.kinds = vec!["call_receipt".into()]),
        some(|filter| filter.kinds = vec!["call_receipt".into(), "policy_loaded".into()]),
        some(|filter| filter.text = "file \"NäH\"".replace('H', "h")),
        some(|filter| filter.text = "nowhere".into()),
        some(|filter| {
            filter.run_id = "run-2".into();
            filter.operation = "read".into();
            filter.status = "succeeded".into();
            filter.agent_id = "alice".into();
        }),
        EventFilter { from: moment(middle), ..Default::default() },
        EventFilter { until: moment(middle), run_id: "run-0".into(), ..Default::default() },
        EventFilter {
            from: moment(5),
            until: moment(middle),
            operation: "write".into(),
            ..Default::default()
        },
        EventFilter { from: moment(middle), until: moment(5), ..Default::default() },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_agrees_with_a_scan_of_all_records() {
    let mut log = Log::new();
    log.add(900);
    let index = log.index();
    for round in 0..3 {
        for filter in filters(&log.records) {
            for newest_first in [true, false] {
                let expected = log.expected(&filter, newest_first);
                for size in [7, 1_000] {
                    let found = all(&index, &filter, newest_first, size).await;
                    assert_eq!(found, expected, "{filter:?} newest first: {newest_first}, round {round}");
                }
            }
        }
        // The index has been made by then, and follows.
        log.add(301);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_records_do_not_shift_pages() {
    let mut log = Log::new();
    log.add(100);
    let index = log.index();
    let any = EventFilter::default();
    let first = up_to_date(&index, query(&any, true, 40, None)).await;
    let oldest = up_to_date(&index, query(&any, false, 40, None)).await;
    log.add(100);
    let second = up_to_date(&index, query(&any, true, 100, first.next)).await;
    assert_eq!([sequences(&first), sequences(&second)].concat(), (1..=100).rev().collect::<Vec<_>>());
    assert_eq!((second.next, second.through), (None, 200));
    let rest = up_to_date(&index, query(&any, false, 500, oldest.next)).await;
    assert_eq!([sequences(&oldest), sequences(&rest)].concat(), (1..=200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_finds_all_earlier_records() {
    let mut log = Log::new();
    let index = log.index();
    assert!(all(&index, &EventFilter::default(), true, 10).await.is_empty());
    for count in 1..50 {
        log.add(1);
        let page = up_to_date(&index, query(&EventFilter::default(), true, 1, None)).await;
        assert_eq!((sequences(&page), page.through), (vec![count], count));
    }
}

/// What can happen to an index's file.
type Harm = Box<dyn Fn(&Path)>;

/// Ends the thread of an index, as the end of the daemon does.
async fn end(log: &mut Log, index: Arc<Index>) {
    let mut states = index.states();
    log.head = watch::Sender::new(log.writer.head());
    drop(index);
    while states.changed().await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_stale_or_damaged_index_is_rebuilt() {
    let mut log = Log::new();
    log.add(300);
    let index = log.index();
    all(&index, &EventFilter::default(), true, 1_000).await;
    end(&mut log, index).await;
    let path = log.directory.path().join("index.db");
    let run = |sql: &'static str| {
        move |path: &Path| rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap()
    };
    let harms: Vec<(&str, bool, Harm)> = vec![
        ("nothing", false, Box::new(|_| {})),
        ("gone", true, Box::new(|path| std::fs::remove_file(path).unwrap())),
        ("empty", true, Box::new(|path| std::fs::write(path, b"").unwrap())),
        ("no database", true, Box::new(|path| std::fs::write(path, [b'x'; 20_000]).unwrap())),
        ("of another version", true, Box::new(run("PRAGMA user_version = 77"))),
        (
            "of another log",
            true,
            Box::new(run("UPDATE progress SET hash = replace(hash, substr(hash, 1, 1), 'x')")),
        ),
        ("ahead", true, Box::new(run("UPDATE progress SET through = through + 1000"))),
        ("without a table", true, Box::new(run("DROP TABLE spans"))),
        (
            "cut in the middle",
            true,
            Box::new(|path| {
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            }),
        ),
        ("with positions within lines", true, Box::new(run("UPDATE events SET place = place + 1"))),
        (
            "with the position of another record",
            true,
            Box::new(run("UPDATE events SET place = 0 WHERE sequence = 17")),
        ),
        (
            "with a position beyond every file",
            true,
            Box::new(run("UPDATE events SET place = -1 WHERE sequence = 9")),
        ),
    ];
    for (harm, made_anew, inflict) in harms {
        inflict(&path);
        log.add(50);
        let index = log.index();
        let page = patiently(&index).await.unwrap_or_else(|refusal| panic!("{harm}: {refusal:?}"));
        assert_eq!(sequences(&page), (1..=log.records.len() as u64).collect::<Vec<_>>(), "{harm}");
        assert_eq!(index.made() > 0, made_anew, "{harm}");
        end(&mut log, index).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_find_damage_report_it_and_no_index_is_rebuilt() {
    let mut log = Log::new();
    log.add(300);
    let index = log.index();
    patiently(&index).await.unwrap();
    let segment = log.directory.path().join(format!("{:020}.jsonl", 1));
    let text = std::fs::read_to_string(&segment).unwrap();
    let (before, after) = text.split_at(text.match_indices('\n').nth(98).unwrap().0 + 1);
    // Record 100, by as many bytes.
    std::fs::write(&segment, [before, &after.replacen("\"kind\"", "\"king\"", 1)].concat()).unwrap();
    let any = EventFilter::default();
    let made = index.made();
    let unread = index.query(query(&any, false, 10, Some(95))).await.map(drop).unwrap_err();
    assert_eq!(unread.reason, Reason::AuditUnavailable, "{unread:?}");
    let read = index.query(query(&any, false, 99, None)).await.unwrap();
    assert_eq!(sequences(&read), (1..=99).collect::<Vec<_>>());
    assert_eq!((index.made(), *index.states().borrow()), (made, State::Ready(300)));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_in_compressed_segments_and_not_after_their_removal() {
    let mut log = Log::with(Limits { segment_bytes: 200_000, segment_age: None });
    let directory = log.directory.path().to_owned();
    let signer = log.writer.signer(&directory.join("key")).unwrap();
    for _ in 0..20 {
        log.add(100);
    }
    log.writer.checkpoint(&signer).unwrap();
    log.add(1);
    let index = log.index();
    let filters = filters(&log.records);
    let covered = log.writer.covered();
    let now = Some(Duration::ZERO);
    let mut compressed = 0;
    let policy = Policy { compress_after: now, ..Policy::default() };
    while audit::compress_next(&directory, &policy, covered).unwrap().is_some() {
        compressed += 1;
    }
    assert!(compressed > 2, "{compressed}");
    for filter in &filters {
        for newest_first in [true, false] {
            let expected = log.expected(filter, newest_first);
            let found = all(&index, filter, newest_first, 1_000).await;
            let ours = |sequence: &u64| log.records.iter().any(|record| record.sequence == *sequence);
            assert_eq!(found.into_iter().filter(ours).collect::<Vec<_>>(), expected, "{filter:?}");
        }
    }
    // The index does not know of it yet: no query fails for that, and none finds what is gone.
    let policy = Policy { remove_after: now, ..Policy::default() };
    let removal = audit::removal(&directory, &policy, covered).unwrap().unwrap();
    log.writer.remove(&removal).unwrap();
    audit::sweep(&directory).unwrap();
    let made = index.made();
    let left = all(&index, &EventFilter::default(), true, 1_000).await;
    assert!(!left.is_empty() && left.len() < log.records.len());
    assert!(left.windows(2).all(|pair| pair[0] == pair[1] + 1) && index.made() == made);
}

#[tokio::test(flavor = "multi_thread")]
async fn index_rebuild_on_request_reports_progress() {
    let mut log = Log::new();
    log.add(10_000);
    let index = log.index();
    patiently(&index).await.unwrap();
    let (mut states, made) = (index.states(), index.made());
    index.rebuild();
    let done = states.wait_for(|state| index.made() > made && matches!(state, State::Ready(10_000)));
    tokio::time::timeout(Duration::from_secs(60), done).await.unwrap().unwrap();
    let any = EventFilter::default();
    let last = index.query(query(&any, true, 1, None)).await.unwrap();
    assert_eq!((sequences(&last), last.through), (vec![10_000], 10_000));
}

/// Each look-up comes in the log's order by itself: nothing is sorted, however much there is.
#[tokio::test(flavor = "multi_thread")]
async fn no_query_sorts() {
    let mut log = Log::new();
    log.add(500);
    let index = log.index();
    all(&index, &EventFilter::default(), true, 1_000).await;
    let connection = super::schema::open_for_reading(&log.directory.path().join("index.db")).unwrap();
    for filter in filters(&log.records) {
        for newest_first in [true, false] {
            let query = query(&filter, newest_first, 10, None);
            let Some(conditions) = super::query::conditions(&connection, &query.filter).unwrap() else {
                continue;
            };
            let (select, values) = super::query::select(&query, conditions);
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {select}")).unwrap();
            let bounds = [1, 500];
            let steps = plan
                .query_map(rusqlite::params_from_iter(bounds.iter().chain(&values)), |row| row.get(3))
                .unwrap()
                .collect::<Result<Vec<String>, _>>()
                .unwrap();
            assert!(steps.iter().all(|step| !step.contains("TEMP")), "{steps:?}");
            assert!(steps.iter().any(|step| step.starts_with("SEARCH")), "{steps:?}");
        }
    }
}
