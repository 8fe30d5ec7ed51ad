//! `coffer run list`.

use clap::Args;
use fleet_view::{Fleet, Listed, moment};
use wire::v1::run::{StartKind, State};
use wire::v1::{ListRunsResponse, Run};

use crate::client::{Context, MORE};
use crate::failure::Ended;
use crate::output::Output;
use crate::run_ref::all_runs;
use crate::verbs::one_of;
use crate::{ids, time};

/// List runs, newest first.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run list --state ready")]
pub(crate) struct List {
    /// Only runs in this state.
    #[arg(long, value_name = "STATE", value_parser = one_of(STATES, State::from_str_name))]
    state: Option<State>,
    /// Maximum number of runs.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

const STATES: &[&str] = &["creating", "ready", "paused", "stopping", "stopped", "failed"];

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let all = all_runs(&client, self.limit, self.state.unwrap_or_default()).await?;
        context.ui.answer_and_talk(all, |all, page, talk| {
            render(&all.runs, None, &time::now(), page);
            if all.runs.is_empty() {
                talk.own("no runs\n");
            } else if !all.next_page_token.is_empty() {
                talk.own(MORE);
            }
        })
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        let answers = fleet.ask(async |node| {
            let all = all_runs(&node.client, self.limit, self.state.unwrap_or_default()).await?;
            Ok((fleet.checked(all.runs)?, !all.next_page_token.is_empty()))
        });
        let listed = Listed::newest_first(answers.await?, self.limit, |run| moment(run.created_at.as_ref()));
        let has_more = listed.has_more;
        let (runs, nodes) = listed.parts();
        fleet.ui.answer_and_talk(ListRunsResponse { runs, ..Default::default() }, |all, page, talk| {
            render(&all.runs, Some(&nodes), &time::now(), page);
            if all.runs.is_empty() {
                talk.own("no runs\n");
            } else if has_more {
                talk.own(MORE);
            }
        })
    }
}

/// Prints a line for each run. `nodes` has the node of each, if they are of several.
fn render(runs: &[Run], nodes: Option<&[String]>, now: &wire::Timestamp, page: &mut Output) {
    if runs.is_empty() {
        return;
    }
    let end = ids::ends(runs.iter().map(|run| run.run_id.as_str()));
    let rows = runs.iter().map(|run| row(run, end(&run.run_id), now));
    page.table_of(nodes, &["RUN", "STATE", "PROFILE", "AGENT", "ROLE", "START", "AGE"], rows);
    for run in runs.iter().filter(|run| !run.failure.is_empty()) {
        page.own("  ").word(&end(&run.run_id)).own(" failed: ").word(&run.failure).own("\n");
    }
}

fn row(run: &Run, end: String, now: &wire::Timestamp) -> Vec<String> {
    let start = match run.start_kind() {
        StartKind::Warm => "warm",
        StartKind::Cold => "cold",
        StartKind::Unspecified => "-",
    };
    vec![
        end,
        run.state().as_str_name().into(),
        run.profile.clone(),
        run.agent_id.clone(),
        run.role.clone(),
        start.into(),
        time::span(run.created_at.as_ref(), Some(now)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_run() {
        let run = Run {
            run_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            state: State::Ready.into(),
            profile: "review".into(),
            agent_id: "ali\x1b[2Jce".into(),
            role: "worker".into(),
            start_kind: StartKind::Cold.into(),
            created_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            ..Default::default()
        };
        let failed = Run {
            run_id: "0198a1b2-0000-7000-8000-00000000bbbb".into(),
            state: State::Failed.into(),
            failure: "its\ncontainer ended".into(),
            ..run.clone()
        };
        let mut page = Output::new(Look::PIPE);
        render(&[run.clone(), failed], None, &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        assert_eq!(
            page.as_str(),
            "RUN       STATE   PROFILE  AGENT      ROLE    START  AGE\n\
             0000aaaa  READY   review   ali␛[2Jce  worker  cold   1m 30s\n\
             0000bbbb  FAILED  review   ali␛[2Jce  worker  cold   1m 30s\n  0000bbbb failed: its␊container ended\n"
        );
        let mut page = Output::new(Look::PIPE);
        let now = wire::Timestamp { seconds: 1090, nanos: 0 };
        render(&[run], Some(&["7".to_owned()]), &now, &mut page);
        assert_eq!(
            page.as_str(),
            "NODE  RUN       STATE  PROFILE  AGENT      ROLE    START  AGE\n\
             7     0000aaaa  READY  review   ali␛[2Jce  worker  cold   1m 30s\n"
        );
    }

    #[test]
    fn no_runs_no_header() {
        let mut page = Output::new(Look::PIPE);
        render(&[], None, &wire::Timestamp::default(), &mut page);
        assert_eq!(page.as_str(), "");
    }
}
