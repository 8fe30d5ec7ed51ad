//! Reads `egress`. A profile without it reaches nothing.

use std::collections::BTreeSet;

use document::{At, Fields, size, time};
use egress_rules::{Decision, HostPattern, Rule, Rules, Scheme, Settings};
use ipnet::IpNet;

const DEFAULTS: [(&str, Decision); 2] = [("deny", Decision::Deny), ("ask", Decision::Ask)];
const DECISIONS: [(&str, Decision); 3] =
    [("allow", Decision::Allow), ("ask", Decision::Ask), ("deny", Decision::Deny)];
const SCHEMES: [(&str, Scheme); 3] = [("https", Scheme::Https), ("http", Scheme::Http), ("tcp", Scheme::Tcp)];
/// Longest time without a byte after which a connection ends, seconds.
const LONGEST_IDLE: u64 = 7 * 86_400;

pub(super) fn egress(at: Option<&At<'_>>) -> Rules {
    let Some(at) = at else { return Rules::none() };
    let fields = at.fields(&[
        "default",
        "ask_ports",
        "rules",
        "networks",
        "max_bytes",
        "max_connections",
        "connections_per_minute",
        "idle_timeout",
        "names_per_minute",
    ]);
    let missing = Settings::default();
    let number = |key: &str, most: u32, otherwise: u32| {
        u32::try_from(fields.number_or(key, 1..=u64::from(most), otherwise.into())).unwrap_or(otherwise)
    };
    let items: Vec<Fields<'_>> =
        fields.items("rules").iter().take(Settings::MOST_RULES + 1).map(fields_of_rule).collect();
    let rules: Vec<Rule> = items.iter().filter_map(rule).collect();
    let is_whole = rules.len() == items.len();
    let settings = Settings {
        default: fields.get("default").and_then(|at| at.one_of(&DEFAULTS)).unwrap_or_default(),
        ask_ports: fields.get("ask_ports").map_or(missing.ask_ports, ports),
        // With a rule left out, problems between rules would name the wrong ones.
        rules: if is_whole { rules } else { Vec::new() },
        networks: fields.items("networks").iter().filter_map(network).collect(),
        max_bytes: fields.get("max_bytes").and_then(|at| size(at, 1)),
        max_connections: number("max_connections", Settings::MOST_CONNECTIONS, missing.max_connections),
        connections_per_minute: number(
            "connections_per_minute",
            Settings::MOST_PER_MINUTE,
            missing.connections_per_minute,
        ),
        idle_timeout: fields
            .get("idle_timeout")
            .and_then(|at| time(at, 1, LONGEST_IDLE))
            .map(|time| time.as_secs()),
        names_per_minute: number(
            "names_per_minute",
            Settings::MOST_NAMES_PER_MINUTE,
            missing.names_per_minute,
        ),
    };
    Rules::new(settings).unwrap_or_else(|faults| {
        for fault in faults {
            let place = fault.rule.and_then(|number| items.get(number)).unwrap_or(&fields);
            place.at(fault.key).problem(fault.message);
        }
        Rules::none()
    })
}

fn fields_of_rule<'t>(at: &At<'t>) -> Fields<'t> {
    at.fields(&["host", "ports", "scheme", "methods", "decision"])
}

fn rule(fields: &Fields<'_>) -> Option<Rule> {
    let host = fields.required("host").and_then(host);
    let decision = fields.required("decision").and_then(|at| at.one_of(&DECISIONS));
    let scheme = fields.get("scheme").map_or(Some(Scheme::default()), |at| at.one_of(&SCHEMES));
    let ports = fields.get("ports").map(ports);
    let methods = |at: &At<'_>| at.items().iter().filter_map(At::text).map(str::to_owned).collect();
    Some(Rule {
        host: host?,
        ports,
        scheme: scheme?,
        methods: fields.get("methods").map(methods),
        decision: decision?,
    })
}

fn host(at: &At<'_>) -> Option<HostPattern> {
    let text = at.text()?;
    match HostPattern::parse(text) {
        Ok(host) => Some(host),
        Err(problem) => {
            let within = text.split_once("://").map_or(text, |(_, rest)| rest);
            let end = within.find(['/', ':']).unwrap_or(within.len());
            let meant = within.get(..end).filter(|meant| *meant != text);
            let meant = meant.and_then(|meant| HostPattern::parse(meant).ok());
            at.problem_hint(problem.to_string(), meant.map(|meant| format!("did you mean `{meant}`?")));
            None
        }
    }
}

fn ports(at: &At<'_>) -> BTreeSet<u16> {
    let numbers = at.items().into_iter().filter_map(|item| item.number(1..=u64::from(u16::MAX)));
    numbers.filter_map(|number| u16::try_from(number).ok()).collect()
}

/// Reads a network, or one address.
fn network(at: &At<'_>) -> Option<IpNet> {
    let text = at.text()?;
    let network = text.parse().or_else(|_| text.parse().map(|address: std::net::IpAddr| address.into()));
    if network.is_err() {
        at.problem("must be a network, such as `10.20.0.0/16`");
    }
    network.ok()
}

#[cfg(test)]
mod tests {
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
        assert!(
            notes[0].1.starts_with("egress rule 2: `*.example.net`: a wildcard is a channel"),
            "{notes:?}"
        );
        let wide = loaded(
            "rules:\n  - { host: \"*\", ports: [443], decision: allow }\n  - { host: \"*.org\", ports: [443], decision: allow }\n  - { host: \"*.net\", decision: deny }",
        );
        let notes: Vec<String> = wide.egress_notes().map(|(_, note)| note).collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[1].contains("everybody who registers a name below `org`"), "{notes:?}");
    }
}
