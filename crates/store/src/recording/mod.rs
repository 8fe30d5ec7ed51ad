//! A session's recording on disk: `state_dir/sessions/RUN/SESSION.cast`, accessible only to the daemon (0700, 0600).
//!
//! An event is written to the file before it is passed on to the terminal or to the operator. So a session ends if its file is full or
//! cannot be written, or if its run has used up its space on the host. Writes happen on blocking threads, one for each event, so that a
//! daemon that dies loses no event. The file contains all input, including passwords. For that reason the audit log contains only its
//! digest.

#![expect(clippy::disallowed_methods, reason = "recordings, which no run sees")]

mod cast;
mod playback;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::allowance::{Allowance, Purpose, cost};
use cast::Encoder;

pub use cast::{Entry, Header, Size};
pub use playback::{Moment, Playback, Shown};

/// Reason why an event was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The recording would become longer than its limit.
    #[error("the recording is full")]
    Full,
    /// The run has used up its space on the host.
    #[error("the run's limit of stored output is used up (limits.output_mib)")]
    NoRoom,
    /// The disk failed.
    #[error("the recording cannot be written")]
    Io(#[from] io::Error),
}

/// Digest of a finished recording, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// SHA-256 of the file in lower-case hex.
    pub sha256: String,
    /// Size of the file in bytes.
    pub bytes: u64,
}

/// A recording that is being written.
#[derive(Debug)]
pub struct Recording {
    file: File,
    path: PathBuf,
    encoder: Encoder,
    hash: Sha256,
    bytes: u64,
    limit: u64,
    /// Account of the run. The file's bytes are not given back, because the file remains after the recording ends.
    allowance: Arc<Allowance>,
    began: Instant,
}

impl Recording {
    /// Begins the recording at `path`, of at most `limit` bytes from the run's account. The file must not exist yet.
    pub fn begin(
        path: &Path,
        header: &Header<'_>,
        limit: u64,
        allowance: &Arc<Allowance>,
    ) -> Result<Self, RecordingError> {
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        let mut recording = Self {
            file,
            path: path.to_owned(),
            encoder: Encoder::default(),
            hash: Sha256::new(),
            bytes: 0,
            limit,
            allowance: allowance.clone(),
            began: Instant::now(),
        };
        match recording.append(&header.line()) {
            Ok(()) => Ok(recording),
            Err(error) => {
                recording.discard();
                Err(error)
            }
        }
    }

    /// Removes the recording of a session that did not begin. Blocks on the disk.
    pub fn discard(self) {
        match std::fs::remove_file(&self.path) {
            Ok(()) => self.allowance.give_back(cost(self.bytes)),
            Err(error) => {
                tracing::warn!(%error, "the recording of a session that did not start was not removed");
            }
        }
    }

    /// Adds an event that happens now.
    pub fn add(&mut self, entry: &Entry) -> Result<(), RecordingError> {
        let line = self.encoder.line(self.age(), entry);
        self.append(&line)
    }

    /// Ends the recording and syncs it to the disk.
    pub fn finish(mut self) -> Result<Digest, RecordingError> {
        let rest = self.encoder.finish(self.age());
        match self.append(&rest) {
            // If the rest does not fit, the recording ends with its last whole character.
            Ok(()) | Err(RecordingError::Full | RecordingError::NoRoom) => {}
            Err(error) => return Err(error),
        }
        self.file.sync_all()?;
        Ok(Digest { sha256: hex::encode(self.hash.finalize()), bytes: self.bytes })
    }

    fn age(&self) -> Duration {
        self.began.elapsed()
    }

    fn append(&mut self, line: &str) -> Result<(), RecordingError> {
        if self.bytes + line.len() as u64 > self.limit {
            return Err(RecordingError::Full);
        }
        let more = cost(self.bytes + line.len() as u64) - cost(self.bytes);
        if !self.allowance.take(Purpose::Recording, more) {
            return Err(RecordingError::NoRoom);
        }
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // A partial line is removed.
            let _ = self.file.set_len(self.bytes);
            self.allowance.give_back(more);
            return Err(error.into());
        }
        self.hash.update(line.as_bytes());
        self.bytes += line.len() as u64;
        Ok(())
    }
}

/// Async access to a recording. Each operation must be awaited to its end.
#[derive(Debug)]
pub struct Recorder(Option<Recording>);

impl Recorder {
    pub fn new(recording: Recording) -> Self {
        Self(Some(recording))
    }

    /// Adds an event that happens now. The caller may let it take effect after this has succeeded.
    pub async fn add(&mut self, entry: Entry) -> Result<(), RecordingError> {
        let mut recording = self.0.take().ok_or_else(lost)?;
        let done = tokio::task::spawn_blocking(move || {
            let result = recording.add(&entry);
            (recording, result)
        });
        let (recording, result) = done.await.map_err(|_| lost())?;
        self.0 = Some(recording);
        result
    }

    /// Removes the recording of a session that did not begin.
    pub async fn discard(self) {
        if let Some(recording) = self.0 {
            let _ = tokio::task::spawn_blocking(move || recording.discard()).await;
        }
    }

    /// Ends the recording.
    pub async fn finish(mut self) -> Result<Digest, RecordingError> {
        let recording = self.0.take().ok_or_else(lost)?;
        tokio::task::spawn_blocking(move || recording.finish()).await.map_err(|_| lost())?
    }
}

fn lost() -> RecordingError {
    io::Error::other("its writer is gone").into()
}

/// Returns the bytes that the recordings of a run take on the disk. Blocks on it.
pub fn taken_by(directory: &Path) -> io::Result<u64> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    entries.map(|entry| Ok(cost(entry?.metadata()?.len()))).sum()
}

/// Returns the digest of a recording that a dead daemon left, or `None` if there is none that can be read.
pub fn digest_of(path: &Path) -> Option<Digest> {
    let mut file = File::open(path).ok()?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 64 * 1024]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Some(Digest { sha256: hex::encode(hash.finalize()), bytes }),
            Ok(read) => {
                hash.update(&buffer[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use bytes::Bytes;
    use sha2::{Digest as _, Sha256};

    use super::{Entry, Header, Size};
    use super::{Recorder, Recording, RecordingError, digest_of, taken_by};
    use crate::allowance::Allowance;

    fn begin(directory: &Path, limit: u64) -> (PathBuf, Recording) {
        let (path, recording) = begin_of(directory, limit, &Allowance::new(u64::MAX));
        (path, recording.unwrap())
    }

    fn begin_of(
        directory: &Path,
        limit: u64,
        allowance: &Arc<Allowance>,
    ) -> (PathBuf, Result<Recording, RecordingError>) {
        let path = directory.join("sessions/run/session.cast");
        let header = Header { size: Size { rows: 24, columns: 80 }, term: "xterm", timestamp: 0, title: "t" };
        let recording = Recording::begin(&path, &header, limit, allowance);
        (path, recording)
    }

    #[tokio::test]
    async fn the_digest_is_that_of_the_file_and_only_the_daemon_can_read_it() {
        let place = tempfile::tempdir().unwrap();
        let (path, recording) = begin(place.path(), 10_000);
        let mut recorder = Recorder::new(recording);
        recorder.add(Entry::Input(Bytes::from_static(b"ls\r"))).await.unwrap();
        recorder.add(Entry::Output(Bytes::from_static(b"a\xe2"))).await.unwrap();
        recorder.add(Entry::Signal(2)).await.unwrap();
        let digest = recorder.finish().await.unwrap();
        let content = std::fs::read(&path).unwrap();
        assert_eq!(digest.bytes, content.len() as u64);
        assert_eq!(digest.sha256, hex::encode(Sha256::digest(&content)));
        assert_eq!(digest_of(&path), Some(digest));
        assert_eq!(String::from_utf8(content).unwrap().lines().count(), 5);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn oversized_entry_is_refused_completely() {
        let place = tempfile::tempdir().unwrap();
        let (path, mut recording) = begin(place.path(), 200);
        let before = std::fs::read(&path).unwrap();
        let refused = recording.add(&Entry::Output(Bytes::from_static(&[b'x'; 200])));
        assert!(matches!(refused, Err(RecordingError::Full)), "{refused:?}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        recording.add(&Entry::Output(Bytes::from_static(b"x"))).unwrap();
        assert!(recording.finish().unwrap().bytes <= 200);
    }

    #[test]
    fn a_recording_never_replaces_another() {
        let place = tempfile::tempdir().unwrap();
        let allowance = Allowance::new(u64::MAX);
        let (path, first) = begin_of(place.path(), 1_000, &allowance);
        first.unwrap();
        let (_, second) = begin_of(place.path(), 1_000, &allowance);
        assert!(matches!(second, Err(RecordingError::Io(_))));
        assert!(path.exists());
        assert_eq!(allowance.used(), 4096, "the first one stays, the second is none");
    }

    #[test]
    fn recordings_of_a_run_stay_within_its_allowance() {
        let place = tempfile::tempdir().unwrap();
        let allowance = Allowance::new(16 << 10);
        let (path, recording) = begin_of(place.path(), 1 << 20, &allowance);
        let mut recording = recording.unwrap();
        let line = || Entry::Input(Bytes::from_static(&[b'x'; 3_000]));
        while recording.add(&line()).is_ok() {}
        assert!(matches!(recording.add(&line()), Err(RecordingError::NoRoom)));
        let written = std::fs::metadata(&path).unwrap().len();
        assert!(written > 12 << 10 && written <= 16 << 10, "{written}");
        let directory = path.parent().unwrap();
        assert_eq!((taken_by(directory).unwrap(), allowance.used()), (16 << 10, 16 << 10));
        // The end of it is no part of what may be refused.
        assert_eq!(recording.finish().unwrap().bytes, written);
        assert_eq!(allowance.used(), 16 << 10, "a finished recording stays");

        std::fs::rename(&path, directory.join("other.cast")).unwrap();
        let (path, none) = begin_of(place.path(), 1 << 20, &allowance);
        assert!(matches!(none, Err(RecordingError::NoRoom)));
        assert!(!path.exists() && allowance.used() == 16 << 10, "nothing is left of one that did not begin");
        assert_eq!(taken_by(&place.path().join("none")).unwrap(), 0);
    }
}
