//! `coffer audit query`.

use clap::Args;
use fleet_view::{Fleet, Listed, moment};
use wire::v1::query_events_request::Order;
use wire::v1::{AuditEvent, EventFilter, QueryEventsRequest, QueryEventsResponse};

use super::filter::Filter;
use super::tail::{show, show_of};
use crate::client::{Client, Context, quick};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};

/// Largest number of records on a page.
const PAGE: u32 = 1_000;
/// Largest number of records of all nodes, which are in memory until they are in one order.
const MOST_OF_FLEET: u64 = 10_000;

/// Find records, newest first.
///
/// `--output json` prints each record as it is in the log.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit query --run 3f2a9c01 --status denied --from 2h")]
pub(crate) struct Query {
    #[command(flatten)]
    filter: Filter,
    /// Maximum number of records.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    limit: u64,
    /// Print the oldest records first.
    #[arg(long)]
    oldest_first: bool,
}

impl Query {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let order = if self.oldest_first { Order::OldestFirst } else { Order::NewestFirst };
        let mut pages = Pages::new(self.filter.resolve(&client).await?, order);
        let spinner = context.ui.spinner("searching…");
        let mut left = self.limit;
        let mut indexed = None;
        while let Some(page) = pages.next(&client, left).await? {
            left = left.saturating_sub(page.events.len() as u64);
            indexed = Some((page.indexed_through, page.head_sequence));
            for event in &page.events {
                show(context, event)?;
            }
            if left == 0 {
                break;
            }
        }
        drop(spinner);
        let ui = context.ui;
        if let Some((through, head)) = indexed.filter(|(through, head)| through < head) {
            ui.note(&format!("records after {through} are not in the index yet; the log has {head}"));
        }
        if left == self.limit && !ui.is_structured() {
            ui.note("no record matches");
        } else if left == 0 && pages.has_more() && !ui.is_structured() {
            ui.note("there may be more; use a higher --limit");
        }
        Ok(Exit::Ok)
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        if self.limit > MOST_OF_FLEET {
            return Err(Failure::usage(format!("--limit: at most {MOST_OF_FLEET} with --fleet")));
        }
        let order = if self.oldest_first { Order::OldestFirst } else { Order::NewestFirst };
        let filter = self.filter.of_all_nodes()?;
        let (ui, limit) = (fleet.ui, self.limit);
        let spinner = ui.spinner("searching…");
        let answers = fleet.ask(async |node| {
            let mut pages = Pages::new(filter.clone(), order);
            let (mut events, mut indexed) = (Vec::new(), None);
            while let Some(page) = pages.next(&node.client, limit - events.len() as u64).await? {
                events.extend(page.events);
                indexed = Some((page.indexed_through, page.head_sequence));
                if events.len() as u64 >= limit {
                    break;
                }
            }
            if let Some((through, head)) = indexed.filter(|(through, head)| through < head) {
                ui.note(&format!(
                    "node {}: records after {through} are not in the index yet; the log has {head}",
                    node.name
                ));
            }
            Ok((events, pages.has_more()))
        });
        let recorded = |event: &AuditEvent| moment(event.time.as_ref());
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let answers = answers.await?;
        let listed = match order {
            Order::OldestFirst => Listed::oldest_first(answers, most, recorded),
            Order::NewestFirst | Order::Unspecified => Listed::newest_first(answers, most, recorded),
        };
        drop(spinner);
        for (node, event) in &listed.items {
            show_of(ui, node, None, event)?;
        }
        if listed.items.is_empty() && !ui.is_structured() {
            ui.note("no record matches");
        } else if listed.has_more && !ui.is_structured() {
            ui.note("there may be more; use a higher --limit");
        }
        Ok(Exit::Ok)
    }
}

pub(crate) struct Pages {
    filter: EventFilter,
    order: Order,
    /// Token of the next page. `None` if there is no other page.
    token: Option<String>,
}

impl Pages {
    pub(crate) fn new(filter: EventFilter, order: Order) -> Self {
        Self { filter, order, token: Some(String::new()) }
    }

    pub(super) fn has_more(&self) -> bool {
        self.token.is_some()
    }

    /// Returns the next page, with at most this many records.
    pub(crate) async fn next(
        &mut self,
        client: &Client,
        most: u64,
    ) -> Result<Option<QueryEventsResponse>, Failure> {
        let Some(page_token) = self.token.take().filter(|_| most > 0) else { return Ok(None) };
        let request = QueryEventsRequest {
            filter: Some(self.filter.clone()),
            order: self.order.into(),
            page_size: u32::try_from(most).unwrap_or(PAGE).min(PAGE),
            page_token,
        };
        let page = client.audit().query_events(quick(request)).await?.into_inner();
        self.token = Some(page.next_page_token.clone()).filter(|token| !token.is_empty());
        Ok(Some(page))
    }
}
