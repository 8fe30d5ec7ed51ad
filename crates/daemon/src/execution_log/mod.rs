//! `@state/logs/execution.jsonl`: each run's own calls, for the run's own reader, in the shape of the `fs` tool host
//! (`ts kind toolCallId toolName agentId input output durationMs`).
//!
//! ```text
//!  audit log ──► follower (one task) ──► lines (intent + receipt = one event) ──► place ──► runs/RUN/logs/execution.jsonl
//! ```
//!
//! A convenience copy of what the audit log says, and never evidence: it lies where the run's own processes are. It is
//! written behind the durable head, on no call's path; what cannot be written is left out and said in the daemon's log.
//! A daemon that was killed leaves out the lines of its last moments.

mod lines;
mod place;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use audit::{Kind, Record};

use crate::audit::{AuditLog, Follow};
use crate::runs::Directories;
use crate::status::chain;

pub(crate) use place::prepare;

use lines::Lines;
use place::Place;

/// Files that are open at the same time.
const OPEN: usize = 128;
/// How long lines may wait for company.
const LINGER: Duration = Duration::from_millis(50);
/// Between attempts when the audit log cannot be read.
const RETRY: Duration = Duration::from_secs(1);

/// Follows the log from now on until it has no writer any more.
pub(crate) fn start(audit: &AuditLog, directories: Directories) -> tokio::task::JoinHandle<()> {
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
            // Said where it was found.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// The files of the runs that were written to lately.
struct Files {
    directories: Directories,
    /// `None`: it cannot be written, which was said.
    open: HashMap<String, Option<Place>>,
    /// The oldest first.
    order: VecDeque<String>,
}

impl Files {
    fn take(&mut self, lines: &mut Lines, record: &Record) {
        let Some(run) = record.event.run_id.as_deref() else { return };
        if let Some(line) = lines.line(record)
            && let Some(Some(place)) = self.file(run)
            && let Err(error) = place.append(&line)
        {
            tracing::warn!(run, error = %chain(&error), "a run's execution.jsonl cannot be written, and ends here");
            self.open.insert(run.to_owned(), None);
        }
        let state = record.event.details.as_ref().and_then(|details| details["state"].as_str());
        if record.event.kind == Kind::RunState && matches!(state, Some("STOPPED" | "FAILED")) {
            self.open.remove(run);
            self.order.retain(|open| open != run);
        }
    }

    fn file(&mut self, run: &str) -> Option<&mut Option<Place>> {
        if !self.open.contains_key(run) {
            // A call that was turned away may name anything.
            crate::ids::RunId::parse(run).ok()?;
            while self.order.len() >= OPEN {
                let Some(oldest) = self.order.pop_front() else { break };
                self.open.remove(&oldest);
            }
            let place = match Place::open(&self.directories.run_state(run)) {
                Ok(place) => place,
                Err(error) => {
                    tracing::warn!(run, error = %chain(&error), "a run's execution.jsonl cannot be opened");
                    None
                }
            };
            self.open.insert(run.to_owned(), place);
            self.order.push_back(run.to_owned());
        }
        self.open.get_mut(run)
    }
}
