//! `coffer policy`: what is in force, what it says, and what another one would say.

mod check;
mod explain;
mod replay;

use clap::{Args, Subcommand};
use wire::v1::{GetPolicyRequest, ReloadPolicyRequest};

use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) use explain::show as show_explained;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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

/// Load the policy directory again. A bad policy never half-loads: the old one stays in force.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer policy reload")]
pub(crate) struct Reload {}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Check(check) => check.run(context),
            Self::Explain(explain) => explain.run(context).await,
            Self::Replay(replay) => replay.run(context).await,
            Self::Show(_) => show(context).await,
            Self::Reload(_) => reload(context).await,
        }
    }
}

async fn show(context: &Context) -> Result<Exit, Failure> {
    let ui = context.ui;
    let client = context.connect().await?;
    let policy = client.policy().get_policy(quick(GetPolicyRequest {})).await?.into_inner();
    if ui.is_json() {
        ui.json(&policy)?;
        return Ok(Exit::Ok);
    }
    let mut talk = ui.talk();
    talk.facts(&[
        ("digest", policy.digest),
        ("profiles", policy.profiles.join(" ")),
        ("roles", policy.roles.join(" ")),
    ]);
    ui.say(&talk);
    let mut page = ui.page();
    page.raw(&policy.yaml).end_line();
    ui.show(&page)?;
    Ok(Exit::Ok)
}

async fn reload(context: &Context) -> Result<Exit, Failure> {
    let ui = context.ui;
    let client = context.connect().await?;
    let response = client.policy().reload_policy(quick(ReloadPolicyRequest {})).await?.into_inner();
    if ui.is_json() {
        ui.json(&response)?;
        return Ok(Exit::Ok);
    }
    let mut page = ui.page();
    page.own(if response.changed { "changed " } else { "unchanged " }).word(&response.digest).own("\n");
    ui.show(&page)?;
    Ok(Exit::Ok)
}
