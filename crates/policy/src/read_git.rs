//! Reads the keys of a rule for git: `repos` and `push`.

use std::collections::BTreeSet;

use document::{At, Fields};
use egress_rules::{Decision, Push, RefPattern, RepositoryPattern};

pub(crate) const DECISIONS: [(&str, Decision); 3] =
    [("allow", Decision::Allow), ("ask", Decision::Ask), ("deny", Decision::Deny)];

/// Reads patterns for repositories. `None` if one of them has a problem.
pub(super) fn repos(at: &At<'_>) -> Option<BTreeSet<RepositoryPattern>> {
    let read: Vec<_> = at.one_or_more().iter().map(repository).collect();
    read.into_iter().collect()
}

fn repository(at: &At<'_>) -> Option<RepositoryPattern> {
    let text = at.text()?;
    let problem = match RepositoryPattern::parse(text) {
        Ok(pattern) => return Some(pattern),
        Err(problem) => problem,
    };
    // A URL, or a path with its first slash.
    let path =
        text.split_once("://").map_or(text, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let meant = path.trim_matches('/');
    let meant = RepositoryPattern::parse(meant).ok().map(|meant| format!("did you mean `{meant}`?"));
    at.problem_hint(problem.to_string(), meant);
    None
}

/// Reads a decision for all branches, or a mapping with `refs`. `None` if a part of it has a problem.
pub(super) fn push(at: &At<'_>) -> Option<Push> {
    if at.is_text() {
        return at.one_of(&DECISIONS).map(Push::for_branches);
    }
    let fields = at.fields(&["decision", "refs", "force", "delete", "options"]);
    let decision = decision(&fields, "decision", Decision::Allow);
    let refs = refs(&fields, decision);
    let [force, delete, options] =
        ["force", "delete", "options"].map(|key| self::decision(&fields, key, Decision::Deny));
    Some(Push { decision: decision?, refs: refs?, force: force?, delete: delete?, options: options? })
}

fn refs(fields: &Fields<'_>, decision: Option<Decision>) -> Option<BTreeSet<RefPattern>> {
    let Some(at) = fields.get("refs") else {
        if decision == Some(Decision::Deny) {
            return Some(BTreeSet::new());
        }
        fields.at("refs").problem("is missing: name the refs, such as `refs/heads/agent/*`");
        return None;
    };
    let items = at.one_or_more();
    if !(1..=Push::MOST_REFS).contains(&items.len()) {
        at.problem(format!("must have 1 to {} patterns", Push::MOST_REFS));
        return None;
    }
    let read: Vec<_> = items.iter().map(pattern).collect();
    read.into_iter().collect()
}

fn pattern(at: &At<'_>) -> Option<RefPattern> {
    let text = at.text()?;
    let problem = match RefPattern::parse(text) {
        Ok(pattern) => return Some(pattern),
        Err(problem) => problem,
    };
    let meant = RefPattern::parse(&format!("refs/heads/{text}")).ok();
    at.problem_hint(problem.to_string(), meant.map(|meant| format!("did you mean `{meant}`?")));
    None
}

fn decision(fields: &Fields<'_>, key: &str, otherwise: Decision) -> Option<Decision> {
    fields.get(key).map_or(Some(otherwise), |at| at.one_of(&DECISIONS))
}

#[cfg(test)]
#[path = "read_git_tests.rs"]
mod tests;
