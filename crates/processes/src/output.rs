//! What a process has written: the beginning and the end of each stream, in pieces of a file each, sealed.
//!
//! A piece is named by the place of its first byte. When a stream has more than may be kept, the oldest piece of its
//! second half goes. A byte lies under the keystream of its place in the stream, so that no part of the key is used twice.
//! What the disk does not take is counted and not kept; the process goes on.

#![expect(clippy::disallowed_methods, reason = "the daemon's own files, which no run sees")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seal::StreamKey;
use tokio::sync::watch;

use crate::disk::Place;

/// Names of the streams, in files and keys.
const STREAMS: [&str; 2] = ["stdout", "stderr"];
/// Bytes of a piece.
const PIECE: u64 = 1 << 20;
/// A stream that may have little has this many pieces all the same.
const PIECES: u64 = 8;

/// What is kept of one process. Everything but the ends blocks on the disk.
pub(crate) struct Output {
    place: Place,
    key: Arc<StreamKey>,
    /// Bytes that are kept of each stream.
    most: u64,
    /// Bytes of the file system that are left to others.
    min_free: u64,
    streams: Mutex<[Stream; 2]>,
    ends: watch::Sender<[u64; 2]>,
}

#[derive(Debug, Default)]
struct Stream {
    pieces: Vec<Piece>,
    end: u64,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    length: u64,
}

/// What a stream has at some place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Bytes(Vec<u8>),
    /// So many bytes are not there.
    Gap(u64),
    /// Nothing was written there yet.
    End,
}

impl Output {
    /// Of a new process, or of one that a former daemon had.
    pub(crate) fn open(place: Place, key: Arc<StreamKey>, most: u64, min_free: u64) -> io::Result<Self> {
        let mut streams = <[Stream; 2]>::default();
        for entry in std::fs::read_dir(place.directory())? {
            let entry = entry?;
            let Some((at, start)) = entry.file_name().to_str().and_then(parse) else { continue };
            streams[at].pieces.push(Piece { start, length: entry.metadata()?.len() });
        }
        for stream in &mut streams {
            stream.pieces.sort_by_key(|piece| piece.start);
            stream.end = stream.pieces.last().map_or(0, |piece| piece.start + piece.length);
        }
        let ends = watch::Sender::new(streams.each_ref().map(|stream| stream.end));
        Ok(Self { place, key, most, min_free, streams: Mutex::new(streams), ends })
    }

    /// Bytes of each stream until now.
    pub(crate) fn ends(&self) -> [u64; 2] {
        *self.ends.borrow()
    }

    /// The same as it grows.
    pub(crate) fn follow(&self) -> watch::Receiver<[u64; 2]> {
        self.ends.subscribe()
    }

    /// Adds bytes that begin at `offset`. What is there already is skipped.
    pub(crate) fn append(&self, at: usize, offset: u64, data: &[u8]) {
        let mut streams = self.streams();
        let stream = &mut streams[at];
        let skipped = usize::try_from(stream.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(mut rest) = data.get(skipped..).filter(|rest| !rest.is_empty()) else { return };
        let mut offset = offset + skipped as u64;
        while !rest.is_empty() {
            let size = PIECE.min(self.most / PIECES).max(1);
            let room = stream.pieces.last().filter(|piece| piece.start + piece.length == offset);
            let room = room.map_or(0, |piece| size.saturating_sub(piece.length));
            if room == 0 {
                stream.pieces.push(Piece { start: offset, length: 0 });
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            if let Some(piece) = stream.pieces.last_mut() {
                match self.write(at, piece, now) {
                    Ok(()) => piece.length += now.len() as u64,
                    Err(error) => tracing::debug!(%error, "output of a process is not kept"),
                }
            }
            offset += now.len() as u64;
            rest = later;
        }
        // One that has nothing is no piece.
        stream.pieces.retain(|piece| piece.length > 0);
        stream.end = offset;
        self.shrink(at, stream);
        let end = stream.end;
        self.ends.send_modify(|ends| ends[at] = end);
    }

    /// What a stream has from `offset` on, at most `most` bytes.
    pub(crate) fn read(&self, at: usize, offset: u64, most: usize) -> io::Result<Found> {
        let (start, length) = {
            let streams = self.streams();
            let stream = &streams[at];
            if offset >= stream.end {
                return Ok(Found::End);
            }
            let next = stream.pieces.iter().find(|piece| piece.start + piece.length > offset);
            match next {
                Some(piece) if piece.start <= offset => (piece.start, piece.length),
                Some(piece) => return Ok(Found::Gap(piece.start - offset)),
                None => return Ok(Found::Gap(stream.end - offset)),
            }
        };
        let there = usize::try_from(start + length - offset).unwrap_or(usize::MAX).min(most);
        let mut data = vec![0; there];
        match File::open(self.file(at, start)).and_then(|file| file.read_exact_at(&mut data, offset - start))
        {
            // It has just been removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Gap(there as u64)),
            read => read?,
        }
        self.apply(at, offset, &mut data)?;
        Ok(Found::Bytes(data))
    }

    fn write(&self, at: usize, piece: &Piece, data: &[u8]) -> io::Result<()> {
        if self.min_free > 0 {
            let system = rustix::fs::statvfs(self.place.directory())?;
            if system.f_bavail.saturating_mul(system.f_frsize) < self.min_free {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let mut sealed = data.to_vec();
        self.apply(at, piece.start + piece.length, &mut sealed)?;
        let path = self.file(at, piece.start);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.write_all_at(&sealed, piece.length)
    }

    /// Removes from the middle what is too much.
    fn shrink(&self, at: usize, stream: &mut Stream) {
        let total = |stream: &Stream| stream.pieces.iter().map(|piece| piece.length).sum::<u64>();
        while total(stream) > self.most {
            let last = stream.pieces.len() - 1;
            let middle = stream.pieces.iter().position(|piece| piece.start >= self.most / 2);
            let Some(middle) = middle.filter(|middle| *middle < last) else { return };
            let gone = stream.pieces.remove(middle);
            if let Err(error) = std::fs::remove_file(self.file(at, gone.start)) {
                tracing::warn!(%error, "a piece of a process's output was not removed");
            }
        }
    }

    fn apply(&self, at: usize, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let place = format!("{} {} {}", self.place.run, self.place.id, STREAMS[at]);
        self.key.apply(&place, offset, data).map_err(|_| io::ErrorKind::FileTooLarge.into())
    }

    fn file(&self, at: usize, start: u64) -> PathBuf {
        self.place.directory().join(format!("{}.{start}.sealed", STREAMS[at]))
    }

    fn streams(&self) -> MutexGuard<'_, [Stream; 2]> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(name: &str) -> Option<(usize, u64)> {
    let (stream, start) = name.strip_suffix(".sealed")?.split_once('.')?;
    Some((STREAMS.iter().position(|known| *known == stream)?, start.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use identity::{CallId, RunId};

    use super::*;

    fn place(root: &std::path::Path) -> Place {
        let place = Place::new(root, RunId::new(), CallId::new());
        place.make().unwrap();
        place
    }

    fn open(place: &Place, most: u64) -> Output {
        let key = Arc::new(StreamKey::from_bytes([3; 32]));
        Output::open(place.clone(), key, most, 0).unwrap()
    }

    /// Everything that is there, with gaps.
    fn all(output: &Output, at: usize) -> Vec<Result<Vec<u8>, u64>> {
        let (mut offset, mut found) = (0, Vec::new());
        loop {
            match output.read(at, offset, 7).unwrap() {
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
        let place = place(root.path());
        let output = open(&place, 80);
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
        let output = open(&place, 80);
        assert_eq!((output.ends(), all(&output, 0)), ([1_000, 0], found));
        output.append(0, 990, b"0123456789more");
        assert_eq!(output.ends(), [1_004, 0]);
        assert_eq!(output.read(0, 1_000, 10).unwrap(), Found::Bytes(b"more".to_vec()));
    }

    #[test]
    fn nothing_lies_open() {
        let root = tempfile::tempdir().unwrap();
        let place = place(root.path());
        open(&place, 1 << 20).append(1, 0, b"canary");
        let raw = std::fs::read(place.directory().join("stderr.0.sealed")).unwrap();
        assert!(raw.len() == 6 && raw != b"canary");
    }
}
