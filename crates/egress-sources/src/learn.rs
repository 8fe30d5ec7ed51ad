//! One proposal of rules for the hosts to which a run was refused.
//!
//! The names are an agent's: they may look like others, or carry data. Such names are held back, in a comment that says why. A reviewer
//! reads the proposal; nothing applies it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use egress_rules::{Destination, HostName, HostPattern, Rule, Rules, Scheme, Settings};
use serde::Serialize;
use text::{Shape, excerpt_of};

use crate::domains::{Asked, Together, take_together};
use crate::form::{comment, methods_of_readers, write_rule};
use crate::records::Records;
use crate::refused::Refused;

/// Most names that are considered.
const MOST_NAMES: usize = 1_024;
/// Most rules, most of those that are held back, and most notes.
const MOST: usize = 64;
/// Most ports of a name that make rules.
const MOST_PORTS: usize = 8;
/// Longest label that says nothing, bytes.
const LONGEST_LABEL: usize = 40;
/// Longest note, letters.
const LONGEST_NOTE: usize = 300;
/// Port of a name that did not resolve, so that no program came to name one.
const UNKNOWN_PORT: u16 = 443;

/// Rules for a reviewer, and everything that is not in them.
#[derive(Debug, Default, Serialize)]
pub struct Proposal {
    pub rules: Vec<Learnt>,
    /// Rules that something speaks against.
    pub held_back: Vec<Learnt>,
    /// Refusals for which there is no rule.
    pub not_used: Vec<String>,
}

/// One rule, and the refusals that it comes from.
#[derive(Debug, Serialize)]
pub struct Learnt {
    #[serde(flatten)]
    pub rule: Rule,
    pub from: String,
    /// Hosts and ports of the connections after which the same calls asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The reason to hold it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Makes one proposal of what a run was refused. The records tell which connections came before.
pub fn learn(refused: impl IntoIterator<Item = Refused>, records: &Records) -> Proposal {
    let ways = records.ways();
    let mut proposal = Proposal::default();
    let mut names: BTreeMap<HostName, Asked> = BTreeMap::new();
    let mut notes = BTreeSet::new();
    let mut left_out: usize = 0;
    for refused in refused {
        let usable = usable(&refused).map_err(|note| excerpt_of(&note, Shape::Line, LONGEST_NOTE));
        let known = match usable {
            Ok(name) => name,
            Err(note) if notes.len() < MOST || notes.contains(&note) => {
                notes.insert(note);
                continue;
            }
            Err(_) => {
                left_out += 1;
                continue;
            }
        };
        if names.len() >= MOST_NAMES && !names.contains_key(&known) {
            left_out += 1;
            continue;
        }
        let asked = names.entry(known).or_default();
        let before = ways.get(&(refused.host.as_str(), refused.port)).into_iter().flatten();
        asked.follows(before.map(|way| (*way).to_owned()));
        match refused.port {
            Some(port) => {
                asked.ports.insert(port);
                asked.connections = asked.connections.saturating_add(refused.count);
            }
            None => asked.lookups = asked.lookups.saturating_add(refused.count),
        }
    }
    proposal.not_used = notes.into_iter().collect();
    let together = take_together(&mut names);
    for (name, asked) in names {
        let why = reason_against(&name, &asked);
        proposal.add(&HostPattern::Name(name), &asked, why.as_deref());
    }
    for (domain, Together { names, examples, asked }) in together {
        let examples: Vec<String> = examples.iter().map(HostName::to_string).collect();
        let why = format!(
            "{names} names below {domain}, such as {}; a wildcard is a channel to whoever runs the domain's name server",
            examples.join(", ")
        );
        proposal.add(&HostPattern::Below(domain), &asked, Some(&why));
    }
    let more =
        proposal.rules.len().saturating_sub(MOST) + proposal.held_back.len().saturating_sub(MOST) + left_out;
    proposal.rules.truncate(MOST);
    proposal.held_back.truncate(MOST);
    if more > 0 {
        let note = format!("{more} more are left out; `coffer run connections` and the audit log have them");
        proposal.not_used.push(note);
    }
    proposal
}

/// Returns the name that a rule could open, or a note on why there is none.
fn usable(refused: &Refused) -> Result<HostName, String> {
    if !refused.lacks_a_rule() {
        return Err(format!("{}: {}: {}", refused.shown(), refused.rule, refused.reason));
    }
    match Destination::parse(&refused.host) {
        Ok(Destination::Name(name)) => Ok(name),
        Ok(Destination::Address(_)) => Err(format!(
            "{}: an address does not tell who answers; if you know the server, write a rule for it",
            refused.shown()
        )),
        Err(_) if refused.host == "(others)" => {
            Err("more different hosts than the log has one by one in a minute".to_owned())
        }
        Err(error) => Err(format!("{}: {error}", refused.shown())),
    }
}

/// Returns what speaks against a name.
fn reason_against(name: &HostName, asked: &Asked) -> Option<String> {
    let labels = || name.as_str().split('.');
    if labels().any(|label| label.starts_with("xn--")) {
        let (unicode, _) = idna::domain_to_unicode(name.as_str());
        let escaped: String = unicode
            .chars()
            .map(
                |letter| {
                    if letter.is_ascii() { letter.to_string() } else { letter.escape_unicode().to_string() }
                },
            )
            .collect();
        return Some(format!("an international name, {escaped}, which may look like another one"));
    }
    if let Some(longest) = labels().map(str::len).max().filter(|length| *length > LONGEST_LABEL) {
        return Some(format!("a label of {longest} letters may carry data to the domain's name server"));
    }
    let ports = asked.ports.len();
    (ports > MOST_PORTS)
        .then(|| format!("{ports} ports were tried, which looks like a scan; the first are here"))
}

impl Learnt {
    /// Writes in comments what the rule comes from.
    fn write_origin(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        comment(f, 8, &self.from)?;
        if self.after.is_empty() {
            return Ok(());
        }
        let after = format!("asked after {}", self.after.join(", "));
        comment(f, 8, &excerpt_of(&after, Shape::Line, LONGEST_NOTE))
    }
}

impl Proposal {
    /// Adds a rule for each scheme of the ports. Something speaks against it if there is a `why`.
    fn add(&mut self, host: &HostPattern, asked: &Asked, why: Option<&str>) {
        let mut by_scheme: BTreeMap<Scheme, BTreeSet<u16>> = BTreeMap::new();
        let unknown = asked.ports.is_empty().then_some(UNKNOWN_PORT);
        for port in asked.ports.iter().copied().take(MOST_PORTS).chain(unknown) {
            by_scheme.entry(Scheme::usual(port)).or_default().insert(port);
        }
        for (scheme, ports) in by_scheme {
            let methods = (scheme == Scheme::Http).then(methods_of_readers);
            let rule = Rule::allowing(host.clone(), ports, scheme, methods);
            let rules = vec![rule.clone()];
            if let Err(faults) = Rules::new(Settings { rules, ..Settings::default() }) {
                let problems: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
                self.not_used.push(format!("{host}: {}", problems.join("; ")));
                continue;
            }
            let to = if why.is_some() { &mut self.held_back } else { &mut self.rules };
            let after = asked.after.iter().cloned().collect();
            to.push(Learnt { rule, from: from(asked), after, why: why.map(str::to_owned) });
        }
    }
}

/// Returns the refusals in words.
fn from(asked: &Asked) -> String {
    let times = |count: u64, what: &str| match count {
        0 => None,
        1 => Some(format!("{what} once")),
        count => Some(format!("{what} {count} times")),
    };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(times(asked.lookups, "looked up"));
    parts.extend(times(asked.connections, "connection refused"));
    let mut text = parts.join(", ");
    if asked.ports.is_empty() {
        text.push_str("; the port is not known, because the name did not resolve");
    }
    text
}

const FIRST: [&str; 2] = [
    "A proposal for a reviewer, from names that the run asked for and was refused. Nothing of it is in force.",
    "An agent chose the names. An allowed host can receive everything that the run can read.",
];
const ASKED_AFTER: &str = "\"asked after\" is the last connection of the same command in the 10 s before. It may be what led there, such as by a redirect.";
const LAST: &str =
    "Redirects: a server that is now allowed may send programs to further hosts, which are refused then.";

/// The `egress` section of a profile, indented for it.
impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FIRST.iter().try_for_each(|line| comment(f, 4, line))?;
        if self.rules.iter().chain(&self.held_back).any(|learnt| !learnt.after.is_empty()) {
            comment(f, 4, ASKED_AFTER)?;
        }
        let rules = if self.rules.is_empty() { "rules: []" } else { "rules:" };
        writeln!(f, "    egress:\n      {rules}")?;
        for learnt in &self.rules {
            learnt.write_origin(f)?;
            write_rule(f, "        - ", &learnt.rule)?;
        }
        for learnt in &self.held_back {
            comment(f, 8, &format!("held back: {}", learnt.why.as_deref().unwrap_or_default()))?;
            learnt.write_origin(f)?;
            write_rule(f, "        # - ", &learnt.rule)?;
        }
        for note in &self.not_used {
            comment(f, 4, &format!("no rule: {note}"))?;
        }
        comment(f, 4, LAST)
    }
}

#[cfg(test)]
#[path = "learn_tests.rs"]
mod tests;
