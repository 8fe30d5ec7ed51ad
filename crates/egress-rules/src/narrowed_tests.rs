use serde_json::json;

use super::*;

fn rules(value: serde_json::Value) -> Rules {
    serde_json::from_value(value).unwrap()
}

fn profile() -> Narrowed {
    Narrowed::new(rules(json!({
        "rules": [
            { "host": "files.example.org", "ports": [443, 8443], "decision": "allow" },
            { "host": "*.example.net", "ports": [443], "decision": "ask" },
            { "host": "bad.example.net", "decision": "deny" },
            { "host": "db.example.org", "ports": [22, 5432], "scheme": "tcp", "decision": "allow" },
            { "host": "mirror.example.org", "ports": [80], "scheme": "http", "methods": ["GET", "HEAD"], "decision": "allow" },
        ],
        "networks": ["10.20.0.0/16"],
        "max_bytes": 1000,
    })))
}

fn decision(rules: &Narrowed, destination: &str) -> (Decision, String) {
    let (host, port) = Destination::parse_with_port(destination).unwrap();
    let verdict = rules.decide(&host, port);
    (verdict.decision, verdict.rule)
}

#[test]
fn a_narrower_list_opens_less() {
    let by = rules(json!({
        "rules": [
            { "host": "files.example.org", "ports": [443], "decision": "ask" },
            { "host": "a.example.net", "ports": [443], "decision": "allow" },
        ],
        "max_bytes": 5000,
        "max_connections": 3,
    }));
    let narrowed = profile().narrow(&by).unwrap();

    let asked = (Decision::Ask, "narrowed egress rule 1: files.example.org".to_owned());
    assert_eq!(decision(&narrowed, "files.example.org:443"), asked);
    let still_asked = (Decision::Ask, "egress rule 2: *.example.net".to_owned());
    assert_eq!(decision(&narrowed, "a.example.net:443"), still_asked);
    let closed = (Decision::Deny, "narrowed egress default: deny".to_owned());
    assert_eq!(decision(&narrowed, "db.example.org:22"), closed);
    let name = |text| HostName::parse(text).unwrap();
    assert_eq!(narrowed.resolves(&name("a.example.net")), Some(Source::Named));
    assert_eq!(narrowed.resolves(&name("b.example.net")), None);
    assert_eq!(narrowed.resolves(&name("db.example.org")), None);
    assert_eq!((narrowed.max_bytes(), narrowed.max_connections()), (Some(1000), 3));
    assert!(narrowed.check("10.20.0.1".parse().unwrap(), None).is_err(), "the list has no exceptions");
}

#[test]
fn a_list_that_asks_for_more_is_refused() {
    let widening = |value| profile().narrow(&rules(value)).unwrap_err().to_string();
    let one =
        |host: &str, port: u16| json!({ "rules": [{ "host": host, "ports": [port], "decision": "allow" }] });
    for (host, port) in [
        ("other.example.org", 443),
        ("files.example.org", 80),
        ("bad.example.net", 443),
        ("example.net", 443),
        ("*.example.com", 443),
        ("1.1.1.1", 443),
    ] {
        assert_eq!(
            widening(one(host, port)),
            format!("egress rule 1 asks for {host} at port {port}, which the profile does not open")
        );
    }
    assert!(widening(json!({ "default": "ask" })).contains("`default: ask` is not possible"));
    assert!(widening(json!({ "networks": ["10.0.0.0/8"] })).contains("10.0.0.0/8"));
    assert!(profile().narrow(&rules(json!({ "networks": ["10.20.1.0/24"] }))).is_ok());
    assert!(profile().narrow(&rules(one("*", 443))).is_ok(), "part of it is open");
    assert!(profile().narrow(&Rules::none()).unwrap().is_nothing());
}

#[test]
fn the_number_of_lists_is_bounded_and_a_repeated_one_counts_once() {
    let mut narrowed = profile();
    for number in 1..=20 {
        let by = rules(json!({ "rules": [
            { "host": "files.example.org", "ports": [443], "decision": "allow" },
        ], "max_bytes": number }));
        let once = narrowed.narrow(&by);
        assert_eq!(once.is_ok(), number <= 16);
        narrowed = once.unwrap_or(narrowed);
        assert_eq!(narrowed.narrow(&by).is_ok(), number <= 16);
    }
}

#[test]
fn contradicting_lists_let_nothing_pass() {
    let by = rules(json!({ "rules": [
        { "host": "mirror.example.org", "ports": [80], "scheme": "http", "methods": ["PUT"], "decision": "allow" },
    ] }));
    let narrowed = profile().narrow(&by).unwrap();
    assert_eq!(
        decision(&narrowed, "mirror.example.org:80"),
        (
            Decision::Deny,
            "egress rule 5: mirror.example.org, which contradicts narrowed egress rule 1: mirror.example.org"
                .to_owned()
        )
    );
    assert_eq!(narrowed.resolves(&HostName::parse("mirror.example.org").unwrap()), None);
}

#[test]
fn a_digest_is_that_of_all_lists() {
    let by =
        rules(json!({ "rules": [{ "host": "files.example.org", "ports": [443], "decision": "allow" }] }));
    let narrowed = profile().narrow(&by).unwrap();
    let stored: Narrowed = serde_json::from_str(&serde_json::to_string(&narrowed).unwrap()).unwrap();

    assert_eq!(stored, narrowed);
    assert_eq!(stored.digest().unwrap(), narrowed.digest().unwrap());
    assert_eq!(profile().digest().unwrap(), profile().digest().unwrap());
    assert_ne!(profile().digest().unwrap(), narrowed.digest().unwrap());
    assert_eq!(narrowed.digest().unwrap().len(), 64);
}

const END: &str =
    "UDP and ICMP do not leave the run; names resolve without a setting, and a proxy is not needed.";

#[test]
fn the_rules_are_said_in_plain_english() {
    let words = "You can reach: db.example.org over TCP on ports 22 and 5432; files.example.org over HTTPS on ports 443 \
                 and 8443; mirror.example.org over HTTP (GET, HEAD alone). A reviewer decides about connections to: any name below \
                 example.net over HTTPS. Never: bad.example.net. Everything else does not resolve. ";
    assert_eq!(profile().words(), format!("{words}{END}"));
    let by = rules(json!({ "rules": [
        { "host": "files.example.org", "ports": [443], "decision": "ask" },
        { "host": "*", "ports": [443, 22], "decision": "allow" },
    ] }));
    let words = "A reviewer decides about connections to: files.example.org over HTTPS; any name below example.net over HTTPS. Never: bad.example.net. \
                 Everything else does not resolve. ";
    let said = profile().narrow(&by).unwrap().words();
    assert_eq!(said, format!("You can reach: db.example.org over HTTPS on port 22. {words}{END}"));

    let asks = Narrowed::new(rules(json!({ "default": "ask" }))).words();
    let words = "A connection to any other name waits for a reviewer on ports 22, 80 and 443. ";
    assert_eq!(asks, format!("{words}{END}"));
    assert_eq!(
        Narrowed::new(Rules::none()).words(),
        "There is no network: no host name resolves, and no address outside can be reached."
    );
}

#[test]
fn words_have_a_bounded_length() {
    let host = |number: usize| json!({ "host": format!("h{number}.example.org"), "ports": [443], "decision": "allow" });
    let many = rules(json!({ "rules": (0..256).map(host).collect::<Vec<_>>() }));
    let words = Narrowed::new(many).words();
    assert!(words.contains("; and 216 more. ") && words.len() < 3_000, "{words}");
    // A policy may have long names, and many ports and methods for each.
    let long = ["x".repeat(60), "y".repeat(60), "z".repeat(60)].join(".");
    let ports: Vec<u16> = (1_000..1_064).collect();
    let methods: Vec<String> = (1..32).map(|letters| "M".repeat(letters)).collect();
    let rule = |number: usize| {
        let decision = ["allow", "ask", "deny"][number % 3];
        json!({ "host": format!("h{number}.{long}.example.org"), "ports": ports, "scheme": "http", "methods": methods, "decision": decision })
    };
    let every = json!({ "host": "*", "ports": ports, "scheme": "http", "decision": "allow" });
    let rules_of_all: Vec<_> = (0..255).map(rule).chain([every]).collect();
    let words = Narrowed::new(rules(json!({ "rules": rules_of_all }))).words();
    assert!(words.contains("1006, 1007 and 56 more") && words.contains("; and "), "{words}");
    assert!(words.contains("There are more rules than these. "), "{words}");
    assert!(words.len() < 6_000, "{} bytes", words.len());
}
