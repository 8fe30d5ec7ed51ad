//! `coffer approval list`.

use clap::Args;
use fleet_view::{Fleet, Listed, is_of_one_node, moment};
use top::expiry;
use wire::v1::approval::State;
use wire::v1::{Approval, ListApprovalsRequest, ListApprovalsResponse};

use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::output::Output;
use crate::run_ref::RunRef;
use crate::verbs::one_of;
use crate::{ids, time};

/// List approvals, oldest first. Default: only the pending ones.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer approval list --state all --run 3f2a9c01")]
pub(crate) struct List {
    /// Only approvals in this state.
    #[arg(long, value_name = "STATE", default_value = "pending", value_parser = one_of(STATES, State::from_str_name))]
    state: State,
    /// Only approvals of this run.
    #[arg(long, value_name = "RUN")]
    run: Option<RunRef>,
}

const STATES: &[&str] = &["pending", "approved", "denied", "expired", "cancelled", "all"];

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        let request = ListApprovalsRequest { state: self.state.into(), run_id };
        let response = client.approvals().list_approvals(quick(request)).await?.into_inner();
        let uid = rustix::process::getuid().as_raw();
        let own = context.daemon.is_by_user().then(|| format!("uid:{uid}"));
        let decides_own = context.daemon.endpoint().socket().is_some_and(tryout::lets_decide_own);
        context.ui.answer_and_talk(response, |response, page, talk| {
            if response.approvals.is_empty() {
                talk.own(self.none());
            } else {
                render(&response.approvals, None, &time::now(), page);
                tell_own(&response.approvals, own.as_deref(), decides_own, talk);
            }
        })
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        if self.run.is_some() {
            return Err(is_of_one_node("a run is"));
        }
        let answers = fleet.ask(async |node| {
            let request = ListApprovalsRequest { state: self.state.into(), run_id: String::new() };
            let listed = node.client.approvals().list_approvals(quick(request)).await?.into_inner();
            Ok((fleet.checked(listed.approvals)?, false))
        });
        let created = |approval: &Approval| moment(approval.created_at.as_ref());
        let (approvals, nodes) = Listed::oldest_first(answers.await?, usize::MAX, created).parts();
        fleet.ui.answer_and_talk(ListApprovalsResponse { approvals }, |all, page, talk| {
            if all.approvals.is_empty() {
                talk.own(self.none());
            } else {
                render(&all.approvals, Some(&nodes), &time::now(), page);
            }
        })
    }

    fn none(&self) -> &'static str {
        if self.state == State::Pending { "no pending approvals\n" } else { "no approvals\n" }
    }
}

/// Prints a line for each approval. `nodes` has the node of each, if they are of several.
fn render(approvals: &[Approval], nodes: Option<&[String]>, now: &wire::Timestamp, page: &mut Output) {
    let end = ids::ends(approvals.iter().map(|approval| approval.approval_id.as_str()));
    let rows = approvals.iter().map(|approval| {
        vec![
            end(&approval.approval_id),
            approval.state().as_str_name().into(),
            ids::short(&approval.run_id).into(),
            approval.agent_id.clone(),
            approval.operation.clone(),
            approval.risk.clone(),
            expiry(approval, now),
        ]
    });
    page.table_of(nodes, &["APPROVAL", "STATE", "RUN", "AGENT", "OPERATION", "RISK", "EXPIRES IN"], rows);
}

/// Notes who decides on the approvals that the user `own` requested.
///
/// With `decides_own` it is that user, as in a daemon of `coffer up`.
fn tell_own(approvals: &[Approval], own: Option<&str>, decides_own: bool, talk: &mut Output) {
    let is_own = |approval: &&Approval| {
        approval.state() == State::Pending && own == Some(approval.requested_by.as_str())
    };
    let number = approvals.iter().filter(is_own).count();
    if number == 0 {
        return;
    }
    talk.word(&number.to_string()).own(" of them asked by you: ");
    if decides_own {
        talk.own("with this daemon of your own you decide, too: coffer approval approve ID, or deny ID\n");
    } else {
        talk.own("another user with the role approver decides, or a token of that role,\n");
        talk.own("unless the configuration says approvals.allow_self_approval: true\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_an_approval() {
        let at = |seconds| wire::Timestamp { seconds, nanos: 0 };
        let approval = Approval {
            approval_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            state: State::Pending.into(),
            run_id: "0198a1b2-0000-7000-8000-00000000bbbb".into(),
            agent_id: "alice".into(),
            operation: "write".into(),
            risk: "high".into(),
            expires_at: Some(at(200)),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(std::slice::from_ref(&approval), None, &at(100), &mut page);
        assert_eq!(
            page.as_str(),
            "APPROVAL  STATE    RUN       AGENT  OPERATION  RISK  EXPIRES IN\n\
             0000aaaa  PENDING  0000bbbb  alice  write      high  1m 40s\n"
        );
        let told = |own, state: State, decides_own| {
            let asked = "uid:1000".to_owned();
            let approval = Approval { requested_by: asked, state: state.into(), ..approval.clone() };
            let mut talk = Output::new(Look::PIPE);
            tell_own(&[approval], own, decides_own, &mut talk);
            talk.as_str().to_owned()
        };
        let other = told(Some("uid:1000"), State::Pending, false);
        assert!(other.contains("another user") && other.contains("approvals.allow_self_approval: true"));
        let same = told(Some("uid:1000"), State::Pending, true);
        assert!(same.contains("coffer approval approve ID") && !same.contains("another user"), "{same}");
        for (own, state) in
            [(Some("uid:1"), State::Pending), (None, State::Pending), (Some("uid:1000"), State::Denied)]
        {
            assert_eq!(told(own, state, true), "", "{own:?} {state:?}");
        }
        assert_eq!(expiry(&approval, &at(201)), "now");
        assert_eq!(expiry(&Approval { state: State::Denied.into(), ..approval }, &at(100)), "-");
    }
}
