//! Reads the file and turns it into a [`Config`].

#![expect(clippy::disallowed_methods, reason = "the configuration")]

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use document::bounded;
use sha2::{Digest as _, Sha256};

use super::{Config, Problems, Text, read};

/// Time that a file has to be unchanged before it is read while the daemon runs.
const SETTLED: Duration = Duration::from_millis(100);
/// Wait before a file that changes is read again.
const AGAIN: Duration = Duration::from_millis(50);
/// Number of attempts to read a file that changes.
const ATTEMPTS: u32 = 40;

/// Loads and validates `path`.
pub(crate) fn load(path: &Path) -> anyhow::Result<Config> {
    let text = File::open(path).and_then(bounded).map_err(|error| unreadable(path, &error))?;
    Ok(parse(&path.display().to_string(), &text)?)
}

/// Loads and validates `path` while somebody may be writing it. Blocks for two seconds at most.
///
/// A part of a file can be valid and mean something else, so a file that changes is not taken.
pub(crate) fn load_settled(path: &Path) -> anyhow::Result<Config> {
    let text = settled(path).map_err(|error| unreadable(path, &error))?;
    Ok(parse(&path.display().to_string(), &text)?)
}

fn unreadable(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("the configuration {} cannot be read: {error}", path.display())
}

/// Returns the text of a file that has not changed lately, and did not while it was read.
fn settled(path: &Path) -> io::Result<String> {
    for _ in 0..ATTEMPTS {
        // Before the file is opened, because opening a FIFO waits.
        let before = std::fs::metadata(path)?;
        if !before.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        // A clock that was set back must not keep the file from being read.
        let is_settled =
            before.modified()?.max(changed(&before)).elapsed().map_or(true, |since| since >= SETTLED);
        if is_settled {
            let read = bounded(File::open(path)?);
            if same(&before, &std::fs::metadata(path)?) {
                return read;
            }
        }
        sleep(AGAIN);
    }
    Err(io::Error::other("it keeps changing: write another file, and rename it to this one"))
}

/// Returns the time of the last change of a file's content, owner, mode or name.
fn changed(file: &Metadata) -> SystemTime {
    SystemTime::UNIX_EPOCH
        + Duration::from_secs(u64::try_from(file.ctime()).unwrap_or(0))
        + Duration::from_nanos(u64::try_from(file.ctime_nsec()).unwrap_or(0))
}

fn same(one: &Metadata, other: &Metadata) -> bool {
    let state = |file: &Metadata| (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec());
    state(one) == state(other) && changed(one) == changed(other)
}

/// Parses and validates the text of a configuration; `file` names it in problems.
pub(super) fn parse(file: &str, text: &str) -> Result<Config, Problems> {
    let mut config = document::read(file, text, read::config).map_err(Problems)?;
    config.text = Text(text.into());
    config.digest = hex::encode(Sha256::digest(text));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    /// Writes a file piece by piece. Returns the longest time between two pieces, or before the first one since `last`.
    fn write_slowly(path: &Path, mut last: Instant) -> Duration {
        let mut file = File::create(path).unwrap();
        let mut longest = Duration::ZERO;
        // The first pieces are a valid configuration without the roles.
        for line in [
            "limits: { runs: 5 }\n",
            "# one\n",
            "# two\n",
            "access:\n",
            "  - uid: 7\n",
            "    roles: [auditor]\n",
        ] {
            sleep(Duration::from_millis(30));
            io::Write::write_all(&mut file, line.as_bytes()).unwrap();
            (longest, last) = (longest.max(last.elapsed()), Instant::now());
        }
        longest
    }

    #[test]
    fn a_file_that_is_being_written_is_read_when_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cofferd.yaml");
        // A busy machine can stop the writer for so long that its file seems complete.
        for _ in 0..20 {
            let (to, began) = (path.clone(), Instant::now());
            std::fs::write(&path, "").unwrap();
            let writer = std::thread::spawn(move || write_slowly(&to, began));
            let read = load_settled(&path);
            if writer.join().unwrap() > SETTLED * 4 / 5 {
                continue;
            }
            let config = read.unwrap();
            assert_eq!((config.runs.living, config.access.len()), (5, 1));
            assert_eq!(config.digest, load(&path).unwrap().digest);
            assert_eq!(config.digest.len(), 64);
            return;
        }
        panic!("the machine is too busy for this test");
    }

    #[test]
    fn a_file_that_never_settles_and_one_that_is_no_file_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cofferd.yaml");
        assert!(load_settled(directory.path()).unwrap_err().to_string().contains("not a regular file"));
        assert!(load_settled(&path).is_err());
        std::fs::write(&path, "").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (path, stop) = (path.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::fs::write(&path, "# x\n").unwrap();
                    sleep(Duration::from_millis(10));
                }
            })
        };
        // Not always: a busy machine can stop the writer for a while.
        let refused = (0..10).find_map(|_| load_settled(&path).err()).map(|error| error.to_string());
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(refused.is_some_and(|refused| refused.contains("rename it to this one")));
    }
}
