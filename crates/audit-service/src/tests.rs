use std::path::Path;
use std::time::Duration;

use audit::{Event, Kind};
use futures_util::TryStreamExt as _;

use super::{AuditLog, Settings};
use crate::filter::Filter;
use crate::matching::Matching;

fn event(call: u32) -> Event {
    Event::new(Kind::CallIntent).call(format!("call-{call}"))
}

async fn calls(log: &AuditLog, after: u64) -> Vec<String> {
    let mut follow = log.read_after(after, false);
    let mut calls = Vec::new();
    while let Some(lines) = follow.next().await.unwrap() {
        calls.extend(lines.iter().filter_map(|line| line.record.event.call_id.clone()));
    }
    calls
}

fn numbered(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|call| format!("call-{call}")).collect()
}

fn open(directory: &Path) -> AuditLog {
    AuditLog::open(directory, Settings::default()).unwrap().0
}

#[tokio::test]
async fn recorded_events_can_be_read_immediately() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    for call in 0..3 {
        let line = log.record(event(call)).await.unwrap();
        assert_eq!(line.record.sequence, u64::from(call) + 1);
    }
    assert_eq!(calls(&log, 0).await, numbered(0..3));
    assert_eq!(calls(&log, 2).await, numbered(2..3));
    assert_eq!(calls(&log, 9).await, numbered(0..0));
}

#[tokio::test]
async fn enqueued_events_can_be_read_after_settling() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    log.settle().await;
    for call in 0..300 {
        log.enqueue(event(call)).await.unwrap();
    }
    log.settle().await;
    assert_eq!(calls(&log, 0).await, numbered(0..300));
}

#[tokio::test]
async fn a_follower_sees_everything_once_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    for call in 0..300 {
        log.enqueue(event(call)).await.unwrap();
    }
    let mut follow = log.read_after(0, true);
    let reader = tokio::spawn(async move {
        let mut calls = Vec::new();
        while calls.len() < 900 {
            let lines = follow.next().await.unwrap().unwrap();
            calls.extend(lines.iter().filter_map(|line| line.record.event.call_id.clone()));
        }
        calls
    });
    for call in 300..900 {
        log.enqueue(event(call)).await.unwrap();
    }
    assert_eq!(reader.await.unwrap(), numbered(0..900));
}

#[tokio::test]
async fn a_reader_of_the_newest_gets_one_record_of_many_and_none_twice() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let filter = |call_id: &str| {
        let wire = wire::v1::EventFilter { call_id: call_id.to_owned(), ..Default::default() };
        Filter::from_wire(wire).unwrap()
    };
    // More than are read at once.
    for call in 0..900 {
        log.enqueue(event(call)).await.unwrap();
    }
    log.settle().await;
    for (wanted, found) in [("", Some("call-899")), ("call-7", Some("call-7")), ("call-900", None)] {
        let mut records = log.read_after(0, false).newest_of(filter(wanted));
        assert_eq!(next(&mut records).await.as_deref(), found, "{wanted}");
        assert_eq!(next(&mut records).await, None, "{wanted}");
    }
    let mut records = log.read_after(0, true).newest_of(filter(""));
    assert_eq!(next(&mut records).await.as_deref(), Some("call-899"));
    for call in 900..950 {
        log.enqueue(event(call)).await.unwrap();
    }
    let mut seen = Vec::new();
    while seen.last().is_none_or(|call| call != "call-949") {
        seen.push(next(&mut records).await.unwrap());
    }
    assert!(seen.len() < 50 && seen.is_sorted(), "{seen:?}");
}

async fn next(records: &mut Matching) -> Option<String> {
    let line = records.try_next().await.unwrap();
    line.map(|line| line.record.event.call_id.clone().unwrap())
}

/// The disk fails (the directory is gone), calls are refused, nothing that was taken is lost, and it comes back.
#[tokio::test]
async fn a_failed_log_reports_it_keeps_accepted_events_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let limit = audit::Limits { segment_bytes: 1, ..Default::default() };
    let settings = Settings { limits: limit, signing: None };
    let log = AuditLog::open(&directory.path().join("log"), settings).unwrap().0;
    log.record(event(0)).await.unwrap();

    // Every batch begins a segment, which cannot be made in a directory that is not there.
    std::fs::rename(directory.path().join("log"), directory.path().join("away")).unwrap();
    assert!(log.record(event(1)).await.is_err());
    assert!(!log.is_available() && log.check().is_err());
    log.enqueue(event(2)).await.unwrap();
    log.settle().await;

    let _ = std::fs::remove_dir_all(directory.path().join("log"));
    std::fs::rename(directory.path().join("away"), directory.path().join("log")).unwrap();
    tokio::time::timeout(Duration::from_secs(20), log.changed_from(false)).await.unwrap();
    log.record(event(3)).await.unwrap();
    log.settle().await;
    assert_eq!(calls(&log, 0).await, numbered(0..4));
    assert!(audit::verify(&directory.path().join("log"), &mut |_| {}).unwrap().is_intact());
}

#[tokio::test]
async fn a_log_whose_key_could_not_be_changed_continues_with_the_named_key() {
    let directory = tempfile::tempdir().unwrap();
    let (path, key) = (directory.path().join("log"), directory.path().join("audit.key"));
    let settings = Settings { signing: Some((key.clone(), u64::MAX)), ..Settings::default() };
    let log = AuditLog::open(&path, settings).unwrap().0;
    let (_, before) = log.checkpoint().await.unwrap();

    // No file can replace a directory.
    std::fs::rename(&key, directory.path().join("moved")).unwrap();
    std::fs::create_dir(&key).unwrap();
    assert!(log.rotate().await.is_err());
    assert!(!log.is_available());
    std::fs::remove_dir(&key).unwrap();
    tokio::time::timeout(Duration::from_secs(20), log.changed_from(false)).await.unwrap();
    log.record(event(0)).await.unwrap();
    let (_, after) = log.checkpoint().await.unwrap();
    assert_ne!(before, after);
    assert!(key.is_file() && !directory.path().join("audit.key.next").exists());
    let report = audit::verify(&path, &mut |_| {}).unwrap();
    assert!(report.is_intact() && report.keys == [before, after], "{report:?}");
}
