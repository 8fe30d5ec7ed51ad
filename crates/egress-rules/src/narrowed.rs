//! Several lists of rules at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::budget::Budget;
use crate::destination::Destination;
use crate::inject::Injection;
use crate::name::HostName;
use crate::pattern::HostPattern;
use crate::placeholder::Placeholder;
use crate::range::Range;
use crate::rule::{Decision, Rule, Scheme, Verdict};
use crate::rules::{Rules, Ruling, Source};
use crate::secret_name::SecretName;
use crate::settings::Settings;
use crate::widened::{NotWider, Widened, further};

/// Key of a rule for git, which a profile has to have first.
const GIT: &str = "scheme: git";

/// The rules of a run: those of its profile, and each list that narrowed or widened them since.
///
/// A connection has to pass the profile and every list that narrows it. The verdict is the strictest of all, so another of these lists never
/// opens anything. Lists that widen answer what the lists before them ask (`widened.rs`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Narrowed {
    profile: Rules,
    by: Vec<Rules>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    widened: Vec<Widened>,
}

impl Narrowed {
    /// Most lists that narrow a profile.
    pub const MOST: usize = 16;

    pub fn new(profile: Rules) -> Self {
        Self { profile, by: Vec::new(), widened: Vec::new() }
    }

    /// Returns these rules with another list that a connection has to pass.
    ///
    /// Refuses a list that asks for more, so that its author hears of it: a rule for hosts that are not open, an exception for
    /// addresses that are not allowed, or a key that only a profile may have, such as `inject`.
    pub fn narrow(&self, by: &Rules) -> Result<Self, Widening> {
        for (number, rule) in by.settings().rules.iter().enumerate() {
            if let Some(key) = rule.key_of_a_profile() {
                return Err(Widening::Profile { number: number + 1, key });
            }
            if rule.scheme == Scheme::Git && !self.has_git() {
                return Err(Widening::Profile { number: number + 1, key: GIT });
            }
        }
        if !by.settings().placeholders.is_empty() {
            return Err(Widening::Placeholders);
        }
        // A list that was widened after it was given may close something again.
        let is_in_force = |(place, list): (usize, &Rules)| list == by && self.opened(place).next().is_none();
        if self.lists().enumerate().any(is_in_force) {
            return Ok(self.clone());
        }
        if self.by.len() >= Self::MOST {
            return Err(Widening::Lists);
        }
        for (number, rule) in by.settings().rules.iter().enumerate() {
            let ports = rule.ports.iter().flatten().copied();
            let closed =
                |port: &u16| !(0..=self.by.len()).all(|place| self.reaches(place, &rule.host, *port));
            if rule.decision != Decision::Deny
                && let Some(port) = ports.into_iter().find(closed)
            {
                return Err(Widening::Host { number: number + 1, host: rule.host.clone(), port });
            }
        }
        if by.may_ask() && !self.lists().all(Rules::may_ask) {
            return Err(Widening::Default);
        }
        if let Some(network) = by.settings().networks.iter().find(|network| !self.has_network(network)) {
            return Err(Widening::Network(*network));
        }
        let mut narrowed = self.clone();
        narrowed.by.push(by.clone());
        Ok(narrowed)
    }

    /// Returns these rules with another list that widens them.
    ///
    /// Refuses a list with a rule that would open nothing, so that its author hears of it.
    pub fn widen(&self, by: &Rules) -> Result<Self, NotWider> {
        let settings = by.settings();
        let allowed = Settings {
            rules: settings.rules.clone(),
            networks: settings.networks.clone(),
            ..Settings::default()
        };
        if *settings != allowed {
            return Err(NotWider::Settings);
        }
        if settings.rules.is_empty() {
            return Err(NotWider::Empty);
        }
        let denies = |rule: &Rule| rule.decision != Decision::Allow;
        if let Some(number) = settings.rules.iter().position(denies) {
            return Err(NotWider::Decision { number: number + 1 });
        }
        for (number, rule) in settings.rules.iter().enumerate() {
            let git = (rule.scheme == Scheme::Git).then_some(GIT);
            if let Some(key) = rule.key_of_a_profile().or(git) {
                return Err(NotWider::Profile { number: number + 1, key });
            }
        }
        if let Some(network) = settings.networks.iter().find(|network| !self.has_network(network)) {
            return Err(NotWider::Network(*network));
        }
        let widened = Widened { rules: by.clone(), after: self.narrowings() };
        if self.widenings().contains(&widened) {
            return Ok(self.clone());
        }
        let rules: usize = self.widenings().iter().map(|widened| widened.rules.settings().rules.len()).sum();
        if self.widenings().len() >= Widened::MOST || rules + settings.rules.len() > Settings::MOST_RULES {
            return Err(NotWider::Full);
        }
        let wider = self.clone().and_widened([widened]);
        for (number, rule) in settings.rules.iter().enumerate() {
            for port in rule.ports.iter().flatten() {
                let verdict = wider.decide_pattern(&rule.host, *port);
                if verdict.decision != Decision::Allow {
                    let (number, host) = (number + 1, rule.host.clone());
                    return Err(NotWider::Closed { number, host, port: *port, rule: verdict.rule });
                }
            }
        }
        Ok(wider)
    }

    /// Returns these rules with another list that a connection has to pass, whatever it asks for.
    #[must_use]
    pub fn under(mut self, list: Rules) -> Self {
        self.by.push(list);
        self
    }

    /// Returns these rules with lists that widened them, whatever they open.
    #[must_use]
    pub fn and_widened(mut self, widened: impl IntoIterator<Item = Widened>) -> Self {
        self.widened.extend(widened);
        self
    }

    /// Returns the number of lists that narrowed the profile.
    pub fn narrowings(&self) -> usize {
        self.by.len()
    }

    /// Returns the lists that widened the profile.
    pub fn widenings(&self) -> &[Widened] {
        &self.widened
    }

    /// Returns the reason for which a name resolves within the run; `None` if it does not exist.
    pub fn resolves(&self, name: &HostName) -> Option<Source> {
        let destination = Destination::Name(name.clone());
        let is_open = |port: u16| self.decide(&destination, port).decision != Decision::Deny;
        let mut opening = std::iter::once(&self.profile).chain(self.opened(0));
        if !opening.any(|list| list.ports_of(&destination).into_iter().any(is_open)) {
            return None;
        }
        // One list that has the name bounds how many such names there are.
        let is_named = self.every_list().any(|list| list.source(name) == Source::Named);
        Some(if is_named { Source::Named } else { Source::Wildcard })
    }

    /// Decides about one connection. The strictest rule of all lists wins.
    pub fn decide(&self, destination: &Destination, port: u16) -> Verdict {
        self.meet(port, |list| list.rule_on(destination, port), |host| host.matches(destination))
    }

    /// Checks an address just before a connection goes there; see [`crate::check`].
    pub fn check(&self, address: IpAddr, pool: Option<Ipv4Net>) -> Result<(), Range> {
        self.lists().try_for_each(|list| list.check(address, pool))
    }

    /// Returns true if no connection could ever go out.
    pub fn is_nothing(&self) -> bool {
        let opens = !self.profile.is_nothing() || !self.widened.is_empty();
        !opens || self.by.iter().any(Rules::is_nothing)
    }

    /// Returns the most bytes of the run, both ways.
    pub fn max_bytes(&self) -> Option<u64> {
        self.lists().filter_map(|list| list.settings().max_bytes).min()
    }

    pub fn max_connections(&self) -> u32 {
        self.least(|list| list.settings().max_connections)
    }

    pub fn connections_per_minute(&self) -> u32 {
        self.least(|list| list.settings().connections_per_minute)
    }

    pub fn names_per_minute(&self) -> u32 {
        self.least(|list| list.settings().names_per_minute)
    }

    /// Returns the seconds without a byte after which a connection ends.
    pub fn idle_timeout(&self) -> Option<u64> {
        self.lists().filter_map(|list| list.settings().idle_timeout).min()
    }

    /// Returns true if some rule of the profile opens the TLS of connections. No other list can.
    pub fn opens_tls(&self) -> bool {
        self.rules_of_profile().any(Rule::opens_tls)
    }

    /// Returns true if some rule of the profile counts tokens. No other list can.
    pub fn is_metered(&self) -> bool {
        self.rules_of_profile().any(|rule| rule.meter.is_some())
    }

    /// Returns the secrets that the profile injects, and those that it has placeholders of.
    pub fn secrets(&self) -> BTreeSet<SecretName> {
        let injected = self.rules_of_profile().flat_map(|rule| &rule.inject).flat_map(Injection::secrets);
        let replaced = self.placeholders().values().map(|placeholder| &placeholder.secret);
        injected.chain(replaced).cloned().collect()
    }

    /// Returns the placeholders of the run, by environment variable.
    pub fn placeholders(&self) -> &BTreeMap<String, Placeholder> {
        &self.profile.settings().placeholders
    }

    /// Returns the least of the budgets of all lists.
    pub fn budget(&self) -> Budget {
        self.lists().fold(Budget::default(), |least, list| least.least(&list.settings().budget))
    }

    /// Returns the SHA-256 over the canonical form, lower-case hex.
    pub fn digest(&self) -> Result<String, serde_json::Error> {
        let canonical = serde_json::to_vec(self)?;
        let digest = Sha256::new().chain_update(b"cofferdam egress 1\0").chain_update(&canonical).finalize();
        Ok(hex::encode(digest))
    }

    /// Returns true if the profile has a rule for git, so that the TLS of its runs can be opened.
    fn has_git(&self) -> bool {
        self.rules_of_profile().any(|rule| rule.scheme == Scheme::Git && rule.decision != Decision::Deny)
    }

    fn rules_of_profile(&self) -> impl Iterator<Item = &Rule> {
        self.profile.settings().rules.iter()
    }

    /// Returns the lists that a connection has to pass, the profile's first.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &Rules> {
        std::iter::once(&self.profile).chain(&self.by)
    }

    /// Returns the lists that a connection has to pass, and those that widened them.
    pub(crate) fn every_list(&self) -> impl Iterator<Item = &Rules> {
        self.lists().chain(self.opened(0))
    }

    /// Returns true if every list allows these addresses.
    pub(crate) fn has_network(&self, network: &IpNet) -> bool {
        self.lists().all(|list| list.settings().networks.iter().any(|known| known.contains(network)))
    }

    pub(crate) fn decide_pattern(&self, pattern: &HostPattern, port: u16) -> Verdict {
        self.meet(port, |list| list.rule_on_pattern(pattern, port), |host| host.contains(pattern))
    }

    /// Returns the lists that widened the list at this place; the profile's place is 0.
    fn opened(&self, place: usize) -> impl Iterator<Item = &Rules> {
        self.widened.iter().filter(move |widened| widened.after >= place).map(|widened| &widened.rules)
    }

    fn meet(
        &self,
        port: u16,
        rule: impl Fn(&Rules) -> Ruling,
        is_for: impl Fn(&HostPattern) -> bool,
    ) -> Verdict {
        let said = self.lists().enumerate().map(|(place, list)| {
            let mut ruling = rule(list);
            if place > 0 {
                ruling.verdict.rule.insert_str(0, "narrowed ");
            }
            ruling.answered(further(self.opened(place), port, &is_for), place == 0)
        });
        said.reduce(Verdict::meet).unwrap_or_else(|| rule(&self.profile).verdict)
    }

    /// Returns true if some destination of a pattern is open at a port in the list at this place.
    fn reaches(&self, place: usize, pattern: &HostPattern, port: u16) -> bool {
        let Some(list) = self.lists().nth(place) else { return false };
        let known = std::iter::once(list).chain(self.opened(place)).flat_map(|list| &list.settings().rules);
        let is_open = |host: &HostPattern| {
            let further = further(self.opened(place), port, &|known: &HostPattern| known.contains(host));
            list.rule_on_pattern(host, port).answered(further, place == 0).decision != Decision::Deny
        };
        is_open(pattern) || known.map(|rule| &rule.host).filter(|host| pattern.contains(host)).any(is_open)
    }

    fn least(&self, bound: impl Fn(&Rules) -> u32) -> u32 {
        self.by.iter().map(&bound).fold(bound(&self.profile), u32::min)
    }
}

/// A list that does not narrow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Widening {
    #[error("egress rule {number} asks for {host} at port {port}, which the profile does not open")]
    Host { number: usize, host: HostPattern, port: u16 },
    #[error("`default: ask` is not possible, because the profile denies names without a rule")]
    Default,
    #[error("`networks` has {0}, which the profile does not allow")]
    Network(IpNet),
    #[error("egress rule {number} has `{key}`, which only the rules of a profile may have; leave it out")]
    Profile { number: usize, key: &'static str },
    #[error("`placeholders` are those of the profile; leave them out")]
    Placeholders,
    #[error("the rules of this run have been narrowed {} times, which is the most", Narrowed::MOST)]
    Lists,
}

#[cfg(test)]
#[path = "narrowed_tests.rs"]
mod tests;
