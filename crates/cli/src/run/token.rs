//! `coffer run token`.

use clap::Args;
use wire::v1::IssueRunTokenRequest;

use super::RunRef;
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Ended;

/// Issue a token for a live run, with which an agent can call its tools and nothing else.
///
/// It is printed once. The token that the run had before opens nothing from then on.
#[derive(Args, Debug)]
#[command(before_help = "Example: COFFERDAM_TOKEN=$(coffer run token 3f2a9c01) coffer mcp")]
pub(crate) struct Token {
    /// The run's id, or a unique beginning or end of it.
    #[arg(value_name = "RUN")]
    run: RunRef,
}

impl Token {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let answer =
            client.runs().issue_run_token(quick(IssueRunTokenRequest { run_id })).await?.into_inner();
        let run_id = answer.run.unwrap_or_default().run_id;
        let shown = serde_json::json!({ "runId": run_id, "token": answer.token });
        context.ui.answer_line(&shown, |_, page| {
            page.word(&answer.token).end_line();
        })?;
        Ok(Exit::Ok)
    }
}
