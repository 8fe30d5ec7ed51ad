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
fn a_list_that_narrows_has_no_key_of_a_profile() {
    let inject = json!({ "header": "x", "value": "${secret:a}" });
    let refused = |value| profile().narrow(&rules(value)).unwrap_err().to_string();
    for (key, value, scheme) in [
        ("inject", inject.clone(), "https"),
        ("meter", json!("tokens"), "https"),
        ("methods", json!(["GET"]), "https"),
        ("paths", json!(["/v1/*"]), "https"),
        ("meter", json!("tokens"), "http"),
        ("upstream", json!("https://evil.example.net"), "http"),
    ] {
        let mut rule =
            json!({ "host": "files.example.org", "ports": [443], "scheme": scheme, "decision": "allow" });
        rule[key] = value;
        let first = json!({ "host": "files.example.org", "ports": [8443], "decision": "allow" });
        assert_eq!(
            refused(json!({ "rules": [first, rule] })),
            format!("egress rule 2 has `{key}`, which only the rules of a profile may have; leave it out")
        );
    }
    let placeholders = json!({ "placeholders": { "KEY": { "secret": "a", "shape": "{40}" } } });
    assert_eq!(refused(placeholders), "`placeholders` are those of the profile; leave them out");
    // The profile's own list is no exception.
    let own = rules(
        json!({ "rules": [{ "host": "files.example.org", "ports": [443], "inject": inject, "decision": "allow" }] }),
    );
    assert!(Narrowed::new(own.clone()).narrow(&own).is_err());
}

#[test]
fn a_list_that_narrows_adds_paths_over_http_and_keeps_what_the_profile_sets() {
    let door = Narrowed::new(rules(json!({ "rules": [{
        "host": "model.internal", "ports": [80], "scheme": "http", "upstream": "https://api.example.org",
        "inject": { "header": "x-api-key", "value": "${secret:model}" }, "paths": ["/v1/*"], "meter": "tokens", "decision": "allow",
    }] })));
    let by = rules(json!({ "rules": [
        { "host": "model.internal", "ports": [80], "scheme": "http", "paths": ["/v1/models"], "decision": "allow" },
    ] }));
    let (host, port) = Destination::parse_with_port("model.internal:80").unwrap();
    let before = door.decide(&host, port).opening;
    let after = door.narrow(&by).unwrap().decide(&host, port).opening;
    assert_eq!(after.paths.len(), 2);
    assert_eq!((after.inject, after.upstream, after.is_metered), (before.inject, before.upstream, true));
    let only = door.requested(r#"{"only": ["model.internal"]}"#).unwrap();
    let kept = door.narrow(&only).unwrap().decide(&host, port);
    assert_eq!(kept.opening, door.decide(&host, port).opening);
}

#[test]
fn the_profile_says_what_is_opened_counted_and_replaced_and_the_least_budget_counts() {
    let plain = profile();
    assert!(!plain.opens_tls() && !plain.is_metered());
    assert!(plain.secrets().is_empty() && plain.placeholders().is_empty() && plain.budget().is_unbounded());
    let profile = Narrowed::new(rules(json!({
        "rules": [
            { "host": "files.example.org", "ports": [443], "inject": { "header": "x", "value": "${secret:b} ${secret:a}" }, "decision": "allow" },
            { "host": "model.internal", "ports": [80], "scheme": "http", "upstream": "https://api.example.org", "meter": "tokens", "decision": "allow" },
        ],
        "placeholders": { "KEY": { "secret": "c", "shape": "key-{40}" } },
        "budget": { "run": { "tokens": 10, "requests": 3 }, "day": { "usd": "2" } },
    })));
    assert!(profile.opens_tls() && profile.is_metered());
    let secrets: Vec<String> = profile.secrets().iter().map(ToString::to_string).collect();
    assert_eq!(secrets, ["a", "b", "c"]);
    assert_eq!(profile.placeholders().keys().collect::<Vec<_>>(), ["KEY"]);
    let by = rules(
        json!({ "budget": { "run": { "tokens": 99, "requests": 2 }, "principal_day": { "usd": "1" } } }),
    );
    let least: Budget = serde_json::from_value(json!({
        "run": { "tokens": 10, "requests": 2 }, "principal_day": { "usd": "1" }, "day": { "usd": "2" },
    }))
    .unwrap();
    assert_eq!(profile.narrow(&by).unwrap().budget(), least);
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
fn an_agent_hears_of_paths_and_of_headers_that_are_set_and_of_no_secret() {
    let profile = Narrowed::new(rules(json!({ "rules": [
        { "host": "api.example.org", "ports": [443], "methods": ["GET", "POST"], "paths": ["/v1/*", "/v2/*"],
          "inject": { "header": "Authorization", "value": "Bearer ${secret:model}" }, "decision": "allow" },
        { "host": "model.internal", "ports": [80], "scheme": "http", "upstream": "https://api.example.net",
          "inject": { "header": "x-api-key", "value": "${secret:model}" }, "decision": "ask" },
    ] })));
    let words = "You can reach: api.example.org over HTTPS (GET, POST alone, the paths /v1/*, /v2/*, authorization set outside of \
                 the run). A reviewer decides about connections to: model.internal over HTTP (x-api-key set outside of the run). \
                 Everything else does not resolve. ";
    assert_eq!(profile.words(), format!("{words}{END}"));
    let paths: Vec<String> = (0..64).map(|number| format!("/{number}/{}", "a".repeat(250))).collect();
    let many = json!({ "rules": [{ "host": "api.example.org", "ports": [443], "paths": paths, "decision": "allow" }] });
    let words = Narrowed::new(rules(many)).words();
    assert!(words.contains(", 63 more)") && words.len() < 600, "{words}");
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

#[test]
fn only_an_upstream_over_tls_needs_authorities() {
    for (upstream, needs) in [("https://api.example.org", true), ("http://api.example.org", false)] {
        let rule = json!({
            "host": "model.internal", "ports": [80], "scheme": "http", "upstream": upstream, "decision": "allow"
        });
        let narrowed = Narrowed::new(rules(json!({ "rules": [rule] })));
        assert_eq!(narrowed.has_tls_upstream(), needs, "{upstream}");
    }
    assert!(!Narrowed::new(Rules::none()).has_tls_upstream());
}
