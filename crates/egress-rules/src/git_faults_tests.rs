use serde_json::{Value, json};

use crate::rules::Rules;
use crate::{Decision, Destination, HostName, Narrowed, Scheme, Verdict};

const HOST: &str = "git.example.org";

fn faults(rules: &Value) -> Vec<String> {
    let settings = serde_json::from_value(json!({ "rules": rules })).unwrap();
    Rules::new(settings)
        .map_or_else(|faults| faults.iter().map(ToString::to_string).collect(), |_| Vec::new())
}

fn list(rules: &Value) -> Rules {
    serde_json::from_value(json!({ "rules": rules })).unwrap()
}

fn decided(rules: &Narrowed) -> Verdict {
    rules.decide(&Destination::Name(HostName::parse(HOST).unwrap()), 443)
}

/// Returns a rule that allows these repositories, with these further keys.
fn git(repos: &[&str], keys: &Value) -> Value {
    let mut rule = json!({
        "host": HOST, "ports": [443], "scheme": "git", "repos": repos, "fetch": "allow", "decision": "allow",
    });
    for (key, value) in keys.as_object().unwrap() {
        rule[key] = value.clone();
    }
    rule
}

#[test]
fn a_rule_for_git_opens_tls_and_asks_about_each_request() {
    let rules = Narrowed::new(list(&json!([git(&["org/app"], &json!({}))])));
    let verdict = decided(&rules);
    assert!(verdict.is_git() && verdict.opens_tls() && verdict.asks_each_request() && rules.opens_tls());
    assert_eq!((verdict.opening.git.len(), verdict.opening.git[0].len()), (1, 1));
}

#[test]
fn keys_that_a_rule_for_git_cannot_have_are_faults() {
    let push = |answer: &str| json!({ "push": { "refs": ["refs/heads/x"], "force": answer } });
    for (keys, problem) in [
        (
            json!({ "methods": ["GET"] }),
            "methods: is not possible with `scheme: git`; name repositories in `repos`",
        ),
        (
            json!({ "paths": ["/x"] }),
            "paths: is not possible with `scheme: git`; name repositories in `repos`",
        ),
        (
            json!({ "meter": "tokens" }),
            "meter: is not possible with `scheme: git`; name repositories in `repos`",
        ),
        (json!({ "repos": null }), "repos: is missing: name the repositories, such as `org/app` or `org/*`"),
        (json!({ "repos": [] }), "repos: `repos` names no repository"),
        (json!({ "fetch": "ask" }), "fetch: `ask` is not possible for a fetch; write `allow` or `deny`"),
        (
            json!({ "fetch": "deny" }),
            "fetch: neither `fetch` nor `push` is possible by this rule; allow one, or remove the rule",
        ),
    ] {
        let found = faults(&json!([git(&["org/app"], &keys)]));
        assert_eq!(found, [format!("rule 1: {problem}")], "{keys}");
    }
    for push in [push("allow"), push("ask"), json!({ "push": "ask" })] {
        assert!(faults(&json!([git(&["org/app"], &push)])).is_empty(), "{push}");
    }
    let asked = faults(&json!([git(&["org/app"], &json!({ "decision": "ask" }))]));
    assert!(asked[0].starts_with("rule 1: decision: `ask` is not possible with `scheme: git`"), "{asked:?}");
    for (scheme, problem) in [("https", "needs `scheme: git`"), ("tcp", "needs `scheme: git`")] {
        let rule = json!({
            "host": HOST, "ports": [443], "scheme": scheme, "push": "allow", "decision": "allow",
        });
        assert_eq!(faults(&json!([rule])), [format!("rule 1: push: {problem}")], "{scheme}");
    }
    let denied = json!({ "host": HOST, "scheme": "git", "fetch": "allow", "decision": "deny" });
    assert!(faults(&json!([denied]))[0].starts_with("rule 1: fetch: is not possible in a rule that denies"));
}

#[test]
fn git_and_https_contradict_each_other_and_git_is_stricter_than_tcp() {
    let beside = |scheme: &str| {
        json!([
            git(&["org/app"], &json!({})),
            { "host": "*.example.org", "ports": [443], "scheme": scheme, "decision": "allow" },
        ])
    };
    for scheme in ["https", "http"] {
        assert!(faults(&beside(scheme))[0].starts_with("rule 2: scheme: contradicts rule 1"), "{scheme}");
    }
    assert!(decided(&Narrowed::new(list(&beside("tcp")))).is_git());
}

#[test]
fn rules_of_one_list_are_joined_and_each_further_list_has_to_pass() {
    let two = list(&json!([git(&["org/a"], &json!({ "push": "allow" })), git(&["org/b"], &json!({}))]));
    let profile = Narrowed::new(two);
    let opening = decided(&profile).opening;
    assert_eq!(opening.git.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
    let narrowed = profile.narrow(&list(&json!([git(&["org/a"], &json!({}))]))).unwrap();
    assert_eq!(decided(&narrowed).opening.git.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    // No list reads as if it opened more than another one.
    let words = narrowed.words();
    let of_profile =
        "(org/a: fetch, push to refs/heads/*, org/b: fetch alone, as far as further lists allow it)";
    assert!(words.contains(of_profile), "{words}");
    let only = profile.narrow(&profile.requested(&json!({ "only": [HOST] }).to_string()).unwrap()).unwrap();
    assert_eq!(decided(&only).opening, opening);
}

#[test]
fn two_rules_for_a_host_set_the_same_headers() {
    let inject = json!({ "inject": { "basic": { "user": "x", "password": "${secret:forge}" } } });
    let found = faults(&json!([git(&["org/a"], &inject), git(&["org/b"], &json!({}))]));
    assert!(found[0].starts_with("rule 2: inject: contradicts rule 1"), "{found:?}");
    assert!(faults(&json!([git(&["org/a"], &inject), git(&["org/b"], &inject)])).is_empty());
}

#[test]
fn only_a_profile_begins_to_look_at_git() {
    let rule = list(&json!([git(&["org/app"], &json!({}))]));
    let tcp = json!([{ "host": HOST, "ports": [443], "scheme": "tcp", "decision": "allow" }]);
    let profile = Narrowed::new(list(&tcp));
    let words = "egress rule 1 has `scheme: git`, which only the rules of a profile may have";
    assert!(profile.narrow(&rule).unwrap_err().to_string().starts_with(words));
    assert!(Narrowed::new(Rules::none()).widen(&rule).unwrap_err().to_string().starts_with(words));
    let name = Destination::Name(HostName::parse(HOST).unwrap());
    assert!(Rules::one(&name, 443, Scheme::Git, None).is_err(), "no consent to a connection opens git");
}

#[test]
fn a_rule_for_git_is_shown_and_kept_as_it_is_written() {
    let rule = git(&["org/app", "org/lib.git"], &json!({ "push": { "refs": ["refs/heads/agent/*"] } }));
    let rules = list(&json!([rule]));
    let again: Rules = serde_json::from_value(serde_json::to_value(&rules).unwrap()).unwrap();
    assert_eq!(again, rules);
    let words = Narrowed::new(rules).words();
    assert!(
        words.contains("git.example.org over git (org/app org/lib: fetch, push to refs/heads/agent/*)"),
        "{words}"
    );
    let asked = git(
        &["org/app"],
        &json!({ "push": { "refs": ["refs/heads/x"], "decision": "ask", "force": "allow" } }),
    );
    let words = Narrowed::new(list(&json!([asked]))).words();
    let expected = "push to refs/heads/x with a reviewer's consent, forced with a reviewer's consent)";
    assert!(words.contains(expected), "{words}");
    let plain = json!([{ "host": HOST, "ports": [443], "scheme": "https", "decision": "allow" }]);
    let kept = serde_json::to_value(list(&plain)).unwrap();
    assert_eq!(kept["rules"], plain, "rules without git keep their digest");
    assert_eq!(decided(&Narrowed::new(list(&plain))).decision, Decision::Allow);
}
