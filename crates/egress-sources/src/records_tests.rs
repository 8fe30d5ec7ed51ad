use serde_json::json;

use super::*;
use crate::learn;

/// Records of calls, each a tenth of a second after the one before, with its number as the sequence.
#[derive(Default)]
struct Log {
    records: Vec<Value>,
    tenths: u64,
}

impl Log {
    fn add(&mut self, kind: &str, calls: &[&str], details: &Value) {
        let (seconds, tenth) = (self.tenths / 10, self.tenths % 10);
        self.tenths += 1;
        let mut details = details.clone();
        if !calls.is_empty() {
            details["calls"] = json!(calls);
        }
        self.records.push(json!({
            "sequence": self.records.len() + 1,
            "time": format!("2026-01-31T12:{:02}:{:02}.{tenth}00000000Z", seconds / 60, seconds % 60),
            "kind": kind,
            "details": details,
        }));
    }

    fn connected(&mut self, calls: &[&str], host: &str, port: u16) {
        self.add("egress_intent", calls, &json!({ "host": host, "port": port, "rule": "egress rule 1" }));
    }

    fn looked_up(&mut self, calls: &[&str], host: &str) {
        let details = json!({ "host": host, "rule": "egress: unknown name", "why": "no rule has this name" });
        self.add("egress_refused", calls, &details);
    }

    fn refused(&mut self, calls: &[&str], host: &str, port: u16) {
        let rule = "egress default: deny";
        self.add("egress_refused", calls, &json!({ "host": host, "port": port, "rule": rule, "why": "" }));
    }

    fn wait(&mut self, seconds: u64) {
        self.tenths += 10 * seconds;
    }

    /// Returns the records as they are read: the newest first.
    fn read(&self) -> Records {
        let mut records = Records::default();
        for record in self.records.iter().rev() {
            records.add(&record.to_string());
        }
        records
    }

    fn proposal(&self) -> String {
        let records = self.read();
        learn(records.refused(), &records).to_string()
    }
}

#[test]
fn n112_a_refusal_has_the_last_connection_of_its_call_soon_before_it() {
    let mut log = Log::default();
    log.looked_up(&["call 1"], "first.example.org");
    log.connected(&["call 1"], "index.example.org", 443);
    log.connected(&["call 1"], "files.example.org", 443);
    log.connected(&["call 2"], "other.example.org", 443);
    log.looked_up(&["call 1"], "cdn.example.net");
    log.refused(&["call 2", "call 1"], "mirror.example.net", 8443);
    log.looked_up(&["call 3"], "alone.example.net");
    log.looked_up(&[], "counted.example.net");
    log.connected(&["call 1"], "later.example.org", 443);
    let records = log.read();
    let expected: Ways<'_> = [
        (("cdn.example.net", None), ["files.example.org:443"].into()),
        (("mirror.example.net", Some(8443)), ["other.example.org:443"].into()),
    ]
    .into();
    assert_eq!(records.ways(), expected);
    assert_eq!(records.refused().len(), 5);
}

#[test]
fn n112_a_connection_that_is_long_ago_led_nowhere() {
    let mut log = Log::default();
    log.connected(&["call 1"], "files.example.org", 443);
    log.wait(9);
    log.looked_up(&["call 1"], "soon.example.net");
    log.wait(1);
    log.looked_up(&["call 1"], "late.example.net");
    let records = log.read();
    assert_eq!(records.ways().keys().copied().collect::<Vec<_>>(), [("soon.example.net", None)]);
}

#[test]
fn n112_a_proposal_says_after_which_connections_its_names_were_asked_for() {
    let mut log = Log::default();
    log.connected(&["call 1"], "files.example.org", 443);
    log.looked_up(&["call 1"], "cdn.example.net");
    log.looked_up(&["call 2"], "alone.example.net");
    log.refused(&["call 1"], "10.1.2.3", 443);
    let proposal = log.proposal();
    let rule = "    # looked up once; the port is not known, because the name did not resolve\n        \
                # asked after files.example.org:443\n        - { host: \"cdn.example.net\"";
    assert!(proposal.contains(rule), "{proposal}");
    assert_eq!(proposal.matches("asked after files").count(), 1, "{proposal}");
    assert_eq!(proposal.matches("\n    # \"asked after\" is the last connection").count(), 1, "{proposal}");
    let without = learn(log.read().refused(), &Records::default()).to_string();
    assert!(!without.contains("asked after"), "{without}");

    // At most three, of all names below a domain too.
    for number in 0..20 {
        log.connected(&["call 1"], &format!("way{number}.example.org"), 443);
        log.looked_up(&["call 1"], &format!("h{number}.example.com"));
    }
    let proposal = log.proposal();
    let held = "# asked after way0.example.org:443, way1.example.org:443, way10.example.org:443\n        \
                # - { host: \"*.example.com\"";
    assert!(proposal.contains(held), "{proposal}");
}

#[test]
fn n112_hostile_and_other_records_are_left_out_and_no_text_leaves_its_comment() {
    let mut log = Log::default();
    log.connected(&["call 1"], "evil\n  rules: [{ host: \"*\" }]", 443);
    log.looked_up(&["call 1"], "a.example.net");
    let name = format!("{}.{}.{}.example.org", "a".repeat(63), "b".repeat(63), "c".repeat(63));
    for number in 1..4 {
        log.connected(&["call 1"], &name, number);
        log.looked_up(&["call 1"], "b.example.net");
    }
    log.add("egress_receipt", &["call 1"], &json!({ "host": "files.example.org", "port": 443 }));
    log.looked_up(&["call 1"], "c.example.net");
    let mut records = log.read();
    for text in ["", "[]", "{", "{\"kind\": \"egress_intent\"}", "{\"kind\": 7, \"details\": 7}"] {
        records.add(text);
    }
    assert_eq!(records.refused().len(), 5);
    let ways = records.ways();
    assert_eq!(ways.get(&("a.example.net", None)), None);
    assert_eq!(ways[&("c.example.net", None)], BTreeSet::from([format!("{name}:3").as_str()]));
    let proposal = log.proposal();
    assert!(!proposal.contains("evil"), "{proposal}");
    assert!(proposal.lines().all(|line| line.chars().count() < 400), "{proposal}");
}
