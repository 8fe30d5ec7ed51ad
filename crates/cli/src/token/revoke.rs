//! `coffer token revoke`.

use clap::Args;
use wire::v1::RevokeTokenRequest;

use super::list;
use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::ids;

/// End an API token at once, and the streams that were opened with it. Prints the token's id.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer token revoke 9c01d4e2")]
pub(crate) struct Revoke {
    /// The token: its id, or a unique beginning or end of it.
    #[arg(value_name = "TOKEN", value_parser = ids::part)]
    id: String,
}

impl Revoke {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let known = async || {
            let all = list::all(&client, false).await?;
            Ok(all.into_iter().map(|token| token.token_id).collect())
        };
        let token_id = ids::resolve(&self.id, "token", "coffer token list", known).await?;
        let revoked =
            client.tokens().revoke_token(quick(RevokeTokenRequest { token_id })).await?.into_inner();
        context.ui.answer(revoked.token.unwrap_or_default(), |token, page| {
            page.word(&token.token_id).end_line();
        })
    }
}
