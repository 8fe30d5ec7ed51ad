//! The fingerprint of all files that a command can use in its run and that anyone can change. A consent to a command is bound to it.
//!
//! The text of a command does not show which files it will use. So the fingerprint covers all of them, by attributes that change with them:
//! name, inode, mode, size, times. Without access to the host's clock no program can set the time of the last change (`st_ctime`). So two
//! equal fingerprints mean that no file was written between them, within the resolution of that clock. Therefore a file that has just
//! changed is read again after the next tick. A file that never rests cannot be part of a consent.
//!
//! The image is covered only if the run can write to it: then its directories are mounts of the run's layer. The run's log is not covered,
//! because only the daemon writes it.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use file_ops::Cancel;
use jail::{Mount, RUN_LOG, excerpt};
use operations::{Binder, Bound, ExecResult, Held, Operation, Preview, Reason, ToolFailure, changed};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat, statfs};
use rustix::io::Errno;

use crate::args::{IN_MEMORY, Mounts};
use crate::call::Call;
use crate::lane::Lane;

/// Most files and directories that a fingerprint covers.
const MOST: u64 = 200_000;
/// Most levels of nested directories. Deeper ones are not covered.
const DEEPEST: usize = 128;
/// Longest delay of the kernel's clock for files, at 100 ticks a second.
const TICK: Duration = Duration::from_millis(20);
/// Most reads of one file until it has rested for a tick.
const LOOKS: u32 = 5;
/// Most changes that a refusal names.
const NAMED: usize = 10;
/// Linux's magic number of overlay file systems, such as a writable root.
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;

/// Takes the fingerprint of the files that a command could use, for the reviewer. The command's effect is unknown.
pub(crate) async fn preview(
    call: &mut Call,
    lane: &Lane,
    operation: &Operation,
) -> Result<Preview, ToolFailure> {
    let result = operation.ended(ExecResult::default()).ok_or_else(|| {
        let message = format!("{}: only commands have a preview here", operation.name());
        ToolFailure::new(Reason::InvalidArgument, message)
    })?;
    let (mounts, stop) = (lane.mounts.clone(), Cancel::new(Some(call.deadline.into_std())));
    let asked = stop.clone();
    let looked = lane.threads.run(move || take(&trees(&mounts, &image()), &asked));
    let bound = tokio::select! {
        looked = looked => {
            looked.unwrap_or_else(|_| Err(ToolFailure::new(Reason::Cancelled, "the guest is ending")))?
        }
        () = call.cancelled() => {
            stop.cancel();
            return Err(ToolFailure::new(Reason::Cancelled, "cancelled"));
        }
    };
    Ok(Preview { result, bound })
}

/// Takes the fingerprint of files that rest.
fn take(trees: &[Tree<'_>], stop: &Cancel) -> Result<Bound, ToolFailure> {
    let since = now();
    let Walked { count, left_out, bound, .. } = walk(trees, None, stop)?;
    let remark = if left_out {
        format!(
            "consent is bound to {MOST} files and directories at most, down to {DEEPEST} levels; the run \
             has more, and those may change unseen"
        )
    } else {
        format!("bound to all {count} files and directories of the run as they are now")
    };
    Ok(Bound { since, remarks: vec![remark], ..bound })
}

/// Takes the fingerprint again, and refuses the command if the two differ.
pub(crate) fn hold(mounts: &Mounts, held: &Held, stop: &Cancel) -> Result<(), ToolFailure> {
    hold_at(&trees(mounts, &image()), held, stop)
}

fn hold_at(trees: &[Tree<'_>], held: &Held, stop: &Cancel) -> Result<(), ToolFailure> {
    let walked = walk(trees, Some(held.since.saturating_sub(nanos(TICK))), stop)?;
    if walked.bound.demand(Some(held)).is_ok() {
        return Ok(());
    }
    let mut names = walked.changed.join(", ");
    if walked.changed.len() == NAMED {
        names.push_str(" …");
    }
    Err(changed(Some(names.as_str()).filter(|names| !names.is_empty())))
}

/// A directory with all that it contains: its name for agents, and its path.
type Tree<'p> = (&'p str, &'p Path);

/// Returns the directories that a run can write to, and `@pkg`, to which others may write.
fn trees<'p>(mounts: &'p Mounts, image: &'p [String]) -> Vec<Tree<'p>> {
    let in_memory = IN_MEMORY.map(|path| (path, Path::new(path)));
    let known = mounts.iter().map(|(mount, at)| (mount.alias(), at.as_path())).chain(in_memory);
    let known: Vec<Tree<'_>> = known.collect();
    let image = image.iter().map(|path| (path.as_str(), Path::new(path)));
    let image = image.filter(|(_, path)| known.iter().all(|(_, at)| at != path));
    known.iter().copied().chain(image).collect()
}

/// Returns the top directories that are overlays, as in a writable root. There are none if the root is read-only.
fn image() -> Vec<String> {
    let look = || -> Result<Vec<String>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, "/", flags, Mode::empty())?;
        let device = fstat(&root)?.st_dev;
        let mut found = Vec::new();
        for entry in Dir::read_from(&root)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let path = format!("/{name}");
            let stat = statat(&root, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_mount = FileType::from_raw_mode(stat.st_mode).is_dir() && stat.st_dev != device;
            if is_mount && u64::try_from(statfs(&path)?.f_type).is_ok_and(|kind| kind == OVERLAYFS_MAGIC) {
                found.push(path);
            }
        }
        found.sort_unstable();
        Ok(found)
    };
    // The engine owns the top directory. If the guest cannot list it, no command can write to it.
    look().unwrap_or_default()
}

/// Result of one walk.
struct Walked {
    bound: Bound,
    count: u64,
    left_out: bool,
    /// Files that have changed since the given time.
    changed: Vec<String>,
}

struct Walk<'s> {
    binder: Binder,
    stop: &'s Cancel,
    /// Time in nanoseconds since 1970. Later changes are named. `None` if this is the first walk.
    since: Option<u64>,
    /// Path of the current file, for messages.
    path: Vec<u8>,
    count: u64,
    left_out: bool,
    changed: Vec<String>,
}

fn walk(trees: &[Tree<'_>], since: Option<u64>, stop: &Cancel) -> Result<Walked, ToolFailure> {
    let mut walk = Walk {
        binder: Binder::new("tree"),
        stop,
        since,
        path: Vec::new(),
        count: 0,
        left_out: false,
        changed: Vec::new(),
    };
    for (name, at) in trees {
        walk.top(name, at)?;
    }
    let Walk { binder, count, left_out, changed, .. } = walk;
    Ok(Walked { bound: binder.finish(), count, left_out, changed })
}

impl Walk<'_> {
    fn top(&mut self, name: &str, at: &Path) -> Result<(), ToolFailure> {
        self.path = name.as_bytes().to_vec();
        self.binder.bytes(name.as_bytes());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(CWD, at, flags, Mode::empty()) {
            Ok(dir) => {
                let Some(stat) = self.rested(|| fstat(&dir))? else { return Ok(()) };
                self.entry(b"", &stat);
                self.directory(&dir, 0)
            }
            // This run has no such mount.
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(unreadable(&self.path, errno)),
        }
    }

    /// Returns the attributes of a file, or `None` if it does not exist.
    ///
    /// The first walk waits until the file has rested for longer than the clock's delay, so that a later write gets another time. Many
    /// files that changed at the same time cause only one wait.
    fn rested(&self, look: impl Fn() -> Result<Stat, Errno>) -> Result<Option<Stat>, ToolFailure> {
        for _ in 0..LOOKS {
            let stat = match look() {
                Ok(stat) => stat,
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(unreadable(&self.path, errno)),
            };
            if self.since.is_some() || now().abs_diff(changed_at(&stat)) > nanos(TICK) {
                return Ok(Some(stat));
            }
            std::thread::sleep(TICK);
        }
        let path = excerpt(&String::from_utf8_lossy(&self.path));
        let message = format!(
            "{path} changes all the time, so no consent can be bound to it: end the process that writes it, or let it write to another file"
        );
        Err(ToolFailure::new(Reason::PreconditionFailed, message))
    }

    fn directory(&mut self, dir: &OwnedFd, depth: usize) -> Result<(), ToolFailure> {
        let mut names = self.names(dir)?;
        names.sort_unstable();
        self.binder.number(names.len() as u64);
        for name in names {
            if self.count >= MOST {
                self.left_out = true;
                return Ok(());
            }
            if self.stop.is_over() {
                return Err(ToolFailure::new(
                    Reason::TimedOut,
                    "not all files of the run could be read in time, so no consent can be bound to them",
                ));
            }
            let length = self.path.len();
            self.path.push(b'/');
            self.path.extend_from_slice(name.as_bytes());
            let done = self.one(dir, &name, depth);
            self.path.truncate(length);
            done?;
        }
        Ok(())
    }

    fn names(&self, dir: &OwnedFd) -> Result<Vec<CString>, ToolFailure> {
        let mut names = Vec::new();
        let failed = |errno| unreadable(&self.path, errno);
        for entry in Dir::read_from(dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_owned();
            if !matches!(name.as_bytes(), b"." | b"..") {
                names.push(name);
            }
            if self.count + names.len() as u64 > MOST {
                break;
            }
        }
        Ok(names)
    }

    fn one(&mut self, dir: &OwnedFd, name: &CString, depth: usize) -> Result<(), ToolFailure> {
        let log = self.path.strip_prefix(Mount::State.alias().as_bytes());
        if log.and_then(|path| path.strip_prefix(b"/")) == Some(RUN_LOG.as_bytes()) {
            return Ok(());
        }
        // The file is gone since its name was read. Its directory shows the change.
        let Some(stat) = self.rested(|| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))? else {
            return Ok(());
        };
        self.entry(name.as_bytes(), &stat);
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Ok(());
        }
        if depth == DEEPEST {
            self.left_out = true;
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(dir.as_fd(), name, flags, Mode::empty()) {
            Ok(inner) => self.directory(&inner, depth + 1),
            // A file that the run cannot read is not used by the run, and a change of its mode changes its times. If a file is gone or
            // replaced by now, its directory shows the change.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(unreadable(&self.path, errno)),
        }
    }

    fn entry(&mut self, name: &[u8], stat: &Stat) {
        self.count += 1;
        self.binder.bytes(name);
        let changed = changed_at(stat);
        let modified = time(stat.st_mtime, stat.st_mtime_nsec);
        let mode = u64::from(stat.st_mode);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // Write all numbers at once, because there are many entries.
        let numbers = [stat.st_dev, stat.st_ino, mode, size, modified, changed].map(u64::to_be_bytes);
        self.binder.bytes(numbers.as_flattened());
        if self.since.is_some_and(|since| changed >= since) && self.changed.len() < NAMED {
            self.changed.push(excerpt(&String::from_utf8_lossy(&self.path)));
        }
    }
}

fn unreadable(path: &[u8], errno: Errno) -> ToolFailure {
    let path = excerpt(&String::from_utf8_lossy(path));
    ToolFailure::new(
        Reason::PreconditionFailed,
        format!("{path}: cannot be examined now, so no consent can be bound to it: {errno}"),
    )
}

fn changed_at(stat: &Stat) -> u64 {
    time(stat.st_ctime, stat.st_ctime_nsec)
}

/// Nanoseconds since the Unix epoch.
fn time(seconds: i64, nanos: u64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos)
}

fn now() -> u64 {
    nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn bound(at: &Path) -> Bound {
        take(&[("@project", at)], &Cancel::new(None)).unwrap()
    }

    fn holds(at: &Path, bound: &Bound) -> Result<(), String> {
        let held = hold_at(&[("@project", at)], &bound.held().unwrap(), &Cancel::new(None));
        held.map_err(|failure| failure.message)
    }

    #[test]
    fn unchanged_files_keep_their_fingerprint() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("a/b")).unwrap();
        fs::write(scratch.path().join("a/b/c"), "x").unwrap();
        symlink("nowhere", scratch.path().join("l")).unwrap();
        let bound = bound(scratch.path());
        assert_eq!(bound.remarks, ["bound to all 5 files and directories of the run as they are now"]);
        assert_eq!(holds(scratch.path(), &bound), Ok(()));
        let _ = fs::read(scratch.path().join("a/b/c")).unwrap();
        assert_eq!(holds(scratch.path(), &bound), Ok(()), "reading changes nothing");
        // A mount that the run does not have.
        assert!(take(&[("@pkg", &scratch.path().join("none"))], &Cancel::new(None)).is_ok());
    }

    #[test]
    fn every_change_is_found_and_named() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 9] = [
            ("@project/d/f", |at| fs::write(at.join("d/f"), "evil").unwrap()),
            ("@project/d/f", |at| {
                let file = fs::File::options().write(true).open(at.join("d/f")).unwrap();
                let modified = file.metadata().unwrap().modified().unwrap();
                file.write_all_at(b"evil", 0).unwrap();
                file.set_modified(modified).unwrap();
            }),
            ("@project/d/f", |at| {
                fs::set_permissions(at.join("d/f"), fs::Permissions::from_mode(0o755)).unwrap();
            }),
            ("@project/d/f", |at| {
                fs::write(at.join("d/x"), "good").unwrap();
                fs::rename(at.join("d/x"), at.join("d/f")).unwrap();
            }),
            ("@project/d", |at| fs::remove_file(at.join("d/f")).unwrap()),
            ("@project/d/.new", |at| fs::write(at.join("d/.new"), "").unwrap()),
            ("@project/l", |at| {
                fs::remove_file(at.join("l")).unwrap();
                symlink("elsewhere", at.join("l")).unwrap();
            }),
            ("@project/d", |at| {
                fs::rename(at.join("d"), at.join("x")).unwrap();
                fs::rename(at.join("e"), at.join("d")).unwrap();
            }),
            ("@project/e", |at| {
                fs::remove_dir(at.join("e"))
                    .unwrap_or_else(|_| fs::rename(at.join("e"), at.join("d/e")).unwrap());
            }),
        ];
        for (named, change) in changes {
            let scratch = tempfile::tempdir().unwrap();
            for directory in ["d", "e"] {
                fs::create_dir(scratch.path().join(directory)).unwrap();
                fs::write(scratch.path().join(directory).join("f"), "good").unwrap();
            }
            symlink("nowhere", scratch.path().join("l")).unwrap();
            let bound = bound(scratch.path());
            change(scratch.path());
            let refused = holds(scratch.path(), &bound).unwrap_err();
            let parent = named.rsplit_once('/').unwrap().0;
            assert!(refused.contains(named) || refused.contains(parent), "{named}: {refused}");
        }
    }

    #[test]
    fn log_of_the_run_does_not_change_the_fingerprint() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("logs")).unwrap();
        let log = scratch.path().join("logs/execution.jsonl");
        fs::write(&log, "{}").unwrap();
        let look = || walk(&[("@state", scratch.path())], None, &Cancel::new(None)).unwrap().bound;
        let before = look();
        fs::write(&log, "{}{}").unwrap();
        assert_eq!(look(), before);
        fs::rename(&log, scratch.path().join("logs/execution.1.jsonl")).unwrap();
        assert_eq!(look(), before);
        fs::write(scratch.path().join("other"), "").unwrap();
        assert_ne!(look(), before);
    }

    #[test]
    fn constantly_changing_files_cannot_be_bound() {
        let scratch = tempfile::tempdir().unwrap();
        let busy = scratch.path().join("busy");
        fs::write(&busy, "").unwrap();
        let stop = Cancel::new(None);
        let writer = std::thread::spawn({
            let stop = stop.clone();
            move || while !stop.is_over() && fs::write(&busy, "x").is_ok() {}
        });
        // A writer that is held up rests for a moment. When its time is over the look fails for that.
        let patience = Cancel::new(Some(std::time::Instant::now() + Duration::from_secs(30)));
        let refused = loop {
            if let Err(refused) = take(&[("@project", scratch.path())], &patience) {
                break refused;
            }
        };
        stop.cancel();
        writer.join().unwrap();
        assert_eq!(refused.reason, Reason::PreconditionFailed);
        assert!(refused.message.starts_with("@project/busy changes all the time"), "{}", refused.message);
    }

    #[test]
    fn a_fingerprint_is_bounded_in_depth_and_time_and_reports_it() {
        let scratch = tempfile::tempdir().unwrap();
        let mut deep = scratch.path().to_owned();
        for _ in 0..=DEEPEST + 1 {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
        }
        let found = bound(scratch.path());
        assert!(found.remarks[0].contains("may change unseen"), "{:?}", found.remarks);

        let over = Cancel::new(None);
        over.cancel();
        assert_eq!(take(&[("@project", scratch.path())], &over).unwrap_err().reason, Reason::TimedOut);
    }
}
