//! A log with everything in it (checkpoints, a rotated key, compressed and removed segments), and everything that can be
//! done to its files by somebody who has no key. Used by the damage test, and by the one that compares two verifiers.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::too_many_lines
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::audit::{self, Event, Hash, Kind, Limits, Policy, Writer};
use serde_json::json;

/// A small, good, seeded generator: what fails once fails again.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

fn call(n: usize) -> Event {
    Event::new(Kind::CallReceipt)
        .run("0192f0c1-0000-7000-8000-000000000001")
        .call(format!("0192f0c1-0000-7000-8000-{n:012}"))
        .agent("alice")
        .operation("read")
        .input(json!({ "path": format!("src/file-{n}.rs") }))
}

/// How a log is made.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) records: usize,
    pub(crate) segment_bytes: u64,
    pub(crate) checkpoint_every: usize,
    /// Rotate the key, remove a sixth of the segments and compress another third.
    pub(crate) rotate: bool,
    pub(crate) tidy: bool,
}

/// Writes a log into `dir` and gives the last record that a checkpoint covers.
pub(crate) fn make(dir: &Path, shape: Shape) -> u64 {
    let limits = Limits { segment_bytes: shape.segment_bytes, segment_age: None };
    let (mut writer, _) = Writer::open_with(dir, limits).unwrap();
    let mut signer = writer.signer(&dir.with_extension("key")).unwrap();
    let write = |writer: &mut Writer, range: std::ops::Range<usize>, signer: &audit::Signer| {
        for first in range.clone().step_by(5) {
            let batch: Vec<_> = (first..range.end.min(first + 5)).map(call).collect();
            writer.append_batch(&batch).unwrap();
            if first % shape.checkpoint_every < 5 {
                writer.checkpoint(signer).unwrap();
            }
        }
    };
    write(&mut writer, 0..shape.records / 2, &signer);
    if shape.rotate {
        writer.rotate(&mut signer).unwrap();
    }
    write(&mut writer, shape.records / 2..shape.records, &signer);
    writer.checkpoint(&signer).unwrap();
    if shape.tidy {
        let covered = writer.covered();
        let bytes = audit::disk_use(dir).unwrap();
        let policy = Policy { keep_bytes: Some(bytes * 5 / 6), ..Policy::default() };
        let removal = audit::removal(dir, &policy, covered).unwrap().unwrap();
        writer.remove(&removal).unwrap();
        audit::sweep(dir).unwrap();
        let policy = Policy { compress_after: Some(Duration::ZERO), ..Policy::default() };
        while audit::compress_next(dir, &policy, covered / 2).unwrap().is_some() {}
        writer.append(&call(0)).unwrap();
        writer.checkpoint(&signer).unwrap();
    }
    writer.covered()
}

/// A segment's lines, each with its newline, and whether it is compressed.
#[derive(Clone)]
struct Segment {
    packed: bool,
    first: u64,
    lines: Vec<Vec<u8>>,
}

/// A log in memory.
pub(crate) struct Bench {
    dir: PathBuf,
    segments: Vec<Segment>,
    foreign: Vec<u8>,
    /// Where each record is: segment, line.
    places: Vec<(usize, usize)>,
    first: u64,
    covered: u64,
    /// Sizes of the checkpoints.
    signed: Vec<u64>,
}

/// What was done, and what must be found.
pub(crate) struct Mutation {
    pub(crate) what: String,
    /// Changed files; `None`: taken away.
    files: BTreeMap<String, Option<Vec<u8>>>,
    pub(crate) first_bad: u64,
}

impl Bench {
    pub(crate) fn new(dir: &Path, covered: u64) -> Self {
        let mut segments = Vec::new();
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        for name in names.iter().filter(|name| name.contains(".jsonl")) {
            let packed = name.ends_with(".gz");
            let bytes = fs::read(dir.join(name)).unwrap();
            let mut text = Vec::new();
            if packed {
                flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut text).unwrap();
            } else {
                text = bytes;
            }
            let lines = text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            segments.push(Segment { packed, first: name[..20].parse().unwrap(), lines });
        }
        let places = |(at, segment): (usize, &Segment)| (0..segment.lines.len()).map(move |line| (at, line));
        let places = segments.iter().enumerate().flat_map(places).collect();
        let foreign = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(foreign.path()).unwrap();
        writer.append_batch(&(0..7).map(call).collect::<Vec<_>>()).unwrap();
        let text = fs::read(foreign.path().join("00000000000000000001.jsonl")).unwrap();
        let foreign = text.split_inclusive(|b| *b == b'\n').next_back().unwrap().to_vec();
        let first = segments[0].first;
        let mut bench =
            Self { dir: dir.to_owned(), segments, foreign, places, first, covered, signed: Vec::new() };
        bench.signed = (first..=covered + 1).filter(|n| bench.is_checkpoint(*n)).map(|n| n - 1).collect();
        bench
    }

    fn line(&self, record: u64) -> &[u8] {
        let (segment, line) = self.places[(record - self.first) as usize];
        &self.segments[segment].lines[line]
    }

    fn is_checkpoint(&self, record: u64) -> bool {
        let kind = b"\"kind\":\"checkpoint\"";
        self.line(record).windows(kind.len()).any(|part| part == kind)
    }

    /// A record that a checkpoint covers: the log's ends, the segments' ends, those beside checkpoints, and any.
    fn pick(&self, dice: &mut Dice) -> u64 {
        let starts: Vec<_> = self.segments.iter().map(|s| s.first).filter(|n| *n <= self.covered).collect();
        let record = match dice.below(8) {
            0 => self.first,
            1 => self.covered,
            2 => starts[dice.below(starts.len())],
            3 => starts[dice.below(starts.len())].max(self.first + 1) - 1,
            4 => self.signed[dice.below(self.signed.len())],
            5 => self.signed[dice.below(self.signed.len())] + 1,
            _ => self.first + dice.below((self.covered - self.first) as usize) as u64,
        };
        record.clamp(self.first, self.covered)
    }

    fn name(segment: &Segment) -> String {
        format!("{:020}.jsonl{}", segment.first, if segment.packed { ".gz" } else { "" })
    }

    fn bytes(segment: &Segment) -> Vec<u8> {
        let text = segment.lines.concat();
        if !segment.packed {
            return text;
        }
        let builder = flate2::GzBuilder::new().mtime(0).operating_system(0xff);
        let mut encoder = builder.write(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(&text).unwrap();
        encoder.finish().unwrap()
    }

    /// One mutation of the given kind; there are [`KINDS`].
    pub(crate) fn mutate(&self, kind: usize, dice: &mut Dice) -> Mutation {
        let record = self.pick(dice);
        let (at, line) = self.places[(record - self.first) as usize];
        let mut segments = BTreeMap::from([(at, self.segments[at].clone())]);
        let lines = |segments: &mut BTreeMap<usize, Segment>| {
            std::mem::take(&mut segments.get_mut(&at).unwrap().lines)
        };
        let mut extra = BTreeMap::new();
        let (what, first_bad) = match kind {
            0 => {
                let mut all = lines(&mut segments);
                let byte = dice.below(all[line].len());
                all[line][byte] ^= 1 << dice.below(8);
                segments.get_mut(&at).unwrap().lines = all;
                (format!("a bit of byte {byte} of record {record} is flipped"), record)
            }
            1 => {
                let mut all = lines(&mut segments);
                all.remove(line);
                segments.get_mut(&at).unwrap().lines = all;
                (format!("record {record} is deleted"), record)
            }
            2 => {
                let mut all = lines(&mut segments);
                let to = line + dice.below(all.len() - line);
                all.insert(to + 1, all[line].clone());
                segments.get_mut(&at).unwrap().lines = all;
                (format!("record {record} is there twice"), self.segments[at].first + to as u64 + 1)
            }
            3 => {
                let mut other = self.pick(dice);
                if other == record {
                    other = if record > self.first { record - 1 } else { record + 1 };
                }
                let (at_other, line_other) = self.places[(other - self.first) as usize];
                segments.entry(at_other).or_insert_with(|| self.segments[at_other].clone());
                segments.get_mut(&at).unwrap().lines[line] = self.line(other).to_vec();
                segments.get_mut(&at_other).unwrap().lines[line_other] = self.line(record).to_vec();
                (format!("records {record} and {other} are swapped"), record.min(other))
            }
            4 => {
                let new = match dice.below(3) {
                    0 => self.foreign.clone(),
                    1 => b"{}\n".to_vec(),
                    _ => b"\n".to_vec(),
                };
                segments.get_mut(&at).unwrap().lines.insert(line, new);
                (format!("something is inserted before record {record}"), record)
            }
            5 => {
                let mut all = lines(&mut segments);
                all.truncate(line + 1);
                let keep = dice.below(all[line].len());
                all[line].truncate(keep);
                segments.get_mut(&at).unwrap().lines = all;
                (format!("the segment ends in record {record}"), record)
            }
            6 => {
                // Everything behind is gone, checkpoints kept beside the log are not.
                let mut all = lines(&mut segments);
                all.truncate(line);
                segments.get_mut(&at).unwrap().lines = all;
                extra.extend(self.segments[at + 1..].iter().map(|segment| (Self::name(segment), None)));
                (format!("the log is cut back to before record {record}"), record)
            }
            7 => {
                // Every hash from here on is computed anew; nothing is signed, for there is no key.
                let from =
                    self.signed.iter().copied().filter(|size| *size < record).max().unwrap_or(self.first - 1);
                let mut previous = None;
                for (index, segment) in self.segments.iter().enumerate().skip(at) {
                    let mut forged = segment.clone();
                    for (n, text) in forged.lines.iter_mut().enumerate() {
                        if index == at && n < line {
                            continue;
                        }
                        *text = forge(text, previous.as_deref(), index == at && n == line);
                        previous = Some(hash_in(text));
                    }
                    segments.insert(index, forged);
                }
                (format!("everything from record {record} on is written anew"), from + 1)
            }
            8 => {
                let segment = &self.segments[dice.below(at + 1)];
                segments.clear();
                extra.insert(Self::name(segment), None);
                (format!("segment {} is deleted", segment.first), segment.first)
            }
            9 => {
                let other = dice.below(self.segments.len() - 1);
                let other = if other == at { other + 1 } else { other };
                let (mut mine, mut theirs) = (self.segments[other].clone(), self.segments[at].clone());
                (mine.first, theirs.first) = (theirs.first, mine.first);
                (mine.packed, theirs.packed) = (theirs.packed, mine.packed);
                segments = BTreeMap::from([(at, mine), (other, theirs)]);
                (format!("segments {at} and {other} are swapped"), self.segments[at.min(other)].first)
            }
            10 => return self.spoil_packed(dice),
            11 => return self.spoil_beside(dice),
            _ => unreachable!("there are only {KINDS} kinds"),
        };
        let mut files = extra;
        files.extend(segments.values().map(|segment| (Self::name(segment), Some(Self::bytes(segment)))));
        Mutation { what, files, first_bad }
    }

    /// The compressed bytes themselves.
    fn spoil_packed(&self, dice: &mut Dice) -> Mutation {
        let packed: Vec<_> = self.segments.iter().filter(|segment| segment.packed).collect();
        if packed.is_empty() {
            return self.mutate(0, dice);
        }
        let segment = packed[dice.below(packed.len())];
        let mut bytes = fs::read(self.dir.join(Self::name(segment))).unwrap();
        let at = dice.below(bytes.len());
        let what = match dice.below(4) {
            0 => {
                bytes.truncate(at);
                "cut"
            }
            1 => {
                bytes.extend_from_slice(b"\0");
                "longer"
            }
            _ => {
                bytes[at] ^= 1 << dice.below(8);
                "changed"
            }
        };
        let what = format!("the bytes of compressed segment {} are {what} at {at}", segment.first);
        Mutation {
            what,
            files: BTreeMap::from([(Self::name(segment), Some(bytes))]),
            first_bad: segment.first,
        }
    }

    /// Checkpoints beside the segments, and the record of the removal.
    fn spoil_beside(&self, dice: &mut Dice) -> Mutation {
        let removed = self.dir.join("removed");
        if removed.exists() && dice.below(3) == 0 {
            let mut bytes = fs::read(removed).unwrap();
            let at = dice.below(bytes.len());
            let gone = dice.below(3) == 0;
            bytes[at] ^= 1 << dice.below(8);
            let what = format!("the record of the removal is gone: {gone}, or changed at {at}");
            let files = BTreeMap::from([("removed".to_owned(), (!gone).then_some(bytes))]);
            return Mutation { what, files, first_bad: 1 };
        }
        let known: Vec<_> = self.signed.iter().filter(|size| **size >= self.first).collect();
        let size = *known[dice.below(known.len())];
        let name = format!("checkpoints/{size:020}.txt");
        let mut bytes = fs::read(self.dir.join(&name)).unwrap();
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
        let what = format!("checkpoint {size} is changed at {at}");
        Mutation { what, files: BTreeMap::from([(name, Some(bytes))]), first_bad: size }
    }

    /// The log with the mutation, in a directory that is made for it: what is not changed is linked.
    pub(crate) fn write(&self, mutation: &Mutation, to: &Path) {
        fs::create_dir_all(to.join("checkpoints")).unwrap();
        for sub in ["", "checkpoints"] {
            for entry in fs::read_dir(self.dir.join(sub)).into_iter().flatten() {
                let entry = entry.unwrap();
                let name = Path::new(sub).join(entry.file_name()).to_str().unwrap().to_owned();
                if entry.path().is_file() && !mutation.files.contains_key(&name) {
                    fs::hard_link(entry.path(), to.join(name)).unwrap();
                }
            }
        }
        for (name, bytes) in &mutation.files {
            if let Some(bytes) = bytes {
                fs::write(to.join(name), bytes).unwrap();
            }
        }
    }
}

/// How many kinds of mutations there are.
pub(crate) const KINDS: usize = 12;

fn hash_in(line: &[u8]) -> String {
    String::from_utf8(line[line.len() - 67..line.len() - 3].to_vec()).unwrap()
}

/// A record with another predecessor, or another content, and a hash that is true again.
fn forge(line: &[u8], previous: Option<&str>, change: bool) -> Vec<u8> {
    let text = String::from_utf8(line.to_vec()).unwrap();
    let mut body = text[..text.len() - 76].to_owned();
    if let Some(previous) = previous {
        let at = body.find("\"previous\":\"").unwrap() + 12;
        body.replace_range(at..at + 64, previous);
    }
    if change {
        let at = body.find("\"time\":\"").unwrap() + 8;
        body.replace_range(at..at + 4, "1999");
    }
    let hash = Hash::of(format!("{body}}}").as_bytes());
    format!("{body},\"hash\":\"{hash}\"}}\n").into_bytes()
}
