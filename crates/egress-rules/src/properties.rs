//! Properties of names, rules and narrowing, for generated input.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::{
    Decision, Destination, HostName, HostPattern, Injection, Meter, Narrowed, Opening, PathPattern, Rule,
    Rules, Scheme, Settings, Template, Upstream, Verdict,
};

const HOSTS: [&str; 12] = [
    "*",
    "*.example.net",
    "*.a.example.net",
    "example.net",
    "a.example.net",
    "b.a.example.net",
    "*.net",
    "evilexample.net",
    "10.20.0.0/16",
    "10.20.3.4",
    "1.1.1.0/24",
    "1.1.1.1",
];
const DESTINATIONS: [&str; 12] = [
    "example.net",
    "a.example.net",
    "b.a.example.net",
    "c.b.a.example.net",
    "evilexample.net",
    "net",
    "other.example.org",
    "10.20.3.4",
    "10.20.9.9",
    "10.21.0.1",
    "1.1.1.1",
    "1.1.1.2",
];
const PORTS: [u16; 4] = [22, 80, 443, 8080];

fn a_decision() -> impl Strategy<Value = Decision> {
    select(vec![Decision::Allow, Decision::Ask, Decision::Deny])
}

/// Keys about requests: paths, a header and its secret, a server, and whether tokens are counted.
type Requests =
    (Option<BTreeSet<&'static str>>, Option<(&'static str, &'static str)>, Option<&'static str>, bool);

fn requests() -> impl Strategy<Value = Requests> {
    (
        option::weighted(0.4, btree_set(select(vec!["/*", "/v1/*", "/v1/a"]), 1..3)),
        option::weighted(
            0.3,
            select(vec![("x-a", "${secret:a}"), ("x-a", "${secret:b}"), ("x-b", "${secret:a}")]),
        ),
        option::weighted(0.3, select(vec!["https://a.example.org", "https://b.example.org/v1"])),
        any::<bool>(),
    )
}

fn a_rule() -> impl Strategy<Value = Rule> {
    let scheme = select(vec![Scheme::Https, Scheme::Http, Scheme::Tcp]);
    let methods = option::of(btree_set(select(vec!["GET", "HEAD", "PUT"]), 1..3));
    let ports = option::weighted(0.9, btree_set(select(&PORTS[..]), 1..4));
    (select(&HOSTS[..]), ports, scheme, methods, a_decision()).prop_map(
        |(host, ports, scheme, methods, decision)| {
            let decision = if ports.is_none() { Decision::Deny } else { decision };
            let methods = methods
                .filter(|_| scheme == Scheme::Http)
                .map(|methods| methods.into_iter().map(str::to_owned).collect());
            let host = HostPattern::parse(host).unwrap();
            Rule { ports, decision, ..Rule::allowing(host, BTreeSet::new(), scheme, methods) }
        },
    )
}

/// A rule that a list that narrows may have, and in a profile perhaps more.
fn a_rule_about_requests(is_of_profile: bool) -> impl Strategy<Value = Rule> {
    let methods = option::weighted(0.2, btree_set(select(vec!["GET", "POST"]), 1..3));
    (a_rule(), requests(), methods).prop_map(
        move |(mut rule, (paths, inject, upstream, is_metered), methods)| {
            if rule.decision == Decision::Deny || rule.scheme == Scheme::Tcp {
                return rule;
            }
            if is_of_profile || rule.scheme == Scheme::Http {
                let paths = paths.into_iter().flatten().map(|path| PathPattern::parse(path).unwrap());
                rule.paths = Some(paths.collect::<BTreeSet<_>>()).filter(|paths| !paths.is_empty());
            }
            if !is_of_profile {
                return rule;
            }
            if rule.scheme == Scheme::Https {
                rule.methods = methods.map(|methods| methods.into_iter().map(str::to_owned).collect());
            }
            if let Some((header, value)) = inject.filter(|_| rule.host != HostPattern::EveryName) {
                rule.inject = vec![Injection::of_header(header, Template::parse(value).unwrap()).unwrap()];
                rule.inject_over_http = rule.scheme == Scheme::Http;
            }
            let is_door = rule.scheme == Scheme::Http && matches!(rule.host, HostPattern::Name(_));
            rule.upstream = upstream.filter(|_| is_door).map(|upstream| Upstream::parse(upstream).unwrap());
            rule.meter = is_metered.then_some(Meter::Tokens);
            rule
        },
    )
}

/// Rules that a list that narrows may have.
fn any_rules() -> impl Strategy<Value = Rules> {
    rules_of(false)
}

fn any_profile() -> impl Strategy<Value = Rules> {
    rules_of(true)
}

/// Rules without contradictions: those that contradict earlier ones are left out.
fn rules_of(a_profile: bool) -> impl Strategy<Value = Rules> {
    let default = select(vec![Decision::Deny, Decision::Ask]);
    let ask_ports = btree_set(select(&PORTS[..]), 0..3);
    let rules = vec(a_rule_about_requests(a_profile), 0..8);
    (default, ask_ports, rules, any::<bool>()).prop_map(|(default, ask_ports, rules, open)| {
        let networks = open.then(|| "10.20.0.0/16".parse().unwrap()).into_iter().collect();
        let mut settings = Settings { default, ask_ports, networks, ..Settings::default() };
        for rule in rules {
            settings.rules.push(rule);
            if Rules::new(settings.clone()).is_err() {
                settings.rules.pop();
            }
        }
        Rules::new(settings).unwrap()
    })
}

/// Returns true if each demand and each change of the second is also one of the first.
fn has_all_of(opening: &Opening, other: &Opening) -> bool {
    other.paths.iter().all(|list| opening.paths.contains(list))
        && other.inject.iter().all(|injection| opening.inject.contains(injection))
        && (other.upstream.is_none() || opening.upstream == other.upstream)
        && (opening.is_metered || !other.is_metered)
}

fn is_at_least_as_strict(verdict: &Verdict, as_this: &Verdict) -> bool {
    let methods = match (&verdict.methods, &as_this.methods) {
        (_, None) => true,
        (Some(methods), Some(of_this)) => methods.is_subset(of_this),
        (None, Some(_)) => false,
    };
    verdict.decision == Decision::Deny
        || verdict.decision >= as_this.decision
            && (verdict.scheme == as_this.scheme || as_this.scheme == Scheme::Tcp)
            && methods
            && has_all_of(&verdict.opening, &as_this.opening)
}

fn destinations() -> impl Iterator<Item = (Destination, u16)> {
    DESTINATIONS.iter().flat_map(|host| PORTS.map(|port| (Destination::parse(host).unwrap(), port)))
}

fn a_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9._-]{0,40}",
        "[a-z0-9.*:/%\\[\\]０-９ａ-ｚ。．ßüа-я\u{200d}\u{ad}-]{0,30}",
        "(xn--[a-z0-9-]{1,20}\\.){1,3}org\\.?",
        "(0x[0-9a-f]{0,4}|[0-9]{1,10})(\\.(0x[0-9a-f]{0,4}|[0-9]{1,4})){0,4}\\.?",
        any::<String>(),
    ]
}

/// Reads a text as the C library does: `inet_aton`, with one to four parts in any base.
fn is_an_address_to_some_program(text: &str) -> bool {
    let number = |part: &str| {
        let digits = part.strip_prefix("0x").map_or((part, 10), |hex| (hex, 16));
        digits.0.is_empty() || u64::from_str_radix(digits.0, digits.1).is_ok()
    };
    text.parse::<IpAddr>().is_ok() || text.split('.').count() <= 4 && text.split('.').all(number)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_name_is_canonical_once_and_for_all(text in a_text()) {
        if let Ok(name) = HostName::parse(&text) {
            let canonical = name.as_str();
            prop_assert_eq!(HostName::parse(canonical), Ok(name.clone()));
            prop_assert_eq!(HostName::parse(&format!("{}.", canonical.to_uppercase())), Ok(name.clone()));
            prop_assert!((1..=253).contains(&canonical.len()));
            prop_assert!(canonical.split('.').all(|label| (1..=63).contains(&label.len())));
            prop_assert!(canonical.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.')));
            prop_assert!(!is_an_address_to_some_program(canonical), "{}", canonical);
        }
    }

    #[test]
    fn a_pattern_is_canonical_once_and_for_all(text in a_text()) {
        for text in [text.clone(), format!("*.{text}")] {
            if let Ok(pattern) = HostPattern::parse(&text) {
                prop_assert_eq!(HostPattern::parse(&pattern.to_string()), Ok(pattern));
            }
        }
    }

    #[test]
    fn narrowing_never_opens_anything(profile in any_profile(), lists in vec(any_rules(), 1..4)) {
        let profile = Narrowed::new(profile);
        let mut narrowed = profile.clone();
        for list in &lists {
            let before = narrowed.clone();
            narrowed = narrowed.narrow(list).unwrap_or(narrowed);
            for (destination, port) in destinations() {
                let (verdict, old) = (narrowed.decide(&destination, port), before.decide(&destination, port));
                prop_assert!(is_at_least_as_strict(&verdict, &old), "{destination} {port}: {verdict:?} {old:?}");
                let set = |opening: Opening| (opening.inject, opening.upstream, opening.is_metered);
                prop_assert!(verdict.decision == Decision::Deny || set(verdict.opening) == set(old.opening));
            }
        }
        for (destination, _) in destinations() {
            match destination {
                Destination::Name(name) => {
                    prop_assert!(narrowed.resolves(&name).is_none() || profile.resolves(&name).is_some());
                }
                Destination::Address(address) => {
                    prop_assert!(narrowed.check(address, None).is_err() || profile.check(address, None).is_ok());
                }
            }
        }
    }

    #[test]
    fn widening_opens_only_its_own_and_nothing_that_is_denied(
        profile in any_profile(),
        narrower in any_rules(),
        wider in vec(any_rules(), 1..4),
    ) {
        let before = Narrowed::new(profile.clone());
        let before = before.narrow(&narrower).unwrap_or(before);
        let mut widened = before.clone();
        for list in &wider {
            let rules = list.settings().rules.iter().filter(|rule| rule.decision == Decision::Allow).cloned();
            let rules = Settings { rules: rules.collect(), ..Settings::default() };
            let Ok(rules) = Rules::new(rules) else { continue };
            widened = widened.widen(&rules).unwrap_or(widened);
        }
        for (destination, port) in destinations() {
            let (verdict, old) = (widened.decide(&destination, port), before.decide(&destination, port));
            let matches = |rule: &Rule| rule.has_port(port) && rule.host.matches(&destination);
            let is_denied = profile.settings().rules.iter().any(|rule| rule.decision == Decision::Deny && matches(rule));
            let is_named = widened.widenings().iter().any(|list| list.rules.settings().rules.iter().any(matches));
            prop_assert!(is_named || verdict == old, "{destination} {port}: {verdict:?} {old:?}");
            prop_assert!(!is_denied || verdict.decision == Decision::Deny, "{destination} {port}: {verdict:?}");
            if let Destination::Address(address) = destination {
                prop_assert_eq!(widened.check(address, None).is_ok(), before.check(address, None).is_ok());
                prop_assert!(before.check(address, None).is_ok() || verdict.decision == Decision::Deny);
            }
        }
    }

    #[test]
    fn another_list_is_only_accepted_if_each_of_its_rules_can_be_used(profile in any_profile(), list in any_rules()) {
        let profile = Narrowed::new(profile);
        let Ok(narrowed) = profile.narrow(&list) else { return Ok(()) };
        for rule in &list.settings().rules {
            let (HostPattern::Name(name), Some(ports)) = (&rule.host, &rule.ports) else { continue };
            for port in ports.iter().filter(|_| rule.decision != Decision::Deny) {
                let old = profile.decide(&Destination::Name(name.clone()), *port);
                prop_assert!(old.decision != Decision::Deny, "{name} {port}");
            }
        }
        prop_assert!(narrowed.lists().count() <= 2);
    }

    #[test]
    fn the_strictest_rule_that_matches_wins(rules in any_profile()) {
        for (destination, port) in destinations() {
            let verdict = rules.decide(&destination, port);
            let matches = |rule: &&Rule| {
                rule.host.matches(&destination) && rule.ports.as_ref().is_none_or(|ports| ports.contains(&port))
            };
            let matched: Vec<&Rule> = rules.settings().rules.iter().filter(matches).collect();
            for rule in &matched {
                prop_assert!(verdict.decision >= rule.decision, "{destination}:{port} {rule:?} {verdict:?}");
                let alone = rule.verdict(String::new());
                prop_assert!(is_at_least_as_strict(&verdict, &alone), "{destination}:{port} {rule:?} {verdict:?}");
            }
            let is_address = matches!(destination, Destination::Address(_));
            prop_assert!(!matched.is_empty() || verdict.decision != Decision::Allow);
            prop_assert!(!matched.is_empty() || !is_address || verdict.decision == Decision::Deny);
            prop_assert!(verdict.methods.as_ref().is_none_or(|methods| !methods.is_empty()));
        }
    }

    #[test]
    fn a_name_resolves_if_and_only_if_some_port_of_it_is_open(rules in any_profile()) {
        for host in DESTINATIONS {
            let destination = Destination::parse(host).unwrap();
            let Destination::Name(name) = &destination else { continue };
            let is_open = PORTS.iter().any(|port| rules.decide(&destination, *port).decision != Decision::Deny);
            prop_assert_eq!(rules.resolves(name).is_some(), is_open, "{}", host);
            prop_assert_eq!(Narrowed::new(rules.clone()).resolves(name), rules.resolves(name));
            prop_assert!(!rules.is_nothing() || !is_open);
        }
    }

    #[test]
    fn overlapping_patterns_contain_one_another(
        one in select(&HOSTS[..]), two in select(&HOSTS[..]), host in select(&DESTINATIONS[..]),
    ) {
        let (one, two) = (HostPattern::parse(one).unwrap(), HostPattern::parse(two).unwrap());
        let destination = Destination::parse(host).unwrap();
        let both = one.matches(&destination) && two.matches(&destination);
        prop_assert!(!both || one.overlaps(&two));
        prop_assert!(!one.contains(&two) || !two.matches(&destination) || one.matches(&destination));
    }

    #[test]
    fn stored_rules_are_the_same(rules in any_profile()) {
        let stored = serde_json::to_string(&rules).unwrap();
        prop_assert_eq!(serde_json::from_str::<Rules>(&stored).unwrap(), rules.clone());
        let words = Narrowed::new(rules).words();
        prop_assert!(!words.is_empty() && words.len() < 16_384);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_order_of_rules_does_not_matter(
        one in a_rule_about_requests(true), two in a_rule_about_requests(true), three in a_rule_about_requests(true),
    ) {
        let verdict = |rule: &Rule| rule.verdict(String::new());
        let seen = |Verdict { decision, scheme, methods, opening, .. }: Verdict| {
            (decision != Decision::Deny).then_some((decision, scheme, methods, opening))
        };
        let together = |all: [&Rule; 3]| seen(all.into_iter().map(verdict).reduce(Verdict::meet).unwrap());
        let all = together([&one, &two, &three]);
        prop_assert_eq!(&all, &together([&three, &two, &one]));
        prop_assert_eq!(&all, &together([&two, &three, &one]));
        prop_assert_eq!(&all, &seen(verdict(&one).meet(verdict(&two).meet(verdict(&three)))));
        prop_assert_eq!(seen(verdict(&one).meet(verdict(&one))), seen(verdict(&one)));
    }

    #[test]
    fn a_list_that_narrows_sets_counts_and_opens_nothing(profile in any_profile(), list in any_profile()) {
        let rules = &list.settings().rules;
        let is_of_profile = rules.iter().any(|rule| {
            let is_https = rule.scheme == Scheme::Https && (rule.methods.is_some() || rule.paths.is_some());
            is_https || !rule.inject.is_empty() || rule.upstream.is_some() || rule.meter.is_some()
        });
        prop_assert!(!is_of_profile || Narrowed::new(profile.clone()).narrow(&list).is_err());
        prop_assert!(!is_of_profile || Narrowed::new(profile).widen(&list).is_err());
    }
}

#[test]
fn the_generators_reach_every_verdict() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    let mut openings = BTreeSet::new();
    for _ in 0..500 {
        let rules = any_profile().new_tree(&mut runner).unwrap().current();
        for (destination, port) in destinations() {
            let verdict = rules.decide(&destination, port);
            seen.insert(verdict.decision);
            openings.extend(verdict.opens_tls().then_some("opened"));
            openings.extend(verdict.asks_each_request().then_some("asked"));
            openings.extend(verdict.opening.upstream.map(|_| "door"));
            openings.extend((verdict.opening.paths.len() > 1).then_some("paths of two rules"));
        }
    }
    assert_eq!(seen, [Decision::Allow, Decision::Ask, Decision::Deny].into());
    assert_eq!(openings, ["asked", "door", "opened", "paths of two rules"].into());
}
