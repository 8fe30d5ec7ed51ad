use egress_rules::Injection;

use crate::Policy;

fn loaded(rule: &str) -> Result<Policy, Vec<String>> {
    let policy = format!(
        "profiles:\n  p:\n    operations: {{}}\n    egress:\n      rules:\n        - {{{rule}, decision: allow}}\n\
         roles: {{r: {{allow: \"*\"}}}}\n"
    );
    Policy::from_files([("p.yaml", policy)])
        .map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
}

const HTTPS: &str = "host: api.example.org, ports: [443]";
const DOOR: &str = "host: model.internal, ports: [80], scheme: http";

#[test]
fn the_keys_about_requests_are_read_and_written_back() {
    for rule in [
        format!(
            "{HTTPS}, methods: [POST], paths: [\"/v1/*\"], inject: {{header: Authorization, value: \"Bearer ${{secret:model}}\"}}"
        ),
        format!("{HTTPS}, inject: {{basic: {{user: reader, password: \"${{secret:pkg}}\"}}}}"),
        format!(
            "{HTTPS}, inject: [{{header: x-a, value: \"${{secret:a}}\"}}, {{header: x-b, value: \"${{secret:b}}\"}}]"
        ),
        format!("{HTTPS}, meter: tokens"),
        format!(
            "{DOOR}, upstream: \"https://api.example.org:8443/base\", inject: {{header: x-api-key, value: \"${{secret:model}}\"}}, meter: tokens"
        ),
        format!(
            "{DOOR}, inject: {{header: x-api-key, value: \"${{secret:model}}\"}}, inject_over_http: true"
        ),
    ] {
        let policy = loaded(&rule).unwrap_or_else(|problems| panic!("{rule}: {problems:?}"));
        let written = policy.to_yaml().unwrap();
        let again = Policy::from_files([("again.yaml", &written)]).unwrap();
        assert_eq!(again.digest(), policy.digest(), "{written}");
        assert_eq!(again, policy);
    }
}

#[test]
fn a_header_has_its_name_in_lower_case() {
    let policy =
        loaded(&format!("{HTTPS}, inject: {{header: X-Api-Key, value: \"${{secret:model}}\"}}")).unwrap();
    let rule = &policy.profile("p").unwrap().egress.settings().rules[0];
    assert_eq!(rule.inject.iter().map(Injection::header).collect::<Vec<_>>(), ["x-api-key"]);
}

#[test]
fn a_rule_without_these_keys_is_written_without_them() {
    let policy = loaded(HTTPS).unwrap();
    let written = serde_json::to_value(&policy.profile("p").unwrap().egress).unwrap();
    let rule = serde_json::json!({ "host": "api.example.org", "ports": [443], "scheme": "https", "decision": "allow" });
    assert_eq!(written["rules"], serde_json::json!([rule]));
    assert_eq!((written.get("placeholders"), written.get("budget")), (None, None));
}

#[test]
fn every_problem_has_its_place_and_a_hint_and_repeats_no_value() {
    let value = "value: \"${secret:model}\"";
    for (rule, problem) in [
        (format!("{HTTPS}, inject: {{header: Authorization}}"), "inject: `value` is missing"),
        (format!("{HTTPS}, inject: {{{value}}}"), "inject: `header` is missing"),
        (
            format!("{HTTPS}, inject: {{header: \"Authorization:\", {value}}}"),
            "inject.header: the name of a header has 1 to 128 letters, digits and characters such as `-`",
        ),
        (
            format!("{HTTPS}, inject: {{header: Host, {value}}}"),
            "inject.header: this header belongs to the connection and cannot be set; the header of a credential can, such as `Authorization`",
        ),
        (
            format!("{HTTPS}, inject: {{header: x, value: \"literal-value-of-a-secret\"}}"),
            "inject.value: it has no secret; write `${secret:NAME}` where its value belongs, and never the value itself",
        ),
        (
            format!("{HTTPS}, inject: {{header: x, value: \"Bearer ${{secret:Model}}\"}}"),
            "inject.value: the name of a secret has 1 to 64 lower-case letters, digits, `_` and `-`, and begins with a letter, such as `model` (did you mean `${secret:model}`?)",
        ),
        (
            format!("{HTTPS}, inject: {{header: x, value: \"${{MODEL}}\"}}"),
            "inject.value: `${…}` is the place of a secret alone; write `${secret:NAME}`",
        ),
        (
            format!("{HTTPS}, inject: {{header: x, valeu: \"${{secret:model}}\", {value}}}"),
            "inject.valeu: unknown key (did you mean `value`?)",
        ),
        (format!("{HTTPS}, inject: {{basic: {{user: reader}}}}"), "inject.basic: `password` is missing"),
        (
            format!("{HTTPS}, inject: {{header: x, basic: {{user: reader, password: \"${{secret:pkg}}\"}}}}"),
            "inject.header: is not possible beside `basic`, which sets `Authorization`; write an entry for each",
        ),
        (format!("{HTTPS}, inject: []"), "inject: is empty; leave it out to set no header"),
        (
            format!("{HTTPS}, paths: [v1/chat]"),
            "paths[0]: a path begins with `/`, such as `/v1/*` (did you mean `/v1/chat`?)",
        ),
        (
            format!("{HTTPS}, paths: [\"/v1/../x\"]"),
            "paths[0]: servers read this path in different ways, so no request may have it: leave out `.` and `..`, `//`, `\\`, `;`, `%2f`, `%3b`, `%5c`, escapes of control characters and of escapes, and a `%` that is no escape",
        ),
        (format!("{HTTPS}, paths: []"), "paths: must have 1 to 64 paths; leave it out for every path"),
        (
            format!("{HTTPS}, paths: null"),
            "paths: has no value, so it would bound nothing; write the value, or leave the key out",
        ),
        (
            format!("{HTTPS}, methods: null"),
            "methods: has no value, so it would bound nothing; write the value, or leave the key out",
        ),
        (format!("{HTTPS}, meter: token"), "meter: unknown value `token` (did you mean `tokens`?)"),
        (
            format!("{DOOR}, upstream: api.example.org"),
            "upstream: write the scheme and the host of the server, such as `https://api.example.org` (did you mean `https://api.example.org`?)",
        ),
        (
            format!("{DOOR}, upstream: \"ftp://api.example.org\""),
            "upstream: write the scheme and the host of the server, such as `https://api.example.org` (did you mean `https://api.example.org`?)",
        ),
        (
            format!("{DOOR}, upstream: \"https://user:word@api.example.org\""),
            "upstream: a server has no user and password here; `inject` sets them",
        ),
        (
            format!("{HTTPS}, upstream: \"https://api.example.org\""),
            "upstream: needs `scheme: http`: the program connects without TLS, and the connection to the server has it",
        ),
        (
            format!("{DOOR}, inject: {{header: x, {value}}}"),
            "inject: would send the secret without TLS; use `scheme: https` or an `upstream` with https, or accept it with `inject_over_http: true`",
        ),
        (
            format!("host: \"*\", ports: [443], inject: {{header: x, {value}}}"),
            "inject: would send the secret to every host; name the hosts",
        ),
    ] {
        let expected = format!("p.yaml:6: profiles.p.egress.rules[0].{problem}");
        let said = loaded(&rule).unwrap_err();
        assert_eq!(said, [expected], "{rule}");
        assert!(!said[0].contains("literal-value") && !said[0].contains("word@"), "{said:?}");
    }
}
