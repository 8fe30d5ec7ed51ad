//! Fails at the Nth operation, for every N, in every way and with every aftermath, like the tests of SQLite.
//!
//! The simulated disk is worse than most. A failed sync forgets which pages were dirty, so that they can be read but are never written. A
//! loss of power keeps only the synced pages and some of the others, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::*;
use crate::checkpoint::Checkpoint;
use crate::event::Kind;
use crate::hash::Hash;
use crate::ledger::{Ledger, Mark};
use crate::lines::{Lines, Next, ReadAt};
use crate::recovery::{self, OpenError, Opened};
use crate::segment::Segment;
use crate::signer::Signer;
use crate::testing::call;

/// Size of a page in bytes. It is small, so that lines span pages.
const PAGE: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The operation fails and has no effect, except that a failed sync forgets which pages were dirty.
    Fails,
    /// A write takes half of its bytes, and the next one finds the disk full.
    Short,
}

#[derive(Debug, Clone, Copy)]
enum Aftermath {
    /// The process starts again, and the machine continued.
    Restart,
    /// Power loss after this share of the dirty pages (in tenths) had reached the disk, in order.
    PowerLoss(usize),
}

#[derive(Default)]
struct Inode {
    seen: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    name_is_durable: bool,
}

impl Inode {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        self.seen.resize(self.seen.len().max(offset + bytes.len()), 0);
        self.seen[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.dirty.extend(offset / PAGE..(offset + bytes.len()).div_ceil(PAGE));
    }

    fn flush(&mut self, page: usize) {
        let end = ((page + 1) * PAGE).min(self.seen.len());
        let start = (page * PAGE).min(end);
        self.durable.resize(self.durable.len().max(end), 0);
        self.durable[start..end].copy_from_slice(&self.seen[start..end]);
    }

    fn sync(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            self.flush(page);
        }
        self.durable.resize(self.seen.len(), 0);
    }

    fn lose_power(&mut self, tenths: usize) {
        let dirty = std::mem::take(&mut self.dirty);
        for page in dirty.iter().take(dirty.len() * tenths / 10) {
            self.flush(*page);
        }
        self.seen = self.durable.clone();
    }
}

#[derive(Default)]
struct State {
    files: BTreeMap<SegmentName, Inode>,
    /// Files beside the segments. Each is durable as a whole, or absent.
    beside: BTreeMap<String, Vec<u8>>,
    operations: usize,
    fail_at: Option<(usize, Fault)>,
    full: bool,
    /// A file of the host that disappears as soon as records are durable.
    lose: Option<PathBuf>,
}

impl State {
    /// Counts an operation, and returns the fault if it must fail.
    fn operation(&mut self) -> Option<Fault> {
        self.operations += 1;
        self.fail_at.filter(|(at, _)| *at == self.operations).map(|(_, fault)| fault)
    }

    fn plain(&mut self) -> io::Result<()> {
        match self.operation() {
            Some(_) => Err(io::Error::other("EIO")),
            None => Ok(()),
        }
    }

    fn file(&mut self, name: SegmentName) -> io::Result<&mut Inode> {
        self.files.get_mut(&name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    fn fail_at(&self, fault: Option<(usize, Fault)>) {
        let mut state = self.state();
        state.operations = 0;
        state.fail_at = fault;
        state.full = false;
    }

    fn suffer(&self, aftermath: Aftermath) {
        if let Aftermath::PowerLoss(tenths) = aftermath {
            let mut state = self.state();
            state.files.retain(|_, file| file.name_is_durable);
            state.files.values_mut().for_each(|file| file.lose_power(tenths));
        }
    }

    fn open(&self) -> Result<(Writer, Opened), OpenError> {
        recovery::open(Box::new(self.clone()), Limits { segment_bytes: 1500, segment_age: None })
    }

    /// Verifies the whole chain and returns the call id of every record.
    fn calls(&self) -> Vec<(u64, String)> {
        let state = self.state();
        let mut ledger = Ledger::genesis();
        let mut calls = Vec::new();
        for (name, file) in &state.files {
            assert_eq!(name.0, ledger.chain.next());
            let mut lines = Lines::new(&file.seen[..], 0);
            loop {
                match lines.next().unwrap() {
                    Next::Line { at, .. } => {
                        let root = ledger.tree().root();
                        let (envelope, mark) = ledger.accept(lines.bytes(&at)).unwrap();
                        if let Some(Mark::Checkpoint(note)) = mark {
                            assert_eq!(Checkpoint::parse(&note).unwrap().root, root);
                        }
                        let record = crate::canonical::record(&envelope, lines.bytes(&at)).unwrap();
                        calls.push((record.sequence, record.event.call_id.unwrap_or_default()));
                    }
                    Next::End => break,
                    other => panic!("{other:?}"),
                }
            }
        }
        calls
    }
}

impl Storage for Memory {
    fn segments(&mut self) -> io::Result<Vec<Segment>> {
        let mut state = self.state();
        state.plain()?;
        Ok(state.files.keys().copied().map(Segment::plain).collect())
    }

    fn read(&mut self, segment: Segment) -> io::Result<Box<dyn ReadAt + Send>> {
        let mut state = self.state();
        state.plain()?;
        state.file(segment.name)?;
        Ok(Box::new(Handle { disk: self.clone(), name: segment.name }))
    }

    fn store(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.plain()?;
        state.beside.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn load(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state();
        state.plain()?;
        Ok(state.beside.get(name).cloned())
    }

    fn create(&mut self, name: SegmentName) -> io::Result<Box<dyn SegmentFile>> {
        let mut state = self.state();
        state.plain()?;
        assert!(state.files.insert(name, Inode::default()).is_none(), "{name} is there already");
        Ok(Box::new(Handle { disk: self.clone(), name }))
    }

    fn open(&mut self, name: SegmentName) -> io::Result<Box<dyn SegmentFile>> {
        let mut state = self.state();
        state.plain()?;
        state.file(name)?;
        Ok(Box::new(Handle { disk: self.clone(), name }))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        let mut state = self.state();
        state.plain()?;
        state.files.values_mut().for_each(|file| file.name_is_durable = true);
        Ok(())
    }
}

struct Handle {
    disk: Memory,
    name: SegmentName,
}

impl ReadAt for Handle {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.plain()?;
        (&state.file(self.name)?.seen[..]).read_at(buffer, offset)
    }
}

impl SegmentFile for Handle {
    fn length(&mut self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.plain()?;
        Ok(state.file(self.name)?.seen.len() as u64)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        let fault = state.operation();
        if state.full || fault == Some(Fault::Fails) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.full = fault == Some(Fault::Short);
        let count = if state.full { bytes.len() / 2 } else { bytes.len() };
        state.file(self.name)?.write(&bytes[..count], usize::try_from(offset).unwrap());
        Ok(count)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.plain()?;
        let length = usize::try_from(length).unwrap();
        let file = state.file(self.name)?;
        file.seen.truncate(length);
        file.dirty.retain(|page| page * PAGE < length);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let failed = state.plain();
        if let Some(path) = &state.lose {
            let _ = std::fs::rename(path, path.with_extension("lost"));
        }
        let file = state.file(self.name)?;
        match failed {
            Ok(()) => file.sync(),
            Err(_) => file.dirty.clear(),
        }
        failed
    }
}

/// Appends batches until one fails, and returns the acknowledged records and whether all succeeded.
fn load(writer: &mut Writer, first: usize) -> (Vec<(u64, String)>, bool) {
    let mut acknowledged = Vec::new();
    let mut n = first;
    for size in [1, 3, 2, 1, 4, 1] {
        if size == 4 && !checkpoint(writer) {
            return (acknowledged, false);
        }
        let batch: Vec<_> = (n..n + size).map(call).collect();
        n += size;
        match writer.append_batch(&batch) {
            Ok(records) => {
                acknowledged
                    .extend(records.into_iter().map(|r| (r.sequence, r.event.call_id.unwrap_or_default())));
            }
            Err(error) => {
                assert!(matches!(error, AppendError::Io { .. }), "{error}");
                let head = writer.head();
                assert!(matches!(writer.append(&call(0)), Err(AppendError::Poisoned(_))));
                assert!(writer.is_poisoned());
                assert_eq!(writer.head(), head);
                return (acknowledged, false);
            }
        }
    }
    (acknowledged, true)
}

/// Signs all records. Returns false if the log failed. If only the file cannot be stored, the log continues without it.
fn checkpoint(writer: &mut Writer) -> bool {
    let made = writer.checkpoint(&Signer::fixed(writer.log_id(), 7));
    assert!(!matches!(made, Err(AppendError::Encode(_))), "{made:?}");
    !writer.is_poisoned()
}

fn must_hold(disk: &Memory, acknowledged: &[(u64, String)], context: &str) {
    let calls = disk.calls();
    for (sequence, call) in acknowledged {
        let found = usize::try_from(*sequence - 1).ok().and_then(|at| calls.get(at));
        assert_eq!(found, Some(&(*sequence, call.clone())), "{context}");
    }
}

/// Simulates one life of a log with a fault at operation `n`. Returns true if the fault was reached.
fn live(n: usize, fault: Fault, aftermath: Aftermath, torn_start: bool) -> bool {
    let context = format!("fault {fault:?} at operation {n}, then {aftermath:?}, torn start: {torn_start}");
    let disk = Memory::default();
    let (mut writer, _) = disk.open().unwrap();
    let (mut acknowledged, _) = load(&mut writer, 1);
    drop(writer);
    if torn_start {
        let mut state = disk.state();
        let file = state.files.values_mut().next_back().unwrap();
        let end = file.seen.len();
        file.write(b"{\"v\":1,\"log\":\"0001", end);
        file.sync();
    }

    disk.fail_at(Some((n, fault)));
    if let Ok((mut writer, _)) = disk.open() {
        acknowledged.extend(load(&mut writer, 100).0);
    }
    let reached = disk.state().operations >= n;
    disk.fail_at(None);
    disk.suffer(aftermath);

    let (mut writer, _) = disk.open().unwrap_or_else(|error| panic!("{context}: {error}"));
    must_hold(&disk, &acknowledged, &context);
    acknowledged.extend(load(&mut writer, 200).0);
    drop(writer);
    disk.suffer(Aftermath::PowerLoss(0));
    must_hold(&disk, &acknowledged, &context);
    let (writer, opened) = disk.open().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(opened.repaired, None, "{context}");
    assert_eq!(writer.head().map(|head| head.sequence), acknowledged.last().map(|last| last.0), "{context}");
    reached
}

#[test]
fn no_acknowledged_record_is_lost_wherever_the_disk_fails() {
    let aftermaths = [0, 3, 5, 8, 10].map(Aftermath::PowerLoss).into_iter().chain([Aftermath::Restart]);
    let mut lives = 0;
    for aftermath in aftermaths {
        for fault in [Fault::Fails, Fault::Short] {
            for torn_start in [false, true] {
                let mut n = 1;
                while live(n, fault, aftermath, torn_start) {
                    n += 1;
                    lives += 1;
                }
                assert!(n > 20, "the loop must reach the end of the load, not stop at operation {n}");
            }
        }
    }
    assert!(lives > 500, "{lives}");
}

/// Changes the key with a fault at operation `n` of the disk, or without its next key's file. Returns true if the fault was reached.
fn rotate(n: usize, loses_key: bool) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let (key, next) = (dir.path().join("key"), dir.path().join("key.next"));
    let disk = Memory::default();
    let (mut writer, _) = disk.open().unwrap();
    let mut signer = writer.signer(&key).unwrap();
    writer.append(&call(1)).unwrap();
    disk.fail_at(Some((n, Fault::Fails)));
    disk.state().lose = loses_key.then(|| next.clone());
    let rotated = writer.rotate(&mut signer);
    let reached = disk.state().operations >= n;
    disk.fail_at(None);
    disk.state().lose = None;
    if writer.is_poisoned() {
        drop(writer);
        let _ = std::fs::rename(next.with_extension("lost"), &next);
        writer = disk.open().unwrap().0;
        writer.resume_signer(&mut signer).unwrap();
    }
    writer.append(&call(2)).unwrap();
    let checkpoint = writer.checkpoint(&signer).unwrap().unwrap();
    let named = writer.ledger.key().unwrap();
    assert!(checkpoint.is_signed_by(&named), "operation {n}, loses its key: {loses_key}: {rotated:?}");
    assert_eq!(Signer::open(&key, writer.log_id(), Some(&named)).unwrap().verifier_key(), &named);
    reached
}

#[test]
fn a_key_that_the_log_has_replaced_signs_nothing() {
    let mut n = 1;
    while rotate(n, false) {
        n += 1;
    }
    assert!(n > 5, "{n}");
    rotate(usize::MAX, true);
}

/// Simulates a crash at every byte of an append. Whole records remain, a torn one is cut off and recorded, and the log continues.
#[test]
fn a_log_cut_at_any_byte_is_repaired_and_continues() {
    let disk = Memory::default();
    let (mut writer, _) = disk.open().unwrap();
    writer.append_batch(&[call(1), call(2)]).unwrap();
    let whole = disk.state().files[&SegmentName(1)].seen.len();
    writer.append_batch(&[call(3), call(4)]).unwrap();
    let bytes = disk.state().files[&SegmentName(1)].seen.clone();
    let ends: Vec<_> = (1..=bytes.len()).filter(|end| bytes[end - 1] == b'\n').collect();
    assert_eq!(ends.len(), 4);

    for cut in whole..=bytes.len() {
        let disk = Memory::default();
        let file = Inode { seen: bytes[..cut].to_vec(), ..Inode::default() };
        disk.state().files.insert(SegmentName(1), file);
        let kept: Vec<_> = ends.iter().filter(|end| **end <= cut).collect();
        let torn = (cut - **kept.last().unwrap()) as u64;

        let (mut writer, opened) = disk.open().unwrap();
        assert_eq!(opened.head.map(|head| head.sequence), Some(kept.len() as u64));
        assert_eq!(opened.repaired.as_ref().map_or(0, |repair| repair.bytes), torn, "cut at {cut}");
        if let Some(repair) = &opened.repaired {
            assert_eq!(repair.record.event.kind, Kind::LogRepaired);
            assert_eq!(repair.record.event.details.as_ref().unwrap()["bytes"], torn);
            assert_eq!(repair.sha256, Hash::of(&bytes[cut - usize::try_from(torn).unwrap()..cut]));
        }
        writer.append(&call(5)).unwrap();
        disk.suffer(Aftermath::PowerLoss(0));
        assert_eq!(disk.calls().len(), kept.len() + 1 + usize::from(torn > 0));
    }
}
