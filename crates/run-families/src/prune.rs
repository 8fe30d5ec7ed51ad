//! `coffer run prune`.
//!
//! It deletes changes for good, so it acts on forks of one run alone, and after a yes.

use std::collections::BTreeSet;

use clap::Args;
use command_context::client::{Client, Context};
use command_context::run_ref::{RunRef, all_runs};
use presentation::ending::each;
use presentation::exit::Exit;
use presentation::failure::{Ended, Failure};
use presentation::output::Output;
use presentation::quantity::count;
use presentation::{ids, question, time};
use wire::v1::run::State;
use wire::v1::{DeleteRunRequest, ListRunsResponse, Run, StopRunRequest};

use crate::MOST_RUNS;
use crate::lineage::{Lineage, labels, origin};

/// Stop and delete the forks of a run that are not kept, with their changes.
///
/// Lists them and asks first. Runs that are not forks of the same run are refused, and that run itself is never
/// touched. Accept or copy what you need of the forks before.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run prune --losers --keep 3f2a9c01 --of 5b7e22d0")]
pub struct Prune {
    /// Delete only some of these forks: ids, or unique beginnings or ends of them.
    #[arg(value_name = "RUN", required_unless_present = "of", conflicts_with = "of")]
    runs: Vec<RunRef>,
    /// Delete the forks that are not kept. Required, so that the line says what is deleted.
    #[arg(long)]
    losers: bool,
    /// A fork to keep; can be repeated.
    #[arg(long = "keep", value_name = "RUN", required = true)]
    keep: Vec<RunRef>,
    /// Choose from all forks of this run.
    #[arg(long, value_name = "RUN")]
    of: Option<RunRef>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Only list what would be deleted.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

impl Prune {
    pub async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        if !self.losers {
            return Err(Failure::usage(
                "say --losers: the forks that are not kept are deleted with their changes",
            )
            .with_hint("--dry-run lists them and deletes nothing"));
        }
        let client = context.connect().await?;
        let (named, keep) = (resolved(&self.runs, &client).await?, resolved(&self.keep, &client).await?);
        let of = match &self.of {
            Some(of) => Some(of.resolve(&client).await?),
            None => None,
        };
        let all = all_runs(&client, MOST_RUNS, State::Unspecified).await?.runs;
        let losers = losers(&all, of.as_deref(), &named, &keep)?;
        if losers.is_empty() || self.dry_run {
            let runs = losers.into_iter().cloned().collect();
            let answer = ListRunsResponse { runs, ..ListRunsResponse::default() };
            return ui.answer_and_talk(answer, |answer, page, talk| {
                let runs: Vec<&Run> = answer.runs.iter().collect();
                render(&runs, page);
                let end = if runs.is_empty() {
                    "nothing to delete: all forks are kept\n"
                } else {
                    "nothing was deleted\n"
                };
                talk.own(end);
            });
        }
        if !self.yes && !agrees(context, &losers)? {
            ui.note("nothing was deleted");
            return Ok(Exit::Ok);
        }
        each(ui, "runId", ("deleting the run…", "deleted"), losers, async |run| delete(&client, run).await)
            .await
    }
}

async fn resolved(runs: &[RunRef], client: &Client) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::with_capacity(runs.len());
    for run in runs {
        ids.push(run.resolve(client).await?);
    }
    Ok(ids)
}

fn agrees(context: &Context, losers: &[&Run]) -> Result<bool, Failure> {
    if !question::can_ask(context.ui) {
        return Err(Failure::usage("there is no terminal to ask at, so nothing was deleted")
            .with_hint("add --yes; --dry-run lists what would be deleted"));
    }
    let mut page = context.ui.talk();
    render(losers, &mut page);
    let number = count(losers.len() as u64, "run", "runs");
    page.own("Stop and delete ").word(&number).own(" with all changes? [y/N] ");
    Ok(question::ask(context.ui, &page)?)
}

async fn delete(client: &Client, run: &Run) -> Result<String, Failure> {
    let run_id = run.run_id.clone();
    if !matches!(run.state(), State::Stopped | State::Failed) {
        client.runs().stop_run(StopRunRequest { run_id: run_id.clone() }).await?;
    }
    let request = DeleteRunRequest { run_id: run_id.clone(), delete_workspace: true };
    client.runs().delete_run(request).await?;
    Ok(run_id)
}

/// Returns the forks to delete: those that are named, or all of `of`, without the kept ones.
fn losers<'r>(
    all: &'r [Run],
    of: Option<&str>,
    named: &[String],
    keep: &[String],
) -> Result<Vec<&'r Run>, Failure> {
    let lineage = Lineage::of(all);
    let fork = |id: &String| -> Result<(&'r Run, &'r str), Failure> {
        let run = lineage.run(id).ok_or_else(|| Failure::failed(format!("there is no run {id}")))?;
        let origin = origin(run).ok_or_else(|| Failure::usage(format!("the run {id} is not a fork")))?;
        Ok((run, origin))
    };
    let family: Vec<(&Run, &str)> = named.iter().chain(keep).map(fork).collect::<Result<_, _>>()?;
    let of = of.or_else(|| family.first().map(|(_, origin)| *origin)).unwrap_or_default();
    if let Some((other, origin)) = family.iter().find(|(_, origin)| *origin != of) {
        return Err(Failure::usage(format!("the run {} is a fork of {origin}, not of {of}", other.run_id))
            .with_hint("`coffer run tree` shows which run was forked from which"));
    }
    let kept: BTreeSet<&str> = keep.iter().map(String::as_str).collect();
    let named: BTreeSet<&str> = named.iter().map(String::as_str).collect();
    let is_loser = |run: &&Run| {
        let id = run.run_id.as_str();
        !kept.contains(id) && (named.is_empty() || named.contains(id))
    };
    Ok(lineage.forks(of).iter().copied().filter(is_loser).collect())
}

fn render(runs: &[&Run], page: &mut Output) {
    if runs.is_empty() {
        return;
    }
    let end = ids::ends(runs.iter().map(|run| run.run_id.as_str()));
    let now = time::now();
    let row = |run: &&Run| {
        let age = time::span(run.created_at.as_ref(), Some(&now));
        vec![end(&run.run_id), run.state().as_str_name().to_owned(), age, ids::or_dash(&labels(run))]
    };
    page.table(&["RUN", "STATE", "AGE", "LABEL"], runs.iter().map(row));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::tests::run;

    fn chosen(of: Option<&str>, named: &[&str], keep: &[&str]) -> Result<Vec<String>, String> {
        let all = [
            run("6", "5"),
            run("5", "2"),
            run("4", "1"),
            run("3", "1"),
            run("2", "1"),
            run("1", ""),
            run("0", ""),
        ];
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let found = losers(&all, of, &owned(named), &owned(keep));
        found
            .map(|runs| runs.into_iter().map(|run| run.run_id.clone()).collect())
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn forks_that_are_not_kept_are_the_losers_and_no_other_run_is() {
        assert_eq!(chosen(Some("1"), &[], &["3"]).unwrap(), ["2", "4"]);
        assert_eq!(chosen(Some("1"), &[], &["3", "4", "2"]).unwrap(), Vec::<String>::new());
        assert_eq!(chosen(None, &["2", "3"], &["4"]).unwrap(), ["2", "3"]);
        assert_eq!(chosen(None, &["2", "3"], &["3"]).unwrap(), ["2"]);
    }

    #[test]
    fn runs_that_are_no_forks_of_the_same_run_are_refused() {
        type Case<'a> = (Option<&'a str>, &'a [&'a str], &'a [&'a str], &'a str);
        let cases: [Case<'_>; 6] = [
            (Some("1"), &[], &["5"], "the run 5 is a fork of 2, not of 1"),
            (Some("1"), &[], &["1"], "the run 1 is not a fork"),
            (Some("1"), &[], &["9"], "there is no run 9"),
            (None, &["2", "0"], &["3"], "the run 0 is not a fork"),
            (None, &["2", "5"], &["3"], "the run 5 is a fork of 2, not of 1"),
            (None, &["2"], &["6"], "the run 6 is a fork of 5, not of 1"),
        ];
        for (of, named, keep, why) in cases {
            let refused = chosen(of, named, keep).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
    }
}
