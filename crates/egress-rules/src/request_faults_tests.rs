use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::rules::Rules;
use crate::{Decision, Destination, Scheme, Verdict};

#[expect(clippy::needless_pass_by_value, reason = "written by `json!` in place")]
fn faults(rules: Value) -> Vec<String> {
    let settings = serde_json::from_value(json!({ "rules": rules })).unwrap();
    Rules::new(settings)
        .map_or_else(|faults| faults.iter().map(ToString::to_string).collect(), |_| Vec::new())
}

#[expect(clippy::needless_pass_by_value, reason = "written by `json!` in place")]
fn decided(rules: Value, destination: &str) -> Verdict {
    let rules: Rules = serde_json::from_value(json!({ "rules": rules })).unwrap();
    let (host, port) = Destination::parse_with_port(destination).unwrap();
    rules.decide(&host, port)
}

fn secret(header: &str, secret: &str) -> Value {
    json!({ "header": header, "value": format!("${{secret:{secret}}}") })
}

const HOST: &str = "api.example.org";

#[test]
fn keys_about_requests_open_tls() {
    for (key, value, is_asked) in [
        ("methods", json!(["GET"]), false),
        ("paths", json!(["/v1/*"]), false),
        ("inject", secret("x", "a"), true),
        ("inject", json!([secret("x", "a"), { "basic": { "user": "u", "password": "${secret:b}" } }]), true),
        ("meter", json!("tokens"), true),
    ] {
        let mut rule = json!({ "host": HOST, "ports": [443], "decision": "allow" });
        rule[key] = value;
        let verdict = decided(json!([rule]), "api.example.org:443");
        assert!(verdict.opens_tls(), "{rule}");
        assert_eq!(verdict.asks_each_request(), is_asked, "{rule}");
    }
    let plain = json!([{ "host": HOST, "ports": [443], "decision": "allow" }]);
    let verdict = decided(plain, "api.example.org:443");
    assert!(!verdict.opens_tls() && !verdict.asks_each_request() && verdict.opening.is_nothing());
    let http =
        json!([{ "host": HOST, "ports": [80], "scheme": "http", "paths": ["/v1/*"], "decision": "allow" }]);
    let verdict = decided(http, "api.example.org:80");
    assert!(!verdict.opens_tls() && !verdict.opening.is_nothing());
}

#[test]
fn rules_that_match_together_demand_and_set_everything_of_both() {
    let verdict = decided(
        json!([
            { "host": "*.example.org", "ports": [443], "paths": ["/v1/*"], "inject": secret("x-b", "b"), "decision": "allow" },
            { "host": HOST, "ports": [443], "paths": ["/v1/a", "/v2/a"], "inject": secret("x-a", "a"), "decision": "ask" },
            { "host": HOST, "ports": [443], "scheme": "tcp", "decision": "allow" },
            { "host": "*", "ports": [443], "meter": "tokens", "decision": "allow" },
        ]),
        "api.example.org:443",
    );
    assert_eq!((verdict.decision, verdict.scheme), (Decision::Ask, Scheme::Https));
    let headers: Vec<&str> = verdict.opening.inject.iter().map(super::Injection::header).collect();
    assert_eq!(headers, ["x-a", "x-b"]);
    assert_eq!(verdict.opening.paths.len(), 2);
    assert!(verdict.opening.is_metered && verdict.opens_tls());
}

#[test]
fn a_rule_that_denies_takes_nothing_of_the_others() {
    let verdict = decided(
        json!([
            { "host": HOST, "ports": [443], "inject": secret("x", "a"), "decision": "allow" },
            { "host": HOST, "decision": "deny" },
        ]),
        "api.example.org:443",
    );
    assert_eq!(verdict.decision, Decision::Deny);
    assert!(verdict.opening.is_nothing() && !verdict.opens_tls() && !verdict.asks_each_request());
}

#[test]
fn a_door_needs_one_name_and_plain_http() {
    let door = |host: &str, scheme: &str| {
        faults(json!([{
            "host": host, "ports": [80], "scheme": scheme, "upstream": "https://api.example.org",
            "inject": secret("x", "a"), "paths": ["/v1/*"], "meter": "tokens", "decision": "allow",
        }]))
    };
    assert!(door("model.internal", "http").is_empty());
    let name = "rule 1: upstream: needs one exact name as `host`, such as `model.internal`";
    assert_eq!(door("*.internal", "http"), [name]);
    assert_eq!(door("1.1.1.1", "http"), [name]);
    assert_eq!(
        door("model.internal", "https"),
        [
            "rule 1: upstream: needs `scheme: http`: the program connects without TLS, and the connection to the server has it"
        ]
    );
    let tcp = door("model.internal", "tcp");
    for key in ["paths", "inject", "upstream", "meter"] {
        let problem = format!("rule 1: {key}: is not possible with `scheme: tcp`, which shows no requests");
        assert!(tcp.contains(&problem), "{tcp:?}");
    }
}

#[test]
fn a_secret_in_the_clear_has_to_be_accepted() {
    let clear = "rule 1: inject: would send the secret without TLS; use `scheme: https` or an `upstream` with https, or accept it \
                 with `inject_over_http: true`";
    let no_effect = "rule 1: inject_over_http: has an effect only beside `inject` and `scheme: http`";
    let rule = |scheme: &str, upstream: Value, inject: Value, accepted: bool| {
        let mut rule = json!({
            "host": HOST, "ports": [80], "scheme": scheme, "inject": inject, "inject_over_http": accepted, "decision": "allow",
        });
        if upstream.is_string() {
            rule["upstream"] = upstream;
        }
        faults(json!([rule]))
    };
    let (http, https) = (json!("http://db.example.org"), json!("https://db.example.org"));
    assert_eq!(rule("http", Value::Null, secret("x", "a"), false), [clear]);
    assert_eq!(rule("http", http.clone(), secret("x", "a"), false), [clear]);
    assert!(rule("http", https, secret("x", "a"), false).is_empty());
    assert!(rule("http", Value::Null, secret("x", "a"), true).is_empty());
    assert!(rule("http", http, secret("x", "a"), true).is_empty());
    assert_eq!(rule("https", Value::Null, secret("x", "a"), true), [no_effect]);
    assert_eq!(rule("http", Value::Null, json!([]), true), [no_effect]);
}

#[test]
fn a_secret_goes_to_named_hosts_and_each_header_is_set_once() {
    let rule = |host: &str, inject: Value| {
        faults(json!([{ "host": host, "ports": [443], "inject": inject, "decision": "allow" }]))
    };
    assert_eq!(
        rule("*", secret("x", "a")),
        ["rule 1: inject: would send the secret to every host; name the hosts"]
    );
    assert!(rule("*.example.org", secret("x", "a")).is_empty());
    let twice =
        json!([secret("Authorization", "a"), { "basic": { "user": "u", "password": "${secret:a}" } }]);
    assert_eq!(rule(HOST, twice), ["rule 1: inject: sets a header twice; keep one entry for each header"]);
    let nine: Vec<Value> = (0..9).map(|number| secret(&format!("x-{number}"), "a")).collect();
    assert_eq!(rule(HOST, json!(nine)), ["rule 1: inject: must have 1 to 8 entries"]);
}

#[test]
fn a_rule_that_denies_has_no_keys_about_requests() {
    for (key, value) in [
        ("paths", json!(["/admin/*"])),
        ("inject", secret("x", "a")),
        ("meter", json!("tokens")),
        ("methods", json!(["DELETE"])),
    ] {
        let mut rule = json!({ "host": HOST, "ports": [443], "decision": "deny" });
        rule[key] = value;
        let problem = format!(
            "rule 1: {key}: is not possible in a rule that denies, which closes the whole connection; name what is open in the rule that allows"
        );
        assert_eq!(faults(json!([rule])), [problem]);
    }
}

#[test]
fn rules_that_set_a_header_to_two_values_or_name_two_servers_contradict() {
    let with = |host: &str, key: &str, value: Value| {
        let mut rule = json!({ "host": host, "ports": [80], "scheme": "http", "inject_over_http": key == "inject", "decision": "allow" });
        rule[key] = value;
        rule
    };
    let both = "contradicts rule 1: both match a host and port, and";
    assert_eq!(
        faults(json!([
            with("*.example.org", "inject", secret("x", "a")),
            with(HOST, "inject", secret("X", "b"))
        ])),
        [format!("rule 2: inject: {both} both set the same header")]
    );
    assert_eq!(
        faults(json!([
            with(HOST, "upstream", json!("https://a.example.org")),
            with(HOST, "upstream", json!("https://b.example.org")),
        ])),
        [format!("rule 2: upstream: {both} a request goes to one server")]
    );
    for (one, two) in [
        (with("*.example.org", "inject", secret("x", "a")), with(HOST, "inject", secret("X", "a"))),
        (with("*.example.org", "inject", secret("x", "a")), with("example.org", "inject", secret("x", "b"))),
        (
            with(HOST, "upstream", json!("https://a.example.org")),
            with(HOST, "upstream", json!("https://a.example.org/")),
        ),
    ] {
        assert!(faults(json!([one, two])).is_empty(), "{one} {two}");
    }
}

#[test]
fn the_number_and_length_of_paths_is_bounded() {
    let list = |from: usize, many: usize| -> Vec<String> {
        (from..from + many).map(|number| format!("/{number}/{}", "a".repeat(200))).collect()
    };
    let rule =
        |paths: Vec<String>| json!({ "host": HOST, "ports": [443], "paths": paths, "decision": "allow" });
    assert!(faults(json!([rule(list(0, 64))])).is_empty());
    let most = "rule 1: paths: must have 1 to 64 paths; leave it out for every path";
    assert_eq!(faults(json!([rule(list(0, 65))])), [most]);
    assert_eq!(faults(json!([rule(list(0, 0))])), [most]);
    let many: Vec<Value> = (0..6).map(|number| rule(list(number * 64, 64))).collect();
    let said = faults(json!(many));
    assert!(
        said[0].starts_with("rules: have ") && said[0].contains("at most 65536 are possible"),
        "{said:?}"
    );
}

#[test]
fn a_policy_from_before_these_keys_has_the_same_form() {
    let written = json!({
        "rules": [
            { "host": HOST, "ports": [443], "scheme": "https", "decision": "allow" },
            { "host": HOST, "ports": [80], "scheme": "http", "methods": ["GET"], "decision": "ask" },
        ],
    });
    let rules: Rules = serde_json::from_value(written.clone()).unwrap();
    let again = serde_json::to_value(&rules).unwrap();
    assert_eq!(again["rules"], written["rules"]);
    let keys: BTreeSet<&str> = again.as_object().unwrap().keys().map(String::as_str).collect();
    let before = [
        "ask_ports",
        "connections_per_minute",
        "default",
        "max_connections",
        "names_per_minute",
        "networks",
        "rules",
    ];
    assert_eq!(keys, before.into());
}
