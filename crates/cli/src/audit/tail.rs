//! `coffer audit tail`.

use std::collections::VecDeque;

use clap::Args;
use tokio_stream::StreamExt;
use wire::v1::{AuditEvent, StreamEventsRequest};

use super::filter::Filter;
use super::summary::summarise;
use crate::clean::escape_json;
use crate::client::{Client, Context};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::Output;
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
    /// Only records after this sequence number. Default: from the first record.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Only the last N records.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST))]
    last: Option<u64>,
    #[command(flatten)]
    filter: Filter,
}

impl Tail {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let filter = self.filter.resolve(&client).await?;
        let mut request =
            StreamEventsRequest { after_sequence: self.after, filter: Some(filter), follow: self.follow };
        if let Some(last) = self.last {
            let follow = std::mem::replace(&mut request.follow, false);
            for event in newest(&client, &request, last).await? {
                show(context, &event)?;
                request.after_sequence = request.after_sequence.max(event.sequence);
            }
            if !follow {
                return Ok(Exit::Ok);
            }
            request.follow = true;
        }
        let mut events = client.audit().stream_events(request).await?.into_inner();
        while let Some(response) = events.next().await {
            show(context, &response?.event.unwrap_or_default())?;
        }
        Ok(Exit::Ok)
    }
}

/// Returns the last matching records. It reads the whole log, and needs memory only for these records.
async fn newest(
    client: &Client,
    request: &StreamEventsRequest,
    last: u64,
) -> Result<VecDeque<AuditEvent>, Failure> {
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    let mut kept = VecDeque::new();
    let mut events = client.audit().stream_events(request.clone()).await?.into_inner();
    while let Some(response) = events.next().await {
        kept.push_back(response?.event.unwrap_or_default());
        if kept.len() > last {
            kept.pop_front();
        }
    }
    Ok(kept)
}

pub(super) fn show(context: &Context, event: &AuditEvent) -> Result<(), Failure> {
    let mut page = context.ui.page();
    if context.ui.is_json() {
        page.word(&escape_json(&event.record_json)).own("\n");
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
