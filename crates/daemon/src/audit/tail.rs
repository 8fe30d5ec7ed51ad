//! The end of the log, read once for all who follow it.
//!
//! Each record is proved when it is read, which costs more than handing it on. So whoever follows the log takes the
//! last records from here; one of them reads what is new for all, and those that are further behind read for
//! themselves. What is kept is bounded, and nobody waits for a slow one.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use audit::{ReadError, Reader};

use super::follow::Line;

/// Records that are kept.
const RECORDS: usize = 4_096;
/// Bytes of their lines.
const BYTES: usize = 8 * 1024 * 1024;

/// The last records of a log.
pub(super) struct Tail {
    directory: PathBuf,
    recent: Mutex<Recent>,
    /// Held by the one who reads. `None`: nobody has yet, or the reading failed.
    reader: tokio::sync::Mutex<Option<Reader>>,
}

/// Records without a gap.
#[derive(Default)]
struct Recent {
    lines: VecDeque<Arc<Line>>,
    bytes: usize,
}

impl Recent {
    fn push(&mut self, line: Line) {
        if self.lines.back().is_some_and(|last| last.record.sequence + 1 != line.record.sequence) {
            *self = Self::default();
        }
        self.bytes += line.text.len();
        self.lines.push_back(Arc::new(line));
        while self.lines.len() > RECORDS || self.bytes > BYTES {
            let Some(first) = self.lines.pop_front() else { return };
            self.bytes -= first.text.len();
        }
    }

    fn first(&self) -> Option<u64> {
        self.lines.front().map(|line| line.record.sequence)
    }
}

impl Tail {
    pub(super) fn new(directory: &Path) -> Arc<Self> {
        let (recent, reader) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { directory: directory.to_owned(), recent, reader })
    }

    /// The records from `next` to `last`, as far as they are here and no more than `most`. `None`: read them yourself.
    pub(super) async fn from(
        self: &Arc<Self>,
        next: u64,
        last: u64,
        most: usize,
    ) -> Result<Option<Vec<Line>>, ReadError> {
        let behind = self.recent().first().is_some_and(|first| next < first);
        if behind || last.saturating_sub(next) > RECORDS as u64 / 2 {
            return Ok(None);
        }
        if let Some(lines) = self.kept(next, last, most) {
            return Ok(Some(lines));
        }
        let mut reader = self.reader.lock().await;
        // Another may have read them meanwhile.
        if let Some(lines) = self.kept(next, last, most) {
            return Ok(Some(lines));
        }
        let (tail, mut taken) = (self.clone(), reader.take());
        // Without a reader, or when nobody has followed for a while, it begins where it is needed.
        if taken.as_ref().is_none_or(|reader| reader.next_sequence() != next) {
            taken = Some(Reader::from(&self.directory, next.saturating_sub(1)));
        }
        let Some(mut taken) = taken else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || {
            let result = tail.read(&mut taken, last);
            (taken, result)
        });
        let Ok((taken, result)) = read.await else { return Ok(None) };
        result?;
        *reader = Some(taken);
        Ok(self.kept(next, last, most))
    }

    fn read(&self, reader: &mut Reader, last: u64) -> Result<(), ReadError> {
        while reader.next_sequence() <= last {
            let Some((record, text)) = reader.next_with_line()? else { break };
            let line = Line { record, text: text.to_owned() };
            self.recent().push(line);
        }
        Ok(())
    }

    fn kept(&self, next: u64, last: u64, most: usize) -> Option<Vec<Line>> {
        let lines: Vec<_> = {
            let recent = self.recent();
            let skip = usize::try_from(next.checked_sub(recent.first()?)?).ok()?;
            let count =
                usize::try_from(last.saturating_sub(next).saturating_add(1)).unwrap_or(most).min(most);
            recent.lines.iter().skip(skip).take(count).cloned().collect()
        };
        // Copied without the lock.
        (!lines.is_empty()).then(|| lines.iter().map(|line| Line::clone(line)).collect())
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use audit::{Event, Kind, Writer};

    use super::{RECORDS, Tail};

    fn sequences(lines: Option<Vec<super::Line>>) -> Option<Vec<u64>> {
        Some(lines?.into_iter().map(|line| line.record.sequence).collect())
    }

    #[tokio::test]
    async fn the_end_is_read_once_and_what_is_far_behind_is_not_here() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path()).unwrap();
        let mut add = |count: usize| {
            writer.append_batch(&vec![Event::new(Kind::CallIntent); count]).unwrap();
            writer.head().unwrap().sequence
        };
        let tail = Tail::new(directory.path());
        let head = add(10);
        assert_eq!(sequences(tail.from(6, head, 3).await.unwrap()), Some(vec![6, 7, 8]));
        assert_eq!(sequences(tail.from(9, head, 100).await.unwrap()), Some(vec![9, 10]));
        assert_eq!(sequences(tail.from(5, head, 100).await.unwrap()), None, "it began at 6");
        // Kept although the log is gone: nobody reads it again.
        let away = directory.path().with_extension("away");
        std::fs::rename(directory.path(), &away).unwrap();
        assert_eq!(sequences(tail.from(6, head, 100).await.unwrap()), Some(vec![6, 7, 8, 9, 10]));
        std::fs::rename(&away, directory.path()).unwrap();

        let head = add(RECORDS + 5);
        assert_eq!(sequences(tail.from(11, head, 2).await.unwrap()), None, "too far from the head");
        let near = head - 3;
        assert_eq!(sequences(tail.from(near, head, 2).await.unwrap()), Some(vec![near, near + 1]));
        let next = add(1);
        assert_eq!(sequences(tail.from(next, next, 9).await.unwrap()), Some(vec![next]));
        assert_eq!(sequences(tail.from(near, next, 9).await.unwrap()).map(|found| found.len()), Some(5));
        assert_eq!(sequences(tail.from(6, next, 9).await.unwrap()), None);
        assert!(tail.recent().lines.len() <= RECORDS);
    }
}
