use std::time::Duration;

use identity::{CallId, RunId};

use super::{Outcomes, cost};
use crate::database::tests;
use crate::database::{Store, StoredCall};

const KIB: usize = 1_024;
const BARE: &[u8] = b"bare";
const BOUNDS: Outcomes = Outcomes {
    max_total: 4 << 20,
    max_age: Duration::from_secs(86_400),
    request_ids: Duration::from_secs(3_600),
};

struct Bench {
    place: tempfile::TempDir,
    store: Store,
    run: RunId,
    made: u32,
}

impl Bench {
    fn new(bounds: Outcomes) -> Self {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), bounds).unwrap();
        let run = tests::run(&store);
        Self { place, store, run, made: 0 }
    }

    /// Keeps a call whose result has so many bytes.
    fn keep(&mut self, promised: bool, bytes: usize) -> CallId {
        self.made += 1;
        let call_id = CallId::new();
        let call = StoredCall {
            call_id,
            run_id: self.run,
            principal: "uid:0".into(),
            request_id: promised.then(|| format!("r{}", self.made)),
            request: vec![1],
            response: vec![b'x'; bytes],
            promised,
        };
        self.store.insert_calls_unsynced(&[call], |_| BARE.to_vec()).unwrap();
        call_id
    }

    /// Makes everything that is there so much older.
    fn age(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap();
        self.store.lock().execute("UPDATE calls SET settled_at = settled_at - ?1", [by]).unwrap();
    }

    fn found(&self, call: CallId) -> Option<Vec<u8>> {
        Some(self.store.call(call).unwrap()?.response)
    }

    fn is_whole(&self, call: CallId) -> bool {
        self.found(call).is_some_and(|response| response.starts_with(b"x"))
    }

    /// Bytes of the database's files.
    fn size(&self) -> u64 {
        let files = std::fs::read_dir(self.place.path()).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }

    /// What is noted is what is there.
    fn check(&self) {
        let lengths: Vec<u64> = {
            let connection = self.store.lock();
            let mut statement = connection.prepare("SELECT length(response) FROM calls").unwrap();
            let lengths = statement.query_map([], |row| super::bytes(row, 0)).unwrap();
            lengths.collect::<Result<_, _>>().unwrap()
        };
        assert_eq!(self.store.0.outcomes.used(), lengths.into_iter().map(cost).sum::<u64>());
    }
}

#[test]
fn the_database_stays_within_its_bound_and_evicts_the_oldest() {
    let mut bench = Bench::new(BOUNDS);
    let calls: Vec<_> = (0..1_000).map(|_| bench.keep(false, 32 * KIB)).collect();
    bench.check();
    assert!(bench.store.0.outcomes.used() <= BOUNDS.max_total);
    assert!(bench.size() < 3 * BOUNDS.max_total, "32 MB went through it: {} bytes", bench.size());
    assert!(bench.found(calls[0]).is_none() && bench.is_whole(calls[999]));
    let first = calls.iter().position(|call| bench.found(*call).is_some()).unwrap();
    assert!(calls[first..].iter().all(|call| bench.is_whole(*call)), "oldest first, without a gap");
    assert!(!bench.store.is_crowded());
}

#[test]
fn promised_outcomes_lose_results_first_and_expire() {
    let mut bench = Bench::new(BOUNDS);
    let promised = bench.keep(true, 32 * KIB);
    let other = bench.keep(false, 32 * KIB);
    for _ in 0..300 {
        bench.keep(true, 32 * KIB);
    }
    bench.check();
    assert!(bench.found(other).is_none(), "what nobody was promised went first");
    assert_eq!(bench.found(promised).as_deref(), Some(BARE));
    assert_eq!(bench.store.call_by_request(bench.run, "r1").unwrap().unwrap().call_id, promised);

    bench.age(BOUNDS.request_ids + Duration::from_secs(1));
    let next: Vec<_> = (0..300).map(|_| bench.keep(true, 8 * KIB)).collect();
    assert!(bench.found(promised).is_none() && bench.is_whole(next[299]));
    assert_eq!(bench.store.call_by_request(bench.run, "r1").unwrap(), None);
    bench.check();
}

#[test]
fn full_store_reports_crowded_until_entries_expire() {
    let mut bench = Bench::new(Outcomes { max_total: 64 << 10, ..BOUNDS });
    let first = bench.keep(true, 10);
    while !bench.store.is_crowded() {
        bench.keep(true, 10);
        assert!(bench.made < 1_000);
    }
    // One that waited for a reviewer meanwhile is remembered all the same.
    let late = bench.keep(true, KIB);
    assert!(bench.found(first).is_some() && bench.found(late).as_deref() == Some(BARE));
    bench.age(BOUNDS.request_ids + Duration::from_secs(1));
    bench.store.tidy_outcomes().unwrap();
    assert!(!bench.store.is_crowded());
    bench.check();
}

#[test]
fn outcomes_expire_and_are_deleted_with_their_run() {
    let mut bench = Bench::new(BOUNDS);
    let old = bench.keep(true, KIB);
    bench.age(BOUNDS.max_age + Duration::from_secs(1));
    let new = bench.keep(false, KIB);
    while bench.store.tidy_outcomes().unwrap() {}
    assert!(bench.found(old).is_none() && bench.is_whole(new));
    bench.check();
    bench.store.delete_run(bench.run).unwrap();
    bench.check();
    assert_eq!(bench.store.0.outcomes.used(), 0);
    bench.keep(true, KIB);
    assert_eq!(bench.store.0.outcomes.used(), 0, "its run is gone");
}

#[test]
fn free_pages_go_back_to_the_disk_in_a_database_of_any_release() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE old (x)").unwrap();
    let store = Store::open(&path, Outcomes::WIDE).unwrap();
    let run = tests::run(&store);
    let mut bench = Bench { place, store, run, made: 0 };
    for _ in 0..2_000 {
        bench.keep(false, 32 * KIB);
    }
    let pages = || -> u64 {
        bench.store.lock().pragma_query_value(None, "page_count", |row| super::bytes(row, 0)).unwrap()
    };
    let before = pages();
    bench.store.delete_run(run).unwrap();
    for _ in 0..100 {
        bench.store.tidy_outcomes().unwrap();
    }
    assert!(before > 16_000 && pages() < 6_000, "{before} pages, then {}", pages());
}

#[test]
fn a_call_that_is_stored_again_replaces_the_earlier_outcome() {
    let mut bench = Bench::new(BOUNDS);
    let call = bench.keep(true, KIB);
    let stored = bench.store.call(call).unwrap().unwrap();
    let used = bench.store.0.outcomes.used();
    bench.store.insert_calls(&[stored], |_| BARE.to_vec()).unwrap();
    assert_eq!(bench.store.0.outcomes.used(), used);
    bench.check();
}
