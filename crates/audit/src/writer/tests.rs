use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use super::*;
use crate::chain::Damage;
use crate::event::Kind;
use crate::reader::Reader;
use crate::recovery::{OpenError, Opened};
use crate::testing::call;
use crate::verify::verify;

fn small() -> Limits {
    Limits { segment_bytes: 2000, segment_age: None }
}

fn last_segment(dir: &Path) -> std::path::PathBuf {
    crate::segment::list(dir).unwrap().pop().unwrap().path(dir)
}

#[test]
fn records_are_read_back_as_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("deep/audit");
    let (mut writer, opened) = Writer::open_with(&log, small()).unwrap();
    assert_eq!(opened, Opened { head: None, repaired: None });
    let mut acknowledged = vec![writer.append(&Event::new(Kind::DaemonStarted)).unwrap()];
    for n in 0..20 {
        let batch: Vec<_> = (0..n % 5).map(|m| call(n * 10 + m)).collect();
        acknowledged.extend(writer.append_batch(&batch).unwrap());
    }
    assert_eq!(writer.head(), Some(acknowledged.last().unwrap().head()));
    let read: Vec<_> = Reader::from(&log, 0).map(Result::unwrap).collect();
    assert_eq!(read, acknowledged);
    assert!(crate::segment::list(&log).unwrap().len() > 3);

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&log), mode(&last_segment(&log)), mode(&log.join("lock"))), (0o700, 0o600, 0o600));
}

#[test]
fn a_reopened_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut head = None;
    let mut id = None;
    for n in 0..10 {
        let (mut writer, opened) = Writer::open_with(dir.path(), small()).unwrap();
        assert_eq!(opened, Opened { head, repaired: None });
        assert!(id.is_none_or(|id| id == writer.log_id()));
        let records = writer.append_batch(&[call(n), call(n)]).unwrap();
        head = Some(records[1].head());
        id = Some(writer.log_id());
    }
    assert_eq!(verify(dir.path(), &mut |_| ()).unwrap().records, 20);
}

#[test]
fn one_log_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(dir.path()).unwrap();
    assert!(matches!(Writer::open(dir.path()), Err(OpenError::Locked)));
    drop(writer);
    assert!(Writer::open(dir.path()).is_ok());
}

#[test]
fn damage_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open_with(dir.path(), small()).unwrap();
    for n in 0..9 {
        writer.append(&call(n)).unwrap();
    }
    drop(writer);
    let path = last_segment(dir.path());
    let good = fs::read(&path).unwrap();
    let first: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();

    let mut edited = good.clone();
    let at = edited.windows(4).position(|w| w == b"read").unwrap();
    edited[at] = b'R';
    fs::write(&path, &edited).unwrap();
    match Writer::open(dir.path()) {
        Err(OpenError::Damaged(found)) => assert_eq!((found.sequence, found.damage), (first, Damage::Edited)),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read(&path).unwrap(), edited);

    // A full line with a bad hash at the very end is damage too, not a torn tail.
    let mut edited = good.clone();
    let at = edited.len() - 10;
    edited[at] = if edited[at] == b'0' { b'1' } else { b'0' };
    fs::write(&path, &edited).unwrap();
    assert!(
        matches!(Writer::open(dir.path()), Err(OpenError::Damaged(found)) if found.damage == Damage::Edited)
    );

    // The predecessor's end is proved as well.
    fs::write(&path, &good).unwrap();
    let names = crate::segment::list(dir.path()).unwrap();
    let before = names[names.len() - 2].path(dir.path());
    let text = fs::read(&before).unwrap();
    fs::write(&before, &text[..text.len() - 1]).unwrap();
    match Writer::open(dir.path()) {
        Err(OpenError::Damaged(found)) => {
            assert_eq!((found.sequence, found.damage), (first - 1, Damage::Malformed));
        }
        other => panic!("{other:?}"),
    }
    fs::remove_file(&before).unwrap();
    assert!(
        matches!(Writer::open(dir.path()), Err(OpenError::Damaged(found)) if found.damage == Damage::Missing)
    );
}

#[test]
fn a_segment_that_got_no_record_yet_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open_with(dir.path(), small()).unwrap();
    let head = writer.append_batch(&[call(1), call(2), call(3)]).unwrap().pop().unwrap().head();
    drop(writer);
    fs::write(dir.path().join("00000000000000000004.jsonl"), "{\"v\":1,").unwrap();
    let (mut writer, opened) = Writer::open_with(dir.path(), small()).unwrap();
    assert_eq!(opened.head, Some(head));
    assert_eq!(opened.repaired.unwrap().offset, 0);
    writer.append(&call(5)).unwrap();
    assert_eq!(verify(dir.path(), &mut |_| ()).unwrap().records, 5);
}

#[test]
fn a_batch_larger_than_one_sync_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(dir.path()).unwrap();
    let big = Event::new(Kind::Alert).details(json!({"text": "x".repeat(60_000)}));
    let batch = vec![big; MAX_BATCH / 60_000 + 3];
    let records = writer.append_batch(&batch).unwrap();
    drop(writer);
    assert_eq!(Reader::from(dir.path(), 0).map(Result::unwrap).collect::<Vec<_>>(), records);
    let (_, opened) = Writer::open(dir.path()).unwrap();
    assert_eq!(opened, Opened { head: Some(records.last().unwrap().head()), repaired: None });
}

#[test]
fn writer_and_reader_can_be_moved_to_another_thread() {
    fn movable<T: Send + 'static>() {}
    movable::<Writer>();
    movable::<Reader>();
}
