//! Which calls and sessions the log has opened and not closed, as it is read from front to back.

use std::collections::BTreeMap;

use audit::{Event, Hash, Kind, Record};

use crate::ids::SessionId;
use crate::terminal;

/// A place in the log: a record, by its number and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) sequence: u64,
    pub(crate) hash: Hash,
}

/// What has begun and has no end.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) calls: BTreeMap<String, (Mark, Event)>,
    pub(super) sessions: BTreeMap<SessionId, (Mark, Event)>,
    /// The last record that was read.
    pub(super) last: Option<Mark>,
}

impl Ends {
    /// Reads one record more.
    pub(super) fn read(&mut self, record: &Record) {
        let mark = Mark { sequence: record.sequence, hash: record.hash };
        self.last = Some(mark);
        let event = &record.event;
        match (event.kind, &event.call_id) {
            (Kind::CallIntent, Some(call)) => {
                self.calls.insert(call.clone(), (mark, event.clone()));
            }
            (Kind::CallReceipt, Some(call)) => drop(self.calls.remove(call)),
            (Kind::SessionOpened, _) => {
                if let Some(session) = terminal::session_of(event) {
                    self.sessions.insert(session, (mark, event.clone()));
                }
            }
            (Kind::SessionClosed, _) => {
                if let Some(session) = terminal::session_of(event) {
                    self.sessions.remove(&session);
                }
            }
            _ => {}
        }
    }

    /// Where reading has to begin another time to come to the same: at the oldest of what is open, or at the last record.
    pub(super) fn mark(&self) -> Option<Mark> {
        let open = self.calls.values().chain(self.sessions.values()).map(|(mark, _)| *mark);
        open.min_by_key(|mark| mark.sequence).or(self.last)
    }
}

#[cfg(test)]
mod tests {
    use audit::{Event, Kind, Limits, Reader, Writer};

    use super::Ends;
    use crate::ids::SessionId;

    #[test]
    fn reading_from_the_mark_comes_to_the_same_as_reading_all() {
        let place = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open_with(place.path(), Limits::default()).unwrap();
        let session = SessionId::new();
        let details = serde_json::json!({ "session_id": session.to_string() });
        let events = [
            Event::new(Kind::DaemonStarted),
            Event::new(Kind::CallIntent).call("a"),
            Event::new(Kind::CallIntent).call("b"),
            Event::new(Kind::CallReceipt).call("a"),
            Event::new(Kind::SessionOpened).details(details.clone()),
            Event::new(Kind::CallReceipt).call("b"),
            Event::new(Kind::CallReceipt).call("never opened"),
            Event::new(Kind::CallIntent).call("c"),
            Event::new(Kind::SessionClosed).details(details),
            Event::new(Kind::CallReceipt).call("c"),
            Event::new(Kind::DaemonStopped),
        ];
        // Oldest open record after each, from 1; the last one where nothing is open.
        let marks = [1, 2, 2, 3, 3, 5, 5, 5, 8, 10, 11];
        let open = |ends: &Ends| {
            (
                ends.calls.keys().cloned().collect::<Vec<_>>(),
                ends.sessions.keys().copied().collect::<Vec<_>>(),
            )
        };
        let mut whole = Ends::default();
        for (event, mark) in events.into_iter().zip(marks) {
            writer.append(&event).unwrap();
            whole = Ends::default();
            for record in Reader::from(place.path(), 0) {
                whole.read(&record.unwrap());
            }
            let found = whole.mark().unwrap();
            assert_eq!(found.sequence, mark);
            let mut part = Ends::default();
            for record in Reader::from(place.path(), found.sequence - 1) {
                part.read(&record.unwrap());
            }
            assert_eq!((open(&part), part.mark()), (open(&whole), Some(found)));
        }
        assert!(whole.calls.is_empty() && whole.sessions.is_empty());
    }
}
