//! Damage of every kind at every kind of position: each is found, and the first bad record is the right one.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::chain::Damage;
use crate::segment::{self, SegmentName};
use crate::signer::Signer;
use crate::testing::call;
use crate::writer::{Limits, Writer};

fn log(records: usize) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) =
        Writer::open_with(dir.path(), Limits { segment_bytes: 60_000, segment_age: None }).unwrap();
    for first in (0..records).step_by(5) {
        let batch: Vec<_> = (first..records.min(first + 5)).map(call).collect();
        writer.append_batch(&batch).unwrap();
    }
    dir
}

fn check(dir: &Path) -> Report {
    verify(dir, &mut |_| ()).unwrap()
}

fn broken(report: &Report) -> (u64, Damage) {
    match &report.integrity {
        Integrity::Broken(found) => (found.sequence, found.damage),
        Integrity::Intact => panic!("not found"),
    }
}

/// The log as text: segments of lines, each with its newline.
fn load(dir: &Path) -> Text {
    let lines = |path: &PathBuf| {
        fs::read(path).unwrap().split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
    };
    segment::list(dir).unwrap().into_iter().map(|n| n.path(dir)).map(|p| (p.clone(), lines(&p))).collect()
}

/// A small, good, seeded generator; the tests must fail the same way twice.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }
}

#[test]
fn an_intact_log_is_intact() {
    let dir = log(503);
    let mut told = Vec::new();
    let report = verify(dir.path(), &mut |p| told.push(p)).unwrap();
    assert!(report.is_intact());
    assert_eq!((report.records, report.head.unwrap().sequence), (503, 503));
    assert!(report.segments > 3, "{}", report.segments);
    assert_eq!(told.last(), Some(&Progress { done: report.bytes, total: report.bytes }));
    let empty = tempfile::tempdir().unwrap();
    let report = check(empty.path());
    assert!(report.is_intact() && report.records == 0 && report.head.is_none());
    assert!(verify(&empty.path().join("no"), &mut |_| ()).is_err());
}

type Text = Vec<(PathBuf, Vec<Vec<u8>>)>;

/// What a verification must say.
enum Expected {
    Intact,
    /// The stated limit: records are gone from the very end, which only a kept head tells.
    CutFromTheEnd(u64),
    /// In front of the first record nobody can tell which of two logs is the right one.
    Broken,
    BrokenAt(u64, &'static [Damage]),
}

/// A log and everything that can be done to it.
struct Bench {
    good: Text,
    foreign: Text,
    /// Where each record is: segment, line.
    lines: Vec<(usize, usize)>,
}

impl Bench {
    fn new(records: usize) -> Self {
        let (good, foreign) = (load(log(records).path()), load(log(records).path()));
        let lines =
            |(segment, (_, lines)): (usize, &(PathBuf, Vec<_>))| (0..lines.len()).map(move |n| (segment, n));
        let lines = good.iter().enumerate().flat_map(lines).collect();
        Self { good, foreign, lines }
    }

    /// The log's ends and the segments' ends are where mistakes live.
    fn pick(&self, round: usize, dice: &mut Dice) -> usize {
        let second = self.lines.iter().position(|line| line.0 == 1).unwrap();
        match round % 8 {
            0 => 0,
            2 => self.lines.len() - 1,
            4 => second,
            6 => second - 1,
            _ => dice.below(self.lines.len()),
        }
    }

    fn flip(&self, record: usize, dice: &mut Dice) -> (Text, Expected) {
        let (mut text, (segment, line)) = (self.good.clone(), self.lines[record]);
        let bytes = &mut text[segment].1[line];
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
        let damages = &[Damage::Edited, Damage::Malformed, Damage::TornTail];
        (text, Expected::BrokenAt(record as u64 + 1, damages))
    }

    fn delete(&self, record: usize) -> (Text, Expected) {
        let (mut text, (segment, line)) = (self.good.clone(), self.lines[record]);
        text[segment].1.remove(line);
        let sequence = record as u64 + 1;
        let last = record + 1 == self.lines.len();
        let missing = Expected::BrokenAt(sequence, &[Damage::Missing]);
        (text, if last { Expected::CutFromTheEnd(sequence) } else { missing })
    }

    fn duplicate(&self, record: usize, dice: &mut Dice) -> (Text, Expected) {
        let (mut text, (segment, line)) = (self.good.clone(), self.lines[record]);
        let lines = &mut text[segment].1;
        let to = line + dice.below(lines.len() - line);
        lines.insert(to + 1, lines[line].clone());
        let before = self.lines.iter().position(|line| *line == (segment, to)).unwrap();
        (text, Expected::BrokenAt(before as u64 + 2, &[Damage::Duplicated]))
    }

    fn swap(&self, record: usize, dice: &mut Dice) -> (Text, Expected) {
        let mut text = self.good.clone();
        let other = dice.below(self.lines.len());
        let (mine, theirs) = (self.lines[record], self.lines[other]);
        text[mine.0].1[mine.1].clone_from(&self.good[theirs.0].1[theirs.1]);
        text[theirs.0].1[theirs.1].clone_from(&self.good[mine.0].1[mine.1]);
        let first = record.min(other) as u64 + 1;
        let moved = Expected::BrokenAt(first, &[Damage::Reordered]);
        (text, if record == other { Expected::Intact } else { moved })
    }

    fn insert(&self, record: usize, dice: &mut Dice) -> (Text, Expected) {
        let (mut text, (segment, line)) = (self.good.clone(), self.lines[record]);
        let theirs = &self.foreign[segment].1;
        let line_in = match dice.below(3) {
            0 => theirs[line.min(theirs.len() - 1)].clone(),
            1 => b"{}\n".to_vec(),
            _ => b"\n".to_vec(),
        };
        text[segment].1.insert(line, line_in);
        let damages = &[Damage::ForeignLog, Damage::Malformed];
        let found = Expected::BrokenAt(record as u64 + 1, damages);
        (text, if record == 0 { Expected::Broken } else { found })
    }

    /// Cuts the record's segment off somewhere in the record.
    fn truncate(&self, record: usize, dice: &mut Dice) -> (Text, Expected) {
        let (mut text, (segment, line)) = (self.good.clone(), self.lines[record]);
        let last = segment + 1 == text.len();
        let lines = &mut text[segment].1;
        let at = if dice.below(4) == 0 { 0 } else { dice.below(lines[line].len()) };
        lines.truncate(line + 1);
        lines[line].truncate(at);
        let sequence = record as u64 + 1;
        let damages = &[Damage::Missing, Damage::TornTail, Damage::Malformed];
        (
            text,
            if last && at == 0 {
                Expected::CutFromTheEnd(sequence)
            } else {
                Expected::BrokenAt(sequence, damages)
            },
        )
    }
}

#[test]
fn every_mutation_is_found_and_the_first_bad_record_named() {
    let bench = Bench::new(503);
    let (_guard, dir) = written(&bench.good);
    let head = check(&dir).head.unwrap();
    let mut dice = Dice(20_261_121);
    let (mut named, mut limits) = (0, 0);
    for round in 0..480 {
        let record = bench.pick(round, &mut dice);
        let kind = round / 8 % 6;
        let (text, expected) = match kind {
            0 => bench.flip(record, &mut dice),
            1 => bench.delete(record),
            2 => bench.duplicate(record, &mut dice),
            3 => bench.swap(record, &mut dice),
            4 => bench.insert(record, &mut dice),
            _ => bench.truncate(record, &mut dice),
        };
        let (_guard, dir) = written(&text);
        let report = check(&dir);
        match expected {
            Expected::Intact => assert!(report.is_intact()),
            Expected::Broken => assert!(!report.is_intact()),
            Expected::BrokenAt(sequence, damages) => {
                let (found, damage) = broken(&report);
                assert_eq!(found, sequence, "round {round}, kind {kind}, record {}: {damage:?}", record + 1);
                assert!(damages.contains(&damage), "round {round}, kind {kind}: {damage:?}");
                named += 1;
            }
            Expected::CutFromTheEnd(sequence) => {
                assert!(report.is_intact());
                let report = verify_against(&dir, head, &mut |_| ()).unwrap();
                assert_eq!(broken(&report), (sequence, Damage::RolledBack));
                limits += 1;
            }
        }
    }
    assert!(named >= 400 && limits > 0, "{named} {limits}");
}

fn written(text: &Text) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    for (path, lines) in text {
        fs::write(dir.path().join(path.file_name().unwrap()), lines.concat()).unwrap();
    }
    let path = dir.path().to_owned();
    (dir, path)
}

fn mutated(text: &Text) -> Report {
    let (_scratch, dir) = written(text);
    check(&dir)
}

#[test]
fn lost_moved_and_foreign_segments_are_found() {
    let good = load(log(503).path());
    let first_of =
        |index: usize| -> u64 { good[index].0.file_stem().unwrap().to_str().unwrap().parse().unwrap() };

    let mut text = good.clone();
    text.remove(0);
    assert_eq!(broken(&mutated(&text)), (1, Damage::Missing));

    let mut text = good.clone();
    text.remove(1);
    assert_eq!(broken(&mutated(&text)), (first_of(1), Damage::Missing));

    let mut text = good.clone();
    text[1].1.clear();
    assert_eq!(broken(&mutated(&text)), (first_of(1), Damage::Missing));

    let mut text = good.clone();
    let (one, two) = (text[1].1.clone(), text[2].1.clone());
    (text[1].1, text[2].1) = (two, one);
    assert_eq!(broken(&mutated(&text)), (first_of(1), Damage::Reordered));

    let mut text = good.clone();
    let foreign = load(log(503).path());
    text[1].1 = foreign[1].1.clone();
    assert_eq!(broken(&mutated(&text)), (first_of(1), Damage::ForeignLog));
}

/// Somebody edits a record and gives it a true hash again: the next record tells.
#[test]
fn a_record_with_a_recomputed_hash_does_not_fit() {
    let mut text = load(log(20).path());
    let line = String::from_utf8(text[0].1[9].clone()).unwrap();
    let body = line[..line.len() - 76].replace("alice", "mallo");
    let hash = crate::Hash::of(format!("{body}}}").as_bytes());
    text[0].1[9] = format!("{body},\"hash\":\"{hash}\"}}\n").into_bytes();
    assert_eq!(broken(&mutated(&text)), (11, Damage::Unlinked));
}

#[test]
fn a_noted_head_reveals_rollback_and_rewriting() {
    let dir = log(20);
    let head = check(dir.path()).head.unwrap();
    assert!(verify_against(dir.path(), head, &mut |_| ()).unwrap().is_intact());
    let other = log(20);
    let report = verify_against(other.path(), head, &mut |_| ()).unwrap();
    assert_eq!(broken(&report), (20, Damage::RolledBack));
    let shorter = log(10);
    let report = verify_against(shorter.path(), head, &mut |_| ()).unwrap();
    assert_eq!(broken(&report), (11, Damage::RolledBack));
}

#[test]
fn a_log_that_is_being_written_is_proved_up_to_its_head() {
    let dir = log(20);
    let head = check(dir.path()).head.unwrap();
    let path = SegmentName(1).path(dir.path());
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"v\":1,\"log\"");
    fs::write(&path, &text).unwrap();
    assert_eq!(broken(&check(dir.path())), (21, Damage::TornTail));
    let report = verify_up_to(dir.path(), head, &mut |_| ()).unwrap();
    assert!(report.is_intact());
    assert_eq!(report.records, 20);
}

/// Makes a log with a key beside it.
fn signed_log(dir: &Path) -> (PathBuf, Writer, Signer) {
    let log = dir.join("log");
    let (mut writer, _) = Writer::open(&log).unwrap();
    let signer = writer.signer(&dir.join("key")).unwrap();
    writer.append(&call(1)).unwrap();
    writer.checkpoint(&signer).unwrap().unwrap();
    (log, writer, signer)
}

#[test]
fn a_checkpoint_that_is_made_during_verification_is_no_rollback() {
    let dir = tempfile::tempdir().unwrap();
    let (log, mut writer, signer) = signed_log(dir.path());
    let records = usize::try_from(writer.head().unwrap().sequence).unwrap();
    // The verification waits at this name until the writer is done.
    let name = log.join(Checkpoint::file_name(records as u64 + 1));
    assert!(std::process::Command::new("mkfifo").arg(&name).status().unwrap().success());
    let made = std::thread::spawn(move || {
        let mut held = fs::OpenOptions::new().write(true).open(&name).unwrap();
        writer.append(&call(2)).unwrap();
        let note = writer.checkpoint(&signer).unwrap().unwrap().note;
        held.write_all(note.as_bytes()).unwrap();
    });
    let report = check(&log);
    made.join().unwrap();
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(usize::try_from(report.records).unwrap(), records + 2);
}

#[test]
fn a_checkpoint_that_is_removed_during_verification_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (log, ..) = signed_log(dir.path());
    // This name is in the directory, and its file is gone.
    std::os::unix::fs::symlink("gone", log.join(Checkpoint::file_name(1))).unwrap();
    let report = check(&log);
    assert!(report.is_intact(), "{report:?}");
}
