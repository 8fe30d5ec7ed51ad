//! Reads rules for commands, and checks them against their own examples.

use crate::{Verdict, prefix::Prefix, rules::ExecRule};
use document::At;
use operations::is_wrapper;

pub(super) const VERDICTS: [(&str, Verdict); 3] =
    [("allow", Verdict::Allow), ("ask", Verdict::Ask), ("deny", Verdict::Deny)];

pub(super) fn rules(at: &At<'_>, is_denied: impl Fn(&str) -> bool) -> Vec<ExecRule> {
    let mut rules: Vec<ExecRule> = Vec::new();
    let mut items = Vec::new();
    for item in at.items() {
        let Some(rule) = rule(&item, &is_denied) else { continue };
        if let Some(same) = rules.iter().position(|other| other.prefix == rule.prefix) {
            let what = if rules[same].decision == rule.decision { "repeats" } else { "contradicts" };
            item.problem_hint(format!("{what} rules[{same}]"), Some("keep one".to_owned()));
        }
        rules.push(rule);
        items.push(item);
    }
    for (rule, item) in rules.iter().zip(&items) {
        let stricter = rules.iter().position(|other| {
            other.decision > rule.decision && other.prefix != rule.prefix && other.prefix.covers(&rule.prefix)
        });
        if let Some(stricter) = stricter {
            let decision = rules[stricter].decision;
            item.problem_hint(
                format!("never decides: rules[{stricter}] is for all of its commands, and its `{decision}` is stricter"),
                Some("remove one, or narrow the other".to_owned()),
            );
        }
    }
    rules
}

fn rule(at: &At<'_>, is_denied: impl Fn(&str) -> bool) -> Option<ExecRule> {
    let fields = at.fields(&["prefix", "decision", "justification", "match", "not_match"]);
    let positions = fields.required("prefix").map(|at| (at, at.items()));
    let decision = fields.required("decision").and_then(|at| at.one_of(&VERDICTS));
    let justification = fields.required("justification").and_then(At::text);
    let examples = |key| fields.get(key).map_or_else(Vec::new, examples);
    let (matches, not_matches) = (examples("match"), examples("not_match"));

    let (prefix_at, positions) = positions?;
    let prefix = Prefix::new(positions.iter().map(words).collect());
    if prefix.is_none() {
        prefix_at.problem("must have at least one word, and one at every position");
    }
    let (prefix, decision) = (prefix?, decision?);
    if decision == Verdict::Allow {
        for program in prefix.programs() {
            if is_wrapper(program) {
                prefix_at.problem(format!(
                    "`{program}` runs other programs, so it is never allowed by a rule; use `ask`"
                ));
            } else if is_denied(program) {
                prefix_at.problem(format!("`{program}` is on the deny list, so it is never allowed"));
            }
        }
    }
    let holds = |argv: &[String]| match decision {
        Verdict::Allow => prefix.matches_exactly(argv),
        Verdict::Ask | Verdict::Deny => prefix.matches_loosely(argv),
    };
    for (example, argv) in matches.iter().filter(|(_, argv)| !holds(argv)) {
        example.problem(format!("`{}` is not matched by the prefix `{prefix}`", argv.join(" ")));
    }
    for (example, argv) in not_matches.iter().filter(|(_, argv)| holds(argv)) {
        example.problem(format!("`{}` is matched by the prefix `{prefix}`", argv.join(" ")));
    }
    let lines = |examples: Vec<(At<'_>, Vec<String>)>| examples.into_iter().map(|(_, argv)| argv).collect();
    Some(ExecRule {
        decision,
        justification: justification?.to_owned(),
        matches: lines(matches),
        not_matches: lines(not_matches),
        prefix,
    })
}

/// Reads the permitted words at one position: one, or a list.
fn words(at: &At<'_>) -> Vec<String> {
    if at.is_list() {
        at.items().iter().filter_map(At::argument).collect()
    } else {
        at.argument().into_iter().collect()
    }
}

/// Reads command lines. Each is a list of words, or text that is split at white space.
fn examples<'t>(at: &At<'t>) -> Vec<(At<'t>, Vec<String>)> {
    at.items()
        .into_iter()
        .filter_map(|item| {
            let argv: Vec<String> = if item.is_list() {
                item.items().iter().filter_map(At::argument).collect()
            } else {
                item.text()?.split_whitespace().map(str::to_owned).collect()
            };
            if argv.is_empty() {
                item.problem("an example needs at least one word");
            }
            (!argv.is_empty()).then_some((item, argv))
        })
        .collect()
}
