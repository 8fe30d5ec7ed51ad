//! Thousands of records through tiny segments, compressed and removed, and killed at every step of it.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::reader::Reader;
use crate::record::Head;
use crate::signer::Signer;
use crate::testing::call;
use crate::verify::{Report, verify, verify_against};
use crate::writer::{Limits, Writer};

const EVERYTHING: Policy =
    Policy { compress_after: Some(Duration::ZERO), remove_after: Some(Duration::ZERO), keep_bytes: None };
const LIMITS: Limits = Limits { segment_bytes: 20_000, segment_age: None };

/// A log in many segments, with a checkpoint now and then and one at its end.
fn log(records: usize) -> (TempDir, Writer, Signer) {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open_with(&dir.path().join("log"), LIMITS).unwrap();
    let signer = writer.signer(&dir.path().join("key")).unwrap();
    for first in (0..records).step_by(7) {
        let batch: Vec<_> = (first..records.min(first + 7)).map(call).collect();
        writer.append_batch(&batch).unwrap();
        if first % 490 == 0 {
            writer.checkpoint(&signer).unwrap();
        }
    }
    writer.checkpoint(&signer).unwrap();
    (dir, writer, signer)
}

fn intact(dir: &Path) -> Report {
    let report = verify(dir, &mut |_| ()).unwrap();
    assert!(report.is_intact(), "{:?}", report.integrity);
    report
}

fn compress_all(dir: &Path, covered: u64) -> usize {
    let mut count = 0;
    while compress_next(dir, &EVERYTHING, covered).unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn compressed_segments_are_read_followed_and_verified() {
    let (dir, mut writer, signer) = log(3000);
    let log = dir.path().join("log");
    let (before, bytes) = (intact(&log), disk_use(&log).unwrap());
    let records: Vec<_> = Reader::from(&log, 0).map(Result::unwrap).collect();
    let mut slow = Reader::from(&log, 0);
    for _ in 0..10 {
        slow.next().unwrap().unwrap();
    }
    let count = compress_all(&log, writer.covered());
    assert!(count > 30, "{count}");
    assert!(disk_use(&log).unwrap() * 2 < bytes);
    let after = intact(&log);
    assert_eq!(
        (after.records, after.head, after.checkpoints),
        (before.records, before.head, before.checkpoints)
    );
    assert_eq!(Reader::from(&log, 0).map(Result::unwrap).collect::<Vec<_>>(), records);
    for from in [1, 777, 1500, 2990] {
        let rest: Vec<_> = Reader::from(&log, from).map(|record| record.unwrap().sequence).collect();
        assert_eq!(rest, (from + 1..=records.len() as u64).collect::<Vec<_>>());
    }
    writer.append(&call(1)).unwrap();
    writer.checkpoint(&signer).unwrap();
    assert_eq!(slow.map(|record| record.unwrap().sequence).last(), writer.head().map(|head| head.sequence));
    // And it goes on, also when nothing but the frontier tells what was before.
    drop(writer);
    let (mut writer, _) = Writer::open_with(&log, LIMITS).unwrap();
    writer.checkpoint(&signer).unwrap();
    drop(writer);
    fs::remove_file(log.join(crate::ledger::FRONTIER)).unwrap();
    let (mut writer, _) = Writer::open_with(&log, LIMITS).unwrap();
    writer.append(&call(2)).unwrap();
    writer.checkpoint(&signer).unwrap();
    intact(&log);
}

#[test]
fn removals_are_recorded_and_the_rest_verifies() {
    let (dir, mut writer, mut signer) = log(3000);
    let log = dir.path().join("log");
    let early = Reader::from(&log, 0).nth(99).unwrap().unwrap().head();
    writer.rotate(&mut signer).unwrap();
    let key = Reader::from(&log, 0).next().unwrap().unwrap().event.details.unwrap()["key"].clone();
    let first_key: crate::VerifierKey = key.as_str().unwrap().parse().unwrap();
    for round in 0..3 {
        let covered = writer.covered();
        // A part first, then all that is covered.
        let policy = match round {
            0 => Policy { keep_bytes: Some(disk_use(&log).unwrap() / 2), ..Policy::default() },
            _ => EVERYTHING,
        };
        compress_all(&log, covered / 2);
        let removal = removal(&log, &policy, covered).unwrap().unwrap();
        assert!(removal.last_sequence() <= covered);
        writer.remove(&removal).unwrap();
        sweep(&log).unwrap();
        let report = intact(&log);
        assert_eq!(report.removed, removal.last_sequence());
        assert_eq!(report.records + report.removed, writer.head().unwrap().sequence);
        let first = Reader::from(&log, 0).next().unwrap().unwrap();
        assert_eq!(first.sequence, removal.last_sequence() + 1);
        // The first key still vouches for the last one, though its own records are gone.
        let against = crate::Against { keys: vec![first_key.clone()], ..Default::default() };
        let report = crate::verify_with(&log, against, &mut |_| ()).unwrap();
        assert!(report.is_intact() && report.checkpoints > 0, "{report:?}");
        for n in 0..400 {
            writer.append(&call(n)).unwrap();
        }
        writer.checkpoint(&signer).unwrap();
        if round == 1 {
            drop(writer);
            writer = Writer::open_with(&log, LIMITS).unwrap().0;
            writer.rotate(&mut signer).unwrap();
        }
    }
    // What is gone cannot be compared any more, what is there can.
    let head = intact(&log).head.unwrap();
    assert!(verify_against(&log, head, &mut |_| ()).unwrap().is_intact());
    assert!(verify_against(&log, early, &mut |_| ()).unwrap().is_intact());
    let wrong = Head { sequence: head.sequence, hash: Hash::of(b"x") };
    assert!(!verify_against(&log, wrong, &mut |_| ()).unwrap().is_intact());
}

#[test]
fn uncovered_and_damaged_segments_are_not_removed() {
    let (dir, writer, _signer) = log(1500);
    let log = dir.path().join("log");
    assert!(removal(&log, &EVERYTHING, 0).unwrap().is_none());
    assert_eq!(compress_next(&log, &EVERYTHING, 0).unwrap(), None);
    assert!(removal(&log, &Policy::default(), writer.covered()).unwrap().is_none());
    let young = Policy { remove_after: Some(Duration::from_secs(3600)), ..Policy::default() };
    assert!(removal(&log, &young, writer.covered()).unwrap().is_none());

    let path = segment::list(&log).unwrap()[2].path(&log);
    let text = fs::read_to_string(&path).unwrap().replacen("alice", "mallo", 1);
    fs::write(&path, text).unwrap();
    let refused = removal(&log, &EVERYTHING, writer.covered());
    assert!(matches!(refused, Err(RetentionError::Damaged(broken)) if broken.damage == Damage::Edited));
}

#[test]
fn a_segment_that_grows_old_gets_no_further_record() {
    for (age, segments) in [(Duration::ZERO, 5), (Duration::from_secs(3_600), 1)] {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { segment_age: Some(age), ..Limits::default() };
        let (mut writer, _) = Writer::open_with(dir.path(), limits).unwrap();
        for n in 0..4 {
            writer.append(&call(n)).unwrap();
        }
        drop(writer);
        let (mut writer, _) = Writer::open_with(dir.path(), limits).unwrap();
        writer.append(&call(5)).unwrap();
        assert_eq!(segment::list(dir.path()).unwrap().len(), segments);
        intact(dir.path());
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target: PathBuf = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Dies at step `n`, as if killed there.
fn dying(n: usize) -> impl FnMut() -> io::Result<()> {
    let mut step = 0;
    move || {
        step += 1;
        if step == n { Err(io::Error::other("killed")) } else { Ok(()) }
    }
}

#[test]
fn killed_at_every_step_of_a_compression_the_log_is_whole() {
    let (dir, writer, _) = log(400);
    let (log, scratch) = (dir.path().join("log"), dir.path().join("scratch"));
    drop(writer);
    let records: Vec<_> = Reader::from(&log, 0).map(Result::unwrap).collect();
    let mut deaths = 0;
    for n in 1.. {
        copy(&log, &scratch);
        let died = compress(&scratch, segment::list(&scratch).unwrap()[1].name, &mut dying(n)).is_err();
        intact(&scratch);
        assert_eq!(Reader::from(&scratch, 0).map(Result::unwrap).collect::<Vec<_>>(), records);
        drop(Writer::open_with(&scratch, LIMITS).unwrap());
        sweep(&scratch).unwrap();
        assert!(compress_all(&scratch, u64::MAX) > 0);
        let report = intact(&scratch);
        assert_eq!(report.records, records.len() as u64);
        assert_eq!(fs::read_dir(&scratch).unwrap().filter(is_segment).count(), report.segments);
        fs::remove_dir_all(&scratch).unwrap();
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 5, "{deaths}");
}

fn is_segment(entry: &io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with('0')
}

#[test]
fn killed_at_every_step_of_a_removal_the_log_is_whole() {
    let (dir, writer, _) = log(1500);
    let (log, scratch) = (dir.path().join("log"), dir.path().join("scratch"));
    let covered = writer.covered();
    drop(writer);
    compress_all(&log, covered / 2);
    let mut deaths = 0;
    for n in 0.. {
        copy(&log, &scratch);
        let (mut writer, _) = Writer::open_with(&scratch, LIMITS).unwrap();
        let removal = removal(&scratch, &EVERYTHING, covered).unwrap().unwrap();
        writer.remove(&removal).unwrap();
        if n == 0 {
            // Between the record and its copy: a removal that was announced, and did not happen.
            fs::remove_file(scratch.join(removal::FILE)).unwrap();
            assert_eq!(intact(&scratch).removed, 0);
        }
        let died = n > 0 && sweep_step(&scratch, &mut dying(n)).is_err();
        let report = intact(&scratch);
        drop(writer);
        let (writer, opened) = Writer::open_with(&scratch, LIMITS).unwrap();
        assert_eq!(opened.repaired, None);
        assert_eq!(report.records + report.removed, writer.head().unwrap().sequence);
        sweep(&scratch).unwrap();
        let report = intact(&scratch);
        assert_eq!(fs::read_dir(&scratch).unwrap().filter(is_segment).count(), report.segments);
        fs::remove_dir_all(&scratch).unwrap();
        if n > 0 && !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 10, "{deaths}");
}
