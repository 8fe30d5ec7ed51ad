#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use disk_quotas::{Account, Reservation};
use identity::{CallId, RunId};
use jail::{Keeps, Private};
use operations::{Fault, Reason, UploadId};
use parking_lot::Mutex;
use refusal::Refusal;
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid, fchown, fstat, fstatvfs, openat, statat, unlinkat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Most uploads of a run that are under way or kept.
const MOST: usize = 8;
/// Most uploads of all runs that are under way or kept. Each needs two descriptors.
const MOST_OF_ALL: usize = 256;
/// Most uploads of all runs that are kept, and most bytes of them.
const MOST_KEPT: usize = 32;
const MOST_KEPT_BYTES: u64 = 4 << 30;
/// Time for which a broken upload is kept.
const KEPT: Duration = Duration::from_secs(3_600);
/// Age at which a file no longer belongs to any call.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3_600);
/// Bytes of the disk that stay free.
const MIN_FREE: u64 = 256 * 1024 * 1024;
/// Bytes after which the free space is checked again.
const LOOK: u64 = 64 * 1024 * 1024;
/// Pieces that are written and not yet hashed.
const UNHASHED: usize = 4;
/// Files that a sweep checks.
const SWEPT: usize = 1_000;

type Key = (RunId, UploadId);

/// Uploads of all runs.
pub struct Uploads {
    /// Parent of the private directories of all runs, which have the runs' ids as their names.
    privates: PathBuf,
    table: Arc<Table>,
}

#[derive(Default)]
struct Table {
    entries: Mutex<HashMap<Key, Entry>>,
    /// Number of the upload that was kept last.
    number: AtomicU64,
}

/// The run whose quota an upload counts against, and whose end ends it.
#[derive(Clone)]
pub struct Owner {
    pub account: Arc<Account>,
    /// Cancelled when the run no longer takes calls.
    pub ended: CancellationToken,
    /// The written file counts against the quota, too.
    pub writes_count: bool,
}

enum Entry {
    /// A stream sends more of it, or a call uses it.
    UnderWay,
    /// The upload waits for its client.
    Kept { upload: Box<Upload>, number: u64 },
}

/// A message of a stream.
#[derive(Debug)]
pub enum Piece {
    Data(Bytes),
    /// The upload is complete.
    End,
}

/// An upload under way.
pub struct Upload {
    place: Place,
    /// True if the client may continue it after its stream broke.
    resumable: bool,
    file: File,
    digest: Sha256,
    received: u64,
}

/// A complete upload, for the one call that takes it. The file is removed when this value is dropped.
pub struct Content {
    place: Place,
    pub size: u64,
    /// Lower-case hex.
    pub sha256: String,
}

/// Reason that an upload was not completed.
#[derive(Debug)]
pub enum Broken {
    /// The stream ended early. The bytes are kept if the upload has an id.
    Gone,
    Refused(Refusal),
}

/// A file in the run's private directory, and its entry in the table. Both are removed when this value is dropped.
struct Place {
    key: Key,
    directory: OwnedFd,
    table: Arc<Table>,
    reservation: Reservation,
    ended: CancellationToken,
    /// True if the file is left for another daemon, or is gone already.
    stays: bool,
}

impl Uploads {
    pub fn new(privates: PathBuf) -> Self {
        Self { privates, table: Arc::default() }
    }

    /// Returns the number of bytes of an upload that waits for its client.
    pub fn received(&self, run: RunId, id: &UploadId) -> Result<u64, Refusal> {
        match self.table.entries.lock().get(&(run, id.clone())) {
            Some(Entry::Kept { upload, .. }) => Ok(upload.received),
            Some(Entry::UnderWay) => Err(under_way()),
            None => Err(no_such_upload()),
        }
    }

    /// Begins an upload, or continues one from `offset`. Blocks.
    ///
    /// `id` is the client's. Without one the upload cannot be resumed. `size` is the expected size, or 0 if it is unknown.
    pub fn begin(
        &self,
        run: RunId,
        owner: Owner,
        id: Option<UploadId>,
        offset: u64,
        size: u64,
    ) -> Result<Upload, Refusal> {
        let resumable = id.is_some();
        let id = match id {
            Some(id) => id,
            None => UploadId::parse("upload_id", &CallId::new().to_string())?,
        };
        let key = (run, id);
        if let Some(kept) = self.enter(&key, offset)? {
            return Ok(kept);
        }
        let Owner { account, ended, writes_count } = owner;
        let made = Reservation::new(account, size, 1 + u64::from(writes_count)).and_then(|reservation| {
            let made = self.make(&key, size);
            let made = made.map_err(|error| Refusal::internal("beginning an upload", &error))?;
            Ok((reservation, made?))
        });
        match made {
            Ok((reservation, (directory, file))) => {
                let table = self.table.clone();
                let place = Place { key, directory, table, reservation, ended, stays: false };
                Ok(Upload { place, resumable, file, digest: Sha256::new(), received: 0 })
            }
            Err(refusal) => {
                self.table.entries.lock().remove(&key);
                Err(refusal)
            }
        }
    }

    /// Enters an upload in the table. Returns the kept upload with this key, if there is one.
    fn enter(&self, key: &Key, offset: u64) -> Result<Option<Upload>, Refusal> {
        let mut table = self.table.entries.lock();
        match table.get(key) {
            Some(Entry::UnderWay) => return Err(under_way()),
            Some(Entry::Kept { upload, .. }) if upload.received != offset => {
                let received = upload.received.to_string();
                let message = format!("offset: the daemon has {received} bytes of this upload");
                return Err(
                    Refusal::new(Reason::PreconditionFailed, message).with("received_bytes", received)
                );
            }
            None if offset > 0 => return Err(no_such_upload()),
            None if table.keys().filter(|(one, _)| *one == key.0).count() >= MOST => {
                let message = format!(
                    "{MOST} uploads of this run are in progress, which is the limit: let some finish first"
                );
                return Err(Refusal::new(Reason::Overloaded, message));
            }
            None if table.len() >= MOST_OF_ALL => {
                let message = "too many uploads of all runs are in progress: try again later";
                return Err(Refusal::new(Reason::Overloaded, message));
            }
            Some(Entry::Kept { .. }) | None => {}
        }
        Ok(match table.insert(key.clone(), Entry::UnderWay) {
            Some(Entry::Kept { upload, .. }) => Some(*upload),
            Some(Entry::UnderWay) | None => None,
        })
    }

    fn make(&self, key: &Key, size: u64) -> io::Result<Result<(OwnedFd, File), Refusal>> {
        let (run, id) = key;
        let private = Private::open(&self.privates.join(run.to_string()), 0)?;
        let owner = fstat(&private)?;
        let (uid, gid) = (Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)));
        let directory = private.directory(Keeps::Uploads)?;
        fchown(&directory, uid, gid)?;
        self.sweep(*run, &directory)?;
        if let Err(refusal) = has_room(&directory, size)? {
            return Ok(Err(refusal));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let new = || openat(&directory, id.as_str(), flags, Mode::RUSR | Mode::WUSR);
        let file = match new() {
            // A daemon that was killed left the file. If a call still waits for it, that call finds other content and is refused.
            Err(Errno::EXIST) => {
                unlinkat(&directory, id.as_str(), AtFlags::empty())?;
                new()?
            }
            made => made?,
        };
        fchown(&file, uid, gid)?;
        Ok(Ok((directory, file.into())))
    }

    /// Removes files that no call has used for a day.
    fn sweep(&self, run: RunId, directory: &OwnedFd) -> io::Result<()> {
        for entry in Dir::read_from(directory)?.take(SWEPT) {
            let entry = entry?;
            let name = entry.file_name();
            let id = name.to_str().ok().and_then(|name| UploadId::parse("upload_id", name).ok());
            let Some(id) = id.filter(|id| !self.table.entries.lock().contains_key(&(run, id.clone()))) else {
                continue;
            };
            let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let changed = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
            let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed);
            if age.is_ok_and(|age| age > FORGOTTEN) {
                let _ = unlinkat(directory, id.as_str(), AtFlags::empty());
            }
        }
        Ok(())
    }
}

impl Upload {
    /// Receives pieces, at most `most` bytes in total, until the upload is complete. Blocks, and so slows down the sender.
    ///
    /// A separate thread computes the hash, because that takes as long as the writing.
    pub fn receive(mut self, mut pieces: mpsc::Receiver<Piece>, most: u64) -> Result<Content, Broken> {
        let (to_hash, hashed) = std::sync::mpsc::sync_channel::<Bytes>(UNHASHED);
        let mut digest = std::mem::take(&mut self.digest);
        let failed =
            |error: &dyn std::fmt::Display| Broken::Refused(Refusal::internal("hashing an upload", error));
        let received = std::thread::scope(|scope| {
            let hashing = std::thread::Builder::new().spawn_scoped(scope, move || {
                for data in hashed {
                    digest.update(&data);
                }
                digest
            })?;
            let ended = self.take(&mut pieces, &to_hash, most);
            drop(to_hash);
            Ok((ended, hashing.join()))
        });
        let (ended, digest) = received.map_err(|error: io::Error| failed(&error))?;
        let digest = digest.map_err(|_| failed(&"the thread panicked"))?;
        if ended.map_err(Broken::Refused)? {
            let Self { place, received: size, .. } = self;
            return Ok(Content { place, size, sha256: hex::encode(digest.finalize()) });
        }
        if self.resumable {
            Self { digest, ..self }.keep();
        }
        Err(Broken::Gone)
    }

    /// Writes all pieces. Returns true if the last one was the end.
    fn take(
        &mut self,
        pieces: &mut mpsc::Receiver<Piece>,
        to_hash: &SyncSender<Bytes>,
        most: u64,
    ) -> Result<bool, Refusal> {
        while let Some(piece) = pieces.blocking_recv() {
            let Piece::Data(data) = piece else { return Ok(true) };
            // If the thread is gone, the caller notices it at the end.
            let _ = to_hash.send(data.clone());
            self.write(&data, most)?;
        }
        Ok(false)
    }

    fn write(&mut self, data: &[u8], most: u64) -> Result<(), Refusal> {
        let before = self.received;
        self.received += data.len() as u64;
        if self.received > most {
            return Err(Refusal::new(Reason::WriteLimit, format!("the upload has more than {most} bytes"))
                .with("max_bytes", most.to_string()));
        }
        if self.place.ended.is_cancelled() {
            return Err(Refusal::new(Reason::Cancelled, "the run ended, and the upload with it"));
        }
        self.place.reservation.grow_to(self.received)?;
        if before / LOOK != self.received / LOOK {
            has_room(&self.place.directory, 0)
                .map_err(|error| Refusal::internal("reading the free space of the disk", &error))??;
        }
        self.file.write_all(data).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                no_room()
            }
            _ => Refusal::internal("keeping an upload", &error),
        })
    }

    /// Keeps the upload for its client for a limited time, while the run is live.
    fn keep(self) {
        let (key, table) = (self.place.key.clone(), self.place.table.clone());
        let ended = self.place.ended.clone();
        let number = table.number.fetch_add(1, Ordering::Relaxed);
        {
            let mut entries = table.entries.lock();
            entries.insert(key.clone(), Entry::Kept { upload: Box::new(self), number });
            bound(&mut entries);
        }
        let forget = async move {
            tokio::select! {
                () = tokio::time::sleep(KEPT) => {}
                () = ended.cancelled() => {}
            }
            let mut entries = table.entries.lock();
            let is_same =
                matches!(entries.get(&key), Some(Entry::Kept { number: kept, .. }) if *kept == number);
            if is_same && let Some(Entry::Kept { mut upload, .. }) = entries.remove(&key) {
                // Remove the file under the lock, so that no upload with the same name begins before it is gone.
                upload.place.remove();
            }
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(forget);
        }
    }
}

/// Removes kept uploads until all runs are within the limits.
fn bound(entries: &mut HashMap<Key, Entry>) {
    loop {
        // Kept uploads of each run, their bytes, and the oldest one.
        let mut runs: HashMap<RunId, (usize, u64, u64, Key)> = HashMap::new();
        for (key, entry) in entries.iter() {
            let Entry::Kept { upload, number } = entry else { continue };
            let (count, bytes, oldest, of) = runs.entry(key.0).or_insert((0, 0, *number, key.clone()));
            *count += 1;
            *bytes = bytes.saturating_add(upload.received);
            if number < oldest {
                (*oldest, *of) = (*number, key.clone());
            }
        }
        let count: usize = runs.values().map(|(count, ..)| count).sum();
        let bytes = runs.values().fold(0_u64, |sum, (_, bytes, ..)| sum.saturating_add(*bytes));
        let largest = match (count > MOST_KEPT, bytes > MOST_KEPT_BYTES) {
            (_, true) => runs.into_values().max_by_key(|(_, bytes, oldest, _)| (*bytes, Reverse(*oldest))),
            (true, false) => {
                runs.into_values().max_by_key(|(count, _, oldest, _)| (*count, Reverse(*oldest)))
            }
            (false, false) => return,
        };
        let Some((.., key)) = largest else { return };
        if let Some(Entry::Kept { mut upload, .. }) = entries.remove(&key) {
            upload.place.remove();
        }
    }
}

impl Content {
    pub fn id(&self) -> &UploadId {
        &self.place.key.1
    }

    /// Leaves the file to the next daemon, which continues the call.
    pub fn leave(mut self) {
        self.place.stays = true;
    }
}

impl Place {
    fn remove(&mut self) {
        // If this fails, a later sweep removes the file. The host worker removes a file that it has taken.
        let _ = unlinkat(&self.directory, self.key.1.as_str(), AtFlags::empty());
        self.stays = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let table = self.table.clone();
        let mut entries = table.entries.lock();
        self.remove();
        entries.remove(&self.key);
    }
}

fn has_room(directory: &OwnedFd, size: u64) -> io::Result<Result<(), Refusal>> {
    let system = fstatvfs(directory)?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    Ok(if free < MIN_FREE.saturating_add(size) { Err(no_room()) } else { Ok(()) })
}

fn no_room() -> Refusal {
    Refusal::new(Reason::WriteLimit, "the daemon's disk has no space for the upload; ask the operator")
        .with("limit", "state-disk")
        .by(Fault::Infrastructure)
}

fn under_way() -> Refusal {
    Refusal::new(Reason::AlreadyExists, "upload_id: a stream or a call uses this upload now; try again later")
}

fn no_such_upload() -> Refusal {
    Refusal::new(Reason::NotFound, "upload_id: the daemon has nothing of this upload; begin at 0")
        .with("resource", "upload")
}

#[cfg(test)]
mod tests;
