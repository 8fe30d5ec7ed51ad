use egress_rules::{Destination, Opening, Rules, Scheme};

use super::*;

fn question(port: u16) -> Question {
    Question {
        destination: Destination::parse("git.example.org").unwrap(),
        port,
        scheme: Scheme::Git,
        methods: None,
        rule: "egress rule 1: git.example.org".to_owned(),
        opening: Opening::default(),
        push: None,
    }
}

#[test]
fn a_consent_ends_by_its_use_by_time_and_by_other_rules() {
    let rules = || Arc::new(Narrowed::new(Rules::none()));
    let (mut consents, now, mine) = (Consents::default(), Instant::now(), rules());
    consents.keep(question(1), "one", Arc::clone(&mine), now);
    assert_eq!(consents.find(&question(1), &mine, now).as_deref(), Some("one"));
    assert_eq!(consents.find(&question(2), &mine, now), None);
    consents.used("other");
    assert!(consents.find(&question(1), &mine, now).is_some());
    consents.used("one");
    assert!(consents.find(&question(1), &mine, now).is_none());
    consents.keep(question(1), "two", Arc::clone(&mine), now);
    assert!(consents.find(&question(1), &mine, now + HOLDS).is_none());
    consents.keep(question(1), "three", Arc::clone(&mine), now);
    assert!(consents.find(&question(1), &rules(), now).is_none(), "the same text is not the same policy");
}

#[test]
fn consents_are_bounded() {
    let rules = Arc::new(Narrowed::new(Rules::none()));
    let (mut consents, now) = (Consents::default(), Instant::now());
    for port in 0..=16 {
        consents.keep(question(port), &port.to_string(), Arc::clone(&rules), now);
    }
    assert!(consents.find(&question(0), &rules, now).is_none());
    assert!(consents.find(&question(1), &rules, now).is_some());
    assert_eq!(consents.0.len(), CONSENTS);
}
