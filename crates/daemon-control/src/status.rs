//! `coffer status`.

use clap::Args;
use command_context::client::{Context, quick};
use presentation::exit::Exit;
use presentation::failure::Ended;
use presentation::output::Output;
use presentation::time;
use wire::v1::{GetDaemonStatusRequest, GetDaemonStatusResponse};

use crate::reload::listed;

/// Show if the daemon is ready, and the configuration in force.
///
/// Exits with 1 if it is not ready.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer status --profile build")]
pub struct Status {
    /// Profile whose pool has to be filled; may be repeated.
    #[arg(long = "profile", value_name = "PROFILE")]
    pub profiles: Vec<String>,
}

impl Status {
    pub async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = GetDaemonStatusRequest { profiles: self.profiles };
        let response = client.daemon().get_daemon_status(quick(request)).await?.into_inner();
        let is_ready = response.ready;
        context.ui.answer(response, |response, page| render(&response, page))?;
        Ok(if is_ready { Exit::Ok } else { Exit::Failed })
    }
}

fn render(response: &GetDaemonStatusResponse, page: &mut Output) {
    let conditions = response.conditions.iter().map(|condition| {
        let state = if condition.met { "ok" } else { "not ready" };
        vec![condition.name.clone(), state.to_owned(), condition.problem.clone()]
    });
    page.table(&["CONDITION", "STATE", "PROBLEM"], conditions);
    page.own("\n");
    page.facts(&[
        ("version", response.version.clone()),
        ("started at", time::moment(response.started_at.as_ref())),
        ("configuration", response.configuration_digest.clone()),
        ("policy", response.policy_digest.clone()),
        ("needs a restart", listed(&response.needs_restart)),
        ("log level", response.log_level.clone()),
    ]);
}
