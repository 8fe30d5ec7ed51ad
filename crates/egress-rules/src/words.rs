//! The rules in plain English, for a prompt.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::narrowed::Narrowed;
use crate::opening::Opening;
use crate::path::PathPattern;
use crate::pattern::HostPattern;
use crate::rule::{Decision, Scheme};

/// Most hosts of one kind that are listed.
const MOST: usize = 40;
/// Most bytes of the hosts of one kind that are listed, but for the first.
const MOST_BYTES: usize = 1_500;
/// Most ports, and most methods, of a host that are listed.
const MOST_OF_HOST: usize = 8;
/// Most pairs of a host and a port that are considered, because each is decided by all rules of all lists.
const MOST_PAIRS: usize = 2_048;

/// Most bytes of the paths of a host that are listed, but for the first.
const MOST_BYTES_OF_PATHS: usize = 200;

/// Hosts that are reached in the same way, and their ports.
type Ways = BTreeMap<Way, BTreeSet<u16>>;

/// A way to reach a host, for a prompt. It has no secret's name.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    host: HostPattern,
    scheme: Scheme,
    methods: Option<BTreeSet<String>>,
    paths: Vec<BTreeSet<PathPattern>>,
    /// Names of headers that are set outside of the run.
    headers: BTreeSet<String>,
    /// Repositories of git and what is possible with them.
    git: Vec<String>,
}

impl Way {
    fn new(host: &HostPattern, scheme: Scheme, methods: Option<BTreeSet<String>>, opening: Opening) -> Self {
        let headers = opening.inject.iter().map(|injection| injection.header().to_owned()).collect();
        let git = opening.git.iter().flatten().map(ToString::to_string).collect();
        Self { host: host.clone(), scheme, methods, paths: opening.paths, headers, git }
    }
}

impl Narrowed {
    /// Returns the rules in words: what is open, what a reviewer is asked for, and what exists not at all.
    pub fn words(&self) -> String {
        let (mut open, mut ask) = (Ways::new(), Ways::new());
        let (mut denied, mut pairs) = (BTreeSet::new(), BTreeSet::new());
        // One of two patterns with a common destination contains the other: the rules of all lists have every pattern that is open.
        for rule in self.every_list().flat_map(|list| &list.settings().rules) {
            if rule.decision == Decision::Deny {
                denied.insert((&rule.host, rule.ports.as_ref()));
            }
            for port in rule.ports.iter().flatten() {
                if pairs.len() >= MOST_PAIRS || !pairs.insert((&rule.host, *port)) {
                    continue;
                }
                let verdict = self.decide_pattern(&rule.host, *port);
                let ways = match verdict.decision {
                    Decision::Allow => &mut open,
                    Decision::Ask => &mut ask,
                    Decision::Deny => continue,
                };
                let way = Way::new(&rule.host, verdict.scheme, verdict.methods, verdict.opening);
                ways.entry(way).or_default().insert(*port);
            }
        }
        let may_ask = self.lists().all(super::Rules::may_ask);
        if open.is_empty() && ask.is_empty() && !may_ask && pairs.len() < MOST_PAIRS {
            return "There is no network: no host name resolves, and no address outside can be reached."
                .to_owned();
        }
        let mut text = String::new();
        sentence(&mut text, "You can reach", open.iter().map(|(way, ports)| one_way(way, ports)));
        sentence(
            &mut text,
            "A reviewer decides about connections to",
            ask.iter().map(|(way, ports)| one_way(way, ports)),
        );
        let is_open =
            |host: &HostPattern| open.keys().chain(ask.keys()).any(|way| way.host.contains(host)) || may_ask;
        let except = denied.into_iter().filter(|(host, _)| is_open(host)).map(|(host, ports)| match ports {
            Some(ports) => format!("{} on {}", a_host(host), list_of_ports(ports)),
            None => a_host(host),
        });
        sentence(&mut text, "Never", except);
        if pairs.len() >= MOST_PAIRS {
            text.push_str("There are more rules than these. ");
        }
        if may_ask {
            let ports = self.lists().map(|list| list.settings().ask_ports.clone());
            let ports = ports.reduce(|one, two| &one & &two).unwrap_or_default();
            let _ = write!(
                text,
                "A connection to any other name waits for a reviewer on {}. ",
                list_of_ports(&ports)
            );
        } else {
            text.push_str("Everything else does not resolve. ");
        }
        text.push_str(
            "UDP and ICMP do not leave the run; names resolve without a setting, and a proxy is not needed.",
        );
        text
    }
}

fn sentence(text: &mut String, begin: &str, items: impl Iterator<Item = String>) {
    let mut items: Vec<String> = items.collect();
    if items.is_empty() {
        return;
    }
    let mut bytes = 0;
    let fit = items.iter().take(MOST).take_while(|item| {
        let is_first = bytes == 0;
        bytes += item.len();
        is_first || bytes <= MOST_BYTES
    });
    let fit = fit.count();
    if items.len() > fit {
        let more = items.len() - fit;
        items.truncate(fit);
        items.push(format!("and {more} more"));
    }
    let _ = write!(text, "{begin}: {}. ", items.join("; "));
}

fn one_way(way: &Way, ports: &BTreeSet<u16>) -> String {
    let mut text = format!("{} over {}", a_host(&way.host), way.scheme);
    if !(ports.len() == 1 && ports.first().copied() == way.scheme.usual_port()) {
        let _ = write!(text, " on {}", list_of_ports(ports));
    }
    let mut demands: Vec<String> = Vec::new();
    demands.extend(
        way.methods.as_ref().map(|methods| format!("{} alone", bounded(methods.iter().cloned()).join(", "))),
    );
    if let [paths, further @ ..] = way.paths.as_slice() {
        let and = if further.is_empty() { "" } else { " and of further lists" };
        demands.push(format!("the paths {}{and}", list_of_paths(paths)));
    }
    demands.extend(bounded(way.git.iter().cloned()));
    if !way.headers.is_empty() {
        let headers = bounded(way.headers.iter().cloned());
        demands.push(format!("{} set outside of the run", headers.join(", ")));
    }
    if !demands.is_empty() {
        let _ = write!(text, " ({})", demands.join(", "));
    }
    text
}

/// Returns the first paths, and the number of the others.
fn list_of_paths(paths: &BTreeSet<PathPattern>) -> String {
    let mut bytes = 0;
    let fit = paths.iter().take(MOST_OF_HOST).take_while(|path| {
        let is_first = bytes == 0;
        bytes += path.as_str().len();
        is_first || bytes <= MOST_BYTES_OF_PATHS
    });
    let mut items: Vec<String> = fit.map(ToString::to_string).collect();
    let more = paths.len() - items.len();
    items.extend((more > 0).then(|| format!("{more} more")));
    items.join(", ")
}

fn a_host(host: &HostPattern) -> String {
    match host {
        HostPattern::Below(parent) => format!("any name below {parent}"),
        HostPattern::EveryName => "any name".to_owned(),
        HostPattern::Name(_) | HostPattern::Network(_) => host.to_string(),
    }
}

fn list_of_ports(ports: &BTreeSet<u16>) -> String {
    let numbers = bounded(ports.iter().map(u16::to_string));
    match numbers.as_slice() {
        [one] => format!("port {one}"),
        [first @ .., last] => format!("ports {} and {last}", first.join(", ")),
        [] => "no port".to_owned(),
    }
}

/// Returns the first items, and the number of the others.
fn bounded(items: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let more = items.len().saturating_sub(MOST_OF_HOST);
    let rest = (more > 0).then(|| format!("{more} more"));
    items.take(MOST_OF_HOST).chain(rest).collect()
}
