//! `coffer run tree`.

use clap::Args;
use command_context::client::Context;
use command_context::run_ref::{RunRef, all_runs, one_or_all};
use presentation::failure::{Ended, Failure};
use presentation::output::Output;
use presentation::{ids, time};
use wire::v1::run::State;
use wire::v1::{ListRunsResponse, Run};

use crate::MOST_RUNS;
use crate::lineage::{Lineage, Node, labels};

/// Show which runs were forked from which, as a tree.
///
/// Without a run, all families are shown. Runs that have no forks and are none are in `coffer run list`.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run tree 3f2a9c01")]
pub struct Tree {
    /// Only the family of this run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: Option<RunRef>,
}

impl Tree {
    pub async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let run_id = one_or_all(self.run.as_ref(), &client).await?;
        let all = all_runs(&client, MOST_RUNS, State::Unspecified).await?.runs;
        let lineage = Lineage::of(&all);
        let roots = if run_id.is_empty() {
            lineage.roots()
        } else {
            let root = lineage.root(&run_id);
            vec![root.ok_or_else(|| {
                Failure::failed(format!("there is no run {run_id}")).with_hint("`coffer run list` shows them")
            })?]
        };
        let family: Vec<Node<'_>> = roots.into_iter().flat_map(|root| lineage.family(root)).collect();
        let runs: Vec<Run> = family.iter().filter_map(|node| node.run.cloned()).collect();
        let answer = ListRunsResponse { runs, ..ListRunsResponse::default() };
        context.ui.answer_and_talk(answer, |_, page, talk| {
            render(&family, &time::now(), page);
            if family.is_empty() {
                talk.own("no run has forks: make some with `coffer run fork`\n");
            }
        })
    }
}

fn render(family: &[Node<'_>], now: &wire::Timestamp, page: &mut Output) {
    if family.is_empty() {
        return;
    }
    let end = ids::ends(family.iter().map(|node| node.id));
    let mut rows = vec![["RUN", "STATE", "AGE", "LABEL"].map(str::to_owned)];
    rows.extend(family.iter().map(|node| {
        let name = format!("{}{}", node.lines, end(node.id));
        match node.run {
            Some(run) => [
                name,
                run.state().as_str_name().to_owned(),
                time::span(run.created_at.as_ref(), Some(now)),
                labels(run),
            ],
            None => [name, "deleted".to_owned(), String::new(), String::new()],
        }
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    // Not a table, whose cells have a largest width: the lines of a long chain of forks are wide.
    for [name, state, age, labels] in &rows {
        page.column(name, widths[0]).own(" ").column(state, widths[1]).own(" ");
        if labels.is_empty() {
            page.word(age);
        } else {
            page.column(age, widths[2]).own(" ").word(labels);
        }
        page.end_line();
    }
}

#[cfg(test)]
mod tests {
    use presentation::output::Look;

    use super::*;
    use crate::lineage::tests::run;

    #[test]
    fn a_line_a_run_beneath_its_origin() {
        let named = |run: Run| Run {
            state: State::Ready.into(),
            created_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            labels: [("try".to_owned(), "a\x1b".to_owned())].into(),
            ..run
        };
        let runs = [named(run("three", "one")), named(run("two", "one"))];
        let lineage = Lineage::of(&runs);
        let mut page = Output::new(Look::PIPE);
        render(&lineage.family("one"), &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        assert_eq!(
            page.as_str(),
            "RUN       STATE    AGE     LABEL\n\
             one       deleted  \n\
             ├─ three  READY    1m 30s  try=a␛\n\
             └─ two    READY    1m 30s  try=a␛\n"
        );
    }
}
