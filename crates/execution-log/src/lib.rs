#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it
#![expect(clippy::disallowed_methods, reason = "a directory that the daemon made")]

mod lines;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use audit::{Kind, Record};
use audit_service::{AuditLog, Follow};
use refusal::chain;
use runs::{Directories, LogLocation as Location};

use lines::Lines;

/// Number of files that are open at the same time.
const OPEN: usize = 128;
/// Time for which lines wait to be written together.
const LINGER: Duration = Duration::from_millis(50);
/// Time between attempts when the audit log cannot be read.
const RETRY: Duration = Duration::from_secs(1);

/// Follows the audit log from now on, until it no longer has a writer.
pub fn start(audit: &AuditLog, directories: Directories) -> tokio::task::JoinHandle<()> {
    let head = audit.head().map_or(0, |head| head.sequence);
    let follow = audit.read_after(head, true).lingering(LINGER);
    tokio::spawn(run(follow, Files { directories, open: HashMap::new(), order: VecDeque::new() }))
}

async fn run(mut follow: Follow, mut files: Files) {
    let mut lines = Lines::default();
    loop {
        match follow.next().await {
            Ok(Some(batch)) => {
                let written = tokio::task::spawn_blocking(move || {
                    for line in batch {
                        files.take(&mut lines, &line.record);
                    }
                    (files, lines)
                });
                let Ok(back) = written.await else { return };
                (files, lines) = back;
            }
            Ok(None) => return,
            // The reader that failed has logged the error.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Files of the runs that were written to lately.
struct Files {
    directories: Directories,
    open: HashMap<String, Log>,
    /// Ids of the open files, oldest first.
    order: VecDeque<String>,
}

/// The log file of one run.
struct Log {
    directory: PathBuf,
    place: Option<Location>,
    /// Earlier lines were changed or removed, and the file does not report that yet.
    lost: bool,
    /// Calls that ended since the file could not be written.
    missing: u64,
}

impl Files {
    fn take(&mut self, lines: &mut Lines, record: &Record) {
        let Some(run) = record.event.run_id.as_deref() else { return };
        if let Some(line) = lines.line(record)
            && let Some(log) = self.log(run)
        {
            log.write(run, &record.time.to_string(), &line);
        }
        let state = record.event.details.as_ref().and_then(|details| details["state"].as_str());
        if record.event.kind == Kind::RunState && matches!(state, Some("STOPPED" | "FAILED")) {
            self.open.remove(run);
            self.order.retain(|open| open != run);
        }
    }

    /// Returns the log of a run. `None` if the id is not valid, as in a refused call, or if the run was deleted and has no log.
    fn log(&mut self, run: &str) -> Option<&mut Log> {
        if !self.open.contains_key(run) {
            identity::RunId::parse(run).ok()?;
            let directory = Some(self.directories.run_log(run)).filter(|directory| directory.is_dir())?;
            while self.order.len() >= OPEN {
                let Some(oldest) = self.order.pop_front() else { break };
                self.open.remove(&oldest);
            }
            self.open.insert(run.to_owned(), Log { directory, place: None, lost: false, missing: 0 });
            self.order.push_back(run.to_owned());
        }
        self.open.get_mut(run)
    }
}

impl Log {
    /// Writes a line, after a report of the lines that are missing before it. Counts the line as missing if that fails.
    fn write(&mut self, run: &str, time: &str, line: &str) {
        if let Err(error) = self.try_to_write(run, time, line) {
            // A run whose workspace is not kept is deleted when it has ended, together with its log.
            if !self.directory.is_dir() {
                return;
            }
            if self.missing == 0 {
                tracing::error!(run, error = %chain(&error), "a run's execution.jsonl cannot be written: lines are missing in it");
            }
            self.missing += 1;
        }
    }

    fn try_to_write(&mut self, run: &str, time: &str, line: &str) -> io::Result<()> {
        let mut head = String::new();
        let mut place = match self.place.take() {
            Some(place) if place.is_intact() => place,
            before => {
                self.lost |= before.is_some();
                let place = if self.lost { None } else { Location::open(&self.directory)? };
                self.lost |= place.is_none();
                place.map_or_else(|| Location::anew(&self.directory), Ok)?
            }
        };
        if self.lost {
            tracing::error!(
                run,
                "another process changed or removed a run's execution.jsonl: it is created again"
            );
            head.push_str(&lines::gap(time, None));
        }
        if self.missing > 0 {
            head.push_str(&lines::gap(time, Some(self.missing)));
        }
        if !place.has_room(head.len() + line.len()) {
            place = place.turn()?;
            head.push_str(&lines::turned(time));
        }
        head.push_str(line);
        let written = place.append(&head);
        self.place = Some(place);
        written?;
        (self.lost, self.missing) = (false, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_in(at: &std::path::Path) -> Log {
        let directory = at.join("log");
        std::fs::create_dir(&directory).unwrap();
        Location::anew(&directory).unwrap();
        Log { directory, place: None, lost: false, missing: 0 }
    }

    /// `kind` and `missing` of each line.
    fn lines(log: &Log) -> Vec<(String, Option<u64>)> {
        let text = std::fs::read_to_string(log.directory.join("execution.jsonl")).unwrap();
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            (line["kind"].as_str().unwrap().to_owned(), line["missing"].as_u64())
        };
        text.lines().map(line).collect()
    }

    const CALL: &str = "{\"kind\":\"tool.exec\"}\n";

    #[test]
    fn lines_that_could_not_be_written_are_counted_before_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = log_in(directory.path());
        let call = || ("tool.exec".to_owned(), None);
        log.write("r", "now", CALL);
        assert_eq!(lines(&log), [call()]);
        // Somebody empties it, or takes it away.
        std::fs::write(log.directory.join("execution.jsonl"), "").unwrap();
        log.write("r", "now", CALL);
        let lost = || ("log.gap".to_owned(), None);
        assert_eq!(lines(&log), [lost(), call()]);
        std::fs::remove_file(log.directory.join("execution.jsonl")).unwrap();
        log.write("r", "now", CALL);
        log.write("r", "now", CALL);
        assert_eq!(lines(&log), [lost(), call(), call()]);
        // It cannot be made anew if something else than a file has its name; two calls end meanwhile.
        std::fs::remove_file(log.directory.join("execution.jsonl")).unwrap();
        std::fs::create_dir_all(log.directory.join("execution.jsonl/x")).unwrap();
        log.write("r", "now", CALL);
        log.write("r", "now", CALL);
        assert_eq!(log.missing, 2);
        std::fs::remove_dir(log.directory.join("execution.jsonl/x")).unwrap();
        log.write("r", "now", CALL);
        assert_eq!(lines(&log), [lost(), ("log.gap".to_owned(), Some(2)), call()]);
    }
}
