//! Prints a comparison for people.

use std::time::Duration;

use presentation::output::Output;
use presentation::quantity::count;
use presentation::{ids, time};
use serde::Serialize;
use wire::v1::{ComparedPath, ComparedRun, Run};

use crate::check::Check;
use crate::lineage::{labels, origin};

/// Number of conflicts that are printed.
const CONFLICTS: usize = 20;
const HEADER: [&str; 11] = [
    "RUN",
    "LABEL",
    "FILES",
    "+LINES",
    "-LINES",
    "CONFLICTS",
    "CALLS",
    "REFUSED",
    "APPROVALS",
    "CPU",
    "CHECK",
];

/// Comparison with the checks, as it is printed for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) runs: Vec<Compared>,
    pub(crate) conflicts: Vec<ComparedPath>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
    #[serde(skip)]
    pub(crate) is_checked: bool,
}

/// One run of a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    #[serde(flatten)]
    pub(crate) run: ComparedRun,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<Check>,
}

impl Comparison {
    pub(crate) fn render(&self, page: &mut Output, talk: &mut Output) {
        let end = ids::ends(self.runs.iter().map(Compared::id));
        let columns = if self.is_checked { HEADER.len() } else { HEADER.len() - 1 };
        let rows = self.runs.iter().map(|one| {
            let mut row = self.row(one, end(one.id()));
            row.truncate(columns);
            row
        });
        page.table(&HEADER[..columns], rows);
        for one in self.runs.iter().filter(|one| !one.run.unavailable.is_empty()) {
            page.own("  ").word(&end(one.id())).own(" has no changes to compare: ");
            page.word(&one.run.unavailable).end_line();
        }
        self.render_conflicts(&end, page);
        self.render_next(talk);
    }

    fn row(&self, one: &Compared, end: String) -> Vec<String> {
        let run = &one.run;
        let conflicts = self.conflicts.iter().filter(|path| path.run_ids.iter().any(|id| id == one.id()));
        let lines = |lines: u64| if run.lines_incomplete { format!("≥{lines}") } else { lines.to_string() };
        let mut row = vec![end, run.run.as_ref().map(|run| ids::or_dash(&labels(run))).unwrap_or_default()];
        if run.unavailable.is_empty() {
            row.extend([run.total.to_string(), lines(run.lines_added), lines(run.lines_removed)]);
            row.push(conflicts.count().to_string());
        } else {
            row.extend(["-", "-", "-", "-"].map(str::to_owned));
        }
        row.extend([run.calls, run.refused, run.approvals].map(|number| number.to_string()));
        row.push(time::brief(Duration::from_micros(run.cpu_us)));
        row.push(one.check.as_ref().map_or_else(|| "-".to_owned(), said));
        row
    }

    fn render_conflicts(&self, end: &impl Fn(&str) -> String, page: &mut Output) {
        if self.conflicts.is_empty() {
            return;
        }
        page.own("\nConflicts:\n");
        for conflict in self.conflicts.iter().take(CONFLICTS) {
            let runs: Vec<String> = conflict.run_ids.iter().map(|id| end(id)).collect();
            page.own("  ").word(&conflict.path).own("  ").word(&runs.join(" ")).end_line();
        }
        let left = self.conflicts.len().saturating_sub(CONFLICTS) as u64;
        if left > 0 || self.truncated {
            let left = count(left, "more conflict", "more conflicts");
            page.own("  and ").word(if self.truncated { "more" } else { left.as_str() });
            page.own(": -o json has those that the daemon names").end_line();
        }
    }

    /// Says how to keep one of the runs.
    fn render_next(&self, talk: &mut Output) {
        talk.own("keep one: coffer run stop RUN && coffer run accept RUN\n");
        let mut origins = self.runs.iter().map(|one| one.run.run.as_ref().and_then(origin));
        if let Some(Some(first)) = origins.next()
            && origins.all(|other| other == Some(first))
        {
            talk.own("delete the others: coffer run prune --losers --keep RUN --of ").word(first).end_line();
        }
    }
}

impl Compared {
    pub(crate) fn id(&self) -> &str {
        self.run.run.as_ref().map_or("", |run: &Run| run.run_id.as_str())
    }
}

fn said(check: &Check) -> String {
    let took = time::brief(Duration::from_millis(check.took_ms));
    match check.exit_code {
        Some(0) => format!("ok, {took}"),
        Some(code) => format!("exit {code}, {took}"),
        None => check.failure.clone(),
    }
}

#[cfg(test)]
mod tests {
    use presentation::output::Look;

    use super::*;
    use crate::lineage::tests::run;

    fn compared(id: &str, unavailable: &str, check: Option<Check>) -> Compared {
        let run = ComparedRun {
            run: Some(Run { labels: [("try".to_owned(), id.to_owned())].into(), ..run(id, "origin") }),
            total: 3,
            lines_added: 40,
            lines_removed: 5,
            lines_incomplete: id == "two",
            unavailable: unavailable.to_owned(),
            calls: 7,
            cpu_us: 1_200_000,
            ..ComparedRun::default()
        };
        Compared { run, check }
    }

    fn check(exit_code: Option<i32>, failure: &str) -> Check {
        let failure = failure.to_owned();
        Check { succeeded: exit_code == Some(0), exit_code, failure, took_ms: 3_000, call_id: String::new() }
    }

    fn comparison(is_checked: bool) -> Comparison {
        let conflict = |path: &str| ComparedPath {
            path: path.to_owned(),
            run_ids: ["one", "two"].map(str::to_owned).into(),
        };
        Comparison {
            runs: vec![
                compared("one", "", Some(check(Some(0), ""))),
                compared("two", "", Some(check(Some(2), ""))),
                compared("three", "no\nlayer", None),
            ],
            conflicts: vec![conflict("a\x1b.txt"), conflict("b")],
            truncated: false,
            is_checked,
        }
    }

    fn pages(comparison: &Comparison) -> (String, String) {
        let (mut page, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        comparison.render(&mut page, &mut talk);
        (page.as_str().to_owned(), talk.as_str().to_owned())
    }

    #[test]
    fn a_line_a_run_and_the_conflicts_below() {
        let (page, talk) = pages(&comparison(true));
        let words: Vec<Vec<&str>> = page.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], HEADER);
        assert_eq!(words[1][..7], ["one", "try=one", "3", "40", "5", "2", "7"], "{page}");
        assert!(page.contains("ok, ") && page.contains("exit 2, "), "{page}");
        assert_eq!(words[2][2..6], ["3", "≥40", "≥5", "2"], "{page}");
        assert_eq!(words[3][2..6], ["-"; 4], "{page}");
        assert!(page.contains("  three has no changes to compare: no␊layer\n"), "{page}");
        assert!(page.ends_with("\nConflicts:\n  a␛.txt  one two\n  b  one two\n"), "{page}");
        assert!(talk.contains("coffer run accept") && talk.ends_with("--keep RUN --of origin\n"), "{talk}");
        assert!(!pages(&comparison(false)).0.contains("CHECK"));
    }

    #[test]
    fn runs_of_different_origins_are_not_pruned_together() {
        let mut other = comparison(false);
        other.runs[2].run.run = Some(run("three", ""));
        assert!(!pages(&other).1.contains("prune"));
    }

    #[test]
    fn long_lists_of_conflicts_are_cut() {
        let mut many = comparison(false);
        let one = many.conflicts[1].clone();
        many.conflicts = vec![one; CONFLICTS + 3];
        assert!(pages(&many).0.contains("  and 3 more conflicts: -o json"), "{}", pages(&many).0);
        many.truncated = true;
        assert!(pages(&many).0.contains("  and more: -o json"), "{}", pages(&many).0);
    }

    #[test]
    fn a_comparison_for_programs_has_the_messages_and_the_checks() {
        let value = serde_json::to_value(comparison(true)).unwrap();
        assert_eq!(value["runs"][0]["run"]["runId"], "one");
        assert_eq!(
            (&value["runs"][0]["calls"], &value["runs"][0]["linesAdded"]),
            (&"7".into(), &"40".into())
        );
        assert_eq!(
            (&value["runs"][1]["check"]["exitCode"], &value["runs"][1]["check"]["tookMs"]),
            (&2.into(), &3_000.into())
        );
        assert!(value["runs"][2].get("check").is_none() && value.get("truncated").is_none());
        assert_eq!(value["conflicts"][1]["path"], "b");
    }
}
