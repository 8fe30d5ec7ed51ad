//! `coffer workspace delete`.

use clap::Args;
use wire::v1::DeleteWorkspaceRequest;

use super::select::resolve;
use crate::client::{Client, Context};
use crate::exit::Exit;
use crate::failure::Failure;

/// Delete directories that the daemon keeps, with all that is in them. Of an overlay the changes are discarded.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer workspace delete 3f2a9c01")]
pub(crate) struct Delete {
    /// The workspaces' ids, or unique beginnings or ends of them.
    #[arg(value_name = "WORKSPACE", required = true)]
    workspaces: Vec<String>,
}

impl Delete {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let client = context.connect().await?;
        let ui = context.ui;
        let mut failed: Option<Failure> = None;
        for workspace in &self.workspaces {
            let _spinner = ui.spinner("deleting the workspace…");
            match delete(&client, workspace).await {
                Ok(id) if ui.is_json() => {
                    ui.json_line(&serde_json::json!({ "workspaceId": id, "done": "deleted" }))?;
                }
                Ok(id) => {
                    let mut page = ui.page();
                    page.own("deleted ").word(&id).end_line();
                    ui.show(&page)?;
                }
                // One failure does not spare the others.
                Err(failure) => {
                    if let Some(earlier) = failed.replace(failure) {
                        ui.fail(&earlier);
                    }
                }
            }
        }
        failed.map_or(Ok(Exit::Ok), Err)
    }
}

async fn delete(client: &Client, workspace: &str) -> Result<String, Failure> {
    let workspace_id = resolve(client, workspace).await?;
    let request = DeleteWorkspaceRequest { workspace_id: workspace_id.clone() };
    client.runs().delete_workspace(request).await?;
    Ok(workspace_id)
}
