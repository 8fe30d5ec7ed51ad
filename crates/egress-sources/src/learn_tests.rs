use policy::Policy;
use serde_json::json;

use super::*;

fn lookup(host: &str, count: u64) -> Refused {
    Refused {
        host: host.to_owned(),
        port: None,
        rule: "egress: unknown name".to_owned(),
        reason: "no rule has this name".to_owned(),
        count,
    }
}

fn connection(host: &str, port: u16) -> Refused {
    Refused { port: Some(port), rule: "egress default: deny".to_owned(), ..lookup(host, 1) }
}

/// Returns the output, after it was read in a profile as `coffer policy check` does, and the number of its rules.
fn learnt(refused: impl IntoIterator<Item = Refused>) -> (String, usize) {
    let output = learn(refused, &Records::default()).to_string();
    let policy = Policy::from_part("p.yaml", &format!("profiles:\n  mine:\n    operations: {{}}\n{output}"))
        .unwrap_or_else(|problems| panic!("{problems:?}\n{output}"));
    let rules = policy.profile("mine").unwrap().egress.settings().rules.len();
    assert!(output.lines().all(|line| line.len() < 400), "{output}");
    (output, rules)
}

#[test]
fn refused_names_and_ports_are_one_section_of_rules() {
    let other = |host: &str, rule: &str, reason: &str| Refused {
        rule: rule.to_owned(),
        reason: reason.to_owned(),
        ..connection(host, 443)
    };
    let (output, rules) = learnt([
        lookup("files.example.org", 3),
        lookup("Files.Example.ORG.", 1),
        connection("mirror.example.org", 80),
        connection("mirror.example.org", 8443),
        connection("10.1.2.3", 22),
        other(
            "git.example.org",
            "egress rule 1: git.example.org",
            "the rule does not have the request's method",
        ),
        other(
            "git.example.org",
            "egress rule 1: git.example.org",
            "the rule does not have the request's method",
        ),
        lookup("a b", 1),
        Refused { host: "(others)".to_owned(), ..lookup("", 70) },
    ]);
    assert_eq!(rules, 3);
    assert_eq!(
        output,
        "    # A proposal for a reviewer, from names that the run asked for and was refused. Nothing of it is in force.
    # An agent chose the names. An allowed host can receive everything that the run can read.
    egress:
      rules:
        # looked up 4 times; the port is not known, because the name did not resolve
        - { host: \"files.example.org\", ports: [443], decision: allow }
        # connection refused 2 times
        - { host: \"mirror.example.org\", ports: [80], scheme: http, methods: [GET, HEAD], decision: allow }
        # connection refused 2 times
        - { host: \"mirror.example.org\", ports: [8443], scheme: tcp, decision: allow }
    # no rule: 10.1.2.3:22: an address does not tell who answers; if you know the server, write a rule for it
    # no rule: a b: a host name consists of letters, digits, hyphens, underscores and dots; it has ' '
    # no rule: git.example.org:443: egress rule 1: git.example.org: the rule does not have the request's method
    # no rule: more different hosts than the log has one by one in a minute
    # Redirects: a server that is now allowed may send programs to further hosts, which are refused then.
"
    );
    let (output, rules) = learnt([]);
    assert!(output.contains("      rules: []\n") && rules == 0, "{output}");
}

#[test]
fn hostile_names_are_held_back_in_a_comment_that_says_why() {
    let (output, rules) = learnt([
        lookup("ex\u{430}mple.org", 1),
        lookup(&format!("{}.example.net", "7a".repeat(30)), 1),
        lookup("good.example.org", 1),
    ]);
    assert_eq!(rules, 1, "{output}");
    let reason = "# held back: an international name, ex\\u{430}mple.org, which may look like another one";
    assert!(output.contains(reason), "{output}");
    assert!(output.contains("# - { host: \"xn--"), "{output}");
    assert!(output.contains("# held back: a label of 60 letters may carry data"), "{output}");
    assert!(output.is_ascii(), "{output}");

    let many = (0..5_000).map(|number| lookup(&format!("x{number}.t{}.example.net", number % 50), 1));
    let (output, rules) = learnt(many.chain([lookup("good.example.org", 1)]));
    let held = "        # - { host: \"*.example.net\", ports: [443], decision: allow }\n";
    assert!(output.contains(" names below example.net, such as x") && output.contains(held), "{output}");
    assert!(rules <= 1 && output.lines().count() < 12, "{output}");

    let scan = (1_000..1_200).map(|port| connection("good.example.org", port));
    let (output, rules) = learnt(scan);
    assert!(rules == 0 && output.contains("# held back: 200 ports were tried"), "{output}");
}

#[test]
fn no_text_leaves_its_comment_and_the_proposal_is_bounded() {
    let hostile = |number: usize| Refused {
        host: format!(
            "evil{number}\n      - {{ host: \"*\", ports: [443], decision: allow }}\u{2028}\u{202e}"
        ),
        rule: format!("egress rule {number}\n    default: ask"),
        ..lookup("", 1)
    };
    let (output, rules) = learnt((0..5_000).map(hostile));
    assert_eq!(rules, 0, "{output}");
    assert!(output.lines().count() < 75 && output.contains("4936 more are left out"), "{output}");
    let different = (0..5_000).map(|number| lookup(&format!("host{number}"), 1));
    let (output, rules) = learnt(different);
    assert!(rules == 64 && output.lines().count() < 140, "{output}");
}

#[test]
fn records_of_the_log_are_read_and_others_are_not() {
    let record = json!({ "host": "a.example.org", "port": 22, "rule": "egress default: deny", "why": "w", "count": 7 });
    let refused = Refused { count: 7, reason: "w".to_owned(), ..connection("a.example.org", 22) };
    assert_eq!(Refused::from_record(&record), Some(refused));
    let record =
        json!({ "host": "a.example.org", "rule": "egress: unknown name", "why": "no rule has this name" });
    assert_eq!(Refused::from_record(&record), Some(lookup("a.example.org", 1)));
    for record in [json!({}), json!({ "host": 7, "rule": "" }), json!({ "host": "a.example.org" }), json!(7)]
    {
        assert_eq!(Refused::from_record(&record), None, "{record}");
    }
}
