//! `coffer egress learn`.

use clap::Args;
use egress_sources::{Records, Refused, learn};
use wire::v1::query_events_request::Order;
use wire::v1::watch_connections_response::Update;
use wire::v1::{EventFilter, WatchConnectionsRequest};

use crate::audit::Pages;
use crate::client::{Client, Context};
use crate::failure::{Ended, Failure};
use crate::run_ref::RunRef;

/// Most records of a kind that are read, the newest first.
const RECORDS: u64 = 10_000;

/// Propose rules for the hosts to which a run was refused.
///
/// Prints an `egress` section for a reviewer, who moves rules of it into a profile; nothing is applied. Names that an agent may have made up
/// (look-alikes, long labels, many names below one domain) are in comments. For a run that lives, these are the refusals since the daemon
/// started; those of a run that has ended are in the audit log.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer egress learn 3f2a9c01")]
pub(crate) struct Learn {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", default_value = "-")]
    run: RunRef,
}

impl Learn {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let live = match of_live_run(&client, run_id.clone()).await {
            Err(failure) if matches!(failure.reason(), "RUN_NOT_READY" | "RUN_LOST") => None,
            live => Some(live?),
        };
        let mut records = Records::default();
        let read = read_log(&client, &run_id, &mut records).await;
        let refused = match live {
            // The log only tells what came before, and not everyone may read it.
            Some(refused) => refused,
            None => read.map(|()| records.refused())?,
        };
        context.ui.answer(learn(refused, &records), |proposal, page| {
            page.raw(&proposal.to_string());
        })
    }
}

/// Returns the refusals that the daemon lists.
async fn of_live_run(client: &Client, run_id: String) -> Result<Vec<Refused>, Failure> {
    let request = WatchConnectionsRequest { run_id, follow: false };
    let mut updates = client.egress().watch_connections(request).await?.into_inner();
    let mut all = Vec::new();
    while let Some(response) = updates.message().await? {
        if let Some(Update::Refused(host)) = response.update {
            let port = u16::try_from(host.port).ok().filter(|port| *port != 0);
            let (rule, reason, count) = (host.rule, host.reason, host.count);
            all.push(Refused { host: host.host, port, rule, reason, count });
        }
    }
    Ok(all)
}

/// Reads the records of a run's connections and refusals.
async fn read_log(client: &Client, run_id: &str, records: &mut Records) -> Result<(), Failure> {
    for kind in ["egress_refused", "egress_intent"] {
        let (run_id, kinds) = (run_id.to_owned(), vec![kind.to_owned()]);
        let filter = EventFilter { run_id, kinds, ..Default::default() };
        let (mut pages, mut left) = (Pages::new(filter, Order::NewestFirst), RECORDS);
        while let Some(page) = pages.next(client, left).await? {
            left = left.saturating_sub(page.events.len() as u64);
            for event in &page.events {
                records.add(&event.record_json);
            }
        }
    }
    Ok(())
}
