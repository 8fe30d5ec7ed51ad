//! `coffer run logs`.

use clap::Args;
use wire::v1::ReadCompanionLogsRequest;

use super::RunRef;
use crate::audit;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};

/// Print what happened in a run: its records in the audit log, one per line. With --companion: what a companion has
/// written.
///
/// The same as `coffer audit tail --run RUN`. `coffer process logs` and `coffer call output` print what commands wrote.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run logs 3f2a9c01 --follow")]
pub(crate) struct Logs {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", default_value = "-")]
    run: RunRef,
    /// Print the end of the output of this companion, see `coffer run show`.
    #[arg(long, value_name = "NAME")]
    companion: Option<String>,
    /// Continue with new records, or with new output until the companion or the run ends.
    #[arg(long, short)]
    follow: bool,
}

impl Logs {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        match self.companion {
            Some(companion) => of_companion(context, &self.run, companion, self.follow).await,
            None => audit::Tail::of_run(self.run, self.follow).run(context).await,
        }
    }
}

async fn of_companion(context: &Context, run: &RunRef, companion: String, follow: bool) -> Ended {
    let ui = context.ui;
    let (client, run_id) = context.connect_to(run).await?;
    // As much as the daemon returns by default.
    let request = ReadCompanionLogsRequest { run_id, companion, tail_bytes: 0, follow };
    let mut parts = client.runs().read_companion_logs(request).await?.into_inner();
    let [mut outlet, _] = ui.outlets();
    while let Some(part) = parts.message().await? {
        if ui.is_structured() {
            ui.line(&part)?;
        } else {
            outlet.write(&part.data).map_err(Failure::from)?;
        }
    }
    if !ui.is_structured() {
        outlet.end().map_err(Failure::from)?;
    }
    Ok(Exit::Ok)
}
