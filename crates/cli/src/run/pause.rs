//! `coffer run pause` and `coffer run resume`.

use clap::Args;
use wire::v1::run_hold::Kind;
use wire::v1::{PauseRunRequest, ResumeRunRequest, Run};

use super::RunRef;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Ended;

/// Freeze a run's commands.
///
/// All processes of the run are frozen, and it takes no calls until `coffer run resume`. Running calls
/// continue then; their timeouts do not stop.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run pause 3f2a9c01")]
pub(crate) struct Pause {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
}

/// Resume a paused run.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run resume 3f2a9c01")]
pub(crate) struct Resume {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Also lift the holds of alerts. For operators.
    #[arg(long)]
    lift_alerts: bool,
}

impl Pause {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let response = client.runs().pause_run(PauseRunRequest { run_id }).await?.into_inner();
        tell(context, &response.run.unwrap_or_default())
    }
}

impl Resume {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = ResumeRunRequest { run_id, lift_alerts: self.lift_alerts };
        let response = client.runs().resume_run(request).await?.into_inner();
        tell(context, &response.run.unwrap_or_default())
    }
}

fn tell(context: &Context, run: &Run) -> Ended {
    let holds = holds(run);
    let answer =
        serde_json::json!({ "runId": run.run_id, "state": run.state().as_str_name(), "heldBy": holds });
    context.ui.answer_line(&answer, |_, page| {
        page.own(run.state().as_str_name()).own(" ").word(&run.run_id);
        if !holds.is_empty() {
            page.own(", held by ").word(&holds);
        }
        page.end_line();
    })?;
    Ok(Exit::Ok)
}

pub(super) fn holds(run: &Run) -> String {
    let holds = run.holds.iter().map(|hold| match hold.kind() {
        Kind::Unspecified => "?".to_owned(),
        Kind::Operator => hold.principal.clone(),
        Kind::Approval => format!("approval {}", hold.cause_id),
        Kind::Alert => format!("alert {}", hold.cause_id),
        Kind::Checkpoint => format!("checkpoint {} of {}", hold.cause_id, hold.principal),
        Kind::Restore => format!("restore of checkpoint {} by {}", hold.cause_id, hold.principal),
        Kind::Terminal => format!("terminal {} of {}", hold.cause_id, hold.principal),
    });
    holds.collect::<Vec<_>>().join(", ")
}
