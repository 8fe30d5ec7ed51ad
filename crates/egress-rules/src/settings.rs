//! Rules as they are written, and every problem in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::pattern::HostPattern;
use crate::placeholder::{Placeholder, is_variable};
use crate::range::{check, problem_of_exception};
use crate::request_faults::NOT_OF_A_DENIAL;
use crate::rule::{Decision, Rule, Scheme};

/// The `egress` section of a profile, or of a request that narrows one. [`Rules`](crate::Rules) are checked settings.
///
/// The serialized form is that of a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Decision about a name that no rule matches: deny, or ask at `ask_ports`.
    pub default: Decision,
    pub ask_ports: BTreeSet<u16>,
    pub rules: Vec<Rule>,
    /// Exceptions from the refused address ranges.
    pub networks: BTreeSet<IpNet>,
    /// Most bytes of a run, both ways; `None` is no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Most connections at the same time.
    pub max_connections: u32,
    pub connections_per_minute: u32,
    /// Seconds without a byte after which a connection ends; `None` is no bound.
    #[serde(skip_serializing_if = "Option::is_none", with = "written_seconds")]
    pub idle_timeout: Option<u64>,
    /// Most new names per minute that only a wildcard matches, or no rule.
    pub names_per_minute: u32,
    /// Environment variables of the run that stand for secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub placeholders: BTreeMap<String, Placeholder>,
    /// Bounds on the requests of rules with `meter`.
    #[serde(skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
}

impl Settings {
    pub const ASK_PORTS: [u16; 3] = [443, 80, 22];
    pub const MOST_RULES: usize = 256;
    pub const MOST_PORTS: usize = 64;
    pub const MOST_METHODS: usize = 32;
    /// Most bytes of all patterns for paths together. An order to look at a connection has those of all rules that match it.
    pub const MOST_PATH_BYTES: usize = 64 * 1024;
    pub const MOST_PLACEHOLDERS: usize = 16;
    pub const MOST_NETWORKS: usize = 256;
    pub const MOST_CONNECTIONS: u32 = 16_384;
    pub const MOST_PER_MINUTE: u32 = 100_000;
    pub const MOST_NAMES_PER_MINUTE: u32 = 10_000;

    /// Returns every problem in the settings.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |key, message: String| faults.push(Fault { rule: None, key, message });
        if self.default == Decision::Allow {
            fault("default", "must be `deny` or `ask`; `host: \"*\"` allows every name".to_owned());
        }
        let bounds = [
            ("ask_ports", self.ask_ports.len(), Self::MOST_PORTS),
            ("rules", self.rules.len(), Self::MOST_RULES),
            ("networks", self.networks.len(), Self::MOST_NETWORKS),
        ];
        for (key, count, most) in bounds.into_iter().filter(|(_, count, most)| count > most) {
            fault(key, format!("has {count} entries; at most {most} are possible"));
        }
        let paths = self.rules.iter().filter_map(|rule| rule.paths.as_ref()).flatten();
        let bytes: usize = paths.map(|path| path.as_str().len()).sum();
        if bytes > Self::MOST_PATH_BYTES {
            let most = Self::MOST_PATH_BYTES;
            fault("rules", format!("have {bytes} bytes of `paths`; at most {most} are possible"));
        }
        if self.ask_ports.contains(&0) {
            fault("ask_ports", "port 0 does not exist".to_owned());
        }
        let numbers = [
            ("max_connections", self.max_connections, Self::MOST_CONNECTIONS),
            ("connections_per_minute", self.connections_per_minute, Self::MOST_PER_MINUTE),
            ("names_per_minute", self.names_per_minute, Self::MOST_NAMES_PER_MINUTE),
        ];
        for (key, _, most) in numbers.into_iter().filter(|(_, number, most)| !(1..=*most).contains(number)) {
            fault(key, format!("must be from 1 to {most}"));
        }
        if self.max_bytes == Some(0) || self.idle_timeout == Some(0) {
            let key = if self.max_bytes == Some(0) { "max_bytes" } else { "idle_timeout" };
            fault(key, "0 is not possible; leave it out for no bound".to_owned());
        }
        for message in self.networks.iter().filter_map(|network| problem_of_exception(*network)) {
            fault("networks", message);
        }
        if self.placeholders.len() > Self::MOST_PLACEHOLDERS {
            let most = Self::MOST_PLACEHOLDERS;
            fault(
                "placeholders",
                format!("has {} entries; at most {most} are possible", self.placeholders.len()),
            );
        }
        for name in self.placeholders.keys().filter(|name| !is_variable(name)) {
            fault("placeholders", format!("{name:?} is no name of an environment variable"));
        }
        for message in self.budget.problems() {
            fault("budget", message);
        }
        if faults.is_empty() {
            self.faults_of_rules(&mut faults);
        }
        faults
    }

    fn faults_of_rules(&self, faults: &mut Vec<Fault>) {
        let networks: Vec<IpNet> = self.networks.iter().copied().collect();
        for (number, rule) in self.rules.iter().enumerate() {
            let mut fault = |key, message: String| faults.push(Fault { rule: Some(number), key, message });
            match &rule.ports {
                None if rule.decision != Decision::Deny => {
                    fault("ports", "is missing; only a rule that denies is for every port".to_owned());
                }
                Some(ports) if ports.is_empty() || ports.len() > Self::MOST_PORTS || ports.contains(&0) => {
                    fault("ports", format!("must have 1 to {} ports from 1 to 65535", Self::MOST_PORTS));
                }
                _ => {}
            }
            if let Some(methods) = &rule.methods {
                if rule.scheme == Scheme::Tcp {
                    fault("methods", "are not seen with `scheme: tcp`".to_owned());
                }
                if rule.scheme == Scheme::Https && rule.decision == Decision::Deny {
                    fault("methods", NOT_OF_A_DENIAL.to_owned());
                }
                if methods.is_empty() || methods.len() > Self::MOST_METHODS {
                    let most = Self::MOST_METHODS;
                    fault("methods", format!("must have 1 to {most} methods; leave it out for every method"));
                }
                let is_method = |method: &String| {
                    (1..=32).contains(&method.len())
                        && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
                };
                if !methods.iter().all(is_method) {
                    fault("methods", "must be in capitals, such as `GET`".to_owned());
                }
            }
            rule.faults_of_requests(&mut fault);
            rule.faults_of_git(&mut fault);
            if let HostPattern::Network(network) = rule.host
                && rule.decision != Decision::Deny
            {
                // A network that begins outside of the refused ranges may reach into one. Each connection is checked as well.
                if let Err(range) = check(network.addr(), &networks, None) {
                    fault("host", format!("{} is {range}; `networks` has to allow it", network.addr()));
                }
            }
        }
        self.contradictions(faults);
    }

    /// Finds rules that no connection could pass together.
    fn contradictions(&self, faults: &mut Vec<Fault>) {
        for (number, rule) in self.rules.iter().enumerate() {
            let before = self.rules.iter().take(number).enumerate();
            let mut found = before.filter_map(|(place, other)| Some((place, rule.contradiction(other)?)));
            if let Some((other, (key, why))) = found.next() {
                let message =
                    format!("contradicts rule {}: both match a host and port, and {why}", other + 1);
                faults.push(Fault { rule: Some(number), key, message });
            }
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            default: Decision::Deny,
            ask_ports: Self::ASK_PORTS.into(),
            rules: Vec::new(),
            networks: BTreeSet::new(),
            max_bytes: None,
            max_connections: 1_024,
            connections_per_minute: 3_000,
            idle_timeout: None,
            names_per_minute: 60,
            placeholders: BTreeMap::new(),
            budget: Budget::default(),
        }
    }
}

/// Seconds as a policy has them: `300s`.
mod written_seconds {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde's form")]
    pub(super) fn serialize<S: Serializer>(seconds: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match seconds {
            Some(seconds) => serializer.collect_str(&format_args!("{seconds}s")),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let seconds = |text: String| {
            let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
            number.ok_or_else(|| D::Error::custom("must be a number of seconds, such as `300s`"))
        };
        text.map(seconds).transpose()
    }
}

/// A problem in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Index of the rule that has it; `None` if it is in the section itself.
    pub rule: Option<usize>,
    /// Key that has it.
    pub key: &'static str,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.rule {
            write!(f, "rule {}: ", number + 1)?;
        }
        write!(f, "{}: {}", self.key, self.message)
    }
}
