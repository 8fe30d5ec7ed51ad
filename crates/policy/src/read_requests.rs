//! Reads the keys of a rule for connections that are about requests: `paths`, `inject`, `upstream` and `meter`.
//!
//! No problem repeats a value, because a person may have written a secret in its place.

use std::collections::BTreeSet;

use document::{At, Fields};
use egress_rules::{
    BadPath, BadTemplate, BadUpstream, Injection, Meter, PathPattern, Rule, Template, Upstream,
};

pub(super) const METERS: [(&str, Meter); 1] = [("tokens", Meter::Tokens)];

/// Reads patterns for paths. `None` if one of them has a problem.
pub(super) fn paths(at: &At<'_>) -> Option<BTreeSet<PathPattern>> {
    let read: Vec<_> = at.items().iter().take(Rule::MOST_PATHS + 1).map(path).collect();
    read.into_iter().collect()
}

fn path(at: &At<'_>) -> Option<PathPattern> {
    let text = at.text()?;
    let problem = match PathPattern::parse(text) {
        Ok(path) => return Some(path),
        Err(problem) => problem,
    };
    let meant = (problem == BadPath::Beginning).then(|| format!("/{text}"));
    let meant = meant.and_then(|meant| PathPattern::parse(&meant).ok());
    at.problem_hint(problem.to_string(), meant.map(|meant| format!("did you mean `{meant}`?")));
    None
}

/// Reads one entry or a list. `None` if one of them has a problem.
pub(super) fn inject(at: &At<'_>) -> Option<Vec<Injection>> {
    let items = if at.is_list() { at.items() } else { vec![at.clone()] };
    if items.is_empty() {
        at.problem("is empty; leave it out to set no header");
        return None;
    }
    let read: Vec<_> = items.iter().take(Rule::MOST_INJECTED + 1).map(injection).collect();
    read.into_iter().collect()
}

fn injection(at: &At<'_>) -> Option<Injection> {
    let fields = at.fields(&["header", "value", "basic"]);
    match fields.get("basic") {
        Some(at) => basic(&fields, at),
        None => header(&fields),
    }
}

fn header(fields: &Fields<'_>) -> Option<Injection> {
    let header = fields.required("header").and_then(At::text);
    let value = fields.required("value").and_then(template);
    let (header, value) = (header?, value?);
    Injection::of_header(header, value)
        .map_err(|problem| fields.at("header").problem(problem.to_string()))
        .ok()
}

fn basic(fields: &Fields<'_>, at: &At<'_>) -> Option<Injection> {
    let beside = fields.get("header").or_else(|| fields.get("value"));
    if let Some(beside) = beside {
        beside.problem("is not possible beside `basic`, which sets `Authorization`; write an entry for each");
    }
    let within = at.fields(&["user", "password"]);
    let user = within.required("user").and_then(At::argument);
    let password = within.required("password").and_then(template);
    let (user, password) = (user?, password?);
    let basic = Injection::of_basic(&user, password);
    let basic = basic.map_err(|problem| within.at("user").problem(problem.to_string())).ok();
    basic.filter(|_| beside.is_none())
}

fn template(at: &At<'_>) -> Option<Template> {
    let problem = match Template::parse(at.text()?) {
        Ok(template) => return Some(template),
        Err(problem) => problem,
    };
    let meant = match &problem {
        BadTemplate::Name { meant: Some(name) } => Some(format!("did you mean `${{secret:{name}}}`?")),
        _ => None,
    };
    at.problem_hint(problem.to_string(), meant);
    None
}

/// Reads a server. `None` if it has a problem.
pub(super) fn upstream(at: &At<'_>) -> Option<Upstream> {
    let text = at.text()?;
    let problem = match Upstream::parse(text) {
        Ok(upstream) => return Some(upstream),
        Err(problem) => problem,
    };
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let meant = (problem == BadUpstream::Scheme).then(|| format!("https://{rest}"));
    let meant = meant.and_then(|meant| Upstream::parse(&meant).ok());
    at.problem_hint(problem.to_string(), meant.map(|meant| format!("did you mean `{meant}`?")));
    None
}

#[cfg(test)]
#[path = "read_requests_tests.rs"]
mod tests;
