//! `coffer approval approve` and `coffer approval deny`.

use clap::Args;
use wire::v1::DecideApprovalRequest;
use wire::v1::decide_approval_request::Decision;

use super::select::resolve;
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Failure;

/// Consent: the call runs, once, by itself.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer approval approve 9c01d4e2 --comment 'looks right'")]
pub(crate) struct Approve {
    #[command(flatten)]
    choice: Choice,
}

/// Refuse.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer approval deny 9c01d4e2 --comment 'use the staging file'")]
pub(crate) struct Deny {
    #[command(flatten)]
    choice: Choice,
}

#[derive(Args, Debug)]
struct Choice {
    /// The approval's id, or a unique beginning or end of it.
    #[arg(value_name = "APPROVAL")]
    approval: String,
    /// For the record and, when denied, for the agent.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

impl Approve {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        decide(context, self.choice, Decision::Approve).await
    }
}

impl Deny {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        decide(context, self.choice, Decision::Deny).await
    }
}

async fn decide(context: &Context, choice: Choice, decision: Decision) -> Result<Exit, Failure> {
    let ui = context.ui;
    let client = context.connect().await?;
    let request = DecideApprovalRequest {
        approval_id: resolve(&client, &choice.approval).await?,
        decision: decision.into(),
        comment: choice.comment.unwrap_or_default(),
    };
    let response = client.approvals().decide_approval(quick(request)).await?.into_inner();
    if ui.is_json() {
        ui.json(&response)?;
        return Ok(Exit::Ok);
    }
    let approval = response.approval.unwrap_or_default();
    let mut page = ui.page();
    page.word(&approval.approval_id).own(" ").word(approval.state().as_str_name()).own("\n");
    ui.show(&page)?;
    if decision == Decision::Approve {
        let mut talk = ui.talk();
        talk.own("its outcome: coffer call show ").word(&approval.call_id).own("\n");
        ui.say(&talk);
    }
    Ok(Exit::Ok)
}
