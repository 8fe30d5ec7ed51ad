//! Owns the writer, in one thread: writes events in batches, signs them, and reopens the log after the disk has failed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use audit::{
    Checkpoint, Event, Head, Limits, ReadError, Reader, Record, Removal, Signer, Unrecorded, Writer,
};
use operations::Reason;
use prometheus_client::metrics::histogram::Histogram;
use refusal::{Refusal, chain};
use tokio::sync::{mpsc, oneshot, watch};

use crate::tail::{Line, Tail};

/// Most events of one group commit.
const BATCH: usize = 512;

/// Time that events without a waiting caller are collected, for a group commit of many calls that only read.
const LINGER: Duration = Duration::from_millis(10);

/// Time between attempts to reopen a failed log.
const RETRY: Duration = Duration::from_secs(1);

/// Longest time that the last events may wait for a failing disk.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(20);

/// One event, and the channel of a caller that waits for it.
pub(crate) struct Entry {
    pub(crate) event: Event,
    pub(crate) written: Option<oneshot::Sender<Result<Arc<Line>, Unavailable>>>,
}

/// The error that the log cannot be written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

impl From<Unavailable> for Refusal {
    fn from(_: Unavailable) -> Self {
        Self::new(
            Reason::AuditUnavailable,
            "the audit log cannot be written, so no call is admitted. Try again after the operator has \
             repaired it",
        )
    }
}

/// A job in the queue.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are records, and one allocation less for each counts"
)]
pub(crate) enum Job {
    Record(Entry),
    /// A task of the log itself, done between two batches.
    Own(Own, oneshot::Sender<Result<(), Unavailable>>),
}

/// A task of the log itself.
pub(crate) enum Own {
    /// Sign the written records.
    Checkpoint,
    /// Change to a new key.
    Rotate,
    /// Record a removal.
    Remove(Box<Removal>),
}

/// A checkpoint, and the public key that signed it.
pub type Signed = (Checkpoint, String);

/// Settings and state of the signing.
pub(crate) struct Signing {
    pub(crate) signer: Signer,
    /// Number of records after which a checkpoint is due.
    pub(crate) every: u64,
    /// The last checkpoint, for its couriers.
    pub(crate) latest: watch::Sender<Option<Signed>>,
}

pub(crate) struct Told {
    pub(crate) head: watch::Sender<Option<Head>>,
    pub(crate) available: watch::Sender<bool>,
    /// Number of events on disk since the start.
    pub(crate) written: watch::Sender<u64>,
    /// The last records, for all subscribers.
    pub(crate) tail: Arc<Tail>,
    /// Time in which a batch became durable.
    pub(crate) writes: Histogram,
}

pub(crate) struct Thread {
    /// `None` while the log could not be reopened.
    writer: Option<Writer>,
    directory: PathBuf,
    limits: Limits,
    /// `None`: the log is not signed.
    signing: Option<Signing>,
    /// Accepted tasks that are not done yet.
    own: Vec<(Own, oneshot::Sender<Result<(), Unavailable>>)>,
    /// Accepted events that are not written yet, oldest first. Longer than a batch only while the disk fails.
    waiting: VecDeque<Entry>,
    told: Told,
    /// Set by a caller that waits: write the queued events now.
    hurry: Arc<AtomicBool>,
}

impl Thread {
    pub(crate) fn new(
        writer: Writer,
        directory: PathBuf,
        limits: Limits,
        signing: Option<Signing>,
        told: Told,
        hurry: Arc<AtomicBool>,
    ) -> Self {
        let (own, waiting) = (Vec::new(), VecDeque::new());
        let writer = Some(writer);
        Self { writer, directory, limits, signing, own, waiting, told, hurry }
    }

    /// Writes until the last handle is dropped. Logs how many events even then cannot be written.
    pub(crate) fn run(mut self, mut entries: mpsc::Receiver<Job>) {
        while let Some(job) = entries.blocking_recv() {
            let until = Instant::now() + LINGER;
            self.put(job);
            self.take(&mut entries);
            while self.may_linger() {
                let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
                // A caller that waits for the disk ends the pause early.
                std::thread::park_timeout(rest);
                self.take(&mut entries);
                if self.hurry.swap(false, Ordering::AcqRel) || entries.is_closed() {
                    break;
                }
            }
            self.write();
            self.do_own();
            let mut closed_at = None;
            while self.writer.is_none() {
                if entries.is_closed() && closed_at.get_or_insert_with(Instant::now).elapsed() >= LAST_WAIT {
                    break;
                }
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

    /// Takes queued jobs, up to a batch.
    fn take(&mut self, entries: &mut mpsc::Receiver<Job>) {
        while self.waiting.len() < BATCH {
            let Ok(job) = entries.try_recv() else { break };
            self.put(job);
        }
    }

    fn put(&mut self, job: Job) {
        match job {
            Job::Record(entry) => self.waiting.push_back(entry),
            Job::Own(own, done) => self.own.push((own, done)),
        }
    }

    /// Returns true if no caller waits for the taken events, and there is space for more.
    fn may_linger(&self) -> bool {
        self.waiting.len() < BATCH
            && self.own.is_empty()
            && self.waiting.iter().all(|entry| entry.written.is_none())
    }

    /// Does the requested tasks, and makes a checkpoint if one is due.
    fn do_own(&mut self) {
        for (own, done) in std::mem::take(&mut self.own) {
            let result = self.do_one(own);
            let _ = done.send(result);
        }
        let due = |(writer, signing): (&Writer, &Signing)| writer.unsigned() >= signing.every;
        if self.writer.as_ref().zip(self.signing.as_ref()).is_some_and(due) {
            let _ = self.do_one(Own::Checkpoint);
        }
    }

    fn do_one(&mut self, own: Own) -> Result<(), Unavailable> {
        let Some(writer) = &mut self.writer else { return Err(Unavailable) };
        let result = match (own, &mut self.signing) {
            (Own::Checkpoint, Some(signing)) => {
                writer.checkpoint(&signing.signer).map_err(|error| chain(&error))
            }
            (Own::Rotate, Some(signing)) => {
                let rotated = writer.rotate(&mut signing.signer).map_err(|error| chain(&error));
                rotated.inspect(
                    |_| tracing::warn!(key = %signing.signer.verifier_key(), "the audit log has a new key"),
                )
            }
            (Own::Checkpoint | Own::Rotate, None) => Err("this log has no signing key".to_owned()),
            (Own::Remove(removal), _) => writer.remove(&removal).map(|_| None).map_err(|error| chain(&error)),
        };
        self.told.head.send_replace(writer.head());
        let result = match result {
            Ok(Some(checkpoint)) => {
                if let Some(signing) = &self.signing {
                    signing
                        .latest
                        .send_replace(Some((checkpoint, signing.signer.verifier_key().to_string())));
                }
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                tracing::error!(error, "the audit log could not be signed or tidied");
                Err(Unavailable)
            }
        };
        if writer.is_poisoned() {
            self.fail();
        }
        result
    }

    fn write(&mut self) {
        while let Some(writer) = &mut self.writer {
            let count = self.waiting.len().min(BATCH);
            if count == 0 {
                return;
            }
            let (events, waiters): (Vec<Event>, Vec<_>) =
                self.waiting.drain(..count).map(|entry| (entry.event, entry.written)).unzip();
            let began = Instant::now();
            match writer.append_all(events) {
                Ok(records) => {
                    self.told.writes.observe(began.elapsed().as_secs_f64());
                    let lines = lines(records, writer.last_lines());
                    self.told.tail.push(&lines, writer.last_position());
                    self.told.head.send_replace(writer.head());
                    for (written, line) in waiters.into_iter().zip(lines) {
                        if let Some(written) = written {
                            let _ = written.send(Ok(line));
                        }
                    }
                    self.told.written.send_modify(|written| *written += count as u64);
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

    /// Reports the failure to all waiting callers; their events stay and will be written.
    fn fail(&mut self) {
        self.writer = None;
        self.told.available.send_replace(false);
        for entry in &mut self.waiting {
            if let Some(written) = entry.written.take() {
                let _ = written.send(Err(Unavailable));
            }
        }
        for (_, done) in self.own.drain(..) {
            let _ = done.send(Err(Unavailable));
        }
    }

    fn reopen(&mut self) {
        let (mut writer, opened) = match Writer::open_with(&self.directory, self.limits) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::error!(error = %error, "the audit log cannot be opened again yet");
                return;
            }
        };
        // A batch whose fsync failed may be on disk all the same, in whole or in part: these events are not written twice.
        let acknowledged = self.told.head.borrow().map_or(0, |head| head.sequence);
        let survived = match survived(&self.directory, acknowledged, opened.head) {
            Ok(survived) => survived.min(self.waiting.len()),
            Err(error) => {
                tracing::error!(error = %error, "the audit log cannot be read again yet");
                return;
            }
        };
        if let Some(signing) = &mut self.signing
            && let Err(error) = writer.resume_signer(&mut signing.signer)
        {
            tracing::error!(error = %chain(&error), "the audit log's key cannot be read again yet");
            return;
        }
        self.waiting.drain(..survived);
        self.told.written.send_modify(|written| *written += survived as u64);
        self.told.head.send_replace(writer.head());
        self.writer = Some(writer);
        self.told.available.send_replace(true);
        tracing::warn!("the audit log can be written again");
    }
}

pub(crate) fn lines(records: Vec<Record>, text: &[u8]) -> Vec<Arc<Line>> {
    let texts = text.split_inclusive(|byte| *byte == b'\n');
    let line = |(record, text): (Record, &[u8])| {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        Arc::new(Line { record, text: String::from_utf8_lossy(text).into_owned() })
    };
    records.into_iter().zip(texts).map(line).collect()
}

/// Returns how many of the daemon's events came after record `acknowledged`, up to `head`.
///
/// The record of a repair may be among them, from a failed attempt to open the log.
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
    fn repair_records_are_not_counted_as_own() {
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
