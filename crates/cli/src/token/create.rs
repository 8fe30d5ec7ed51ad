//! `coffer token create`.

use std::time::Duration;

use clap::Args;
use wire::v1::{CreateTokenRequest, Token};

use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::run_ref::RunRef;
use crate::time;

/// Make an API token and print it. It is shown this once, and the daemon keeps only its hash.
///
/// The holder is the principal `token:NAME`, and on the host's files has the rights of who made the token. For
/// operators on the Unix socket or with a client certificate.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer token create ci --role orchestrator --profile build --for 7d > ci.token"
)]
pub(crate) struct Create {
    /// The holder's name: two tokens with one name share their runs.
    #[arg(value_name = "NAME")]
    name: String,
    /// A role of the holder, which you must have yourself: operator, approver, director, orchestrator or auditor.
    /// Repeatable.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    roles: Vec<String>,
    /// Only runs of this profile. Repeatable.
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Only this run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN. Repeatable.
    #[arg(long = "run", value_name = "RUN")]
    runs: Vec<RunRef>,
    /// Only from this address or network, such as 10.0.0.0/8. Repeatable.
    #[arg(long = "from", value_name = "NETWORK")]
    networks: Vec<String>,
    /// How long it lasts, as in 12h or 7d. Default: 30 days.
    #[arg(long = "for", id = "lasts", value_name = "DURATION", value_parser = time::parse)]
    lasts: Option<Duration>,
}

impl Create {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let mut run_ids = Vec::new();
        for run in &self.runs {
            run_ids.push(run.resolve(&client).await?);
        }
        let token = Token {
            name: self.name,
            roles: self.roles,
            profiles: self.profiles,
            run_ids,
            source_networks: self.networks,
            ..Default::default()
        };
        let lifetime = self.lasts.map(|lasts| wire::Duration {
            seconds: i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX),
            nanos: 0,
        });
        let request = CreateTokenRequest { token: Some(token), lifetime };
        let made = client.tokens().create_token(quick(request)).await?.into_inner();
        context.ui.answer_and_talk(made, |made, page, talk| {
            page.word(&made.secret).end_line();
            let token = made.token.unwrap_or_default();
            let until = time::moment(token.expires_at.as_ref());
            talk.word(&format!("the principal token:{} until {until}", token.name)).end_line();
        })
    }
}
