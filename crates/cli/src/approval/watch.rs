//! `coffer approval watch`.

use std::cell::RefCell;

use clap::Args;
use cofferdam_client::Client;
use fleet_view::{Fleet, is_of_one_node};
use top::{Notifier, missing};
use wire::v1::approval::State;
use wire::v1::{Approval, WatchApprovalsRequest, WatchApprovalsResponse};

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Ended;
use crate::output::{Output, Style};
use crate::run_ref::RunRef;
use crate::{follow, ids};

/// Show the pending approvals one after the other, whole, and decide on each with one key: `a` or `d`.
///
/// The key to approve works once all of the approval was on the screen. A terminal that can show notifications of the desktop shows one
/// for each approval. Without a terminal, or with --print, --output or --fleet, the approvals and each change are printed instead.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer approval watch\n         coffer approval watch --print")]
pub(crate) struct Watch {
    /// Only approvals of this run.
    #[arg(long, value_name = "RUN")]
    run: Option<RunRef>,
    /// Print a line for each pending approval, then for each change, and decide on none.
    #[arg(long)]
    print: bool,
}

impl Watch {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        if !self.print && !ui.is_data_only() && top::is_possible() {
            return top::review(&context.daemon, client, run_id).await;
        }
        let notifier = (!ui.is_data_only()).then(|| RefCell::new(Notifier::default()));
        let request = WatchApprovalsRequest { run_id };
        let changes = client.approvals().watch_approvals(request).await?.into_inner();
        let is_last = |approval: &Approval| {
            if let Some(notifier) = &notifier {
                notifier.borrow_mut().tell([approval]);
            }
            false
        };
        follow::print(ui, changes, |change| change.approval, render, is_last).await?;
        Ok(Exit::Ok)
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        if self.run.is_some() {
            return Err(is_of_one_node("a run is"));
        }
        let mut notifier = (!fleet.ui.is_data_only()).then(Notifier::default);
        let open = async |client: &Client| {
            let request = WatchApprovalsRequest::default();
            Ok(client.approvals().watch_approvals(request).await?.into_inner())
        };
        let print = |node: &str, approval: &Approval| {
            if let Some(notifier) = &mut notifier {
                notifier.tell([approval]);
            }
            fleet.ui.answer_line_of(node, approval, render)
        };
        fleet_view::watch(fleet, open, |change: WatchApprovalsResponse| change.approval, print).await?;
        Ok(Exit::Ok)
    }
}

fn render(approval: &Approval, page: &mut Output) {
    let style = match approval.state() {
        State::Pending => Style::Yellow,
        State::Approved => Style::Green,
        State::Denied | State::Expired => Style::Red,
        State::Cancelled | State::Unspecified => Style::Dim,
    };
    page.word(&approval.approval_id).own(" ").styled(style, approval.state().as_str_name()).own(" ");
    page.word(&approval.operation).own(" by ").word(&approval.agent_id);
    page.own(" in run ").word(ids::short(&approval.run_id));
    if approval.state() == State::Pending && approval.approvals_needed > 1 {
        page.own(" (").word(&missing(approval)).own(")");
    }
    if approval.state() == State::Pending && approval.reminded {
        page.own(" (half of the time to decide is over)");
    }
    if !approval.justification.is_empty() {
        page.own(": ").word(&approval.justification);
    }
    page.end_line();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_change() {
        let approval = Approval {
            approval_id: "a".into(),
            state: State::Pending.into(),
            run_id: "r".into(),
            agent_id: "alice".into(),
            operation: "git.commit".into(),
            justification: "commits are\nreviewed".into(),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&approval, &mut page);
        assert_eq!(page.as_str(), "a PENDING git.commit by alice in run r: commits are␊reviewed\n");
    }
}
