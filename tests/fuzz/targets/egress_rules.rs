//! Rules for connections, as a policy has them: the strictest that matches decides, a name resolves if and only if it is open
//! somewhere, and another list opens nothing.
//!
//! Input: lines of destinations, then the `egress` sections of a profile and of up to three lists that narrow it. A byte 0xFF is
//! before each section.

#![no_main]

use std::collections::BTreeSet;

use egress_rules::{Decision, Destination, Narrowed, Rules, Scheme, Verdict};
use fuzz::text;
use libfuzzer_sys::fuzz_target;
use policy::Policy;

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(5, |byte| *byte == 0xff).map(text);
    let Some(destinations) = parts.next() else { return };
    let destinations: Vec<(Destination, u16)> =
        destinations.lines().take(32).filter_map(|line| Destination::parse_with_port(line).ok()).collect();
    let Some(profile) = parts.next().and_then(|section| rules(&section)) else { return };
    let mut narrowed = Narrowed::new(profile.clone());
    for (destination, port) in &destinations {
        check(&profile, destination, *port);
        assert_eq!(narrowed.decide(destination, *port), profile.decide(destination, *port));
    }
    for list in parts.filter_map(|section| rules(&section)) {
        let before = narrowed.clone();
        let Ok(by) = narrowed.narrow(&list) else { continue };
        narrowed = by;
        for (destination, port) in &destinations {
            check_narrowed(&before, &narrowed, &list, destination, *port);
        }
    }
    let words = narrowed.words();
    assert!(!words.is_empty() && words.len() < 64 * 1024, "{words}");
    assert!(narrowed.digest().is_ok());
});

/// Returns the rules of a section that a policy takes.
fn rules(section: &str) -> Option<Rules> {
    let indented: String = section.lines().flat_map(|line| ["      ", line, "\n"]).collect();
    let policy =
        Policy::from_files([("p.yaml", format!("profiles:\n  p:\n    egress:\n{indented}"))]).ok()?;
    let rules = policy.profile("p").expect("the profile").egress.clone();
    let stored = serde_json::to_string(&rules).expect("rules can be stored");
    assert_eq!(serde_json::from_str::<Rules>(&stored).expect("and read"), rules, "{stored}");
    Some(rules)
}

fn check(rules: &Rules, destination: &Destination, port: u16) {
    let verdict = rules.decide(destination, port);
    let has_port = |ports: &Option<BTreeSet<u16>>| ports.as_ref().is_none_or(|ports| ports.contains(&port));
    let all = rules.settings().rules.iter();
    let matched: Vec<_> =
        all.filter(|rule| rule.host.matches(destination) && has_port(&rule.ports)).collect();
    for rule in &matched {
        assert!(verdict.decision >= rule.decision, "{rule:?}: {verdict:?}");
        assert!(
            verdict.decision == Decision::Deny || rule.scheme == Scheme::Tcp || rule.scheme == verdict.scheme
        );
    }
    assert!(!matched.is_empty() || verdict.decision != Decision::Allow, "{verdict:?}");
    assert!(verdict.methods.as_ref().is_none_or(|methods| !methods.is_empty()), "{verdict:?}");
    let is_open = verdict.decision != Decision::Deny;
    match destination {
        Destination::Name(name) => assert!(!is_open || rules.resolves(name).is_some(), "{name}"),
        Destination::Address(address) => {
            assert!(!is_open || !matched.is_empty() && rules.check(*address, None).is_ok(), "{address}");
        }
    }
    assert!(!is_open || !rules.is_nothing());
}

/// Checks that a connection passes both the rules before and the new list.
fn check_narrowed(before: &Narrowed, narrowed: &Narrowed, by: &Rules, destination: &Destination, port: u16) {
    let verdict = narrowed.decide(destination, port);
    for other in [before.decide(destination, port), by.decide(destination, port)] {
        assert!(is_as_strict(&verdict, &other), "{destination}:{port}: {verdict:?}, {other:?}");
    }
    // Another list neither sets a header nor takes one away.
    let old = before.decide(destination, port);
    assert!(verdict.decision == Decision::Deny || verdict.opening.inject == old.opening.inject);
    match destination {
        Destination::Name(name) => {
            assert!(narrowed.resolves(name).is_none() || before.resolves(name).is_some(), "{name}");
        }
        Destination::Address(address) => {
            assert!(narrowed.check(*address, None).is_err() || before.check(*address, None).is_ok());
        }
    }
}

fn is_as_strict(verdict: &Verdict, other: &Verdict) -> bool {
    let methods = match (&verdict.methods, &other.methods) {
        (_, None) => true,
        (Some(methods), Some(others)) => methods.is_subset(others),
        (None, Some(_)) => false,
    };
    let paths = other.opening.paths.iter().all(|list| verdict.opening.paths.contains(list));
    verdict.decision == Decision::Deny
        || verdict.decision >= other.decision
            && (verdict.scheme == other.scheme || other.scheme == Scheme::Tcp)
            && methods
            && paths
}
