//! `coffer run stop` and `coffer run delete`. Both handle several runs, and continue with the others after a failure.

use clap::Args;
use wire::v1::{DeleteRunRequest, StopRunRequest};

use super::RunRef;
use crate::client::Context;
use crate::ending::each;
use crate::failure::Ended;

/// End runs. Their workspaces stay.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run stop 3f2a9c01")]
pub(crate) struct Stop {
    /// The runs' ids, unique beginnings or ends of them, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<RunRef>,
}

/// Forget runs that have ended.
///
/// Workspaces that the daemon made stay, see `coffer workspace list`. A run on an overlay is forgotten only when its
/// changes were accepted or discarded.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run delete 3f2a9c01")]
pub(crate) struct Delete {
    /// The runs' ids, unique beginnings or ends of them, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<RunRef>,
    /// Also delete the workspaces that were made for them, and discard the changes of their overlays.
    #[arg(long)]
    workspace: bool,
}

impl Stop {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        each(context.ui, "runId", ("stopping the run…", "stopped"), &self.runs, async |run| {
            let run_id = run.resolve(&client).await?;
            client.runs().stop_run(StopRunRequest { run_id: run_id.clone() }).await?;
            Ok(run_id)
        })
        .await
    }
}

impl Delete {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        each(context.ui, "runId", ("deleting the run…", "deleted"), &self.runs, async |run| {
            let run_id = run.resolve(&client).await?;
            let request = DeleteRunRequest { run_id: run_id.clone(), delete_workspace: self.workspace };
            client.runs().delete_run(request).await?;
            Ok(run_id)
        })
        .await
    }
}
