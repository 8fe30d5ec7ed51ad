//! Reading the log for a subscriber: first what is there, then what comes, nothing skipped and nothing twice.
//!
//! A subscriber reads the segments at its own pace and only up to the durable head, so that a slow one costs the writer
//! nothing and none sees a record that a crash could take back.

use std::path::Path;

use audit::{Head, ReadError, Reader, Record};
use ops::Reason;
use tokio::sync::watch;

use crate::status::Refusal;

/// Records read in one go.
const BATCH: u64 = 256;

/// A record and the line that it stands on.
pub(crate) struct Line {
    pub(crate) record: Record,
    pub(crate) text: String,
}

/// A subscriber's place in the log.
pub(crate) struct Follow {
    /// `None` only while a batch is being read.
    reader: Option<Reader>,
    waits: bool,
    head: watch::Receiver<Option<Head>>,
}

impl Follow {
    pub(super) fn new(
        directory: &Path,
        after: u64,
        follow: bool,
        head: watch::Receiver<Option<Head>>,
    ) -> Self {
        Self { reader: Some(Reader::from(directory, after)), waits: follow, head }
    }

    /// The next records, waiting for some when following; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Line>>, Refusal> {
        loop {
            let head = self.head.borrow_and_update().map_or(0, |head| head.sequence);
            let Some(mut reader) = self.reader.take() else { return Ok(None) };
            let next = reader.next_sequence();
            if next > head {
                self.reader = Some(reader);
                if !self.waits || self.head.changed().await.is_err() {
                    return Ok(None);
                }
                continue;
            }
            let last = head.min(next.saturating_add(BATCH - 1));
            let read = tokio::task::spawn_blocking(move || {
                let lines = read_up_to(&mut reader, last);
                (reader, lines)
            });
            let (reader, lines) =
                read.await.map_err(|error| Refusal::internal("reading the audit log", &error))?;
            self.reader = Some(reader);
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
}

fn read_up_to(reader: &mut Reader, last: u64) -> Result<Vec<Line>, ReadError> {
    let mut lines = Vec::new();
    while reader.next_sequence() <= last {
        let Some((record, text)) = reader.next_with_line()? else { break };
        lines.push(Line { record, text: text.to_owned() });
    }
    Ok(lines)
}
