//! A request for some hosts of a run alone: `{"only": ["files.example.org"]}`.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::narrowed::Narrowed;
use crate::pattern::HostPattern;
use crate::rule::{Decision, Rule, Scheme};
use crate::rules::{Rules, object};
use crate::settings::Settings;

/// Key that a request has in place of rules.
const KEY: &str = "only";

/// The request. Rules beside it would be ambiguous.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Only {
    only: BTreeSet<HostPattern>,
}

impl Narrowed {
    /// Reads a list that is to narrow these rules: one JSON object of at most 64 KiB, in the form of a policy's section, or
    /// with the hosts that stay open as `only`.
    ///
    /// The error is for the author of the text. [`Self::narrow`] still has to check the list.
    pub fn requested(&self, text: &str) -> Result<Rules, String> {
        let object = object(text)?;
        if !object.contains_key(KEY) {
            return Rules::from_object(object);
        }
        let Only { only } = Only::deserialize(Value::Object(object)).map_err(|error| error.to_string())?;
        self.only(&only)
    }

    /// Returns the rules for these hosts at every port at which they are open.
    ///
    /// The list leaves schemes, methods and questions to the lists before it, because a connection has to pass those, too.
    fn only(&self, hosts: &BTreeSet<HostPattern>) -> Result<Rules, String> {
        if hosts.len() > Settings::MOST_RULES {
            return Err(format!("`{KEY}` has more than {} hosts", Settings::MOST_RULES));
        }
        let mut rules = Vec::new();
        for host in hosts {
            let ports: Vec<u16> = self.open_ports(host).into_iter().collect();
            if ports.is_empty() {
                let part = if matches!(host, HostPattern::Name(_)) { "" } else { " as a whole" };
                return Err(format!("`{KEY}` has {host}, which the profile does not allow{part}"));
            }
            let rule = |ports: &[u16]| {
                Rule::allowing(host.clone(), ports.iter().copied().collect(), Scheme::Tcp, None)
            };
            rules.extend(ports.chunks(Settings::MOST_PORTS).map(rule));
        }
        // A list without these exceptions and bounds would be stricter.
        let networks = self.lists().flat_map(|list| &list.settings().networks);
        Rules::try_from(Settings {
            rules,
            networks: networks.filter(|network| self.has_network(network)).copied().collect(),
            max_bytes: self.max_bytes(),
            max_connections: self.max_connections(),
            connections_per_minute: self.connections_per_minute(),
            idle_timeout: self.idle_timeout(),
            names_per_minute: self.names_per_minute(),
            ..Settings::default()
        })
    }

    /// Returns the ports at which a pattern is not denied as a whole.
    fn open_ports(&self, host: &HostPattern) -> BTreeSet<u16> {
        let is_name = !matches!(host, HostPattern::Network(_));
        let mut ports = BTreeSet::new();
        for list in self.every_list() {
            let settings = list.settings();
            let known = settings.rules.iter().filter(|rule| rule.host.contains(host));
            ports.extend(known.filter_map(|rule| rule.ports.as_ref()).flatten());
            if is_name && list.may_ask() {
                ports.extend(&settings.ask_ports);
            }
        }
        ports.retain(|port| self.decide_pattern(host, *port).decision != Decision::Deny);
        ports
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::destination::Destination;

    fn profile() -> Narrowed {
        let rules = json!({
            "rules": [
                { "host": "files.example.org", "ports": [443, 8443], "decision": "allow" },
                { "host": "files.example.org", "ports": [8443], "decision": "deny" },
                { "host": "mirror.example.org", "ports": [80], "scheme": "http", "methods": ["GET"], "decision": "allow" },
                { "host": "*.example.net", "ports": [443], "decision": "ask" },
                { "host": "bad.example.net", "decision": "deny" },
                { "host": "10.20.0.0/24", "ports": [5432], "scheme": "tcp", "decision": "allow" },
            ],
            "networks": ["10.20.0.0/16"],
            "max_bytes": 1000,
            "max_connections": 2000,
        });
        Narrowed::new(serde_json::from_value(rules).unwrap())
    }

    fn only(profile: &Narrowed, hosts: &[&str]) -> Result<Narrowed, String> {
        let by = profile.requested(&json!({ "only": hosts }).to_string())?;
        profile.narrow(&by).map_err(|widening| widening.to_string())
    }

    fn decision(rules: &Narrowed, destination: &str) -> Decision {
        let (host, port) = Destination::parse_with_port(destination).unwrap();
        rules.decide(&host, port).decision
    }

    #[test]
    fn hosts_keep_what_the_profile_allows_them_and_all_others_are_closed() {
        let hosts = ["FILES.example.org.", "mirror.example.org", "*.a.example.net", "10.20.0.7"];
        let narrowed = only(&profile(), &hosts).unwrap();
        for (destination, expected) in [
            ("files.example.org:443", Decision::Allow),
            ("files.example.org:8443", Decision::Deny),
            ("mirror.example.org:80", Decision::Allow),
            ("mirror.example.org:443", Decision::Deny),
            ("b.a.example.net:443", Decision::Ask),
            ("b.example.net:443", Decision::Deny),
            ("10.20.0.7:5432", Decision::Allow),
            ("10.20.0.8:5432", Decision::Deny),
        ] {
            assert_eq!(decision(&narrowed, destination), expected, "{destination}");
        }
        let (mirror, port) = Destination::parse_with_port("mirror.example.org:80").unwrap();
        let verdict = narrowed.decide(&mirror, port);
        assert_eq!((verdict.scheme, verdict.methods), (Scheme::Http, Some(["GET".to_owned()].into())));
        assert_eq!(narrowed.check("10.20.0.7".parse().unwrap(), None), Ok(()));
        assert_eq!((narrowed.max_bytes(), narrowed.max_connections()), (Some(1000), 2000));
    }

    #[test]
    fn a_denied_name_stays_denied_beneath_a_pattern() {
        let narrowed = only(&profile(), &["*.example.net"]).unwrap();
        assert_eq!(decision(&narrowed, "a.example.net:443"), Decision::Ask);
        assert_eq!(decision(&narrowed, "bad.example.net:443"), Decision::Deny);
    }

    #[test]
    fn hosts_that_the_profile_does_not_allow_are_refused() {
        for (host, part) in [
            ("other.example.org", ""),
            ("bad.example.net", ""),
            ("example.net", ""),
            ("*.example.org", " as a whole"),
            ("*", " as a whole"),
            ("10.20.0.0/16", " as a whole"),
            ("192.168.0.1", " as a whole"),
            ("::1", " as a whole"),
        ] {
            let refused = only(&profile(), &["files.example.org", host]).unwrap_err();
            assert_eq!(refused, format!("`only` has {host}, which the profile does not allow{part}"));
        }
    }

    #[test]
    fn a_profile_that_asks_about_every_name_asks_about_these() {
        let asks = Narrowed::new(serde_json::from_value(json!({ "default": "ask" })).unwrap());
        let narrowed = only(&asks, &["files.example.org"]).unwrap();
        assert_eq!(decision(&narrowed, "files.example.org:443"), Decision::Ask);
        assert_eq!(decision(&narrowed, "other.example.org:443"), Decision::Deny);
        assert!(only(&asks, &["192.0.2.1"]).is_err(), "no question is asked about an address");
    }

    #[test]
    fn no_host_is_no_connection() {
        assert!(only(&profile(), &[]).unwrap().is_nothing());
        assert!(only(&Narrowed::new(Rules::none()), &[]).unwrap().is_nothing());
    }

    #[test]
    fn rules_are_read_as_before() {
        let text = r#"{"rules": [{"host": "files.example.org", "ports": [443], "decision": "allow"}]}"#;
        assert_eq!(profile().requested(text), Rules::from_json(text));
        assert!(profile().requested("{}").unwrap().is_nothing());
    }

    #[test]
    fn malformed_requests_are_refused() {
        for bad in [
            r#"{"only": "files.example.org"}"#,
            r#"{"only": [5]}"#,
            r#"{"only": ["a.*.example.org"]}"#,
            r#"{"only": ["files.example.org"], "rules": []}"#,
            r#"["files.example.org"]"#,
            "",
        ] {
            assert!(profile().requested(bad).is_err(), "{bad}");
        }
        let hosts: Vec<String> = (0..257).map(|number| format!("h{number}.example.net")).collect();
        let many = profile().requested(&json!({ "only": hosts }).to_string());
        assert_eq!(many.unwrap_err(), "`only` has more than 256 hosts");
        assert!(profile().requested(&" ".repeat(65_537)).unwrap_err().contains("longer"));
    }

    #[test]
    fn more_ports_than_a_rule_can_have_make_several_rules() {
        let rule = |from: u16| json!({ "host": "files.example.org", "ports": (from..from + 50).collect::<Vec<_>>(), "decision": "allow" });
        let many = json!({ "rules": [rule(1000), rule(2000)] });
        let profile = Narrowed::new(serde_json::from_value(many).unwrap());
        let narrowed = only(&profile, &["files.example.org"]).unwrap();
        for port in [1000, 1049, 2000, 2049] {
            assert_eq!(decision(&narrowed, &format!("files.example.org:{port}")), Decision::Allow);
        }
    }
}
