//! `coffer policy`: the policy in force, its verdicts, and the verdicts of another policy.

mod check;
mod explain;
mod explain_egress;
mod replay;

use std::path::Path;

use clap::Args;
use wire::v1::{GetPolicyRequest, ReloadPolicyRequest};

use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};

crate::verbs::verbs! {
    Check(check::Check),
    Show(Show),
    Explain(explain::Explain),
    Replay(replay::Replay),
    Reload(Reload),
}

/// Print the policy in force, as YAML.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer policy show > policy.yaml")]
pub(crate) struct Show {}

/// Reload the policy directory. If the new policy is invalid, the old one stays in force.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer policy reload")]
pub(crate) struct Reload {}

impl Show {
    async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let policy = client.policy().get_policy(quick(GetPolicyRequest {})).await?.into_inner();
        if !context.ui.is_structured() {
            let mut talk = context.ui.talk();
            talk.facts(&[
                ("digest", policy.digest.clone()),
                ("profiles", policy.profiles.join(" ")),
                ("roles", policy.roles.join(" ")),
            ]);
            context.ui.say(&talk);
        }
        context.ui.answer(policy, |policy, page| {
            page.raw(&policy.yaml).end_line();
        })
    }
}

impl Reload {
    async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let response = client.policy().reload_policy(quick(ReloadPolicyRequest {})).await?.into_inner();
        context.ui.answer(response, |response, page| {
            page.own(if response.changed { "changed " } else { "unchanged " })
                .word(&response.digest)
                .own("\n");
        })
    }
}

/// Reads a file that the command line names.
fn read(path: &Path) -> Result<String, Failure> {
    let unreadable = |error| Failure::usage(format!("{} cannot be read: {error}", path.display()));
    std::fs::read_to_string(path).map_err(unreadable)
}
