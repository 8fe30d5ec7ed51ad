//! `coffer approval show`.

use clap::Args;
use wire::v1::GetApprovalRequest;

use super::resolve;
use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::time;

/// Show one approval with the complete preview of its effect.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer approval show 9c01d4e2")]
pub(crate) struct Show {
    /// The approval's id, or a unique beginning or end of it.
    #[arg(value_name = "APPROVAL")]
    approval: String,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = GetApprovalRequest { approval_id: resolve(&client, &self.approval).await? };
        let response = client.approvals().get_approval(quick(request)).await?.into_inner();
        context.ui.answer(response, |response, page| {
            top::render_approval(&response.approval.unwrap_or_default(), &time::now(), true, page);
        })
    }
}
