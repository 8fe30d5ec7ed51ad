use serde_json::json;

use super::*;
use crate::name::HostName;
use crate::narrowed::Narrowed;
use crate::rules::Source;

fn rules(value: serde_json::Value) -> Rules {
    serde_json::from_value(value).unwrap()
}

fn one(host: &str, port: u16, scheme: &str) -> Rules {
    rules(json!({ "rules": [{ "host": host, "ports": [port], "scheme": scheme, "decision": "allow" }] }))
}

fn profile() -> Narrowed {
    Narrowed::new(rules(json!({
        "rules": [
            { "host": "files.example.org", "ports": [443], "decision": "allow" },
            { "host": "*.example.net", "ports": [443], "decision": "ask" },
            { "host": "mirror.example.org", "ports": [80], "scheme": "http", "methods": ["GET"], "decision": "ask" },
            { "host": "bad.example.net", "decision": "deny" },
        ],
        "networks": ["10.20.0.0/16"],
    })))
}

fn said(rules: &Narrowed, destination: &str) -> (Decision, String) {
    let (host, port) = Destination::parse_with_port(destination).unwrap();
    let verdict = rules.decide(&host, port);
    (verdict.decision, verdict.rule)
}

fn decision(rules: &Narrowed, destination: &str) -> Decision {
    said(rules, destination).0
}

#[test]
fn a_widening_answers_what_is_asked_and_opens_what_no_rule_knows() {
    let by = rules(json!({ "rules": [
        { "host": "a.example.net", "ports": [443], "decision": "allow" },
        { "host": "new.example.org", "ports": [5432], "scheme": "tcp", "decision": "allow" },
        { "host": "10.20.1.2", "ports": [22], "scheme": "tcp", "decision": "allow" },
    ], "networks": ["10.20.1.2/32"] }));
    let wider = profile().widen(&by).unwrap();
    assert_eq!(
        said(&wider, "a.example.net:443"),
        (Decision::Allow, "widened egress rule 1: a.example.net".to_owned())
    );
    assert_eq!(decision(&wider, "b.example.net:443"), Decision::Ask);
    assert_eq!(decision(&wider, "new.example.org:5432"), Decision::Allow);
    assert_eq!(decision(&wider, "new.example.org:443"), Decision::Deny);
    assert_eq!(decision(&wider, "10.20.1.2:22"), Decision::Allow);
    assert_eq!(decision(&wider, "bad.example.net:443"), Decision::Deny);
    let name = |text| HostName::parse(text).unwrap();
    assert_eq!(wider.resolves(&name("new.example.org")), Some(Source::Named));
    assert_eq!(profile().resolves(&name("new.example.org")), None);
    assert!(wider.words().contains("new.example.org over TCP on port 5432"), "{}", wider.words());
    assert_ne!(wider.digest().unwrap(), profile().digest().unwrap());
    assert_eq!(wider.widen(&by).unwrap(), wider, "the same rules again change nothing");
    let stored: Narrowed = serde_json::from_str(&serde_json::to_string(&wider).unwrap()).unwrap();
    assert_eq!(stored, wider);
}

#[test]
fn a_widening_does_not_loosen_the_scheme_and_methods_of_the_rule_that_asks() {
    let host = Destination::parse("mirror.example.org").unwrap();
    let wider = profile().widen(&one("mirror.example.org", 80, "tcp")).unwrap();
    let verdict = wider.decide(&host, 80);
    assert_eq!((verdict.decision, verdict.scheme), (Decision::Allow, Scheme::Http));
    assert_eq!(verdict.methods, Some(["GET".to_owned()].into()));
    let contradicts = profile().widen(&one("mirror.example.org", 80, "https")).unwrap_err().to_string();
    assert!(contradicts.contains("which contradicts egress rule 3"), "{contradicts}");
    // The default has no scheme of its own.
    let asks = Narrowed::new(rules(json!({ "default": "ask" })));
    let wider = asks.widen(&one("a.example.org", 443, "tcp")).unwrap();
    assert_eq!(wider.decide(&Destination::parse("a.example.org").unwrap(), 443).scheme, Scheme::Tcp);
}

#[test]
fn a_widening_that_opens_nothing_or_more_than_destinations_is_refused() {
    let refused = |value| profile().widen(&rules(value)).unwrap_err().to_string();
    let allow = |host: &str, port: u16| json!({ "host": host, "ports": [port], "decision": "allow" });
    let with = |key: &str, value: serde_json::Value| {
        let mut rule = allow("a.example.org", 443);
        rule[key] = value;
        json!({ "rules": [rule] })
    };
    assert_eq!(
        refused(json!({ "rules": [allow("bad.example.net", 443)] })),
        "egress rule 1 would open nothing: bad.example.net at port 443 stays closed by `egress rule 4: bad.example.net`"
    );
    for (value, word) in [
        (json!({}), "is empty"),
        (json!({ "default": "ask", "rules": [allow("a.example.org", 443)] }), "only `rules`"),
        (json!({ "max_bytes": 9, "rules": [allow("a.example.org", 443)] }), "only `rules`"),
        (json!({ "rules": [{ "host": "a.example.org", "decision": "deny" }] }), "does not allow"),
        (
            json!({ "rules": [{ "host": "a.example.org", "ports": [443], "decision": "ask" }] }),
            "does not allow",
        ),
        (
            json!({ "rules": [allow("10.30.1.2", 443)], "networks": ["10.30.0.0/16"] }),
            "a policy alone can open it",
        ),
        (
            json!({ "placeholders": { "KEY": { "secret": "a", "shape": "{40}" } }, "rules": [allow("a.example.org", 443)] }),
            "only `rules`",
        ),
        (
            json!({ "budget": { "run": { "tokens": 9 } }, "rules": [allow("a.example.org", 443)] }),
            "only `rules`",
        ),
        (
            with("inject", json!({ "header": "x", "value": "${secret:a}" })),
            "egress rule 1 has `inject`, which only",
        ),
        (with("methods", json!(["GET"])), "egress rule 1 has `methods`, which only"),
        (with("paths", json!(["/v1/*"])), "egress rule 1 has `paths`, which only"),
        (with("meter", json!("tokens")), "egress rule 1 has `meter`, which only"),
    ] {
        let said = refused(value);
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn a_consent_leaves_what_the_profile_demands_of_requests_and_sets_in_them() {
    let profile = Narrowed::new(rules(json!({ "rules": [{
        "host": "*.example.org", "ports": [443], "methods": ["POST"], "paths": ["/v1/*"],
        "inject": { "header": "x", "value": "${secret:a}" }, "decision": "ask",
    }] })));
    let (host, port) = Destination::parse_with_port("api.example.org:443").unwrap();
    let asked = profile.decide(&host, port);
    let consent = Rules::one(&host, port, asked.scheme, asked.methods.as_ref()).unwrap();
    let allowed = profile.widen(&consent).unwrap().decide(&host, port);
    assert_eq!(allowed.decision, Decision::Allow);
    assert_eq!((allowed.methods, allowed.opening), (asked.methods, asked.opening));
}

#[test]
fn narrowings_hold_before_and_after_a_widening() {
    let narrower = profile().narrow(&one("files.example.org", 443, "https")).unwrap();
    let closed = narrower.widen(&one("new.example.org", 443, "https")).unwrap_err().to_string();
    assert!(closed.contains("stays closed by `narrowed egress default: deny`"), "{closed}");

    let wider = profile().widen(&one("new.example.org", 443, "https")).unwrap();
    let kept = wider.narrow(&one("new.example.org", 443, "https")).unwrap();
    assert_eq!(decision(&kept, "new.example.org:443"), Decision::Allow);
    assert_eq!(decision(&kept, "files.example.org:443"), Decision::Deny);
    let closed = wider.narrow(&one("files.example.org", 443, "https")).unwrap();
    assert_eq!(decision(&closed, "new.example.org:443"), Decision::Deny);
}

#[test]
fn a_narrowing_that_asks_is_answered_by_a_later_widening_and_asks_again() {
    let asking =
        rules(json!({ "rules": [{ "host": "files.example.org", "ports": [443], "decision": "ask" }] }));
    let narrower = profile().narrow(&asking).unwrap();
    assert_eq!(decision(&narrower, "files.example.org:443"), Decision::Ask);
    let wider = narrower.widen(&one("files.example.org", 443, "https")).unwrap();
    assert_eq!(decision(&wider, "files.example.org:443"), Decision::Allow);
    let again = wider.narrow(&asking).unwrap();
    assert_eq!(decision(&again, "files.example.org:443"), Decision::Ask);
    let wider = again.widen(&one("files.example.org", 443, "https")).unwrap();
    assert_eq!(decision(&wider, "files.example.org:443"), Decision::Allow);
}

#[test]
fn the_number_of_widenings_is_bounded() {
    let mut wider = profile();
    for number in 0..Widened::MOST {
        wider = wider.widen(&one(&format!("h{number}.example.org"), 443, "https")).unwrap();
    }
    assert_eq!(wider.widen(&one("last.example.org", 443, "https")).unwrap_err(), NotWider::Full);
    let allow = |number: usize| json!({ "host": format!("h{number}.example.com"), "ports": [443], "decision": "allow" });
    let list = |many: usize| rules(json!({ "rules": (0..many).map(allow).collect::<Vec<_>>() }));
    let full = profile().widen(&list(256)).unwrap();
    assert_eq!(full.widen(&one("last.example.org", 443, "https")).unwrap_err(), NotWider::Full);
}

#[test]
fn one_destination_makes_rules_for_exactly_it() {
    for (destination, scheme) in [
        ("a.example.net:443", Scheme::Https),
        ("10.20.1.2:22", Scheme::Tcp),
        ("[2606:4700::7]:443", Scheme::Tcp),
    ] {
        let (host, port) = Destination::parse_with_port(destination).unwrap();
        let by = Rules::one(&host, port, scheme, None).unwrap();
        let wider = profile().widen(&by).unwrap();
        assert_eq!(decision(&wider, destination), Decision::Allow, "{destination}");
    }
    let methods = Some(["GET".to_owned()].into());
    let host = Destination::parse("mirror.example.org").unwrap();
    let by = Rules::one(&host, 80, Scheme::Http, methods.as_ref()).unwrap();
    assert_eq!(profile().widen(&by).unwrap().decide(&host, 80).methods, methods);
}
