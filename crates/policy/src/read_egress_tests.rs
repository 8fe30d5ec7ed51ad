use egress_rules::Decision;

use crate::Policy;

fn policy(egress: &str) -> String {
    let egress = egress.replace('\n', "\n      ");
    format!(
        "profiles:\n  p:\n    operations: {{}}\n    egress:\n      {egress}\nroles: {{r: {{allow: \"*\"}}}}\n"
    )
}

fn loaded(egress: &str) -> Policy {
    Policy::from_files([("p.yaml", policy(egress))]).unwrap()
}

fn problems(egress: &str) -> Vec<String> {
    let problems = Policy::from_files([("p.yaml", policy(egress))]).unwrap_err().0;
    problems.iter().map(|problem| problem.to_string().replace(": profiles.p.egress", "")).collect()
}

const WHOLE: &str = "default: deny
ask_ports: [443, 22]
rules:
  - { host: \"Files.example.org.\", ports: [443], decision: allow }
  - { host: \"*.example.net\", ports: [443], decision: allow }
  - { host: \"mirror.example.org\", ports: [8080], scheme: http, methods: [GET, HEAD], decision: allow }
  - { host: \"db.example.org\", ports: [22, 5432], scheme: tcp, decision: allow }
  - { host: \"bad.example.net\", decision: deny }
networks: [\"10.20.0.0/16\", \"127.0.0.1\"]
max_bytes: 2GiB
max_connections: 100
connections_per_minute: 1000
idle_timeout: 5m
names_per_minute: 10";

#[test]
fn the_stable_form_is_read_and_written_back() {
    let policy = loaded(WHOLE);
    let settings = policy.profile("p").unwrap().egress.settings();
    assert_eq!((settings.max_bytes, settings.idle_timeout), (Some(2 << 30), Some(300)));
    assert_eq!(settings.rules.len(), 5);
    assert_eq!(settings.rules[0].host.to_string(), "files.example.org");
    let written = policy.to_yaml().unwrap();
    assert_eq!(Policy::from_files([("again.yaml", &written)]).unwrap().digest(), policy.digest());
    let other = loaded(&WHOLE.replace("5432", "5433"));
    assert_ne!(other.digest(), policy.digest());
}

#[test]
fn a_profile_without_the_section_reaches_nothing() {
    let absent =
        Policy::from_files([("p.yaml", "{profiles: {p: {operations: {}}}, roles: {r: {allow: \"*\"}}}")]);
    let absent = absent.unwrap();
    assert!(absent.profile("p").unwrap().egress.is_nothing());
    for empty in ["", "{}", "rules: []", "rules:", "default: deny"] {
        let policy = loaded(empty);
        assert!(policy.profile("p").unwrap().egress.is_nothing(), "{empty}");
        assert_eq!(policy.digest(), absent.digest(), "{empty}");
    }
}

#[test]
fn shipped_profiles_reach_nothing() {
    let policy = Policy::builtin().unwrap();
    for name in policy.profile_names() {
        assert!(policy.profile(name).unwrap().egress.is_nothing(), "{name}");
    }
}

#[test]
fn every_problem_is_reported_with_its_place() {
    assert_eq!(
        problems(
            "defualt: ask
default: allow
rules:
  - { host: \"https://files.example.org/x\", ports: [443], decision: allow }
  - { host: \"127.1\", ports: [443], decision: alow }
  - { ports: [0], schema: tcp, decision: allow }
networks: [\"10.0.0.0/33\"]
max_bytes: 2GB
idle_timeout: 300"
        ),
        [
            "p.yaml:5.defualt: unknown key (did you mean `default`?)",
            "p.yaml:6.default: unknown value `allow` (known: deny, ask)",
            "p.yaml:8.rules[0].host: this is not a network; write it as `198.51.100.0/24` (did you mean `files.example.org`?)",
            "p.yaml:9.rules[1].host: this is an IP address in some notation, not a host name",
            "p.yaml:9.rules[1].decision: unknown value `alow` (did you mean `allow`?)",
            "p.yaml:10.rules[2].schema: unknown key (did you mean `scheme`?)",
            "p.yaml:10.rules[2]: `host` is missing",
            "p.yaml:10.rules[2].ports[0]: must be a whole number from 1 to 65535",
            "p.yaml:11.networks[0]: must be a network, such as `10.20.0.0/16`",
            "p.yaml:12.max_bytes: must be a size from 1 to 1024TiB, such as 512MiB or 4GiB (did you mean `2GiB`?)",
            "p.yaml:13.idle_timeout: must be a time from 1s to 7d, such as 30s, 5m or 12h (did you mean `300s`?)",
        ]
    );
}

#[test]
fn a_rule_and_the_default_may_ask() {
    let policy = loaded(
        "default: ask\nask_ports: [443]\nrules: [{ host: \"a.example.org\", ports: [443], decision: ask }]",
    );
    let settings = policy.profile("p").unwrap().egress.settings();
    assert_eq!((settings.default, settings.rules[0].decision), (Decision::Ask, Decision::Ask));
    let written = policy.to_yaml().unwrap();
    assert_eq!(Policy::from_files([("again.yaml", &written)]).unwrap().digest(), policy.digest());
}

#[test]
fn problems_between_rules_name_the_rule() {
    assert_eq!(
        problems(
            "rules:
  - { host: \"*.example.org\", ports: [80], decision: allow }
  - { host: \"a.example.org\", ports: [80], scheme: http, decision: allow }
  - { host: \"b.example.org\", decision: allow }
  - { host: \"192.168.0.7\", ports: [22], scheme: tcp, decision: allow }
networks: [\"0.0.0.0/0\"]"
        ),
        [
            "p.yaml:10.networks: `0.0.0.0/0` is not within one of the refused ranges, such as 10.0.0.0/8; public addresses need no exception",
        ]
    );
    assert_eq!(
        problems(
            "rules:
  - { host: \"*.example.org\", ports: [80], decision: allow }
  - { host: \"a.example.org\", ports: [80], scheme: http, decision: allow }
  - { host: \"b.example.org\", decision: allow }
  - { host: \"192.168.0.7\", ports: [22], scheme: tcp, decision: allow }"
        ),
        [
            "p.yaml:6.rules[2].ports: is missing; only a rule that denies is for every port",
            "p.yaml:7.rules[1].scheme: contradicts rule 1: both match a host and port, and no connection passes both",
            "p.yaml:9.rules[3].host: 192.168.0.7 is a private address (192.168.0.0/16, RFC 1918); `networks` has to allow it",
        ]
    );
}

#[test]
fn wildcards_are_noted() {
    let policy = loaded(WHOLE);
    let notes: Vec<_> = policy.egress_notes().collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].1.starts_with("egress rule 2: `*.example.net`: a wildcard is a channel"), "{notes:?}");
    let wide = loaded(
        "rules:\n  - { host: \"*\", ports: [443], decision: allow }\n  - { host: \"*.org\", ports: [443], decision: allow }\n  - { host: \"*.net\", decision: deny }",
    );
    let notes: Vec<String> = wide.egress_notes().map(|(_, note)| note).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[1].contains("everybody who registers a name below `org`"), "{notes:?}");
}
