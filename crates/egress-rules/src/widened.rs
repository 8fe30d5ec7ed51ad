//! Rules that open more than the profile of a run does.
//!
//! They answer the questions of the lists before them, and open destinations that no rule of the profile knows. A rule that denies, the check of
//! addresses, and a list that narrows without the destination stay in force.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::pattern::HostPattern;
use crate::rule::{Decision, Rule, Scheme, Verdict};
use crate::rules::{Rules, Ruling};
use crate::settings::{Fault, Settings};

/// A list of rules that widened a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Widened {
    pub rules: Rules,
    /// Number of lists that had narrowed the run before. A later list is not answered.
    pub after: usize,
}

/// A list that cannot widen a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotWider {
    #[error("`rules` is empty")]
    Empty,
    #[error("egress rule {number} does not allow: write `decision: allow`, or narrow the run instead")]
    Decision { number: usize },
    #[error("only `rules` and `networks` widen a run; its bounds and its default are those of its profile")]
    Settings,
    #[error("`networks` has {0}, which the run does not allow; a policy alone can open it")]
    Network(IpNet),
    #[error(
        "egress rule {number} has `{key}`, which only the rules of a profile may have; a policy alone can add it"
    )]
    Profile { number: usize, key: &'static str },
    #[error("egress rule {number} would open nothing: {host} at port {port} stays closed by `{rule}`")]
    Closed { number: usize, host: HostPattern, port: u16, rule: String },
    #[error(
        "the run has been widened by {} rules or {} lists, which is the most",
        Settings::MOST_RULES,
        Widened::MOST
    )]
    Full,
}

impl Widened {
    /// Most lists that widen a run.
    pub const MOST: usize = 64;
}

impl Rules {
    /// Returns the rules that allow one destination and nothing else.
    ///
    /// Methods within TLS are left out: only a profile has TLS opened, and its rule demands them by itself.
    pub fn one(
        destination: &Destination,
        port: u16,
        scheme: Scheme,
        methods: Option<&BTreeSet<String>>,
    ) -> Result<Self, Vec<Fault>> {
        let (host, network) = match destination {
            Destination::Name(name) => (HostPattern::Name(name.clone()), None),
            Destination::Address(address) => {
                (HostPattern::Network((*address).into()), Some(IpNet::from(*address)))
            }
        };
        let methods = methods.filter(|_| scheme == Scheme::Http).cloned();
        let rule = Rule::allowing(host, [port].into(), scheme, methods);
        let settings = Settings { rules: vec![rule], ..Settings::default() };
        // An address in a refused range needs its exception, which opens nothing by itself.
        Self::new(settings.clone()).or_else(|faults| match network {
            Some(network) => Self::new(Settings { networks: [network].into(), ..settings }),
            None => Err(faults),
        })
    }
}

impl Ruling {
    /// Returns the verdict after lists that widened have answered. `opens` is true if they may also open what no rule knows.
    pub(crate) fn answered(self, further: Option<Verdict>, opens: bool) -> Verdict {
        let Self { verdict, is_default } = self;
        let Some(further) = further else { return verdict };
        match verdict.decision {
            Decision::Deny if is_default && opens => further,
            // The scheme was only guessed from the port.
            Decision::Ask if is_default => further,
            Decision::Ask => further.meet(Verdict { decision: Decision::Allow, ..verdict }),
            Decision::Allow | Decision::Deny => verdict,
        }
    }
}

/// Returns what lists that widened say about a destination.
pub(crate) fn further<'r>(
    widened: impl Iterator<Item = &'r Rules>,
    port: u16,
    is_for: &impl Fn(&HostPattern) -> bool,
) -> Option<Verdict> {
    let said = widened.filter_map(|rules| rules.meet(port, is_for)).map(|verdict| Verdict {
        rule: format!("widened {}", verdict.rule),
        words: "The run was widened, and allows this connection.".to_owned(),
        ..verdict
    });
    said.reduce(Verdict::meet)
}

#[cfg(test)]
#[path = "widened_tests.rs"]
mod tests;
