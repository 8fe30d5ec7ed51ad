use egress_rules::{Decision, Push};

use crate::Policy;

fn loaded(keys: &str) -> Result<Policy, Vec<String>> {
    let policy = format!(
        "profiles:\n  p:\n    operations: {{}}\n    egress:\n      rules:\n        \
         - {{host: git.example.org, ports: [443], scheme: git, {keys}, decision: allow}}\n\
         roles: {{r: {{allow: \"*\"}}}}\n"
    );
    Policy::from_files([("p.yaml", policy)])
        .map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
}

fn push(keys: &str) -> Option<Push> {
    let policy = loaded(keys).unwrap_or_else(|problems| panic!("{keys}: {problems:?}"));
    policy.profile("p").unwrap().egress.settings().rules[0].push.clone()
}

#[test]
fn rules_for_git_are_read_and_written_back() {
    for keys in [
        "repos: [org/app, \"lib/*\"], fetch: allow",
        "repos: org/app, push: allow",
        "repos: [org/app.git], fetch: allow, push: {refs: [\"refs/heads/agent/*\"], force: allow}",
        "repos: [org/app], push: {refs: refs/tags/v1, delete: allow, options: allow}, \
         inject: {basic: {user: x, password: \"${secret:forge}\"}}",
    ] {
        let policy = loaded(keys).unwrap_or_else(|problems| panic!("{keys}: {problems:?}"));
        let written = policy.to_yaml().unwrap();
        let again = Policy::from_files([("again.yaml", &written)]).unwrap();
        assert_eq!(again.digest(), policy.digest(), "{written}");
        assert_eq!(again, policy);
    }
}

#[test]
fn a_push_is_for_branches_or_for_the_refs_that_are_named() {
    assert_eq!(push("repos: [org/app], fetch: allow"), None);
    let all = push("repos: [org/app], push: allow").unwrap();
    assert_eq!((all.refs.first().unwrap().as_str(), all.force), ("refs/heads/*", Decision::Deny));
    let some = push("repos: [org/app], push: {refs: [refs/heads/x], force: allow}").unwrap();
    assert_eq!((some.decision, some.force, some.delete), (Decision::Allow, Decision::Allow, Decision::Deny));
}

#[test]
fn problems_have_their_place_and_a_suggestion() {
    for (keys, place, words) in [
        ("repos: [\"https://git.example.org/org/app\"], fetch: allow", "repos", "did you mean `org/app`?"),
        ("repos: [/org/app/], fetch: allow", "repos", "did you mean `org/app`?"),
        ("repos: [org/a*], fetch: allow", "repos", "a character other than"),
        ("repos: [org/app], push: {refs: [main]}", "refs", "did you mean `refs/heads/main`?"),
        ("repos: [org/app], push: {force: allow}", "refs", "name the refs, such as `refs/heads/agent/*`"),
        ("repos: [org/app], push: {refs: []}", "refs", "1 to 64 patterns"),
        ("repos: [org/app], push: {refs: [refs/heads/x], tags: allow}", "tags", "unknown key"),
        ("repos: [org/app], push: sometimes", "push", "unknown value `sometimes`"),
        ("repos: [org/app], fetch: ask", "fetch", "`ask` is not possible for a fetch"),
        ("repos: [org/app]", "fetch", "neither `fetch` nor `push` is possible"),
        ("fetch: allow", "repos", "is missing"),
    ] {
        let problems = loaded(keys).unwrap_err();
        let [problem] = &problems[..] else { panic!("{keys}: {problems:?}") };
        assert!(problem.contains(place) && problem.contains(words), "{keys}: {problem}");
    }
}
