//! Tracks the calls, sessions and connections that the log has opened and not closed, while it is read from front to back.

use std::collections::BTreeMap;

use audit::{Event, Hash, Kind, Record};
use identity::SessionId;

/// A position in the log: the number and hash of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) sequence: u64,
    pub(super) hash: Hash,
}

/// A position in the log and the records that opened what was open there, without their input.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Marked {
    pub(super) mark: Mark,
    pub(super) open: Vec<Event>,
}

/// Calls, sessions and connections that have begun and not ended.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) calls: BTreeMap<String, Event>,
    pub(super) sessions: BTreeMap<SessionId, Event>,
    /// Connections of runs, in both directions, by their ids.
    pub(super) connections: BTreeMap<String, Event>,
    /// Last record that was read.
    pub(super) last: Option<Mark>,
}

impl Ends {
    /// Starts with what was open at a mark.
    pub(super) fn with(open: &[Event]) -> Self {
        let mut ends = Self::default();
        for event in open {
            ends.take(event);
        }
        ends
    }

    /// Reads one more record.
    pub(super) fn read(&mut self, record: &Record) {
        self.last = Some(Mark { sequence: record.sequence, hash: record.hash });
        self.take(&record.event);
    }

    fn take(&mut self, event: &Event) {
        match (event.kind, &event.call_id) {
            (Kind::CallIntent, Some(call)) => {
                // The record of its end does not need its input.
                self.calls.insert(call.clone(), Event { input: None, ..event.clone() });
            }
            (Kind::CallReceipt, Some(call)) => drop(self.calls.remove(call)),
            (Kind::SessionOpened, _) => {
                if let Some(session) = terminals::session_of(event) {
                    self.sessions.insert(session, event.clone());
                }
            }
            (Kind::EgressIntent | Kind::ForwardIntent, _) => {
                if let Some(connection) = connection_of(event) {
                    self.connections.insert(connection, event.clone());
                }
            }
            (Kind::EgressReceipt | Kind::ForwardReceipt, _) => {
                if let Some(connection) = connection_of(event) {
                    self.connections.remove(&connection);
                }
            }
            (Kind::SessionClosed, _) => {
                if let Some(session) = terminals::session_of(event) {
                    self.sessions.remove(&session);
                }
            }
            _ => {}
        }
    }

    /// Returns the last record and all that is open, so that a later scan can continue from there.
    pub(super) fn mark(&self) -> Option<Marked> {
        let open = self.calls.values().chain(self.sessions.values()).chain(self.connections.values());
        let open = open.cloned().collect();
        Some(Marked { mark: self.last?, open })
    }
}

/// Returns the connection of an intent or receipt.
fn connection_of(event: &Event) -> Option<String> {
    Some(event.details.as_ref()?.get("connection")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use audit::{Event, Kind, Limits, Reader, Writer};
    use identity::SessionId;

    use super::Ends;

    #[test]
    fn reading_from_the_cursor_equals_reading_the_whole_log() {
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
        let open = |ends: &Ends| {
            (
                ends.calls.keys().cloned().collect::<Vec<_>>(),
                ends.sessions.keys().copied().collect::<Vec<_>>(),
            )
        };
        let mut whole = Ends::default();
        for event in events {
            writer.append(&event).unwrap();
            let before = whole.mark();
            whole = Ends::default();
            for record in Reader::from(place.path(), 0) {
                whole.read(&record.unwrap());
            }
            // From the previous position, with the calls that were open there; its own record is read again.
            let Some(before) = before else { continue };
            let mut part = Ends::with(&before.open);
            for record in Reader::from(place.path(), before.mark.sequence - 1) {
                part.read(&record.unwrap());
            }
            assert_eq!((open(&part), part.mark()), (open(&whole), whole.mark()));
        }
        assert!(whole.calls.is_empty() && whole.sessions.is_empty());
    }
}
