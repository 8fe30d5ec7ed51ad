//! `coffer run extend` and `coffer run keep-alive`.

use std::time::Duration;

use clap::Args;
use wire::v1::{ExtendRunRequest, KeepAliveRunRequest, Run};

use super::RunRef;
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Ended;
use crate::time;

/// Give a run a longer ttl, counted from its start.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run extend 3f2a9c01 2h")]
pub(crate) struct Extend {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Age at which the run is stopped, as in 2h.
    #[arg(value_name = "TTL", value_parser = time::parse)]
    ttl: Duration,
}

/// Renew the lease of a run.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run keep-alive 3f2a9c01")]
pub(crate) struct KeepAlive {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", default_value = "-")]
    run: RunRef,
}

impl Extend {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = ExtendRunRequest { run_id, ttl: Some(wire::duration(self.ttl)) };
        let run = client.runs().extend_run(quick(request)).await?.into_inner().run.unwrap_or_default();
        tell(context, &run, "ttl", &duration(run.ttl.as_ref()))
    }
}

impl KeepAlive {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let response = client.runs().keep_alive_run(quick(KeepAliveRunRequest { run_id })).await?;
        let run = response.into_inner().run.unwrap_or_default();
        tell(context, &run, "lease", &duration(run.lease.as_ref()))
    }
}

fn duration(duration: Option<&wire::Duration>) -> String {
    duration.and_then(|time| Duration::try_from(*time).ok()).map(time::brief).unwrap_or_default()
}

fn tell(context: &Context, run: &Run, what: &'static str, time: &str) -> Ended {
    let answer = serde_json::json!({ "runId": run.run_id, "state": run.state().as_str_name(), what: time });
    context.ui.answer_line(&answer, |_, page| {
        page.own(run.state().as_str_name()).own(" ").word(&run.run_id);
        page.own(", ").own(what).own(" ").word(time).end_line();
    })?;
    Ok(Exit::Ok)
}
