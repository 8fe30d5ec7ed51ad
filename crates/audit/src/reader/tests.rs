use std::fs::{self, OpenOptions};
use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::event::Event;
use crate::testing::{any_event, call};
use crate::writer::{Limits, Writer};

fn sequences(reader: &mut Reader) -> Vec<u64> {
    reader.map(|record| record.unwrap().sequence).collect()
}

#[test]
fn follows_a_log_that_grows_from_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = Reader::from(dir.path(), 0);
    assert!(reader.next().is_none());
    let (mut writer, _) =
        Writer::open_with(dir.path(), Limits { segment_bytes: 1500, segment_age: None }).unwrap();
    let mut expected = 1;
    for n in 0..40 {
        let batch: Vec<Event> = (0..n % 4).map(call).collect();
        let written = writer.append_batch(&batch).unwrap();
        let read: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(read, written);
        expected += written.len() as u64;
        assert_eq!(reader.next_sequence(), expected);
    }
}

#[test]
fn waits_for_the_rest_of_a_line_and_survives_its_repair() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(dir.path()).unwrap();
    writer.append_batch(&[call(1), call(2)]).unwrap();
    drop(writer);
    let path = SegmentName(1).path(dir.path());
    let whole = fs::read(&path).unwrap();

    fs::write(&path, &whole[..whole.len() - 40]).unwrap();
    let mut reader = Reader::from(dir.path(), 0);
    assert_eq!(sequences(&mut reader), [1]);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(&whole[whole.len() - 40..]).unwrap();
    assert_eq!(sequences(&mut reader), [2]);

    OpenOptions::new().append(true).open(&path).unwrap().write_all(&[b'x'; 900]).unwrap();
    assert_eq!(sequences(&mut reader), [0; 0]);
    let (mut writer, opened) = Writer::open(dir.path()).unwrap();
    assert!(opened.repaired.is_some());
    writer.append(&call(4)).unwrap();
    assert_eq!(sequences(&mut reader), [3, 4]);
}

#[test]
fn starts_anywhere_without_reading_all() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) =
        Writer::open_with(dir.path(), Limits { segment_bytes: 1_000_000, segment_age: None }).unwrap();
    let events: Vec<_> = (0..100).map(call).collect();
    for _ in 0..40 {
        writer.append_batch(&events).unwrap();
    }
    assert!(segment::list(dir.path()).unwrap().len() > 1);
    for after in [0, 1, 2, 63, 64, 999, 1000, 1999, 2000, 2001, 3998, 3999, 4000] {
        let mut reader = Reader::from(dir.path(), after);
        assert_eq!(reader.next_sequence(), after + 1);
        assert_eq!(reader.next().map(|r| r.unwrap().sequence), (after < 4000).then_some(after + 1));
        assert_eq!(reader.count() as u64, 4000_u64.saturating_sub(after + 1));
    }
    let mut ahead = Reader::from(dir.path(), 4002);
    assert!(ahead.next().is_none());
    writer.append_batch(&events[..4]).unwrap();
    assert_eq!(sequences(&mut ahead), [4003, 4004]);
    assert!(Reader::from(dir.path(), u64::MAX).next().is_none());
}

#[test]
fn gives_the_line_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(dir.path()).unwrap();
    writer.append_batch(&[call(1), call(2)]).unwrap();
    let text = fs::read_to_string(SegmentName(1).path(dir.path())).unwrap();
    let mut reader = Reader::from(dir.path(), 0);
    let mut copy = String::new();
    while let Some(line) = reader.next_line().unwrap() {
        copy.push_str(line);
        copy.push('\n');
    }
    assert_eq!(copy, text);
}

#[test]
fn a_follower_stops_at_damage_and_reports_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(dir.path()).unwrap();
    writer.append_batch(&[call(1), call(2), call(3)]).unwrap();
    let path = SegmentName(1).path(dir.path());
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("file-2", "file-9", 1)).unwrap();
    let mut reader = Reader::from(dir.path(), 0);
    assert_eq!(reader.next().unwrap().unwrap().sequence, 1);
    for _ in 0..2 {
        match reader.next() {
            Some(Err(ReadError::Damaged(found))) => {
                assert_eq!((found.sequence, found.damage), (2, Damage::Edited));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_log_that_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Reader::from(dir.path().join("no"), 0).next(), Some(Err(ReadError::Io(_)))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_batches_and_rotation_read_back_from_anywhere(
        batches in proptest::collection::vec(proptest::collection::vec(any_event(), 0..4), 1..12),
        segment_bytes in 1_u64..6000,
        after in 0_u64..30,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open_with(dir.path(), Limits { segment_bytes, segment_age: None }).unwrap();
        let mut written = Vec::new();
        for batch in &batches {
            written.extend(writer.append_batch(batch).unwrap());
        }
        written.retain(|record| record.sequence > after);
        let read: Vec<_> = Reader::from(dir.path(), after).map(Result::unwrap).collect();
        prop_assert_eq!(read, written);
    }
}
