//! The audit events of all nodes.

use std::time::Duration;

use cofferdam_client::Client;
use command_context::client::quick;
use futures_util::StreamExt as _;
use presentation::failure::Failure;
use serde::Deserialize;
use tonic::Status;
use wire::v1::{AuditEvent, EventFilter, StreamEventsRequest};

use crate::answers::moment;
use crate::feed::{Feed, Following, Opened, Placed, run};
use crate::fleet::{Fleet, Reached};
use crate::position::{Mark, Position};

/// Time that an event waits for earlier ones of other nodes, while logs are followed.
const PATIENCE: Duration = Duration::from_millis(500);
const OTHER_LOG: &str = "it has another log than the position is of: the log is read from its first record";
const SHORTER: &str =
    "its log ends before the position, so the log was rolled back: the log is read from its first record";

/// An event, its node, and the position after it.
pub struct Event<'a> {
    pub node: &'a str,
    pub position: &'a Position,
    pub event: AuditEvent,
}

/// The end of events that were printed.
pub struct Followed {
    /// Position after the last event that was printed.
    pub position: Position,
    /// Failure with which all nodes ended.
    pub ended: Result<(), Failure>,
}

/// Prints the events after a position, in the order of time; with `follows` also new ones, until a signal.
///
/// Fails if `print` does.
pub async fn follow(
    fleet: &Fleet,
    filter: EventFilter,
    after: Position,
    follows: bool,
    mut print: impl FnMut(Event<'_>) -> Result<(), Failure>,
) -> Result<Followed, Failure> {
    let (mut position, mut is_printed) = (after.clone(), true);
    let events = Events { filter, follows };
    let following = Following { follows, patience: follows.then_some(PATIENCE) };
    let printed = run(fleet, &events, &after, following, |arrived| {
        if let Some((node, mark)) = arrived.place {
            position.set(node, mark);
        }
        let printed = print(Event { node: &arrived.node, position: &position, event: arrived.item });
        is_printed = printed.is_ok();
        printed
    });
    let ended = tokio::select! {
        printed = printed => printed,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failure::from),
    };
    match ended {
        Err(failure) if !is_printed => Err(failure),
        ended => Ok(Followed { position, ended }),
    }
}

struct Events {
    filter: EventFilter,
    follows: bool,
}

impl Feed for Events {
    type Item = AuditEvent;

    async fn open(&self, node: &Reached, after: Option<Mark>) -> Result<Opened<AuditEvent>, Failure> {
        if node.id.is_none() {
            return Err(Failure::usage("its daemon has no `node.id`, so a position cannot name its log"));
        }
        let end = end_of(&node.client).await?;
        let (after_sequence, warning) = start(after, end);
        let filter = Some(self.filter.clone());
        let request =
            StreamEventsRequest { after_sequence, filter, follow: self.follows, newest_only: false };
        let events = node.client.audit().stream_events(request).await?.into_inner();
        let items = events.map(move |answer| -> Result<Placed<AuditEvent>, Status> {
            let event = answer?.event.unwrap_or_default();
            let mark = Some(Mark { log: end.log, sequence: event.sequence });
            Ok(Placed { moment: moment(event.time.as_ref()), mark, item: event })
        });
        Ok(Opened { items: items.boxed_local(), warning })
    }
}

/// Returns the sequence number after which a log is read, and a warning if that is not where the reader was.
fn start(after: Option<Mark>, end: Mark) -> (u64, Option<&'static str>) {
    match after {
        None => (0, None),
        Some(mark) if mark.log != end.log => (0, Some(OTHER_LOG)),
        Some(mark) if mark.sequence > end.sequence => (0, Some(SHORTER)),
        Some(mark) => (mark.sequence, None),
    }
}

/// Returns the place at the end of a node's log.
async fn end_of(client: &Client) -> Result<Mark, Failure> {
    let request = StreamEventsRequest { newest_only: true, ..StreamEventsRequest::default() };
    let mut newest = client.audit().stream_events(quick(request)).await?.into_inner();
    let answer = newest.message().await?.and_then(|answer| answer.event);
    let event = answer.ok_or_else(|| Failure::failed("its log has no record"))?;
    let log = log_of(&event.record_json).ok_or_else(|| Failure::failed("its records name no log"))?;
    Ok(Mark { log, sequence: event.sequence })
}

/// Returns the identity of the log that a record names.
fn log_of(record: &str) -> Option<[u8; 16]> {
    #[derive(Deserialize)]
    struct OfLog {
        log: String,
    }
    let OfLog { log } = serde_json::from_str(record).ok()?;
    let mut bytes = [0; 16];
    hex::decode_to_slice(log, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_on_only_if_it_is_the_same() {
        let mark = |log: u8, sequence| Mark { log: [log; 16], sequence };
        let end = mark(1, 42);
        assert_eq!(start(None, end), (0, None));
        assert_eq!(start(Some(mark(1, 40)), end), (40, None));
        assert_eq!(start(Some(mark(1, 42)), end), (42, None));
        assert_eq!(start(Some(mark(2, 40)), end), (0, Some(OTHER_LOG)));
        assert_eq!(start(Some(mark(1, 43)), end), (0, Some(SHORTER)));
    }

    #[test]
    fn a_record_names_its_log() {
        let log = "000102030405060708090a0b0c0d0e0f";
        let record = format!(r#"{{"v":1,"log":"{log}","sequence":7}}"#);
        assert_eq!(log_of(&record).map(hex::encode).as_deref(), Some(log));
        for wrong in ["", "{}", r#"{"log":7}"#, r#"{"log":"00"}"#, r#"{"log":"zz"}"#] {
            assert_eq!(log_of(wrong), None, "{wrong}");
        }
    }
}
