//! The thread that owns the writer: batches what waits, and brings the log back after the disk has failed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use audit::{Event, Head, ReadError, Reader, Unrecorded, Writer};
use tokio::sync::{mpsc, watch};

use super::{Entry, Unavailable};

/// Events of one group commit.
const BATCH: usize = 512;

/// How long events that nobody waits for may wait for company: a group commit of many calls that only read.
const LINGER: Duration = Duration::from_millis(10);

/// Between attempts to open a failed log again.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Thread {
    /// `None` while the log could not be opened again.
    writer: Option<Writer>,
    directory: PathBuf,
    /// Taken and not yet written, oldest first. Longer than a batch only while the disk fails.
    waiting: VecDeque<Entry>,
    head: watch::Sender<Option<Head>>,
    available: watch::Sender<bool>,
    /// How many events are on disk since the start.
    written: watch::Sender<u64>,
    /// Somebody waits: what is there is to be written now.
    hurry: Arc<AtomicBool>,
}

impl Thread {
    pub(super) fn new(
        writer: Writer,
        directory: PathBuf,
        head: watch::Sender<Option<Head>>,
        available: watch::Sender<bool>,
        written: watch::Sender<u64>,
        hurry: Arc<AtomicBool>,
    ) -> Self {
        Self { writer: Some(writer), directory, waiting: VecDeque::new(), head, available, written, hurry }
    }

    /// Writes until the last handle is gone. What cannot be written even then is said in the daemon's log.
    pub(super) fn run(mut self, mut entries: mpsc::Receiver<Entry>) {
        while let Some(entry) = entries.blocking_recv() {
            let until = Instant::now() + LINGER;
            self.waiting.push_back(entry);
            self.take(&mut entries);
            while self.may_linger() {
                let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
                // Ended early by whoever waits for the disk.
                std::thread::park_timeout(rest);
                self.take(&mut entries);
                if self.hurry.swap(false, Ordering::AcqRel) || entries.is_closed() {
                    break;
                }
            }
            self.write();
            while self.writer.is_none() && !entries.is_closed() {
                std::thread::sleep(RETRY);
                self.reopen();
                self.write();
            }
        }
        if !self.waiting.is_empty() {
            tracing::error!(
                events = self.waiting.len(),
                "the audit log failed: these last events are not in it"
            );
        }
    }

    /// What waits in the queue, up to a batch.
    fn take(&mut self, entries: &mut mpsc::Receiver<Entry>) {
        while self.waiting.len() < BATCH {
            let Ok(entry) = entries.try_recv() else { break };
            self.waiting.push_back(entry);
        }
    }

    /// Nobody waits for what is there, and more may come.
    fn may_linger(&self) -> bool {
        self.waiting.len() < BATCH && self.waiting.iter().all(|entry| entry.written.is_none())
    }

    fn write(&mut self) {
        while let Some(writer) = &mut self.writer {
            let count = self.waiting.len().min(BATCH);
            if count == 0 {
                return;
            }
            let (events, waiters): (Vec<Event>, Vec<_>) =
                self.waiting.drain(..count).map(|entry| (entry.event, entry.written)).unzip();
            match writer.append_all(events) {
                Ok(records) => {
                    self.head.send_replace(writer.head());
                    for (written, record) in waiters.into_iter().zip(records) {
                        if let Some(written) = written {
                            let _ = written.send(Ok(record));
                        }
                    }
                    self.written.send_modify(|written| *written += count as u64);
                }
                Err(Unrecorded { error, events }) => {
                    tracing::error!(error = %error, "the audit log cannot be written: no call is admitted until it can");
                    let entries = events.into_iter().zip(waiters);
                    for (event, written) in entries.rev() {
                        self.waiting.push_front(Entry { event, written });
                    }
                    self.fail();
                }
            }
        }
    }

    /// Tells everyone who waits; their events stay and will be written.
    fn fail(&mut self) {
        self.writer = None;
        self.available.send_replace(false);
        for entry in &mut self.waiting {
            if let Some(written) = entry.written.take() {
                let _ = written.send(Err(Unavailable));
            }
        }
    }

    fn reopen(&mut self) {
        let (writer, opened) = match Writer::open(&self.directory) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::error!(error = %error, "the audit log cannot be opened again yet");
                return;
            }
        };
        // A batch whose fsync failed may be on disk all the same, in whole or in part: those are not written twice.
        let acknowledged = self.head.borrow().map_or(0, |head| head.sequence);
        let survived = match survived(&self.directory, acknowledged, opened.head) {
            Ok(survived) => survived.min(self.waiting.len()),
            Err(error) => {
                tracing::error!(error = %error, "the audit log cannot be read again yet");
                return;
            }
        };
        self.waiting.drain(..survived);
        self.written.send_modify(|written| *written += survived as u64);
        self.head.send_replace(writer.head());
        self.writer = Some(writer);
        self.available.send_replace(true);
        tracing::warn!("the audit log can be written again");
    }
}

/// How many events of ours came after record `acknowledged`, up to `head`. An attempt to open the log that failed may
/// have left the record of its repair among them.
fn survived(directory: &Path, acknowledged: u64, head: Option<Head>) -> Result<usize, ReadError> {
    let head = head.map_or(0, |head| head.sequence);
    let mut reader = Reader::from(directory, acknowledged);
    let mut count = 0;
    while reader.next_sequence() <= head {
        let Some((record, _)) = reader.next_with_line()? else { break };
        count += usize::from(!record.event.kind.is_own());
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use audit::{Event, Kind, Writer};

    use super::survived;

    #[test]
    fn the_record_of_a_repair_is_none_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path()).unwrap();
        let kinds =
            [Kind::CallIntent, Kind::CallIntent, Kind::LogRepaired, Kind::CallReceipt, Kind::LogRepaired];
        writer.append_batch(&kinds.map(Event::new)).unwrap();
        for (acknowledged, expected) in [(0, 3), (1, 2), (2, 1), (4, 0), (5, 0)] {
            assert_eq!(survived(directory.path(), acknowledged, writer.head()).unwrap(), expected);
        }
    }
}
