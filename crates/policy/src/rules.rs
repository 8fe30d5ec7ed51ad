//! The command rules of a profile, found by program.
//!
//! A rule is about commands whose program is at the first position of its prefix, in any spelling. So only the rules
//! with that base name have to be checked, and a command costs the same under ten rules and under a thousand.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use operations::deny::base_name;
use serde::{Serialize, Serializer};

use crate::{Verdict, prefix::Prefix};

/// One rule by prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecRule {
    /// First words of the command line.
    pub prefix: Prefix,
    pub decision: Verdict,
    /// Reason, shown to reviewers and written to the record.
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
    /// For each position of a prefix and each word, the rules that permit it there.
    ///
    /// At the first position words are base names.
    positions: Vec<HashMap<String, Permitting>>,
    /// Rules with a word that is not a name, such as `/`. They may be about any program.
    of_any: Vec<usize>,
}

/// The numbers of rules that permit a word at a position, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Permitting {
    /// Rules for which this position is the last.
    ending: Vec<usize>,
    /// Rules with further positions.
    going_on: Vec<usize>,
}

impl ExecRules {
    pub(super) fn new(list: Vec<ExecRule>) -> Self {
        let mut rules = Self { list, ..Self::default() };
        for (number, rule) in rules.list.iter().enumerate() {
            for (position, words) in rule.prefix.positions().iter().enumerate() {
                if rules.positions.len() <= position {
                    rules.positions.push(HashMap::new());
                }
                let name = |word: &String| if position == 0 { base_name(word) } else { word.clone() };
                for word in words.iter().map(name).collect::<BTreeSet<_>>() {
                    if position == 0 && word.is_empty() {
                        rules.of_any.push(number);
                        continue;
                    }
                    let permitting = rules.positions[position].entry(word).or_default();
                    let is_last = position + 1 == rule.prefix.words();
                    let numbers = if is_last { &mut permitting.ending } else { &mut permitting.going_on };
                    numbers.push(number);
                }
            }
        }
        rules
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the rules that may match these commands, with their numbers from 0, in the order of the file.
    ///
    /// No other rule matches one of the commands, neither exactly nor loosely.
    pub fn about<'r, 'c>(
        &'r self,
        commands: impl Iterator<Item = &'c [String]>,
    ) -> impl Iterator<Item = (usize, &'r ExecRule)> {
        let mut numbers = BTreeSet::new();
        if !self.is_empty() {
            numbers.extend(&self.of_any);
            commands.for_each(|command| self.add_about(command, &mut numbers));
        }
        numbers.into_iter().map(|number| (number, &self.list[number]))
    }

    /// Adds the rules that permit, at each of their positions, the word that the command has there.
    fn add_about(&self, command: &[String], numbers: &mut BTreeSet<usize>) {
        let Some((program, arguments)) = command.split_first() else { return };
        let program = self.positions.first().and_then(|table| table.get(&base_name(program)));
        let Some(Permitting { ending, going_on }) = program else { return };
        numbers.extend(ending);
        let mut open = Cow::Borrowed(going_on.as_slice());
        for (word, table) in arguments.iter().zip(&self.positions[1..]) {
            let Some(Permitting { ending, going_on }) = table.get(word) else { return };
            numbers.extend(common(&open, ending));
            open = Cow::Owned(common(&open, going_on).collect());
            if open.is_empty() {
                return;
            }
        }
    }
}

/// Returns the numbers in both lists, which ascend. The shorter list determines the number of steps.
fn common<'l>(one: &'l [usize], other: &'l [usize]) -> impl Iterator<Item = usize> {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    short.iter().copied().filter(|number| long.binary_search(number).is_ok())
}

impl Serialize for ExecRules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use operations::deny::base_name;

    use super::ExecRules;
    use crate::{ExecRule, Prefix, Verdict};

    fn program() -> impl Strategy<Value = String> {
        let directory = prop_oneof![Just(""), Just("/bin/"), Just("/usr/bin/"), Just("./"), Just("/BIN//")];
        let name =
            prop_oneof![Just("git"), Just("GIT"), Just("cargo"), Just(""), Just("/"), Just("ſu"), Just("su")];
        (directory, name, prop_oneof![Just(""), Just("/")]).prop_map(|(a, b, c)| format!("{a}{b}{c}"))
    }

    /// Few words, so that many rules begin alike and many commands match.
    fn argument() -> impl Strategy<Value = String> {
        prop_oneof![Just("push"), Just("PUSH"), Just("remote"), Just("-v"), Just("")].prop_map(str::to_owned)
    }

    fn prefix() -> impl Strategy<Value = Vec<Vec<String>>> {
        let arguments = prop::collection::vec(prop::collection::vec(argument(), 1..3), 0..4);
        (prop::collection::vec(program(), 1..3), arguments)
            .prop_map(|(programs, arguments)| std::iter::once(programs).chain(arguments).collect())
    }

    fn command() -> impl Strategy<Value = Vec<String>> {
        (program(), prop::collection::vec(argument(), 0..5))
            .prop_map(|(program, arguments)| std::iter::once(program).chain(arguments).collect())
    }

    proptest! {
        #[test]
        fn indexed_rules_equal_a_comparison_with_each_rule(
            prefixes in prop::collection::vec(prefix(), 0..30),
            commands in prop::collection::vec(command(), 0..4),
        ) {
            let rule = |positions| ExecRule {
                prefix: Prefix::new(positions).unwrap(),
                decision: Verdict::Ask,
                justification: "a test".to_owned(),
                matches: Vec::new(),
                not_matches: Vec::new(),
            };
            let list: Vec<ExecRule> = prefixes.into_iter().map(rule).collect();
            let rules = ExecRules::new(list.clone());
            let found = || rules.about(commands.iter().map(Vec::as_slice));
            let all = || list.iter().enumerate();
            prop_assert!(found().map(|(number, _)| number).is_sorted());
            let ways: [fn(&Prefix, &[String]) -> bool; 2] =
                [|prefix, argv| prefix.matches_exactly(argv), |prefix, argv| prefix.matches_loosely(argv)];
            for matches in ways {
                let of = |(_, rule): &(usize, &ExecRule)| commands.iter().any(|argv| matches(&rule.prefix, argv));
                prop_assert!(found().filter(of).eq(all().filter(of)));
            }
            // Nothing is compared in vain but rules about any program.
            let odd = |rule: &ExecRule| rule.prefix.programs().iter().any(|word| base_name(word).is_empty());
            let met = |rule: &ExecRule| commands.iter().any(|argv| rule.prefix.matches_loosely(argv));
            prop_assert!(found().all(|(_, rule)| odd(rule) || met(rule)));
        }
    }
}
