//! `coffer log-level`.

use clap::Args;
use command_context::client::{Context, quick};
use presentation::failure::Ended;
use wire::v1::SetLogLevelRequest;

/// Set the level of the daemon's log until the next reload or start.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer log-level info,cofferd=debug")]
pub struct LogLevel {
    /// Level: error, warn, info, debug, trace, or a list of levels by place.
    #[arg(value_name = "LEVEL")]
    level: String,
}

impl LogLevel {
    pub async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = SetLogLevelRequest { level: self.level };
        let response = client.daemon().set_log_level(quick(request)).await?.into_inner();
        context.ui.answer(response, |response, page| {
            page.word(&response.level).own(", was ").word(&response.previous).end_line();
        })
    }
}
