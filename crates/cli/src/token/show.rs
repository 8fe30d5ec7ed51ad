//! `coffer token show`.

use clap::Args;
use wire::v1::Token;

use super::list;
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;
use crate::{ids, time};

/// Show an API token, also one that has ended. Its secret was shown once, when it was made.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer token show 9c01d4e2")]
pub(crate) struct Show {
    /// The token: its id, or a unique beginning or end of it.
    #[arg(value_name = "TOKEN", value_parser = ids::part)]
    id: String,
}

impl Show {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let known = list::all(&client, true).await?;
        let token = ids::find(known, |token| &token.token_id, &self.id, "token", "coffer token list --all")?;
        context.ui.answer(token, |token, page| render(&token, page))
    }
}

fn render(token: &Token, page: &mut Output) {
    page.facts(&[
        ("token", token.token_id.clone()),
        ("name", token.name.clone()),
        ("roles", token.roles.join(" ")),
        ("profiles", token.profiles.join(" ")),
        ("runs", token.run_ids.join(" ")),
        ("from", token.source_networks.join(" ")),
        ("made by", token.created_by.clone()),
        ("created", time::known(token.created_at.as_ref())),
        ("expires", time::known(token.expires_at.as_ref())),
        ("revoked", time::known(token.revoked_at.as_ref())),
        ("revoked by", token.revoked_by.clone()),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn facts_of_a_token_are_shown() {
        let token = Token {
            token_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            name: "ci\nroles  operator".into(),
            roles: vec!["orchestrator".into(), "auditor".into()],
            created_by: "uid:0".into(),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&token, &mut page);
        assert_eq!(
            page.as_str(),
            "token       0198a1b2-0000-7000-8000-00000000aaaa\n\
             name        ci␊roles  operator\n\
             roles       orchestrator auditor\n\
             made by     uid:0\n"
        );
    }
}
