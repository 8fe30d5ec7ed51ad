//! `coffer run watch`.

use clap::Args;
use cofferdam_client::Client;
use fleet_view::{Fleet, is_of_one_node};
use wire::v1::run::State;
use wire::v1::{Run, WatchRunsRequest, WatchRunsResponse};

use super::RunRef;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::{Output, Style};
use crate::{follow, time};

/// Follow the states of runs; for one run, until it has ended.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run watch 3f2a9c01")]
pub(crate) struct Watch {
    /// Only this run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: Option<RunRef>,
}

impl Watch {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        let request = WatchRunsRequest { run_id: run_id.clone() };
        let changes = client.runs().watch_runs(request).await?.into_inner();
        let has_ended =
            |run: &Run| run.run_id == run_id && matches!(run.state(), State::Stopped | State::Failed);
        let render = |run: &Run, page: &mut Output| render(run, &time::now(), page);
        let was_last = follow::print(ui, changes, |change| change.run, render, has_ended).await?;
        if !was_last && !run_id.is_empty() {
            return Err(Failure::unreachable("the daemon stopped before the run had ended"));
        }
        Ok(Exit::Ok)
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        if self.run.is_some() {
            return Err(is_of_one_node("a run is"));
        }
        let open = async |client: &Client| {
            Ok(client.runs().watch_runs(WatchRunsRequest::default()).await?.into_inner())
        };
        let print = |node: &str, run: &Run| {
            fleet.ui.answer_line_of(node, run, |run, page| render(run, &time::now(), page))
        };
        fleet_view::watch(fleet, open, |change: WatchRunsResponse| change.run, print).await?;
        Ok(Exit::Ok)
    }
}

fn render(run: &Run, now: &wire::Timestamp, page: &mut Output) {
    let style = match run.state() {
        State::Ready => Style::Green,
        State::Failed => Style::Red,
        _ => Style::Dim,
    };
    page.word(&time::moment(Some(now))).own(" ").word(&run.run_id).own(" ");
    page.styled(style, run.state().as_str_name()).own(" ").word(&run.profile).own(" ").word(&run.agent_id);
    if !run.failure.is_empty() {
        page.own(": ").word(&run.failure);
    }
    page.end_line();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_change() {
        let run = Run {
            run_id: "r".into(),
            state: State::Failed.into(),
            profile: "review".into(),
            agent_id: "alice".into(),
            failure: "out of memory".into(),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&run, &wire::Timestamp::default(), &mut page);
        assert_eq!(page.as_str(), "1970-01-01T00:00:00.000Z r FAILED review alice: out of memory\n");
    }
}
