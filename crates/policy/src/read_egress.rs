//! Reads `egress`. A profile without it reaches nothing.

use std::collections::BTreeSet;

use document::{At, Fields, size, time};
use egress_rules::{Decision, HostPattern, Rule, Rules, Scheme, Settings};
use ipnet::IpNet;

use crate::read_budget::budget;
use crate::read_git::{DECISIONS, push, repos};
use crate::read_placeholders::placeholders;
use crate::read_requests::{METERS, inject, paths, upstream};

const DEFAULTS: [(&str, Decision); 2] = [("deny", Decision::Deny), ("ask", Decision::Ask)];
const SCHEMES: [(&str, Scheme); 4] =
    [("https", Scheme::Https), ("http", Scheme::Http), ("tcp", Scheme::Tcp), ("git", Scheme::Git)];
/// Longest time without a byte after which a connection ends, seconds.
const LONGEST_IDLE: u64 = 7 * 86_400;

pub(super) fn egress(at: Option<&At<'_>>) -> Rules {
    let Some(at) = at else { return Rules::none() };
    let fields = at.fields(&[
        "default",
        "ask_ports",
        "rules",
        "networks",
        "max_bytes",
        "max_connections",
        "connections_per_minute",
        "idle_timeout",
        "names_per_minute",
        "placeholders",
        "budget",
    ]);
    let missing = Settings::default();
    let number = |key: &str, most: u32, otherwise: u32| {
        u32::try_from(fields.number_or(key, 1..=u64::from(most), otherwise.into())).unwrap_or(otherwise)
    };
    let items: Vec<Fields<'_>> =
        fields.items("rules").iter().take(Settings::MOST_RULES + 1).map(fields_of_rule).collect();
    let rules: Vec<Rule> = items.iter().filter_map(rule).collect();
    let is_whole = rules.len() == items.len();
    let settings = Settings {
        default: fields.get("default").and_then(|at| at.one_of(&DEFAULTS)).unwrap_or_default(),
        ask_ports: fields.get("ask_ports").map_or(missing.ask_ports, ports),
        // With a rule left out, problems between rules would name the wrong ones.
        rules: if is_whole { rules } else { Vec::new() },
        networks: fields.items("networks").iter().filter_map(network).collect(),
        max_bytes: fields.get("max_bytes").and_then(|at| size(at, 1)),
        max_connections: number("max_connections", Settings::MOST_CONNECTIONS, missing.max_connections),
        connections_per_minute: number(
            "connections_per_minute",
            Settings::MOST_PER_MINUTE,
            missing.connections_per_minute,
        ),
        idle_timeout: fields
            .get("idle_timeout")
            .and_then(|at| time(at, 1, LONGEST_IDLE))
            .map(|time| time.as_secs()),
        names_per_minute: number(
            "names_per_minute",
            Settings::MOST_NAMES_PER_MINUTE,
            missing.names_per_minute,
        ),
        placeholders: fields.get("placeholders").map(placeholders).unwrap_or_default(),
        budget: fields.get("budget").map(budget).unwrap_or_default(),
    };
    Rules::new(settings).unwrap_or_else(|faults| {
        for fault in faults {
            let place = fault.rule.and_then(|number| items.get(number)).unwrap_or(&fields);
            place.at(fault.key).problem(fault.message);
        }
        Rules::none()
    })
}

fn fields_of_rule<'t>(at: &At<'t>) -> Fields<'t> {
    at.fields(&[
        "host",
        "ports",
        "scheme",
        "methods",
        "paths",
        "inject",
        "inject_over_http",
        "upstream",
        "meter",
        "repos",
        "fetch",
        "push",
        "decision",
    ])
}

fn rule(fields: &Fields<'_>) -> Option<Rule> {
    let host = fields.required("host").and_then(host);
    let decision = fields.required("decision").and_then(|at| at.one_of(&DECISIONS));
    let scheme = fields.get("scheme").map_or(Some(Scheme::default()), |at| at.one_of(&SCHEMES));
    let ports = fields.get("ports").map(ports);
    let methods = |at: &At<'_>| at.items().iter().filter_map(At::text).map(str::to_owned).collect();
    let methods = fields.get("methods").map(methods);
    let paths = fields.get("paths").map(paths);
    let inject = fields.get("inject").map_or(Some(Vec::new()), inject);
    let inject_over_http = fields.flag_or("inject_over_http", false);
    let upstream = fields.get("upstream").map(upstream);
    let meter = fields.get("meter").map(|at| at.one_of(&METERS));
    let repos = fields.get("repos").map(repos);
    let fetch = fields.get("fetch").map(|at| at.one_of(&DECISIONS));
    let push = fields.get("push").map(push);
    // A key that could not be read would look like a missing one.
    let is_unread = [paths == Some(None), upstream == Some(None), meter == Some(None)].contains(&true);
    if is_unread || repos == Some(None) || fetch == Some(None) || push == Some(None) {
        return None;
    }
    Some(Rule {
        host: host?,
        ports,
        scheme: scheme?,
        methods,
        paths: paths.flatten(),
        inject: inject?,
        inject_over_http,
        upstream: upstream.flatten(),
        meter: meter.flatten(),
        repos: repos.flatten(),
        fetch: fetch.flatten(),
        push: push.flatten(),
        decision: decision?,
    })
}

fn host(at: &At<'_>) -> Option<HostPattern> {
    let text = at.text()?;
    match HostPattern::parse(text) {
        Ok(host) => Some(host),
        Err(problem) => {
            let within = text.split_once("://").map_or(text, |(_, rest)| rest);
            let end = within.find(['/', ':']).unwrap_or(within.len());
            let meant = within.get(..end).filter(|meant| *meant != text);
            let meant = meant.and_then(|meant| HostPattern::parse(meant).ok());
            at.problem_hint(problem.to_string(), meant.map(|meant| format!("did you mean `{meant}`?")));
            None
        }
    }
}

fn ports(at: &At<'_>) -> BTreeSet<u16> {
    let numbers = at.items().into_iter().filter_map(|item| item.number(1..=u64::from(u16::MAX)));
    numbers.filter_map(|number| u16::try_from(number).ok()).collect()
}

/// Reads a network, or one address.
fn network(at: &At<'_>) -> Option<IpNet> {
    let text = at.text()?;
    let network = text.parse().or_else(|_| text.parse().map(|address: std::net::IpAddr| address.into()));
    if network.is_err() {
        at.problem("must be a network, such as `10.20.0.0/16`");
    }
    network.ok()
}

#[cfg(test)]
#[path = "read_egress_tests.rs"]
mod tests;
