//! Keeps the end of the log for all subscribers.
//!
//! The writer puts durable records here. So a subscriber near the log's head neither reads nor verifies records that this process
//! wrote a moment ago. A subscriber farther back reads the segments. The tail is bounded, and does not wait for slow subscribers.

use std::collections::VecDeque;
use std::sync::Arc;

use audit::Record;
use parking_lot::Mutex;

/// Most records that the tail keeps.
const RECORDS: usize = 12_288;
/// Most bytes of their lines.
const BYTES: usize = 8 * 1024 * 1024;

/// A record and its line, without the line feed.
#[derive(Debug, Clone)]
pub struct Line {
    pub record: Record,
    pub text: String,
}

/// The last records of a log, without a gap.
#[derive(Default)]
pub(crate) struct Tail(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    lines: VecDeque<Positioned>,
    bytes: usize,
}

/// A line, and the byte of its segment at which it begins.
#[derive(Debug, Clone)]
pub(crate) struct Positioned {
    pub(crate) line: Arc<Line>,
    pub(crate) position: u64,
}

impl Positioned {
    fn sequence(&self) -> u64 {
        self.line.record.sequence
    }

    fn bytes(&self) -> usize {
        self.line.text.len()
    }
}

impl Recent {
    fn push(&mut self, placed: Positioned) {
        if self.lines.back().is_some_and(|last| last.sequence() + 1 != placed.sequence()) {
            *self = Self::default();
        }
        self.bytes += placed.bytes();
        self.lines.push_back(placed);
        while self.lines.len() > RECORDS || self.bytes > BYTES {
            let Some(first) = self.lines.pop_front() else { return };
            self.bytes -= first.bytes();
        }
    }
}

impl Tail {
    /// Adds durable records, before subscribers learn of them. They are adjacent in their segment, from its byte `position`.
    pub(crate) fn push(&self, lines: &[Arc<Line>], mut position: u64) {
        let mut recent = self.0.lock();
        for line in lines {
            recent.push(Positioned { line: line.clone(), position });
            position += line.text.len() as u64 + 1;
        }
    }

    /// Forgets records that were removed from the log.
    pub(crate) fn forget(&self, last: u64) {
        let mut recent = self.0.lock();
        while recent.lines.front().is_some_and(|first| first.sequence() <= last) {
            let Some(first) = recent.lines.pop_front() else { return };
            recent.bytes -= first.bytes();
        }
    }

    /// Returns at most `most` of the records from `next` to `last`, as far as they are here. `None`: read the segments.
    pub(crate) fn from(&self, next: u64, last: u64, most: usize) -> Option<Vec<Positioned>> {
        let recent = self.0.lock();
        let first = recent.lines.front()?.sequence();
        let skip = usize::try_from(next.checked_sub(first)?).ok()?;
        let count = usize::try_from(last.saturating_sub(next).saturating_add(1)).unwrap_or(most).min(most);
        let lines: Vec<_> = recent.lines.iter().skip(skip).take(count).cloned().collect();
        (!lines.is_empty()).then_some(lines)
    }
}

#[cfg(test)]
mod tests {
    use audit::{Event, Kind, Limits, Writer};

    use super::{BYTES, Positioned, RECORDS, Tail};
    use crate::thread::lines;

    fn sequences(lines: Option<Vec<Positioned>>) -> Option<Vec<u64>> {
        Some(lines?.iter().map(Positioned::sequence).collect())
    }

    #[test]
    fn tail_holds_recent_records_only() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path()).unwrap();
        let tail = Tail::default();
        let mut add = |count: usize| {
            let records = writer.append_all(vec![Event::new(Kind::CallIntent); count]).unwrap();
            tail.push(&lines(records, writer.last_lines()), writer.last_position());
            writer.head().unwrap().sequence
        };
        assert_eq!(sequences(tail.from(1, 5, 9)), None, "nothing was written yet");
        let head = add(5) + 1;
        assert_eq!(sequences(tail.from(head, head, 9)), None, "this one does not exist");
        let head = add(5);
        assert_eq!(sequences(tail.from(6, head, 3)), Some(vec![6, 7, 8]));
        assert_eq!(sequences(tail.from(9, head, 100)), Some(vec![9, 10]));
        assert_eq!(
            sequences(tail.from(1, 4, 100)),
            Some(vec![1, 2, 3, 4]),
            "the head that the asker saw is the end"
        );

        let head = add(RECORDS);
        assert_eq!(sequences(tail.from(10, head, 2)), None, "over the number that is kept");
        assert_eq!(sequences(tail.from(11, head, 2)), Some(vec![11, 12]));
        tail.forget(head - 2);
        assert_eq!(sequences(tail.from(head - 2, head, 9)), None, "removed");
        assert_eq!(sequences(tail.from(head - 1, head, 9)), Some(vec![head - 1, head]));
        tail.forget(head);
        assert_eq!(sequences(tail.from(head, head, 9)), None);
        let next = add(1);
        assert_eq!(sequences(tail.from(next, next, 9)), Some(vec![next]));
        assert_eq!(sequences(tail.from(head, next, 9)), None, "it was forgotten");
    }

    #[test]
    fn tail_is_bounded_and_without_gaps() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path()).unwrap();
        let tail = Tail::default();
        let large = Event::new(Kind::CallIntent).details(serde_json::json!({ "x": "y".repeat(32 * 1024) }));
        for _ in 0..4 {
            let records = writer.append_all(vec![large.clone(); 128]).unwrap();
            tail.push(&lines(records, writer.last_lines()), writer.last_position());
        }
        let recent = tail.0.lock().bytes;
        assert!(recent <= BYTES && recent > BYTES / 2, "{recent}");
        // One that nobody left here.
        writer.append(&large).unwrap();
        let records = writer.append_all(vec![large]).unwrap();
        tail.push(&lines(records, writer.last_lines()), writer.last_position());
        assert_eq!(tail.0.lock().lines.len(), 1);
        assert_eq!(sequences(tail.from(513, 514, 9)), None);
        assert_eq!(sequences(tail.from(514, 514, 9)), Some(vec![514]));
    }

    #[test]
    fn a_line_is_the_one_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits { segment_bytes: 2_000, segment_age: None };
        let (mut writer, _) = Writer::open_with(directory.path(), limits).unwrap();
        let mut reader = audit::Reader::from(directory.path(), 0);
        let tail = Tail::default();
        for count in 1..7 {
            let event = Event::new(Kind::CallIntent).details(serde_json::json!({ "a line": "of\ntwo" }));
            let records = writer.append_all(vec![event; count]).unwrap();
            tail.push(&lines(records, writer.last_lines()), writer.last_position());
        }
        let mut lookup = audit::Lookup::new(directory.path()).unwrap();
        for Positioned { line, position } in tail.from(1, 21, 100).unwrap() {
            let (record, text) = reader.next_with_line().unwrap().unwrap();
            assert_eq!((record.head(), text), (line.record.head(), line.text.as_str()));
            assert_eq!(lookup.line(record.sequence, position).unwrap(), Some(line.text.as_str()));
        }
        assert_eq!(reader.next_sequence(), 22);
    }
}
