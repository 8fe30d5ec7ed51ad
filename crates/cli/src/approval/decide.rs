//! `coffer approval approve` and `coffer approval deny`.

use clap::Args;
use top::missing;
use wire::v1::DecideApprovalRequest;
use wire::v1::approval::{Remember, State};
use wire::v1::decide_approval_request::Decision;

use super::resolve;
use crate::client::{Context, quick};
use crate::failure::Ended;

/// Approve a call or a connection. The daemon makes it once, as soon as enough approvers have consented.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer approval approve 9c01d4e2 --comment 'looks right'\n         \
    coffer approval approve 9c01d4e2 --remember-prefix wc -l")]
pub(crate) struct Approve {
    #[command(flatten)]
    choice: Choice,
    /// Remember the consent for the rest of the run: for exactly this call, while no file that it names changes, or for connections to
    /// this host, port and scheme.
    #[arg(long)]
    remember: bool,
    /// Remember the consent for the rest of the run: for commands that begin with these words, of a program that only reads. Write
    /// it last.
    #[arg(
        long,
        value_name = "WORD",
        num_args = 1..,
        allow_hyphen_values = true,
        conflicts_with = "remember"
    )]
    remember_prefix: Vec<String>,
}

/// Deny a call or a connection.
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
    /// A comment for the audit log; the agent sees it if the call is denied.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

impl Approve {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let remember = match (self.remember, self.remember_prefix.is_empty()) {
            (true, _) => Remember::Digest,
            (false, false) => Remember::Prefix,
            (false, true) => Remember::Once,
        };
        decide(context, self.choice, Decision::Approve, remember, self.remember_prefix).await
    }
}

impl Deny {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        decide(context, self.choice, Decision::Deny, Remember::Once, Vec::new()).await
    }
}

async fn decide(
    context: &Context,
    choice: Choice,
    decision: Decision,
    remember: Remember,
    prefix: Vec<String>,
) -> Ended {
    let client = context.connect().await?;
    let request = DecideApprovalRequest {
        approval_id: resolve(&client, &choice.approval).await?,
        decision: decision.into(),
        comment: choice.comment.unwrap_or_default(),
        remember: remember.into(),
        prefix,
        // A passkey signs in a browser.
        proof: None,
    };
    let response = client.approvals().decide_approval(quick(request)).await?.into_inner();
    context.ui.answer_and_talk(response, |response, page, talk| {
        let approval = response.approval.unwrap_or_default();
        page.word(&approval.approval_id).own(" ").word(approval.state().as_str_name()).own("\n");
        if approval.state() == State::Pending {
            talk.own("your consent is recorded; it still needs ").word(&missing(&approval)).own("\n");
        } else if decision == Decision::Approve && !approval.call_id.is_empty() {
            talk.own("its outcome: coffer call show ").word(&approval.call_id).own("\n");
        }
        if !approval.consent_id.is_empty() && approval.call_id.is_empty() {
            talk.own("remembered in the run's rules; end it with: coffer run narrow ").word(&approval.run_id);
            talk.own(" RULES\n");
        } else if !approval.consent_id.is_empty() {
            talk.own("remembered for the run; end it with: coffer approval forget ")
                .word(&approval.consent_id);
            talk.own("\n");
        }
    })
}
