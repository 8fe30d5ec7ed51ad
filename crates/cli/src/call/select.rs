//! Finds the call that a command line names.

use wire::v1::{EventFilter, QueryEventsRequest};

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids;

/// Largest number of calls that are examined. Their records contain the text anywhere.
const MOST: u32 = 1_000;

/// Returns the whole id of the call that `text`, as parsed by [`ids::part`], names.
///
/// A partial id is looked up in the audit log, for which the user needs the permission to read it.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    if ids::is_whole(text) {
        return Ok(text.to_owned());
    }
    let list = "coffer audit tail --output json";
    let filter =
        EventFilter { kinds: vec!["call_intent".into()], text: text.to_owned(), ..Default::default() };
    let request = QueryEventsRequest { filter: Some(filter), page_size: MOST, ..Default::default() };
    let answer = client.audit().query_events(quick(request)).await.map_err(|status| {
        Failure::from(status).and_hint(
            "part of an id is looked up in the audit log; the whole id needs no permission to read the log",
        )
    })?;
    let events = answer.into_inner().events;
    ids::pick(events.iter().map(|event| event.call_id.as_str()), text, "call", list).map(str::to_owned)
}
