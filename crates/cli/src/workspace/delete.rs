//! `coffer workspace delete`.

use clap::Args;
use wire::v1::DeleteWorkspaceRequest;

use super::resolve;
use crate::client::Context;
use crate::ending::each;
use crate::failure::Ended;

/// Delete directories that the daemon keeps, with their content. The changes of an overlay are discarded.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer workspace delete 3f2a9c01")]
pub(crate) struct Delete {
    /// The workspaces' ids, or unique beginnings or ends of them.
    #[arg(value_name = "WORKSPACE", required = true)]
    workspaces: Vec<String>,
}

impl Delete {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let words = ("deleting the workspace…", "deleted");
        each(context.ui, "workspaceId", words, &self.workspaces, async |workspace| {
            let workspace_id = resolve(&client, workspace).await?;
            let request = DeleteWorkspaceRequest { workspace_id: workspace_id.clone() };
            client.runs().delete_workspace(request).await?;
            Ok(workspace_id)
        })
        .await
    }
}
