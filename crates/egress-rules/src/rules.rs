//! Checked rules, and their decisions.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::destination::Destination;
use crate::name::HostName;
use crate::opening::Opening;
use crate::pattern::HostPattern;
use crate::range::{Range, check};
use crate::rule::{Decision, Rule, Scheme, Verdict};
use crate::settings::{Fault, Settings};

/// Longest text of rules, bytes.
const TEXT: usize = 64 * 1024;

/// Settings that passed every check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Settings", into = "Settings")]
pub struct Rules(Settings);

/// The reason for which a name has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A rule has exactly this name.
    Named,
    /// A wildcard matches it, or the default is to ask. New ones per minute are bounded.
    Wildcard,
}

impl Rules {
    /// Checks settings, and returns every problem in them.
    pub fn new(settings: Settings) -> Result<Self, Vec<Fault>> {
        let faults = settings.faults();
        if faults.is_empty() { Ok(Self(settings)) } else { Err(faults) }
    }

    /// Reads one JSON object in the form of a policy's section, of at most 64 KiB. Sizes are bytes.
    ///
    /// The error is for the author of the text.
    pub fn from_json(text: &str) -> Result<Self, String> {
        Self::from_object(object(text)?)
    }

    /// Checks settings that are the keys of an object.
    pub(crate) fn from_object(object: Map<String, Value>) -> Result<Self, String> {
        let settings = Settings::deserialize(Value::Object(object)).map_err(|error| error.to_string())?;
        Self::try_from(settings)
    }

    /// Returns the rules that allow nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns true if no connection could ever go out.
    pub fn is_nothing(&self) -> bool {
        !self.may_ask() && self.0.rules.iter().all(|rule| rule.decision == Decision::Deny)
    }

    pub fn settings(&self) -> &Settings {
        &self.0
    }

    /// Returns the reason for which a name resolves within the run; `None` if it does not exist.
    pub fn resolves(&self, name: &HostName) -> Option<Source> {
        let destination = Destination::Name(name.clone());
        let is_open = |port: u16| self.decide(&destination, port).decision != Decision::Deny;
        self.ports_of(&destination).into_iter().any(is_open).then(|| self.source(name))
    }

    /// Decides about one connection. The strictest rule that matches wins.
    pub fn decide(&self, destination: &Destination, port: u16) -> Verdict {
        self.rule_on(destination, port).verdict
    }

    pub(crate) fn rule_on(&self, destination: &Destination, port: u16) -> Ruling {
        if let Destination::Address(address) = destination
            && let Err(range) = self.check(*address, None)
        {
            return out_of_range(format!("{address} is {range}, which is not open."));
        }
        let known = self.meet(port, &|host: &HostPattern| host.matches(destination));
        self.ruling(known, matches!(destination, Destination::Name(_)), port)
    }

    /// Checks an address just before a connection goes there; see [`check`].
    pub fn check(&self, address: IpAddr, pool: Option<Ipv4Net>) -> Result<(), Range> {
        let networks: Vec<IpNet> = self.0.networks.iter().copied().collect();
        check(address, &networks, pool)
    }

    /// Decides about every destination of a pattern at once: the meet of the rules that have all of it.
    pub(crate) fn rule_on_pattern(&self, pattern: &HostPattern, port: u16) -> Ruling {
        if let HostPattern::Network(network) = pattern
            && let Err(range) = self.check(network.addr(), None)
        {
            return out_of_range(format!("{network} is {range}, which is not open."));
        }
        let known = self.meet(port, &|host: &HostPattern| host.contains(pattern));
        self.ruling(known, !matches!(pattern, HostPattern::Network(_)), port)
    }

    /// Returns the ports at which a connection may be possible.
    pub fn ports_of(&self, destination: &Destination) -> BTreeSet<u16> {
        let open = self.0.rules.iter().filter(|rule| rule.decision != Decision::Deny);
        let matched = open.filter(|rule| rule.host.matches(destination));
        let mut ports: BTreeSet<u16> =
            matched.filter_map(|rule| rule.ports.as_ref()).flatten().copied().collect();
        if self.may_ask() && matches!(destination, Destination::Name(_)) {
            ports.extend(&self.0.ask_ports);
        }
        ports
    }

    /// Returns the source of a name that resolves.
    pub(crate) fn source(&self, name: &HostName) -> Source {
        let names_it = |rule: &Rule| matches!(&rule.host, HostPattern::Name(known) if known == name);
        let mut open = self.0.rules.iter().filter(|rule| rule.decision != Decision::Deny);
        if open.any(names_it) { Source::Named } else { Source::Wildcard }
    }

    pub(crate) fn may_ask(&self) -> bool {
        self.0.default == Decision::Ask && !self.0.ask_ports.is_empty()
    }

    fn ruling(&self, known: Option<Verdict>, is_name: bool, port: u16) -> Ruling {
        let is_default = known.is_none();
        Ruling { verdict: known.unwrap_or_else(|| self.otherwise(is_name, port)), is_default }
    }

    /// Returns the strictest of the rules that match.
    pub(crate) fn meet(&self, port: u16, is_for: &impl Fn(&HostPattern) -> bool) -> Option<Verdict> {
        let rules = self.0.rules.iter().enumerate();
        let matched = rules.filter(|(_, rule)| rule.has_port(port) && is_for(&rule.host));
        let mut verdict = matched
            .map(|(number, rule)| rule.verdict(format!("egress rule {}: {}", number + 1, rule.host)))
            .reduce(Verdict::meet)?;
        verdict.opening.join_git();
        Some(verdict)
    }

    /// Returns the verdict on a connection that no rule matches.
    fn otherwise(&self, is_name: bool, port: u16) -> Verdict {
        if is_name && self.may_ask() && self.0.ask_ports.contains(&port) {
            return Verdict {
                decision: Decision::Ask,
                scheme: Scheme::usual(port),
                methods: None,
                opening: Opening::default(),
                rule: "egress default: ask".to_owned(),
                words: "No rule matches this connection, and a reviewer decides about it.".to_owned(),
            };
        }
        denied(
            "egress default: deny",
            format!("No rule opens this host at port {port}. Another attempt has the same result."),
        )
    }
}

/// The verdict of one list.
pub(crate) struct Ruling {
    pub(crate) verdict: Verdict,
    /// No rule matched.
    pub(crate) is_default: bool,
}

fn out_of_range(words: String) -> Ruling {
    Ruling { verdict: denied("egress: refused range", words), is_default: false }
}

/// Reads one JSON object of at most 64 KiB. A structure could be read from a list, too.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > TEXT {
        return Err(format!("is longer than {TEXT} bytes"));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn denied(rule: &str, words: String) -> Verdict {
    Verdict {
        decision: Decision::Deny,
        scheme: Scheme::default(),
        methods: None,
        opening: Opening::default(),
        rule: rule.to_owned(),
        words,
    }
}

impl TryFrom<Settings> for Rules {
    type Error = String;

    fn try_from(settings: Settings) -> Result<Self, String> {
        Self::new(settings)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

impl From<Rules> for Settings {
    fn from(rules: Rules) -> Self {
        rules.0
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
