//! Stores a process's output: the beginning and the end of each stream, in pieces of one sealed file each.
//!
//! A piece is named by the offset of its first byte. When a stream exceeds its bound, the oldest piece of its second half is
//! removed.
//!
//! Stored bytes count against the run's allowance. When the allowance is used up, the stream keeps the share that it has: its
//! middle is removed to make space for its end. Each stream gets the minimum that this needs at its start.
//!
//! The keystream of a byte depends on its offset in the stream, so no part of the key is used twice. Bytes that the disk does not
//! take are counted but not stored, and the process goes on.

#![expect(clippy::disallowed_methods, reason = "the daemon's own files, which no run sees")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use seal::{StreamKey, Tail, plain_length, sealed_length};
use store::allowance::{Allowance, Share, cost};
use tokio::sync::watch;

use crate::disk::ProcessFiles;

/// Names of the streams, in files and keys.
const STREAMS: [&str; 2] = ["stdout", "stderr"];
/// Most bytes of a piece.
const PIECE: u64 = 256 * seal::PIECE;
/// Fewest bytes of a piece, where a stream may have more than a few of them. A multiple of the blocks of a disk.
const SMALL: u64 = 2 * seal::PIECE;
/// Number of pieces of a stream that may have few bytes, or has few yet, so that its middle can be removed in small parts.
const PIECES: u64 = 8;
/// Bytes of the allowance that a stream has from its start.
const LEAST: u64 = 256 << 10;
/// Bytes of the allowance for a process's records, before and after its end, and its directory.
const KNOWN: u64 = 96 << 10;

/// The stored output of one process. All of its functions but `ends` block on the disk.
pub(crate) struct Output {
    files: ProcessFiles,
    key: Arc<StreamKey>,
    /// Most bytes that are kept of each stream.
    most: u64,
    /// Bytes that must stay free in the file system.
    min_free: u64,
    streams: Mutex<[Stream; 2]>,
    ends: watch::Sender<[u64; 2]>,
    share: Share,
    /// Bytes of the share that are for the process's records.
    known: u64,
}

#[derive(Debug, Default)]
struct Stream {
    pieces: Vec<Piece>,
    /// End of the last piece.
    tail: Tail,
    end: u64,
    /// Bytes of the share that the stream holds. Its pieces take at most as many on the disk.
    held: u64,
}

impl Stream {
    fn total(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.length).sum()
    }

    fn cost(&self) -> u64 {
        self.pieces.iter().map(|piece| cost(sealed_length(piece.length))).sum()
    }

    /// Removes and returns the oldest piece from this byte on that is not the last one.
    fn take_middle(&mut self, from: u64) -> Option<Piece> {
        let last = self.pieces.len().checked_sub(1)?;
        let middle = self.pieces.iter().position(|piece| piece.start >= from)?;
        (middle < last).then(|| self.pieces.remove(middle))
    }
}

#[derive(Debug)]
struct Piece {
    start: u64,
    length: u64,
}

/// The content of a stream at an offset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Bytes(Vec<u8>),
    /// The next bytes, of this number, are missing.
    Gap(u64),
    /// No byte is written there yet.
    End,
}

impl Output {
    /// Takes the least share of a new process from its run's allowance; `None`: the allowance is used up.
    pub(crate) fn share(allowance: &Arc<Allowance>) -> Option<Share> {
        Share::begin(allowance, KNOWN + 2 * LEAST)
    }

    /// Returns the output of a new process.
    pub(crate) fn new(
        files: ProcessFiles,
        key: Arc<StreamKey>,
        most: u64,
        min_free: u64,
        share: Share,
    ) -> Self {
        let streams = [(); 2].map(|()| Stream { held: LEAST, ..Stream::default() });
        let (streams, ends) = (Mutex::new(streams), watch::Sender::new([0; 2]));
        Self { files, key, most, min_free, streams, ends, share, known: KNOWN }
    }

    /// Returns the output of an earlier daemon's process. Enters the size of its files, even beyond the limit.
    pub(crate) fn open(
        files: ProcessFiles,
        key: Arc<StreamKey>,
        most: u64,
        min_free: u64,
        allowance: &Arc<Allowance>,
        ends: Option<[u64; 2]>,
    ) -> io::Result<Self> {
        let mut streams = <[Stream; 2]>::default();
        let mut known = 0;
        for entry in std::fs::read_dir(files.directory())? {
            let entry = entry?;
            let length = entry.metadata()?.len();
            match entry.file_name().to_str().and_then(parse) {
                Some((at, start)) => {
                    streams[at].pieces.push(Piece { start, length: plain_length(length) });
                }
                None => known += cost(length),
            }
        }
        let known = known.max(KNOWN);
        for (at, stream) in streams.iter_mut().enumerate() {
            stream.pieces.sort_by_key(|piece| piece.start);
            if let Some(last) = stream.pieces.last_mut().filter(|_| ends.is_none()) {
                let file = OpenOptions::new().read(true).write(true).open(path(&files, at, last.start))?;
                stream.tail = key.resume(&name(&files, at, last.start), &file)?;
                last.length = stream.tail.length();
            }
            stream.end = stream.pieces.last().map_or(0, |piece| piece.start + piece.length);
            if let Some(recorded) = ends.map(|ends| ends[at]).filter(|recorded| *recorded != stream.end) {
                tracing::warn!(
                    run = %files.run, process = %files.id, stream = STREAMS[at], recorded, found = stream.end,
                    "the files of a process lack the end of its output: the disk was full, or they were cut"
                );
                stream.end = stream.end.max(recorded);
            }
            stream.held = stream.cost().max(LEAST);
        }
        let share =
            Share::of_former(allowance, known + streams.iter().map(|stream| stream.held).sum::<u64>());
        let ends = watch::Sender::new(streams.each_ref().map(|stream| stream.end));
        Ok(Self { files, key, most, min_free, streams: Mutex::new(streams), ends, share, known })
    }

    /// Returns the unused part of the share, since no further output comes.
    pub(crate) fn settle(&self) {
        let mut streams = self.streams.lock();
        for stream in streams.iter_mut() {
            stream.held = stream.cost();
        }
        self.share.shrink_to(self.known + streams.iter().map(|stream| stream.held).sum::<u64>());
    }

    /// Returns the whole share, since the files are removed.
    pub(crate) fn is_removed(&self) {
        self.share.shrink_to(0);
    }

    /// Returns the number of bytes that each stream has had so far.
    pub(crate) fn ends(&self) -> [u64; 2] {
        *self.ends.borrow()
    }

    /// Returns these numbers as they grow.
    pub(crate) fn follow(&self) -> watch::Receiver<[u64; 2]> {
        self.ends.subscribe()
    }

    /// Adds bytes that begin at `offset`. Skips bytes that the stream has already.
    pub(crate) fn append(&self, at: usize, offset: u64, data: &[u8]) {
        let mut streams = self.streams.lock();
        let stream = &mut streams[at];
        let skipped = usize::try_from(stream.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(mut rest) = data.get(skipped..).filter(|rest| !rest.is_empty()) else { return };
        let mut offset = offset + skipped as u64;
        while !rest.is_empty() {
            let part = stream.total() / PIECES / SMALL * SMALL;
            let size = PIECE.min(self.most / PIECES).min(part.max(SMALL)).max(1);
            let grows =
                |piece: &&Piece| piece.start + piece.length == offset && piece.length == stream.tail.length();
            let free = stream.pieces.last().filter(grows);
            let free = free.map_or(0, |piece| size.saturating_sub(piece.length));
            if free == 0 {
                // An empty piece has no file.
                stream.pieces.pop_if(|piece| piece.length == 0);
                stream.pieces.push(Piece { start: offset, length: 0 });
                stream.tail = Tail::default();
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(usize::try_from(free).unwrap_or(usize::MAX)));
            let has_room = self.make_room(at, stream, now.len() as u64);
            if let Some(piece) = stream.pieces.last_mut().filter(|_| has_room) {
                if let Err(error) = self.write(at, piece.start, &mut stream.tail, now) {
                    tracing::debug!(%error, "output of a process could not be stored");
                }
                piece.length = stream.tail.length();
            }
            offset += now.len() as u64;
            rest = later;
        }
        stream.pieces.pop_if(|piece| piece.length == 0);
        stream.end = offset;
        self.shrink(at, stream);
        let end = stream.end;
        self.ends.send_modify(|ends| ends[at] = end);
    }

    /// Reads at most `most` bytes of a stream from `offset` on.
    pub(crate) fn read(&self, at: usize, offset: u64, most: usize) -> io::Result<Found> {
        // Held until the end, so that a tail is not read while it is written again.
        let streams = self.streams.lock();
        let start = {
            let stream = &streams[at];
            if offset >= stream.end {
                return Ok(Found::End);
            }
            let next = stream.pieces.iter().find(|piece| piece.start + piece.length > offset);
            match next {
                Some(piece) if piece.start <= offset => piece.start,
                Some(piece) => return Ok(Found::Gap(piece.start - offset)),
                None => return Ok(Found::Gap(stream.end - offset)),
            }
        };
        let file = File::open(path(&self.files, at, start))?;
        let read = self.key.read(&name(&self.files, at, start), &file, offset - start, most)?;
        if read.data.is_empty() && most > 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a file has become shorter"));
        }
        Ok(Found::Bytes(read.data))
    }

    fn write(&self, at: usize, start: u64, tail: &mut Tail, data: &[u8]) -> io::Result<()> {
        if self.min_free > 0 {
            let system = rustix::fs::statvfs(self.files.directory())?;
            if system.f_bavail.saturating_mul(system.f_frsize) < self.min_free {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let path = path(&self.files, at, start);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        self.key.append(&name(&self.files, at, start), &file, tail, data).1
    }

    /// Makes space for so many bytes in the last piece. Returns true if there is space.
    ///
    /// It takes them from the run's allowance or, if that is used up, from the middle of the stream.
    fn make_room(&self, at: usize, stream: &mut Stream, bytes: u64) -> bool {
        let last = stream.pieces.last().map_or(0, |piece| piece.length);
        let more = cost(sealed_length(last + bytes)) - cost(sealed_length(last));
        let lacks = |stream: &Stream| (stream.cost() + more).saturating_sub(stream.held);
        let wanted = lacks(stream);
        if wanted == 0 {
            return true;
        }
        if self.share.grow(wanted) {
            stream.held += wanted;
            return true;
        }
        let half = stream.total() / 2;
        while lacks(stream) > 0 {
            let Some(gone) = stream.take_middle(half) else { return false };
            self.remove(at, &gone);
        }
        true
    }

    /// Removes pieces from the middle until the stream is within its bound.
    fn shrink(&self, at: usize, stream: &mut Stream) {
        while stream.total() > self.most {
            let Some(gone) = stream.take_middle(self.most / 2) else { return };
            self.remove(at, &gone);
        }
    }

    fn remove(&self, at: usize, gone: &Piece) {
        if let Err(error) = std::fs::remove_file(path(&self.files, at, gone.start)) {
            tracing::warn!(%error, "a piece of a process's output was not removed");
        }
    }
}

fn path(files: &ProcessFiles, at: usize, start: u64) -> PathBuf {
    files.directory().join(format!("{}.{start}.sealed", STREAMS[at]))
}

/// Name under which a file is sealed.
fn name(files: &ProcessFiles, at: usize, start: u64) -> String {
    format!("{} {} {} {start}", files.run, files.id, STREAMS[at])
}

fn parse(name: &str) -> Option<(usize, u64)> {
    let (stream, start) = name.strip_suffix(".sealed")?.split_once('.')?;
    Some((STREAMS.iter().position(|known| *known == stream)?, start.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use identity::{CallId, RunId};

    use super::*;

    fn files(root: &std::path::Path) -> ProcessFiles {
        let files = ProcessFiles::new(root, RunId::new(), CallId::new());
        files.make().unwrap();
        files
    }

    fn open(files: &ProcessFiles, most: u64) -> Output {
        open_of(files, most, &Allowance::new(u64::MAX))
    }

    fn open_of(files: &ProcessFiles, most: u64, allowance: &Arc<Allowance>) -> Output {
        let key = Arc::new(StreamKey::from_bytes([3; 32]));
        Output::open(files.clone(), key, most, 0, allowance, None).unwrap()
    }

    fn start(files: &ProcessFiles, most: u64, allowance: &Arc<Allowance>) -> Option<Output> {
        let key = Arc::new(StreamKey::from_bytes([3; 32]));
        Some(Output::new(files.clone(), key, most, 0, Output::share(allowance)?))
    }

    /// What a directory takes on the disk.
    fn taken(files: &ProcessFiles) -> u64 {
        let entries = std::fs::read_dir(files.directory()).unwrap();
        entries.map(|entry| cost(entry.unwrap().metadata().unwrap().len())).sum()
    }

    /// The byte at each offset of a stream.
    fn flood(from: u64, bytes: u64) -> Vec<u8> {
        (from..from + bytes).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    /// Everything that is there, with gaps.
    fn all(output: &Output, at: usize) -> Vec<Result<Vec<u8>, u64>> {
        all_by(output, at, 7)
    }

    fn all_by(output: &Output, at: usize, piece: usize) -> Vec<Result<Vec<u8>, u64>> {
        let (mut offset, mut found) = (0, Vec::new());
        loop {
            match output.read(at, offset, piece).unwrap() {
                Found::Bytes(bytes) => {
                    offset += bytes.len() as u64;
                    match found.last_mut() {
                        Some(Ok(before)) => Vec::extend(before, bytes),
                        _ => found.push(Ok(bytes)),
                    }
                }
                Found::Gap(bytes) => {
                    offset += bytes;
                    match found.last_mut() {
                        Some(Err(before)) => *before += bytes,
                        _ => found.push(Err(bytes)),
                    }
                }
                Found::End => return found,
            }
        }
    }

    #[test]
    fn the_beginning_and_the_end_are_kept_and_the_rest_is_counted() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        let output = open(&files, 80);
        let written: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        for (number, piece) in written.chunks(33).enumerate() {
            output.append(0, number as u64 * 33, piece);
        }
        let found = all(&output, 0);
        let [Ok(first), Err(gap), Ok(last)] = &found[..] else { panic!("{found:?}") };
        assert!(first.len() >= 40 && last.len() >= 30 && first.len() + last.len() <= 80, "{found:?}");
        assert_eq!(first[..], written[..first.len()]);
        assert_eq!(last[..], written[1_000 - last.len()..]);
        assert_eq!(first.len() as u64 + gap + last.len() as u64, 1_000);
        assert_eq!((output.ends(), all(&output, 1)), ([1_000, 0], vec![]));

        // The next daemon finds the same, and goes on where this one was.
        drop(output);
        let output = open(&files, 80);
        assert_eq!((output.ends(), all(&output, 0)), ([1_000, 0], found));
        output.append(0, 990, b"0123456789more");
        assert_eq!(output.ends(), [1_004, 0]);
        assert_eq!(output.read(0, 1_000, 10).unwrap(), Found::Bytes(b"more".to_vec()));
    }

    /// Many processes write without end. Each has its beginning and its end, all of them no more than the run may keep, and a
    /// recording still has space.
    #[test]
    fn processes_of_a_run_share_its_output_allowance() {
        let root = tempfile::tempdir().unwrap();
        let allowance = Allowance::new(16 << 20);
        let all_files: Vec<_> = (0..6).map(|_| files(root.path())).collect();
        let outputs: Vec<_> =
            all_files.iter().map(|files| start(files, 8 << 20, &allowance).unwrap()).collect();
        let total = 12 << 20;
        for offset in (0..total).step_by(64 << 10) {
            let data = flood(offset, 64 << 10);
            for output in &outputs {
                output.append(0, offset, &data);
            }
        }
        let on_disk: u64 = all_files.iter().map(taken).sum();
        assert!(on_disk <= allowance.used() && allowance.used() <= 14 << 20, "{on_disk} {allowance:?}");
        assert!(on_disk > 8 << 20, "what may be kept is: {on_disk}");
        for output in &outputs {
            let found = all_by(output, 0, 64 << 10);
            let [Ok(first), Err(gap), Ok(last)] = &found[..] else { panic!("{} parts", found.len()) };
            assert_eq!(first.len() as u64 + gap + last.len() as u64, total, "everything is counted");
            assert!(first.len() > 128 << 10 && last.len() > 128 << 10, "{} {}", first.len(), last.len());
            assert!(*first == flood(0, first.len() as u64));
            assert!(*last == flood(total - last.len() as u64, last.len() as u64));
        }

        // The next daemon finds the same account, and no space either.
        let used = allowance.used();
        drop(outputs);
        assert_eq!(allowance.used(), 0);
        let outputs: Vec<_> = all_files.iter().map(|files| open_of(files, 8 << 20, &allowance)).collect();
        assert!(allowance.used() <= used && allowance.used() >= on_disk, "{used} {allowance:?}");
        outputs[0].append(1, 0, &flood(0, 5 << 20));
        assert!(taken(&all_files[0]) < 4 << 20 && allowance.used() <= 14 << 20);

        // One that has ended gives back the rest of its least, and all of it when it is removed.
        let before = allowance.used();
        outputs[1].settle();
        assert_eq!(allowance.used(), before - LEAST);
        outputs[1].is_removed();
        assert_eq!(allowance.used(), before - LEAST - KNOWN - taken(&all_files[1]));
    }

    #[test]
    fn nothing_is_started_without_space_for_the_minimum_which_holds_both_ends() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        let allowance = Allowance::new(2 * (KNOWN + 2 * LEAST));
        let output = start(&files, 8 << 20, &allowance).unwrap();
        assert!(start(&files, 8 << 20, &allowance).is_none(), "an eighth is for recordings");
        while allowance.take(store::allowance::Purpose::Recording, 4096) {}
        for offset in (0..4 << 20).step_by(10_000) {
            output.append(1, offset, &flood(offset, 10_000));
        }
        let found = all_by(&output, 1, 64 << 10);
        let [Ok(first), Err(_), Ok(last)] = &found[..] else { panic!("{} parts", found.len()) };
        assert!(first.len() >= 100 << 10 && last.len() >= 80 << 10, "{} {}", first.len(), last.len());
        assert!(taken(&files) <= LEAST);
        output.settle();
        assert_eq!(allowance.used(), allowance.most() - KNOWN - 2 * LEAST + KNOWN + taken(&files));
    }

    #[test]
    fn tampered_output_is_detected() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        let output = open(&files, 80);
        output.append(0, 0, &flood(0, 80));
        output.append(1, 0, &flood(0, 80));
        let file = |at: usize, start: u64| path(&files, at, start);
        let good = std::fs::read(file(0, 10)).unwrap();
        for (bad, case) in [
            (std::fs::read(file(0, 20)).unwrap(), "another piece"),
            (std::fs::read(file(1, 10)).unwrap(), "another stream"),
            (good.iter().map(|byte| byte ^ 1).collect(), "other bytes"),
            (good[..good.len() - 1].to_vec(), "cut"),
        ] {
            std::fs::write(file(0, 10), bad).unwrap();
            assert!(output.read(0, 10, 10).is_err(), "{case}");
        }
        std::fs::write(file(0, 10), good).unwrap();
        assert_eq!(all(&output, 0), [Ok(flood(0, 80))]);

        // The record has where the stream ended: a cut at the end is a gap, and not an end.
        drop(output);
        std::fs::remove_file(file(0, 70)).unwrap();
        let key = Arc::new(StreamKey::from_bytes([3; 32]));
        let output =
            Output::open(files.clone(), key, 80, 0, &Allowance::new(u64::MAX), Some([80, 80])).unwrap();
        assert_eq!((output.ends(), all(&output, 0)), ([80, 80], vec![Ok(flood(0, 70)), Err(10)]));
    }

    #[test]
    fn after_a_torn_write_a_living_stream_continues_from_its_last_whole_piece() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        open(&files, 1 << 20).append(0, 0, &flood(0, 5_000));
        let file = OpenOptions::new().write(true).open(path(&files, 0, 0)).unwrap();
        file.set_len(5_000).unwrap();
        let output = open(&files, 1 << 20);
        assert_eq!(output.ends(), [seal::PIECE, 0]);
        output.append(0, 0, &flood(0, 6_000));
        assert_eq!(all_by(&output, 0, 500), [Ok(flood(0, 6_000))]);
    }

    #[test]
    fn stored_output_is_encrypted() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        open(&files, 1 << 20).append(1, 0, b"canary");
        let raw = std::fs::read(files.directory().join("stderr.0.sealed")).unwrap();
        assert!(raw.len() == 48 && !raw.windows(6).any(|part| part == b"canary"));
    }
}
