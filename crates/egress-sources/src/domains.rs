//! Names that are below one domain, taken together.
//!
//! A program can make up names without end, each of which tells the domain's name server something. A list of them hides the others.

use std::collections::{BTreeMap, BTreeSet};

use egress_rules::HostName;

/// Most names below one domain that stay apart.
const APART: usize = 8;
/// Fewest and most labels of a domain.
const LABELS: (usize, usize) = (2, 8);
/// Names that are examples.
const EXAMPLES: usize = 3;
/// Most connections after which a name was asked for.
const WAYS: usize = 3;

/// The refusals of one name, or of several together.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) ports: BTreeSet<u16>,
    pub(super) lookups: u64,
    pub(super) connections: u64,
    /// Hosts and ports of the connections after which it was asked for.
    pub(super) after: BTreeSet<String>,
}

impl Asked {
    fn add(&mut self, other: Self) {
        self.ports.extend(other.ports);
        self.lookups = self.lookups.saturating_add(other.lookups);
        self.connections = self.connections.saturating_add(other.connections);
        self.follows(other.after);
    }

    /// Adds connections after which it was asked for, up to [`WAYS`].
    pub(super) fn follows(&mut self, ways: impl IntoIterator<Item = String>) {
        self.after.extend(ways);
        while self.after.len() > WAYS {
            self.after.pop_last();
        }
    }
}

/// The names below one domain.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Together {
    pub(super) names: usize,
    pub(super) examples: Vec<HostName>,
    pub(super) asked: Asked,
}

/// Takes names out that are below one domain with more than [`APART`] of them. Returns them by domain, the smallest domain that has so
/// many.
pub(super) fn take_together(names: &mut BTreeMap<HostName, Asked>) -> BTreeMap<HostName, Together> {
    let mut domains: BTreeMap<HostName, Together> = BTreeMap::new();
    while let Some(domain) = crowded(names.keys().chain(domains.keys())) {
        let mut together = Together::default();
        let below = |name: &HostName| name.is_below(&domain);
        for (name, asked) in std::mem::take(names) {
            if below(&name) {
                together.names += 1;
                together.asked.add(asked);
                if together.examples.len() < EXAMPLES {
                    together.examples.push(name);
                }
            } else {
                names.insert(name, asked);
            }
        }
        for (known, more) in std::mem::take(&mut domains) {
            if below(&known) || known == domain {
                together.names += more.names;
                together.asked.add(more.asked);
                together.examples.extend(more.examples);
                together.examples.truncate(EXAMPLES);
            } else {
                domains.insert(known, more);
            }
        }
        domains.insert(domain, together);
    }
    domains
}

/// Returns the smallest domain with too many of these names below it.
fn crowded<'n>(names: impl Iterator<Item = &'n HostName>) -> Option<HostName> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        for parent in parents(name.as_str()) {
            *counts.entry(parent).or_default() += 1;
        }
    }
    let crowded = counts.into_iter().filter(|(_, count)| *count > APART);
    let smallest = crowded.max_by_key(|(domain, _)| domain.matches('.').count());
    smallest.and_then(|(domain, _)| HostName::parse(domain).ok())
}

/// Returns the domains that a name is below.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    let dots = name.match_indices('.').map(|(at, _)| &name[at + 1..]);
    dots.filter(|domain| (LABELS.0..=LABELS.1).contains(&(domain.matches('.').count() + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the domains with their numbers of names, and the names that are left.
    fn taken(names: impl IntoIterator<Item = String>) -> (Vec<(String, usize)>, Vec<String>) {
        let asked = || Asked { ports: [443].into(), lookups: 2, connections: 1, ..Asked::default() };
        let parsed = names.into_iter().map(|name| (HostName::parse(&name).unwrap(), asked()));
        let mut names: BTreeMap<_, _> = parsed.collect();
        let all = names.len();
        let domains = take_together(&mut names);
        let lookups: u64 = domains.values().map(|together| together.asked.lookups).sum();
        assert_eq!(lookups, 2 * (all - names.len()) as u64);
        let left = names.keys().map(HostName::to_string).collect();
        (domains.iter().map(|(domain, together)| (domain.to_string(), together.names)).collect(), left)
    }

    fn below(domain: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("h{number}.{domain}")).collect()
    }

    #[test]
    fn eight_names_stay_apart_and_nine_do_not() {
        let (domains, left) = taken(below("example.org", 8));
        assert_eq!((domains.len(), left.len()), (0, 8));
        let (domains, left) = taken([below("example.org", 9), below("example.net", 3)].concat());
        assert_eq!((domains, left.len()), (vec![("example.org".to_owned(), 9)], 3));
    }

    #[test]
    fn the_smallest_domain_is_taken_and_many_domains_are_taken_again() {
        let some = [below("cdn.example.org", 20), below("example.org", 2)].concat();
        let (domains, left) = taken(some);
        assert_eq!((domains, left.len()), (vec![("cdn.example.org".to_owned(), 20)], 2));
        // However deep the names are, and however they are spread.
        let spread = (0..40).flat_map(|number| below(&format!("s{number}.t.example.net"), 10));
        assert_eq!(taken(spread), (vec![("t.example.net".to_owned(), 400)], Vec::new()));
        let deep = (0..40).map(|number| format!("{}.example.com", vec![format!("d{number}"); 20].join(".")));
        assert_eq!(taken(deep), (vec![("example.com".to_owned(), 40)], Vec::new()));
        let alone = (0..40).map(|number| format!("h{number}"));
        assert_eq!(taken(alone).1.len(), 40, "a name without a domain is below none");
    }
}
