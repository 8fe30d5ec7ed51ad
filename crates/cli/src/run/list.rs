//! `coffer run list`.

use clap::{Args, ValueEnum};
use wire::v1::run::{StartKind, State};
use wire::v1::{ListRunsRequest, ListRunsResponse, Run};

use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::page::Page;
use crate::{ids, time};

const PAGE: u32 = 1000;

/// List runs, newest first.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run list --state ready")]
pub(crate) struct List {
    /// Only runs in this state.
    #[arg(long, value_name = "STATE")]
    state: Option<StateName>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateName {
    Creating,
    Ready,
    Paused,
    Stopping,
    Stopped,
    Failed,
}

impl From<StateName> for State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Creating => Self::Creating,
            StateName::Ready => Self::Ready,
            StateName::Paused => Self::Paused,
            StateName::Stopping => Self::Stopping,
            StateName::Stopped => Self::Stopped,
            StateName::Failed => Self::Failed,
        }
    }
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let client = context.connect().await?;
        let mut all = ListRunsResponse::default();
        while all.runs.len() < self.limit {
            let request = ListRunsRequest {
                page_size: u32::try_from(self.limit - all.runs.len()).unwrap_or(PAGE).min(PAGE),
                page_token: std::mem::take(&mut all.next_page_token),
                state: self.state.map_or(State::Unspecified, State::from).into(),
            };
            let page = client.runs().list_runs(quick(request)).await?.into_inner();
            all.runs.extend(page.runs);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_empty() {
                break;
            }
        }
        all.runs.truncate(self.limit);

        let ui = context.ui;
        if ui.is_json() {
            ui.json(&all)?;
            return Ok(Exit::Ok);
        }
        let mut page = ui.page();
        render(&all.runs, &time::now(), &mut page);
        ui.show(&page)?;
        if all.runs.is_empty() {
            ui.note("no runs");
        } else if !all.next_page_token.is_empty() {
            ui.note("there are more; ask with a higher --limit");
        }
        Ok(Exit::Ok)
    }
}

fn render(runs: &[Run], now: &wire::Timestamp, page: &mut Page) {
    if runs.is_empty() {
        return;
    }
    let end = ids::ends(runs.iter().map(|run| run.run_id.as_str()));
    let rows: Vec<_> = runs.iter().map(|run| row(run, end(&run.run_id), now)).collect();
    page.table(&["RUN", "STATE", "PROFILE", "AGENT", "ROLE", "START", "AGE"], &rows);
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
    let age = time::between(run.created_at.as_ref(), Some(now)).map_or_else(|| "-".into(), time::brief);
    vec![
        end,
        run.state().as_str_name().into(),
        run.profile.clone(),
        run.agent_id.clone(),
        run.role.clone(),
        start.into(),
        age,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Look;

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
        let mut page = Page::new(Look::PIPE);
        render(&[run, failed], &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        assert_eq!(
            page.as_str(),
            "RUN       STATE   PROFILE  AGENT      ROLE    START  AGE\n\
             0000aaaa  READY   review   ali␛[2Jce  worker  cold   1m 30s\n\
             0000bbbb  FAILED  review   ali␛[2Jce  worker  cold   1m 30s\n  0000bbbb failed: its␊container ended\n"
        );
    }

    #[test]
    fn no_runs_no_header() {
        let mut page = Page::new(Look::PIPE);
        render(&[], &wire::Timestamp::default(), &mut page);
        assert_eq!(page.as_str(), "");
    }
}
