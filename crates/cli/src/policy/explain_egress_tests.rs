use super::*;
use crate::output::Look;

const POLICY: &str = "profiles:
  closed: {operations: {}}
  work:
    operations: {}
    egress:
      rules:
        - { host: \"files.example.org\", ports: [443, 8443], decision: allow }
        - { host: \"*.example.net\", ports: [443], decision: allow }
        - { host: \"mirror.example.org\", ports: [80], scheme: http, methods: [GET, HEAD], decision: allow }
        - { host: \"bad.example.net\", decision: deny }
        - { host: \"10.20.0.0/16\", ports: [22], scheme: tcp, decision: allow }
        - { host: \"api.example.org\", ports: [443], methods: [POST], paths: [\"/v1/*\", \"/v2\"], decision: allow,
            inject: { header: Authorization, value: \"Bearer ${secret:model}\" } }
        - { host: \"model.internal\", ports: [80], scheme: http, upstream: \"https://api.example.org/base\", meter: tokens,
            inject: { header: x-api-key, value: \"${secret:model}\" }, decision: allow }
      networks: [\"10.20.0.0/16\"]
";

fn asked(host: &str, profile: Option<&str>) -> Result<Vec<Explained>, Failure> {
    let asked = ExplainEgress { host: host.to_owned(), profile: profile.map(str::to_owned), policy: None };
    let (destination, port) = parsed(host)?;
    asked.explain(&Policy::from_part("p.yaml", POLICY).unwrap(), &destination, port)
}

fn one(host: &str) -> Explained {
    asked(host, Some("work")).unwrap().remove(0)
}

#[test]
fn the_decision_names_the_rule_and_the_effect() {
    for (host, decision, rule, effect) in [
        ("files.example.org:443", "allow", "egress rule 1: files.example.org", "the connection goes out"),
        ("FILES.example.org.:443", "allow", "egress rule 1: files.example.org", "the connection goes out"),
        ("files.example.org:80", "deny", "egress default: deny", "the connection is reset"),
        ("a.example.net:443", "allow", "egress rule 2: *.example.net", "the connection goes out"),
        ("example.net:443", "deny", "egress default: deny", "the name does not exist in the run"),
        ("bad.example.net", "deny", "egress rule 4: bad.example.net", "the name does not exist in the run"),
        ("10.20.3.4:22", "allow", "egress rule 5: 10.20.0.0/16", "the connection goes out"),
        ("[::ffff:10.20.3.4]:22", "allow", "egress rule 5: 10.20.0.0/16", "the connection goes out"),
        ("10.21.3.4:22", "deny", "egress: refused range", "the connection is reset"),
        ("1.1.1.1", "deny", "egress default: deny", "the connection is reset"),
    ] {
        let explained = one(host);
        let found = (word(explained.decision), explained.rule.as_str(), explained.effect);
        assert_eq!(found, (decision, rule, effect), "{host}");
    }
}

#[test]
fn a_host_without_a_port_has_its_open_ports() {
    let ports = |host| -> Vec<u16> { one(host).open.iter().map(|open| open.port).collect() };
    assert_eq!(ports("files.example.org"), [443, 8443]);
    assert_eq!(ports("10.20.1.1"), [22]);
    assert!(ports("bad.example.net").is_empty());
    let mirror = one("mirror.example.org");
    let methods = Some(["GET".to_owned(), "HEAD".to_owned()].into());
    assert_eq!((mirror.open[0].scheme, mirror.open[0].methods.clone()), (Scheme::Http, methods));
    assert_eq!(one("other.example.org").because, "No port of this host is open.");
}

#[test]
fn an_address_has_the_result_of_the_address_guard() {
    assert_eq!(one("10.20.1.1:22").address.as_deref(), Some("passes the check of addresses"));
    let metadata = one("169.254.169.254");
    let range = "is the address of a cloud's metadata service (169.254.169.254/32, instance metadata)";
    assert_eq!(metadata.address.as_deref(), Some(range));
    assert!(metadata.because.starts_with("169.254.169.254 is the address"), "{metadata:?}");
    assert_eq!(one("files.example.org:443").address, None);
}

#[test]
fn a_connection_that_waits_for_a_reviewer_is_no_open_one() {
    let rules = serde_json::json!({ "default": "ask", "rules": [
        { "host": "files.example.org", "ports": [8443], "decision": "allow" },
    ] });
    let rules: Rules = serde_json::from_value(rules).unwrap();
    let asked = |host: &str| {
        let (destination, port) = parsed(host).unwrap();
        let explained = explain("work", &rules, &destination, port);
        (word(explained.decision), explained.effect, explained.open.len())
    };
    let waits = "the connection waits for a reviewer";
    assert_eq!(asked("new.example.org:443"), ("ask", waits, 1));
    assert_eq!(asked("new.example.org"), ("ask", waits, 3));
    assert_eq!(asked("files.example.org"), ("allow", "the connection goes out", 4));
    assert_eq!(asked("new.example.org:8443"), ("deny", "the connection is reset", 0));
}

#[test]
fn each_profile_answers_unless_one_is_named() {
    let all = asked("files.example.org:443", None).unwrap();
    let found: Vec<_> = all.iter().map(|one| (one.profile.as_str(), word(one.decision))).collect();
    assert_eq!(found, [("closed", "deny"), ("work", "allow")]);
    assert_eq!(all[0].because, "The profile has no egress: no rule opens anything.");
    let unknown = asked("files.example.org", Some("wrok")).unwrap_err().to_string();
    assert!(unknown.contains("`wrok`; there are: closed, work"), "{unknown}");
}

#[test]
fn texts_that_are_no_destination_are_refused() {
    for host in [
        "",
        "127.1",
        "0x7f.1:443",
        "a..b",
        "files.example.org:0",
        "files.example.org:x",
        "https://x/",
        "[::1",
        "fe80::1%eth0",
    ] {
        assert!(asked(host, None).is_err(), "{host}");
    }
    assert_eq!(one("2001:db8::7").host, "[2001:db8::7]");
    assert_eq!(one("[2001:db8::7]").host, "[2001:db8::7]");
}

#[test]
fn an_explanation_is_shown_with_its_ports() {
    let mut page = Output::new(Look::PIPE);
    render(&asked("mirror.example.org", Some("work")).unwrap(), &mut page);
    let shown = page.as_str();
    assert!(
        shown.starts_with(
            "allow mirror.example.org\nprofile  work\nrule     egress rule 3: mirror.example.org\n"
        ),
        "{shown}"
    );
    assert!(shown.contains("rules    You can reach: "), "{shown}");
    assert!(
        shown.contains("\n80    allow  http    GET HEAD  egress rule 3: mirror.example.org\n"),
        "{shown}"
    );
}

#[test]
fn an_explanation_says_what_is_demanded_of_requests_and_set_in_them() {
    let requests = |host: &str| one(host).open.remove(0).requests;
    assert_eq!(
        requests("api.example.org:443"),
        [
            "TLS is opened; programs see a certificate of the run's own authority",
            "the path is one of /v1/* /v2",
            "the header authorization is set with the secret model",
        ]
    );
    assert_eq!(
        requests("model.internal"),
        [
            "the header x-api-key is set with the secret model",
            "it goes to https://api.example.org/base",
            "its tokens are counted",
        ]
    );
    assert!(requests("files.example.org:443").is_empty());
    let mut page = Output::new(Look::PIPE);
    render(&asked("model.internal:80", Some("work")).unwrap(), &mut page);
    assert!(page.as_str().contains("\n80    it goes to https://api.example.org/base\n"), "{}", page.as_str());
}
