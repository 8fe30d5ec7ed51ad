//! `coffer token list`.

use clap::Args;
use wire::v1::{ListTokensRequest, Token};

use crate::client::{Client, Context, pages, quick};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::{ids, time};

const PAGE: u32 = 1_000;

/// List API tokens, newest first. Default: only those in force.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer token list --all")]
pub(crate) struct List {
    /// Include tokens that have expired or were revoked.
    #[arg(long)]
    all: bool,
}

impl List {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let tokens = all(&client, self.all).await?;
        context.ui.answer_and_talk(tokens, |tokens, page, talk| {
            if tokens.is_empty() {
                talk.own("no tokens\n");
            } else {
                render(&tokens, page);
            }
        })
    }
}

/// Returns all tokens, including those that have ended if `include_ended` is true.
pub(super) async fn all(client: &Client, include_ended: bool) -> Result<Vec<Token>, Failure> {
    let (tokens, _) = pages(usize::MAX, PAGE, async |page_size, page_token| {
        let request = ListTokensRequest { page_size, page_token, include_ended };
        let page = client.tokens().list_tokens(quick(request)).await?.into_inner();
        Ok((page.tokens, page.next_page_token))
    })
    .await?;
    Ok(tokens)
}

fn render(tokens: &[Token], page: &mut Output) {
    let end = ids::ends(tokens.iter().map(|token| token.token_id.as_str()));
    let rows = tokens.iter().map(|one| row(one, end(&one.token_id)));
    page.table(&["TOKEN", "NAME", "ROLES", "ONLY", "UNTIL", "BY"], rows);
}

fn row(token: &Token, end: String) -> Vec<String> {
    let only = [("profiles", &token.profiles), ("runs", &token.run_ids), ("from", &token.source_networks)];
    let only: Vec<_> = only
        .into_iter()
        .filter(|(_, these)| !these.is_empty())
        .map(|(what, these)| format!("{what} {}", these.join(", ")))
        .collect();
    let until = match &token.revoked_at {
        Some(revoked) => format!("revoked {}", time::moment(Some(revoked))),
        None => time::moment(token.expires_at.as_ref()),
    };
    vec![
        end,
        token.name.clone(),
        token.roles.join(", "),
        ids::or_dash(&only.join("; ")),
        until,
        token.created_by.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_token() {
        let token = Token {
            token_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            name: "ci".into(),
            roles: vec!["orchestrator".into()],
            profiles: vec!["build".into(), "open".into()],
            source_networks: vec!["10.0.0.0/8".into()],
            created_by: "uid:0".into(),
            revoked_at: Some(wire::Timestamp::default()),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(std::slice::from_ref(&token), &mut page);
        let line = page.as_str().lines().nth(1).unwrap();
        for word in [
            "0000aaaa ",
            "ci",
            "orchestrator",
            "profiles build, open; from 10.0.0.0/8",
            "revoked 1970-01-01",
            "uid:0",
        ] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}
