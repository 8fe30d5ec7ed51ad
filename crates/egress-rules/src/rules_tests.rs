use serde_json::json;

use super::*;

fn settings(value: Value) -> Settings {
    serde_json::from_value(value).unwrap()
}

fn checked(value: Value) -> Rules {
    Rules::new(settings(value)).unwrap()
}

fn example() -> Rules {
    checked(json!({
        "rules": [
            { "host": "files.example.org", "ports": [443], "decision": "allow" },
            { "host": "*.example.net", "ports": [443], "decision": "ask" },
            { "host": "mirror.example.org", "ports": [8080], "scheme": "http", "methods": ["GET", "HEAD"], "decision": "allow" },
            { "host": "db.example.org", "ports": [22, 5432], "scheme": "tcp", "decision": "allow" },
            { "host": "10.20.0.0/16", "ports": [22], "scheme": "tcp", "decision": "allow" },
            { "host": "bad.example.net", "decision": "deny" },
            { "host": "1.1.1.1", "ports": [443], "decision": "allow" },
        ],
        "networks": ["10.20.0.0/16"],
    }))
}

fn decided(rules: &Rules, destination: &str) -> (Decision, Scheme, String) {
    let (host, port) = Destination::parse_with_port(destination).unwrap();
    let verdict = rules.decide(&host, port);
    (verdict.decision, verdict.scheme, verdict.rule)
}

fn resolves(rules: &Rules, name: &str) -> Option<Source> {
    rules.resolves(&HostName::parse(name).unwrap())
}

#[test]
fn the_form_of_a_policy_decides_as_it_says() {
    for (destination, decision, scheme, rule) in [
        ("files.example.org:443", Decision::Allow, Scheme::Https, "egress rule 1: files.example.org"),
        ("files.example.org:80", Decision::Deny, Scheme::Https, "egress default: deny"),
        ("a.b.example.net:443", Decision::Ask, Scheme::Https, "egress rule 2: *.example.net"),
        ("example.net:443", Decision::Deny, Scheme::Https, "egress default: deny"),
        ("evilexample.net:443", Decision::Deny, Scheme::Https, "egress default: deny"),
        ("bad.example.net:443", Decision::Deny, Scheme::Https, "egress rule 6: bad.example.net"),
        ("mirror.example.org:8080", Decision::Allow, Scheme::Http, "egress rule 3: mirror.example.org"),
        ("db.example.org:5432", Decision::Allow, Scheme::Tcp, "egress rule 4: db.example.org"),
        ("10.20.3.4:22", Decision::Allow, Scheme::Tcp, "egress rule 5: 10.20.0.0/16"),
        ("10.21.3.4:22", Decision::Deny, Scheme::Https, "egress: refused range"),
        ("1.1.1.1:443", Decision::Allow, Scheme::Https, "egress rule 7: 1.1.1.1"),
        ("8.8.8.8:443", Decision::Deny, Scheme::Https, "egress default: deny"),
    ] {
        assert_eq!(decided(&example(), destination), (decision, scheme, rule.to_owned()), "{destination}");
    }
}

#[test]
fn only_names_that_could_be_reached_resolve() {
    let rules = example();
    assert_eq!(resolves(&rules, "files.example.org"), Some(Source::Named));
    assert_eq!(resolves(&rules, "x.example.net"), Some(Source::Wildcard));
    for name in ["example.net", "bad.example.net", "example.org", "evilfiles.example.org", "other"] {
        assert_eq!(resolves(&rules, name), None, "{name}");
    }
    let asks =
        checked(json!({ "default": "ask", "rules": [{ "host": "*.example.net", "decision": "deny" }] }));
    assert_eq!(resolves(&asks, "any.example.org"), Some(Source::Wildcard));
    assert_eq!(resolves(&asks, "any.example.net"), None);
}

#[test]
fn an_empty_list_and_a_missing_one_are_nothing() {
    for nothing in [
        Rules::none(),
        checked(json!({})),
        checked(json!({ "rules": [] })),
        checked(json!({ "default": "ask", "ask_ports": [] })),
        checked(json!({ "rules": [{ "host": "*", "decision": "deny" }] })),
    ] {
        assert!(nothing.is_nothing());
        assert_eq!(resolves(&nothing, "files.example.org"), None);
        assert_eq!(decided(&nothing, "files.example.org:443").0, Decision::Deny);
        assert_eq!(decided(&nothing, "1.1.1.1:443").0, Decision::Deny);
    }
    assert!(!example().is_nothing());
}

#[test]
fn an_unknown_name_waits_for_a_reviewer_at_the_ports_that_ask() {
    let rules = checked(json!({ "default": "ask" }));
    for (port, scheme) in [(443, Scheme::Https), (80, Scheme::Http), (22, Scheme::Tcp)] {
        let expected = (Decision::Ask, scheme, "egress default: ask".to_owned());
        assert_eq!(decided(&rules, &format!("new.example.org:{port}")), expected);
    }
    assert_eq!(decided(&rules, "new.example.org:8443").0, Decision::Deny);
    assert_eq!(decided(&rules, "1.1.1.1:443").0, Decision::Deny, "an address is no name");
}

#[test]
fn every_name_is_no_address_and_the_strictest_scheme_wins() {
    let rules = checked(json!({ "rules": [
        { "host": "*", "ports": [443], "scheme": "tcp", "decision": "allow" },
        { "host": "files.example.org", "ports": [443], "decision": "ask" },
    ] }));
    assert_eq!(decided(&rules, "1.1.1.1:443").0, Decision::Deny);
    assert_eq!(decided(&rules, "127.0.0.1:443").2, "egress: refused range");
    assert_eq!(decided(&rules, "other.example.org:443").1, Scheme::Tcp);
    let strictest = (Decision::Ask, Scheme::Https, "egress rule 2: files.example.org".to_owned());
    assert_eq!(decided(&rules, "files.example.org:443"), strictest);
}

#[test]
fn every_problem_is_reported_at_once() {
    let faults = |value| -> Vec<String> {
        Rules::new(settings(value)).unwrap_err().iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        faults(json!({
            "default": "allow",
            "networks": ["0.0.0.0/0"],
            "max_connections": 0,
            "max_bytes": 0,
            "ask_ports": [0],
        })),
        [
            "default: must be `deny` or `ask`; `host: \"*\"` allows every name",
            "ask_ports: port 0 does not exist",
            "max_connections: must be from 1 to 16384",
            "max_bytes: 0 is not possible; leave it out for no bound",
            "networks: `0.0.0.0/0` is not within one of the refused ranges, such as 10.0.0.0/8; public addresses need no exception",
        ]
    );
    assert_eq!(
        faults(json!({ "rules": [
            { "host": "a.example.org", "decision": "allow" },
            { "host": "b.example.org", "ports": [0], "decision": "allow" },
            { "host": "c.example.org", "ports": [443], "scheme": "tcp", "methods": ["GET"], "decision": "allow" },
            { "host": "d.example.org", "ports": [80], "scheme": "http", "methods": [], "decision": "allow" },
            { "host": "e.example.org", "ports": [80], "scheme": "http", "methods": ["get"], "decision": "allow" },
            { "host": "192.168.0.1", "ports": [80], "decision": "allow" },
        ] })),
        [
            "rule 1: ports: is missing; only a rule that denies is for every port",
            "rule 2: ports: must have 1 to 64 ports from 1 to 65535",
            "rule 3: methods: are not seen with `scheme: tcp`",
            "rule 4: methods: must have 1 to 32 methods; leave it out for every method",
            "rule 5: methods: must be in capitals, such as `GET`",
            "rule 6: host: 192.168.0.1 is a private address (192.168.0.0/16, RFC 1918); `networks` has to allow it",
        ]
    );
    assert_eq!(
        faults(json!({ "rules": [
            { "host": "*.example.org", "ports": [80, 443], "decision": "allow" },
            { "host": "a.example.org", "ports": [80], "scheme": "http", "decision": "allow" },
            { "host": "b.example.net", "ports": [80], "scheme": "http", "methods": ["GET"], "decision": "allow" },
            { "host": "b.example.net", "ports": [80], "scheme": "http", "methods": ["PUT"], "decision": "ask" },
        ] })),
        [
            "rule 2: scheme: contradicts rule 1: both match a host and port, and no connection passes both",
            "rule 4: scheme: contradicts rule 3: both match a host and port, and no connection passes both",
        ]
    );
}

#[test]
fn rules_are_stored_in_the_form_of_a_policy() {
    let rules = example();
    let stored = serde_json::to_value(&rules).unwrap();
    assert_eq!(stored["rules"][2]["methods"], json!(["GET", "HEAD"]));
    assert_eq!(
        stored["rules"][5],
        json!({ "host": "bad.example.net", "scheme": "https", "decision": "deny" })
    );
    assert_eq!(serde_json::from_value::<Rules>(stored).unwrap(), rules);
    let unchecked = json!({ "rules": [{ "host": "a.example.org", "decision": "allow" }] });
    assert!(serde_json::from_value::<Rules>(unchecked).is_err());
    assert!(serde_json::from_value::<Rules>(json!({ "rulez": [] })).is_err());
}

#[test]
fn rules_of_a_client_are_bounded() {
    assert!(Rules::from_json("{}").unwrap().is_nothing());
    let allowed = r#"{"rules":[{"host":"a.example.org","ports":[443],"decision":"allow"}],"max_bytes":5}"#;
    assert_eq!(Rules::from_json(allowed).unwrap().settings().max_bytes, Some(5));
    for bad in ["", "[]", "{\"rulez\":[]}", r#"{"default":"allow"}"#] {
        assert!(Rules::from_json(bad).is_err(), "{bad}");
    }
    assert!(Rules::from_json(&allowed.replace("allow", "ask")).is_ok());
    assert!(Rules::from_json(&format!("{{}}{}", " ".repeat(65_536))).unwrap_err().contains("longer"));
}
