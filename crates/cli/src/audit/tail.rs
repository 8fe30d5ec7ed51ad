//! `coffer audit tail`.

use std::collections::VecDeque;

use clap::Args;
use fleet_view::{Event, Fleet, Followed, Position};
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;
use wire::v1::{AuditEvent, StreamEventsRequest, StreamEventsResponse};

use super::filter::Filter;
use super::summary::summarise;
use crate::clean::escape_json;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::run_ref::RunRef;
use crate::ui::Ui;
use crate::{ids, time};

/// Largest number of records that --last accepts.
const MOST: u64 = 100_000;

/// Print records, one per line; with --follow also new ones.
///
/// `--output json` prints each record as it is in the log.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit tail --run 3f2a9c01 --follow")]
pub(crate) struct Tail {
    /// Continue with new records.
    #[arg(long, short)]
    follow: bool,
    /// Only records after this sequence number, or with --fleet after this position, as the command printed it. Default:
    /// from the first record.
    #[arg(long, value_name = "N", value_parser = After::parse)]
    after: Option<After>,
    /// Only the last N records.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST))]
    last: Option<u64>,
    #[command(flatten)]
    filter: Filter,
}

impl Tail {
    /// Creates the command that prints all records of a run.
    pub(crate) fn of_run(run: RunRef, follow: bool) -> Self {
        Self { follow, after: None, last: None, filter: Filter::of_run(run) }
    }

    pub(crate) async fn run(self, context: &Context) -> Ended {
        let after_sequence = match self.after {
            None => 0,
            Some(After::Sequence(sequence)) => sequence,
            Some(After::Position(_)) => return Err(Failure::usage("--after: a position is for --fleet")),
        };
        let client = context.connect().await?;
        let filter = self.filter.resolve(&client).await?;
        let mut request = StreamEventsRequest {
            after_sequence,
            filter: Some(filter),
            follow: self.follow,
            newest_only: false,
        };
        if let Some(last) = self.last {
            let written = StreamEventsRequest { follow: false, ..request.clone() };
            let written = client.audit().stream_events(written).await?.into_inner();
            let (newest, end) = newest(written, last).await?;
            for event in newest {
                show(context, &event)?;
            }
            if !self.follow {
                return Ok(Exit::Ok);
            }
            request.after_sequence = request.after_sequence.max(end);
        }
        let mut events = client.audit().stream_events(request).await?.into_inner();
        while let Some(response) = events.next().await {
            show(context, &response?.event.unwrap_or_default())?;
        }
        Ok(Exit::Ok)
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        let after = match self.after {
            None => Position::default(),
            Some(After::Position(position)) => position,
            Some(After::Sequence(_)) => {
                let wrong = "--after: each node has its own sequence numbers; with --fleet give a position";
                return Err(Failure::usage(wrong));
            }
        };
        if self.last.is_some() {
            let wrong = "--last is for one node: name it by --node N";
            return Err(Failure::usage(wrong)
                .with_hint("`coffer --fleet audit query --limit N` shows the last records"));
        }
        let ui = fleet.ui;
        let filter = self.filter.of_all_nodes()?;
        let print = |Event { node, position, event }: Event<'_>| show_of(ui, node, Some(position), &event);
        let start = after.clone();
        let Followed { position, ended } =
            fleet_view::follow(fleet, filter, after, self.follow, print).await?;
        if !ui.is_structured() && (ended.is_ok() || position != start) {
            ui.note(&format!("go on from here with: --after {position}"));
        }
        ended.map(|()| Exit::Ok)
    }
}

/// Place after which records are printed.
#[derive(Clone, Debug)]
enum After {
    Sequence(u64),
    Position(Position),
}

impl After {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(sequence) = text.parse() {
            return Ok(Self::Sequence(sequence));
        }
        let position = text.parse().map(Self::Position);
        position.map_err(|wrong| format!("`{text}` is no sequence number, and {wrong}"))
    }
}

/// Prints an event of a node of a fleet. In its structure it has its node, and the position after it.
pub(super) fn show_of(
    ui: Ui,
    node: &str,
    position: Option<&Position>,
    event: &AuditEvent,
) -> Result<(), Failure> {
    if ui.is_structured() {
        let mut line = serde_json::json!({ "node": node, "record": record_of(event) });
        if let Some(position) = position {
            line["position"] = position.to_string().into();
        }
        return ui.line(&line);
    }
    let mut page = ui.page();
    page.column(node, 5);
    render(event, &mut page);
    Ok(ui.show(&page)?)
}

/// Returns the record of an event, or its text if that is no JSON: a node that sends such a text does not end the records of others.
fn record_of(event: &AuditEvent) -> serde_json::Value {
    serde_json::from_str(&event.record_json).unwrap_or_else(|_| event.record_json.as_str().into())
}

/// Reads all of `events`. Returns the last ones, and the sequence number at the end, or 0 if there are none.
///
/// Needs memory only for the events that it returns.
async fn newest(
    mut events: impl Stream<Item = Result<StreamEventsResponse, Status>> + Unpin,
    last: u64,
) -> Result<(VecDeque<AuditEvent>, u64), Failure> {
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    let (mut kept, mut end) = (VecDeque::new(), 0);
    while let Some(response) = events.next().await {
        let event = response?.event.unwrap_or_default();
        end = event.sequence;
        kept.push_back(event);
        if kept.len() > last {
            kept.pop_front();
        }
    }
    Ok((kept, end))
}

pub(super) fn show(context: &Context, event: &AuditEvent) -> Result<(), Failure> {
    let mut page = context.ui.page();
    if context.ui.is_json() {
        page.word(&escape_json(&event.record_json)).own("\n");
    } else if context.ui.is_structured() {
        return context.ui.line(&serde_json::from_str::<serde_json::Value>(&event.record_json)?);
    } else {
        render(event, &mut page);
    }
    Ok(context.ui.show(&page)?)
}

fn render(event: &AuditEvent, page: &mut Output) {
    page.column(&format!("{:>6}", event.sequence), 6);
    page.column(&time::moment(event.time.as_ref()), 24);
    page.column(&event.kind, 18);
    page.column(&ids::or_dash(ids::short(&event.run_id)), 8);
    page.column(&ids::or_dash(&event.agent_id), 8);
    page.column(&ids::or_dash(&event.operation), 10);
    let summary = summarise(&event.record_json);
    if let Some((style, word)) = &summary.verdict {
        page.styled(*style, word).own(" ");
    }
    page.word(&summary.rest).end_line();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[tokio::test]
    async fn the_end_of_the_log_is_known_for_any_number_of_requested_records() {
        let event = |sequence| Some(AuditEvent { sequence, ..Default::default() });
        for (last, expected) in [(0, vec![]), (2, vec![5, 9]), (4, vec![3, 5, 9])] {
            let events = [3, 5, 9].map(|n| Ok(StreamEventsResponse { event: event(n) }));
            let (kept, end) = newest(tokio_stream::iter(events), last).await.unwrap();
            assert_eq!((kept.iter().map(|event| event.sequence).collect::<Vec<_>>(), end), (expected, 9));
        }
        assert_eq!(newest(tokio_stream::empty(), 1).await.unwrap(), (VecDeque::new(), 0));
    }

    #[test]
    fn records_are_printed_after_a_number_or_a_position() {
        assert!(matches!(After::parse("42"), Ok(After::Sequence(42))));
        let position = Position::default().to_string();
        assert!(matches!(After::parse(&position), Ok(After::Position(_))));
        for wrong in ["", "-1", "x", "p1.!"] {
            assert!(After::parse(wrong).is_err_and(|why| why.contains("audit tail")), "{wrong}");
        }
    }

    #[test]
    fn a_node_that_sends_no_record_is_shown_with_what_it_sent() {
        let record = |json: &str| record_of(&AuditEvent { record_json: json.into(), ..Default::default() });
        assert_eq!(record(r#"{"v":1}"#), serde_json::json!({ "v": 1 }));
        for garbage in ["", "{", "1e999", "\u{1b}[2J", &"[".repeat(10_000)] {
            assert_eq!(record(garbage), serde_json::json!(garbage), "{garbage:.20}");
        }
    }

    #[test]
    fn a_line_a_record() {
        let event = AuditEvent {
            sequence: 7,
            time: Some(wire::Timestamp { seconds: 0, nanos: 0 }),
            kind: "call_intent".into(),
            run_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            agent_id: "alice".into(),
            operation: "read".into(),
            record_json: r#"{"kind":"call_intent","input":{"path":"a\nb"},"decision":{"outcome":"allow"}}"#
                .into(),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&event, &mut page);
        assert_eq!(
            page.as_str(),
            "     7 1970-01-01T00:00:00.000Z call_intent        0000aaaa alice    read       allow path=a␊b\n"
        );
    }
}
