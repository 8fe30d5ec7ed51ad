//! The mirrors of a daemon: which there are, who uses one, and which are deleted.

#![cfg_attr(
    not(test),
    expect(clippy::disallowed_methods, reason = "the daemon's own directory, whose names it makes")
)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use admission::{Place, Turns};
use atomic_file::tree as complete;
use containers::Amount;
use host_launch::Owner;
use leftovers::{remove_others, remove_tree};
use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;
use rustix::fs::{Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::limits::{AT_ONCE, MirrorBounds, Space, Use};

/// Time between two sweeps.
const SWEEP: Duration = Duration::from_secs(3_600);
/// Longest wait for the clones of others from the same repository, and for their refreshes.
const WAIT: Duration = Duration::from_secs(300);
/// User and group of the processes that fetch, which nothing else has.
const ID: u32 = 61_001;
/// Length of a key: a digest in hexadecimal.
const KEY: usize = 64;

/// The mirrors of a daemon.
pub struct Mirrors {
    pub(crate) directory: PathBuf,
    bounds: MirrorBounds,
    /// Free space of which the daemon warns, bytes.
    warn_free: u64,
    /// User and group to whom the mirrors belong.
    pub(crate) owner: Owner,
    table: Mutex<BTreeMap<String, Arc<Mirror>>>,
    /// Turns of principals to refresh a mirror.
    refreshes: Turns,
}

/// A mirror that is there, or that is made for the first time.
struct Mirror {
    /// Held by the one clone that refreshes and reads it.
    turn: Arc<Turn<()>>,
    noted: Mutex<Noted>,
}

#[derive(Clone, Copy)]
struct Noted {
    bytes: u64,
    used_at: SystemTime,
}

/// The right to refresh a mirror and to read it.
pub(crate) struct Lease {
    pub(crate) key: String,
    pub(crate) path: PathBuf,
    turn: OwnedMutexGuard<()>,
}

impl Mirrors {
    /// Opens the mirrors beneath `directory`, and removes what an earlier daemon did not complete.
    pub async fn open(directory: PathBuf, bounds: MirrorBounds, warn_free: u64) -> io::Result<Self> {
        std::fs::create_dir_all(&directory)?;
        // Each mirror can be read by all users, so only the daemon may look up its name.
        std::fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        remove_others(&directory, is_key).await;
        let mut table = BTreeMap::new();
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            if let (Ok(key), true) = (entry.file_name().into_string(), entry.file_type()?.is_dir()) {
                let used_at = entry.metadata()?.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                table.insert(key, Arc::new(Mirror::new(used_at)));
            }
        }
        let (table, refreshes) = (Mutex::new(table), Turns::new(AT_ONCE));
        Ok(Self { directory, bounds, warn_free, owner: owner(), table, refreshes })
    }

    /// Waits for the turn at a mirror, which may not be there so far.
    pub(crate) async fn lease(&self, key: &str) -> Result<Lease, Refusal> {
        let leased = async {
            loop {
                let mirror = self.mirror(key);
                let turn = Arc::clone(&mirror.turn).lock_owned().await;
                // It may have been deleted during the wait.
                if self.table.lock().get(key).is_some_and(|known| Arc::ptr_eq(known, &mirror)) {
                    return Lease { key: key.to_owned(), path: self.directory.join(key), turn };
                }
            }
        };
        timeout(WAIT, leased).await.map_err(|_| busy())
    }

    fn mirror(&self, key: &str) -> Arc<Mirror> {
        let mut table = self.table.lock();
        let new = || Arc::new(Mirror::new(SystemTime::now()));
        Arc::clone(table.entry(key.to_owned()).or_insert_with(new))
    }

    /// Waits until the principal refreshes no other mirror. It has no lease so far, because others would wait for it as well.
    pub(crate) async fn begin_refresh(&self, principal: &str) -> Result<Place, Refusal> {
        timeout(WAIT, self.refreshes.wait_own(principal)).await.ok().flatten().ok_or_else(busy)
    }

    /// Waits for a turn among all principals. The principal has its lease by now, because waits for one mirror would take all turns.
    pub(crate) async fn refresh_turn(&self, place: Place) -> Result<admission::Turn, Refusal> {
        timeout(WAIT, place.wait()).await.ok().flatten().ok_or_else(busy)
    }

    /// Returns the most bytes that a refresh may receive.
    pub(crate) fn most(&self) -> Result<u64, Refusal> {
        let space = Space::of(&self.directory)
            .map_err(|error| Refusal::internal("looking at the disk of the mirrors", &error))?;
        self.bounds.most(space, self.warn_free)
    }

    /// Notes the size of a mirror and that it is used, and deletes others beyond the limits.
    pub(crate) async fn note(&self, lease: &Lease) {
        let path = lease.path.clone();
        match spawn_blocking(move || touched(&path)).await {
            Ok(Ok(bytes)) => {
                let mirror = self.table.lock().get(&lease.key).cloned();
                if let Some(mirror) = mirror {
                    *mirror.noted.lock() = Noted { bytes, used_at: SystemTime::now() };
                }
            }
            Ok(Err(error)) => tracing::warn!(error = %error, "a mirror was not measured"),
            Err(error) => tracing::warn!(error = %error, "a mirror was not measured"),
        }
        self.sweep().await;
    }

    /// Removes a mirror that failed, complete or not. The holder of the lease has ended its use.
    pub(crate) async fn discard(&self, lease: &Lease) {
        remove_tree(complete::staging(&lease.path)).await;
        remove_tree(lease.path.clone()).await;
        self.remove(lease);
    }

    /// Removes the incomplete mirror of a refresh that was given up. The process that fetched has no server any longer.
    pub(crate) async fn abandon(&self, lease: &Lease) {
        remove_tree(complete::staging(&lease.path)).await;
    }

    /// Forgets a mirror that was never made.
    pub(crate) fn forget(&self, lease: &Lease) {
        if !lease.path.exists() {
            self.remove(lease);
        }
    }

    /// Removes the mirror of the lease from the table, unless another one has its key by now.
    fn remove(&self, lease: &Lease) {
        let mut table = self.table.lock();
        if table.get(&lease.key).is_some_and(|known| known.is_of(&lease.turn)) {
            table.remove(&lease.key);
        }
    }

    /// Deletes mirrors that are too old or beyond the limits, the least recently used first. One that is in use stays.
    async fn sweep(&self) {
        let uses = {
            let table = self.table.lock();
            let used = |(key, mirror): (&String, &Arc<Mirror>)| {
                let Noted { bytes, used_at } = *mirror.noted.lock();
                Use { key: key.clone(), bytes, used_at }
            };
            table.iter().map(used).collect()
        };
        for key in self.bounds.displaced(uses, SystemTime::now()) {
            let mirror = self.table.lock().get(&key).cloned();
            let turn = mirror.and_then(|mirror| Arc::clone(&mirror.turn).try_lock_owned().ok());
            let is_known = |turn: &OwnedMutexGuard<()>| {
                self.table.lock().get(&key).is_some_and(|known| known.is_of(turn))
            };
            if let Some(turn) = turn.filter(is_known) {
                self.discard(&Lease { path: self.directory.join(&key), key, turn }).await;
            }
        }
    }

    /// Measures the mirrors of an earlier daemon, and then sweeps every hour until the daemon stops.
    pub async fn keep(&self, stop: CancellationToken) {
        let earlier: Vec<_> =
            self.table.lock().iter().map(|(key, mirror)| (key.clone(), mirror.clone())).collect();
        for (key, mirror) in earlier {
            let path = self.directory.join(key);
            if let Ok(Ok(bytes)) = spawn_blocking(move || measured(&path)).await {
                let mut noted = mirror.noted.lock();
                noted.bytes = noted.bytes.max(bytes);
            }
        }
        loop {
            self.sweep().await;
            if stop.run_until_cancelled(tokio::time::sleep(SWEEP)).await.is_none() {
                return;
            }
        }
    }

    /// Opens the directory for a refresh, under the name of an incomplete one. Returns false with a new one.
    pub(crate) async fn stage(&self, lease: &Lease) -> io::Result<(OwnedFd, bool)> {
        let (path, staging, owner) = (lease.path.clone(), complete::staging(&lease.path), self.owner);
        // That of a launch whose daemon gave up waiting for it.
        remove_tree(staging.clone()).await;
        let staged = spawn_blocking(move || match rustix::fs::rename(&path, &staging) {
            Ok(()) => Ok((open(&staging)?, true)),
            Err(rustix::io::Errno::NOENT) => Ok((make(&staging, owner)?, false)),
            Err(errno) => Err(errno.into()),
        });
        staged.await.map_err(io::Error::other)?
    }

    /// Gives a refreshed mirror its name, and opens it.
    ///
    /// libgit2 has synced what it wrote. A name that is lost in a crash costs the mirror, as a refresh does that is interrupted.
    pub(crate) async fn place(&self, lease: &Lease) -> io::Result<OwnedFd> {
        let path = lease.path.clone();
        let placed = spawn_blocking(move || {
            rustix::fs::rename(complete::staging(&path), &path)?;
            open(&path)
        });
        placed.await.map_err(io::Error::other)?
    }
}

impl Mirror {
    fn new(used_at: SystemTime) -> Self {
        Self { turn: Arc::default(), noted: Mutex::new(Noted { bytes: 0, used_at }) }
    }

    fn is_of(&self, turn: &OwnedMutexGuard<()>) -> bool {
        Arc::ptr_eq(&self.turn, OwnedMutexGuard::mutex(turn))
    }
}

/// Returns the owner of mirrors, who owns nothing else.
fn owner() -> Owner {
    let daemon = rustix::process::geteuid();
    if daemon.is_root() {
        return Owner { uid: ID, gid: ID };
    }
    Owner { uid: daemon.as_raw(), gid: rustix::process::getegid().as_raw() }
}

fn is_key(name: &OsStr) -> bool {
    name.len() == KEY && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
}

fn busy() -> Refusal {
    let message = "other runs of yours, or of the same repository, are being cloned and take long: create the run again";
    Refusal::new(Reason::Overloaded, message).retry_after(Duration::from_secs(10))
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Makes a directory that all can read, because clones have other owners.
fn make(path: &Path, owner: Owner) -> io::Result<OwnedFd> {
    rustix::fs::mkdir(path, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::open(path, flags, Mode::empty())?;
    if rustix::process::geteuid().is_root() {
        rustix::fs::fchown(&made, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
    }
    rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
    open(path)
}

/// Returns the disk that a mirror takes, bytes.
fn measured(path: &Path) -> io::Result<u64> {
    let directory = open(path)?;
    let all = Amount { bytes: u64::MAX, files: u64::MAX };
    Ok(containers::measure(directory.as_fd(), all)?.amount.bytes)
}

/// Notes on disk that a mirror is used, and returns its size, bytes.
fn touched(path: &Path) -> io::Result<u64> {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    measured(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    async fn mirrors(directory: &Path, max_count: usize) -> Mirrors {
        let bounds = MirrorBounds { max_count, max_bytes: 1 << 30, max_age: DAY };
        Mirrors::open(directory.to_owned(), bounds, 0).await.unwrap()
    }

    fn key(digit: char) -> String {
        digit.to_string().repeat(KEY)
    }

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    async fn refresh(mirrors: &Mirrors, key: &str) -> bool {
        let lease = mirrors.lease(key).await.unwrap();
        let (_, existed) = mirrors.stage(&lease).await.unwrap();
        fs::write(complete::staging(&lease.path).join("file"), "x").unwrap();
        mirrors.place(&lease).await.unwrap();
        mirrors.note(&lease).await;
        existed
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn mirrors_stay_and_incomplete_ones_are_removed_at_the_next_start() {
        let place = tempfile::tempdir().unwrap();
        let first = mirrors(place.path(), 9).await;
        assert!(!refresh(&first, &key('a')).await);
        assert!(refresh(&first, &key('a')).await, "it is refreshed");
        let lease = first.lease(&key('b')).await.unwrap();
        first.stage(&lease).await.unwrap();
        let lease = first.lease(&key('a')).await.unwrap();
        drop(lease);
        fs::create_dir(place.path().join("other")).unwrap();
        assert_eq!(names(place.path()), [key('a'), format!("{}.part", key('b')), "other".to_owned()]);
        let second = mirrors(place.path(), 9).await;
        assert_eq!(names(place.path()), [key('a')]);
        assert!(refresh(&second, &key('a')).await);
        assert!(!refresh(&second, &key('b')).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_refresh_that_was_killed_leaves_no_mirror() {
        let place = tempfile::tempdir().unwrap();
        let first = mirrors(place.path(), 9).await;
        refresh(&first, &key('a')).await;
        let lease = first.lease(&key('a')).await.unwrap();
        first.stage(&lease).await.unwrap();
        assert_eq!(names(place.path()), [format!("{}.part", key('a'))]);
        // The daemon dies.
        mirrors(place.path(), 9).await;
        assert!(names(place.path()).is_empty());
        // The launch is given up, and another one begins.
        drop(lease);
        assert!(!refresh(&first, &key('a')).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_least_recently_used_mirror_goes_unless_it_is_in_use() {
        let place = tempfile::tempdir().unwrap();
        let mirrors = mirrors(place.path(), 2).await;
        refresh(&mirrors, &key('a')).await;
        refresh(&mirrors, &key('b')).await;
        let used = mirrors.lease(&key('a')).await.unwrap();
        refresh(&mirrors, &key('c')).await;
        assert_eq!(names(place.path()), [key('a'), key('b'), key('c')], "the first is in use");
        drop(used);
        refresh(&mirrors, &key('c')).await;
        assert_eq!(names(place.path()), [key('b'), key('c')]);
        assert!(!refresh(&mirrors, &key('a')).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_clone_at_a_time_has_a_mirror_and_a_discarded_one_is_made_anew() {
        let place = tempfile::tempdir().unwrap();
        let mirrors = Arc::new(mirrors(place.path(), 9).await);
        refresh(&mirrors, &key('a')).await;
        let lease = mirrors.lease(&key('a')).await.unwrap();
        let waiting = tokio::spawn({
            let mirrors = Arc::clone(&mirrors);
            async move {
                let lease = mirrors.lease(&key('a')).await.unwrap();
                mirrors.stage(&lease).await.unwrap().1
            }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        mirrors.discard(&lease).await;
        assert!(names(place.path()).is_empty());
        let next = mirrors.lease(&key('a')).await.unwrap();
        mirrors.forget(&lease);
        assert!(mirrors.table.lock().contains_key(&key('a')), "the next one is not forgotten");
        drop((lease, next));
        assert!(!waiting.await.unwrap());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_old_mirror_goes_with_the_next_sweep() {
        let place = tempfile::tempdir().unwrap();
        refresh(&mirrors(place.path(), 9).await, &key('a')).await;
        let old = SystemTime::now() - 2 * DAY;
        fs::File::open(place.path().join(key('a'))).unwrap().set_modified(old).unwrap();
        let mirrors = mirrors(place.path(), 9).await;
        let stop = CancellationToken::new();
        stop.cancel();
        mirrors.keep(stop).await;
        assert!(names(place.path()).is_empty());
    }
}
