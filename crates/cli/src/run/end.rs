//! `coffer run stop` and `coffer run delete`: the same over many runs, so that one failure does not spare the others.

use clap::Args;
use wire::v1::{DeleteRunRequest, Run, StopRunRequest};

use super::RunRef;
use crate::client::{Client, Context};
use crate::exit::Exit;
use crate::failure::Failure;

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
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let client = context.connect().await?;
        let mut end = Ending::new(context);
        for run in &self.runs {
            let _spinner = context.ui.spinner("stopping the run…");
            let outcome = stop(&client, run).await;
            end.tell("stopped", outcome)?;
        }
        end.exit()
    }
}

impl Delete {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let client = context.connect().await?;
        let mut end = Ending::new(context);
        for run in &self.runs {
            let _spinner = context.ui.spinner("deleting the run…");
            let outcome = delete(&client, run, self.workspace).await;
            end.tell("deleted", outcome)?;
        }
        end.exit()
    }
}

async fn stop(client: &Client, run: &RunRef) -> Result<Run, Failure> {
    let run_id = run.resolve(client).await?;
    let response = client.runs().stop_run(StopRunRequest { run_id }).await?;
    Ok(response.into_inner().run.unwrap_or_default())
}

async fn delete(client: &Client, run: &RunRef, delete_workspace: bool) -> Result<Run, Failure> {
    let run_id = run.resolve(client).await?;
    client.runs().delete_run(DeleteRunRequest { run_id: run_id.clone(), delete_workspace }).await?;
    Ok(Run { run_id, ..Default::default() })
}

/// Tells of each run, and keeps the last failure for the end.
struct Ending<'a> {
    context: &'a Context,
    failure: Option<Failure>,
}

impl<'a> Ending<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, failure: None }
    }

    fn tell(&mut self, done: &'static str, outcome: Result<Run, Failure>) -> Result<(), Failure> {
        let ui = self.context.ui;
        match outcome {
            Ok(run) if ui.is_json() => {
                ui.json_line(&serde_json::json!({ "runId": run.run_id, "done": done }))?;
            }
            Ok(run) => {
                let mut page = ui.page();
                page.own(done).own(" ").word(&run.run_id).end_line();
                ui.show(&page)?;
            }
            Err(failure) => {
                if let Some(earlier) = self.failure.replace(failure) {
                    ui.fail(&earlier);
                }
            }
        }
        Ok(())
    }

    fn exit(self) -> Result<Exit, Failure> {
        self.failure.map_or(Ok(Exit::Ok), Err)
    }
}
