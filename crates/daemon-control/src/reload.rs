//! `coffer reload`.

use clap::Args;
use command_context::client::{Context, quick};
use presentation::failure::Ended;
use presentation::output::Output;
use wire::v1::{ReloadDaemonRequest, ReloadDaemonResponse};

/// Reload the daemon's configuration and policy.
///
/// If any part is invalid, nothing changes, and every problem is printed with its line. Keys that need a restart are named.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer reload")]
pub struct Reload {}

impl Reload {
    pub async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let response = client.daemon().reload_daemon(quick(ReloadDaemonRequest {})).await?.into_inner();
        context.ui.answer(response, |response, page| render(&response, page))
    }
}

fn render(response: &ReloadDaemonResponse, page: &mut Output) {
    let policy = if response.policy_changed { "changed" } else { "unchanged" };
    page.facts(&[
        ("applied", listed(&response.applied)),
        ("needs a restart", listed(&response.needs_restart)),
        ("configuration", response.configuration_digest.clone()),
        ("policy", format!("{policy} {}", response.policy_digest)),
    ]);
}

/// Returns the keys on one line.
pub(crate) fn listed(keys: &[String]) -> String {
    if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_on_one_line_and_none_is_said() {
        assert_eq!(listed(&[]), "nothing");
        assert_eq!(listed(&["access".into(), "log.level".into()]), "access, log.level");
    }
}
