//! The command rules of a profile, found by program.
//!
//! A rule is about commands whose program is at the first position of its prefix, in any spelling. So only the rules
//! with that base name need a look, and a command costs the same under ten rules and under a thousand.

use std::collections::{BTreeSet, HashMap};

use ops::deny::base_name;
use serde::{Serialize, Serializer};

use super::prefix::Prefix;
use crate::decision::Verdict;

/// One rule by prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecRule {
    /// How the command line begins.
    pub prefix: Prefix,
    pub decision: Verdict,
    /// Why; shown to reviewers, written to the record.
    pub justification: String,
    /// Command lines that it must match.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<Vec<String>>,
    /// Command lines that it must not match.
    #[serde(rename = "not_match", skip_serializing_if = "Vec::is_empty")]
    pub not_matches: Vec<Vec<String>>,
}

/// Rules in the order of the file. Serialised, they are the list that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecRules {
    list: Vec<ExecRule>,
    /// Which rules name a program with this base name.
    by_program: HashMap<String, Vec<usize>>,
    /// Rules with a word that is no name, such as `/`: they may be about any program.
    of_any: Vec<usize>,
}

impl ExecRules {
    pub(super) fn new(list: Vec<ExecRule>) -> Self {
        let mut rules = Self { list, ..Self::default() };
        for (number, rule) in rules.list.iter().enumerate() {
            let names: BTreeSet<String> = rule.prefix.programs().iter().map(|word| base_name(word)).collect();
            for name in names {
                let numbers = if name.is_empty() {
                    &mut rules.of_any
                } else {
                    rules.by_program.entry(name).or_default()
                };
                numbers.push(number);
            }
        }
        rules
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Those that may speak of commands with these programs, and their numbers from 0, in the order of the file. No other
    /// rule matches one of them, neither exactly nor loosely.
    pub(crate) fn about<'r>(
        &'r self,
        programs: impl Iterator<Item = &'r str>,
    ) -> impl Iterator<Item = (usize, &'r ExecRule)> {
        // Each name once: a script may have many commands, and then there are no more numbers than in the policy.
        let names: BTreeSet<String> = programs.map(base_name).collect();
        let of_names = names.iter().filter_map(|name| self.by_program.get(name)).flatten();
        let mut numbers: Vec<usize> = of_names.chain(&self.of_any).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| (number, &self.list[number]))
    }
}

impl Serialize for ExecRules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ExecRules;
    use crate::decision::Verdict;
    use crate::policy::{ExecRule, Prefix};

    fn word() -> impl Strategy<Value = String> {
        let directory = prop_oneof![Just(""), Just("/bin/"), Just("/usr/bin/"), Just("./"), Just("/BIN//")];
        let name =
            prop_oneof![Just("git"), Just("GIT"), Just("cargo"), Just(""), Just("/"), Just("ſu"), Just("su")];
        (directory, name, prop_oneof![Just(""), Just("/")]).prop_map(|(a, b, c)| format!("{a}{b}{c}"))
    }

    proptest! {
        #[test]
        fn every_rule_that_matches_is_found(
            prefixes in prop::collection::vec(prop::collection::vec(word(), 1..4), 0..12),
            programs in prop::collection::vec(word(), 0..4),
        ) {
            let rule = |words: Vec<String>| ExecRule {
                prefix: Prefix::new(vec![words]).unwrap(),
                decision: Verdict::Ask,
                justification: "a test".to_owned(),
                matches: Vec::new(),
                not_matches: Vec::new(),
            };
            let list: Vec<ExecRule> = prefixes.into_iter().map(rule).collect();
            let rules = ExecRules::new(list.clone());
            let found: Vec<usize> = rules.about(programs.iter().map(String::as_str)).map(|(number, _)| number).collect();
            prop_assert!(found.is_sorted());
            for (number, rule) in list.iter().enumerate() {
                let matches = programs.iter().any(|program| {
                    rule.prefix.matches_loosely(&[program]) || rule.prefix.matches_exactly(&[program])
                });
                prop_assert!(!matches || found.contains(&number), "{} is not found", rule.prefix);
            }
        }
    }
}
