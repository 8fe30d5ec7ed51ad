//! Performs the actions of keys, one at a time.

use command_context::client::{Client, quick};
use presentation::failure::Failure;
use presentation::ids;
use serde::Serialize;
use wire::v1::approval::State;
use wire::v1::decide_approval_request::Decision;
use wire::v1::{
    Approval, AuditEvent, GetAlertRequest, GetRunRequest, PauseRunRequest, ResumeRunRequest, StopRunRequest,
};

use crate::decide::{Shown, Verdict, decide};
use crate::rows::Pane;
use crate::view::Action;
use crate::votes::missing;

/// Result of an action.
#[derive(Debug)]
pub(crate) enum Done {
    /// A line for the user.
    Said(String),
    /// The decision was made or is no longer possible, so the text on the screen is closed.
    Closed(String),
    /// An item, to be read.
    Text { title: String, text: String, approval: Option<Shown> },
    /// An approval has changed since it was shown.
    Changed { title: String, text: String, approval: Shown },
}

/// Performs an action. `call` is the record of the selected call.
pub(crate) async fn perform(client: Client, action: Action, call: Option<AuditEvent>) -> Done {
    let done = match action {
        Action::Quit | Action::Refresh => Ok(Done::Said(String::new())),
        Action::Look(pane, id) => look(&client, pane, &id, call).await,
        Action::Pause(run_id) => pause(&client, run_id).await,
        Action::Resume(run_id) => resume(&client, run_id).await,
        Action::Stop(run_id) => stop(&client, run_id).await,
        Action::Approve(shown) => settle(&client, &shown, Decision::Approve).await,
        Action::Deny(shown) => settle(&client, &shown, Decision::Deny).await,
    };
    done.unwrap_or_else(|failure| Done::Said(failure.to_string().replace('\n', "; ")))
}

async fn look(client: &Client, pane: Pane, id: &str, call: Option<AuditEvent>) -> Result<Done, Failure> {
    let title = format!("{} {id}", pane.name().trim_end_matches('s'));
    let (text, approval) = match pane {
        Pane::Approvals => {
            let shown = Shown::fetch(client, id).await?;
            (shown.text(), Some(shown).filter(|shown| shown.approval().state() == State::Pending))
        }
        Pane::Runs => {
            let request = GetRunRequest { run_id: id.to_owned() };
            (pretty(&client.runs().get_run(quick(request)).await?.into_inner().run)?, None)
        }
        Pane::Alerts => {
            let request = GetAlertRequest { alert_id: id.to_owned() };
            (pretty(&client.alerts().get_alert(quick(request)).await?.into_inner().alert)?, None)
        }
        Pane::Calls | Pane::Pool => {
            let record = call.map(|event| event.record_json).unwrap_or_default();
            let record = serde_json::from_str::<serde_json::Value>(&record);
            match record {
                Ok(record) => (pretty(&record)?, None),
                Err(_) => (format!("the record is too long to be shown here: coffer call show {id}"), None),
            }
        }
    };
    Ok(Done::Text { title, text, approval })
}

fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value)?)
}

async fn pause(client: &Client, run_id: String) -> Result<Done, Failure> {
    let run = client.runs().pause_run(quick(PauseRunRequest { run_id })).await?.into_inner().run;
    Ok(Done::Said(state(run)))
}

async fn resume(client: &Client, run_id: String) -> Result<Done, Failure> {
    let request = ResumeRunRequest { run_id, lift_alerts: false };
    let run = client.runs().resume_run(quick(request)).await?.into_inner().run;
    Ok(Done::Said(state(run)))
}

async fn stop(client: &Client, run_id: String) -> Result<Done, Failure> {
    // It waits for the end of the run, which may take longer than a quick request.
    let run = client.runs().stop_run(StopRunRequest { run_id }).await?.into_inner().run;
    Ok(Done::Said(state(run)))
}

fn state(run: Option<wire::v1::Run>) -> String {
    let run = run.unwrap_or_default();
    let held =
        if run.holds.len() > 1 { format!(", held for {} reasons", run.holds.len()) } else { String::new() };
    format!("run {} is {}{held}", ids::short(&run.run_id), run.state().as_str_name())
}

async fn settle(client: &Client, shown: &Shown, decision: Decision) -> Result<Done, Failure> {
    Ok(match decide(client, shown, decision).await? {
        Verdict::Decided(approval) => Done::Closed(decided(&approval)),
        Verdict::Over(approval) => Done::Closed(format!(
            "nothing was decided: approval {} is {}",
            ids::short(&approval.approval_id),
            approval.state().as_str_name()
        )),
        Verdict::Changed(approval) => Done::Changed {
            title: format!("approval {}", approval.approval().approval_id),
            text: approval.text(),
            approval: *approval,
        },
    })
}

fn decided(approval: &Approval) -> String {
    let id = ids::short(&approval.approval_id);
    match approval.state() {
        State::Pending => format!("approval {id} still needs {}", missing(approval)),
        state => format!("approval {id} is {}", state.as_str_name()),
    }
}
