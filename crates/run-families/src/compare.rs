//! `coffer run compare`.

use std::time::Duration;

use clap::Args;
use command_context::client::{Client, Context};
use command_context::run_ref::{RunRef, all_runs};
use presentation::exit::Exit;
use presentation::failure::{Ended, Failure};
use presentation::time;
use wire::v1::run::State;
use wire::v1::{CompareRunsRequest, Run};

use crate::MOST_RUNS;
use crate::check::Plan;
use crate::lineage::Lineage;
use crate::table::{Compared, Comparison};

/// Most runs of a comparison.
const MOST: usize = 100;

/// Show what runs have changed, where the changes conflict, and what the runs took for them.
///
/// For runs on an overlay or a base, and forks of them. With --check, a command is run in each run that lives, as
/// an ordinary call: policy, limits and the record apply. It is run after the comparison, in four runs at once. A
/// command of words alone is run as such, and any other as a shell script. Exits with 1 if the check succeeded in
/// no run.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run compare --of 3f2a9c01 --check 'make test'")]
pub struct Compare {
    /// The runs' ids, unique beginnings or ends of them, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", required_unless_present = "of", conflicts_with = "of")]
    runs: Vec<RunRef>,
    /// Compare all forks of this run.
    #[arg(long, value_name = "RUN")]
    of: Option<RunRef>,
    /// Command to run in each run, such as 'make test'.
    #[arg(long, value_name = "COMMAND")]
    check: Option<String>,
    /// How long the command may take, as in 10m. Default: the profile's time.
    #[arg(long, value_name = "DURATION", requires = "check", value_parser = time::parse)]
    check_timeout: Option<Duration>,
    /// Wait if the command needs an approval.
    #[arg(long, requires = "check")]
    wait: bool,
}

impl Compare {
    pub async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let client = context.connect().await?;
        let run_ids = self.ids(&client).await?;
        let request = CompareRunsRequest { run_ids };
        let answer = ui.wait("comparing the runs…", client.checkpoints().compare_runs(request)).await?;
        let plan = self.check.map(|command| Plan { command, timeout: self.check_timeout, wait: self.wait });
        let checks = match &plan {
            Some(plan) => {
                let _spinner = ui.spinner("running the check…");
                let runs: Vec<Option<&Run>> = answer.runs.iter().map(|one| one.run.as_ref()).collect();
                plan.run(&client, &runs).await?
            }
            None => vec![None; answer.runs.len()],
        };
        let has_failed = plan.is_some() && !checks.iter().flatten().any(|check| check.succeeded);
        let runs = answer.runs.into_iter().zip(checks).map(|(run, check)| Compared { run, check });
        let comparison = Comparison {
            runs: runs.collect(),
            conflicts: answer.conflicts,
            truncated: answer.truncated,
            is_checked: plan.is_some(),
        };
        ui.answer_and_talk(comparison, |comparison, page, talk| comparison.render(page, talk))?;
        Ok(if has_failed { Exit::Failed } else { Exit::Ok })
    }

    /// Returns the ids of the runs to compare.
    async fn ids(&self, client: &Client) -> Result<Vec<String>, Failure> {
        let mut ids = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            ids.push(run.resolve(client).await?);
        }
        if let Some(of) = &self.of {
            let of = of.resolve(client).await?;
            let all = all_runs(client, MOST_RUNS, State::Unspecified).await?.runs;
            ids.extend(Lineage::of(&all).forks(&of).iter().map(|fork| fork.run_id.clone()));
        }
        match ids.len() {
            0 | 1 => Err(Failure::usage("there are fewer than two runs to compare")
                .with_hint("name two or more; `coffer run tree` shows which run has forks")),
            2..=MOST => Ok(ids),
            number => Err(Failure::usage(format!("{number} runs are more than the {MOST} of a comparison"))
                .with_hint("name those to compare")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        compare: Compare,
    }

    #[test]
    fn runs_or_their_origin_are_named() {
        let parse = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.compare);
        let read = parse("compare a b --check true --check-timeout 10m --wait").unwrap();
        assert_eq!((read.runs.len(), read.check.as_deref(), read.wait), (2, Some("true"), true));
        assert_eq!(read.check_timeout, Some(Duration::from_secs(600)));
        assert!(parse("compare --of a").unwrap().runs.is_empty());
        for wrong in ["compare", "compare a --of b", "compare a b --check-timeout 10m", "compare a b --wait"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
