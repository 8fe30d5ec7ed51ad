//! Reads the log for a subscriber: first the existing records, then new ones, each exactly once and without gaps.
//!
//! A subscriber reads at its own pace and only up to the durable head. So a slow one costs the writer nothing, and none sees a
//! record that a crash could take back. Near the head it reads the tail that all subscribers share, and farther back the segments.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use audit::{Head, ReadError, Reader};
use operations::Reason;
use refusal::Refusal;
use tokio::sync::watch;

use crate::tail::{Line, Tail};

/// Most records that are read at once.
const BATCH: u64 = 256;

/// A subscriber's position in the log.
pub struct Follow {
    directory: PathBuf,
    next: u64,
    tail: Arc<Tail>,
    /// Reads records that are no longer in the tail.
    reader: Option<Reader>,
    waits: bool,
    linger: Duration,
    head: watch::Receiver<Option<Head>>,
}

impl Follow {
    pub(crate) fn new(
        directory: &Path,
        tail: Arc<Tail>,
        after: u64,
        follow: bool,
        head: watch::Receiver<Option<Head>>,
    ) -> Self {
        let next = after.saturating_add(1);
        let (directory, linger) = (directory.to_owned(), Duration::ZERO);
        Self { directory, next, tail, reader: None, waits: follow, linger, head }
    }

    /// Waits so long after a first new record for more, so that many records wake the subscriber once.
    #[must_use]
    pub fn lingering(self, time: Duration) -> Self {
        Self { linger: time, ..self }
    }

    /// Returns the next records; waits for some when following. `None`: the log has ended.
    pub async fn next(&mut self) -> Result<Option<Vec<Arc<Line>>>, Refusal> {
        loop {
            let head = self.head.borrow_and_update().map_or(0, |head| head.sequence);
            if self.next > head {
                if !self.waits || self.head.changed().await.is_err() {
                    return Ok(None);
                }
                if !self.linger.is_zero() {
                    tokio::time::sleep(self.linger).await;
                }
                continue;
            }
            let most = usize::try_from(BATCH).unwrap_or(usize::MAX);
            let lines = match self.tail.from(self.next, head, most) {
                Some(lines) => {
                    self.reader = None;
                    Ok(lines.into_iter().map(|placed| placed.line).collect())
                }
                None => self.read(head).await?,
            };
            if let Ok(Some(last)) = lines.as_ref().map(|lines| lines.last()) {
                self.next = last.record.sequence.saturating_add(1);
            }
            return match lines {
                Ok(lines) if lines.is_empty() => {
                    Err(Refusal::new(Reason::Internal, "the audit log ends before its head; verify it"))
                }
                Ok(lines) => Ok(Some(lines)),
                Err(ReadError::Damaged(broken)) => {
                    Err(Refusal::new(Reason::Internal, format!("the audit log is damaged: {broken}")))
                }
                Err(error) => Err(Refusal::internal("reading the audit log", &error)),
            };
        }
    }

    /// Returns true if no record is left to read now.
    pub(crate) fn is_at_head(&self) -> bool {
        self.head.borrow().is_none_or(|head| self.next > head.sequence)
    }

    async fn read(&mut self, head: u64) -> Result<Result<Vec<Arc<Line>>, ReadError>, Refusal> {
        let last = head.min(self.next.saturating_add(BATCH - 1));
        let reader = self.reader.take().filter(|reader| reader.next_sequence() == self.next);
        let mut reader = reader.unwrap_or_else(|| Reader::from(&self.directory, self.next.saturating_sub(1)));
        let read = tokio::task::spawn_blocking(move || {
            let lines = read_up_to(&mut reader, last);
            (reader, lines)
        });
        let (reader, lines) =
            read.await.map_err(|error| Refusal::internal("reading the audit log", &error))?;
        self.reader = Some(reader);
        Ok(lines)
    }
}

fn read_up_to(reader: &mut Reader, last: u64) -> Result<Vec<Arc<Line>>, ReadError> {
    let mut lines = Vec::new();
    while reader.next_sequence() <= last {
        let Some((record, text)) = reader.next_with_line()? else { break };
        lines.push(Arc::new(Line { record, text: text.to_owned() }));
    }
    Ok(lines)
}
