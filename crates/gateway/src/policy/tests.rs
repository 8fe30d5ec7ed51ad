use std::fs;
use std::time::{Duration, Instant};

use super::{Grant, Policy, Problems, WorkspaceMode};
use crate::decision::Verdict;
use crate::testing::{builtin, builtin_and};

fn problems(yaml: &str) -> Vec<String> {
    match Policy::from_files([("p.yaml", yaml)]) {
        Ok(_) => Vec::new(),
        Err(Problems(problems)) => problems.iter().map(ToString::to_string).collect(),
    }
}

const ROLES: &str = "roles: {r: {allow: [read]}}\n";

#[test]
fn the_built_in_policy_is_sound() {
    let policy = builtin();
    assert_eq!(policy.profile_names().collect::<Vec<_>>(), ["build", "open", "review", "strict"]);
    assert_eq!(policy.role_names().collect::<Vec<_>>(), ["director", "manager", "worker"]);
    let modes = ["review", "build", "open", "strict"].map(|name| policy.profile(name).unwrap().workspace);
    assert_eq!(
        modes,
        [
            WorkspaceMode::ReadOnly,
            WorkspaceMode::ReadWrite,
            WorkspaceMode::ReadWrite,
            WorkspaceMode::ReadOnly
        ]
    );
    let review = policy.profile("review").unwrap();
    assert!(review.limits.memory_mib >= 2048 && review.limits.pids >= 512);
    assert!(review.permits_image(None) && !review.permits_image(Some("evil")));
    assert!(policy.profile("build").unwrap().permits_image(Some("rust:1")));
}

#[test]
fn what_is_shown_is_the_policy_itself() {
    let policy = builtin();
    let shown = policy.to_yaml().unwrap();
    let again = Policy::from_files([("shown.yaml", &shown)]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(again, policy);
    assert_eq!(again.digest(), policy.digest());

    let bare = Policy::from_files([(
        "bare.yaml",
        "profiles: {p: {operations: {read: allow}}}\nroles: {r: {allow: [read]}}",
    )])
    .unwrap();
    let again = Policy::from_files([("shown.yaml", bare.to_yaml().unwrap())]);
    assert_eq!(again, Ok(bare));
}

#[test]
fn the_digest_is_of_the_meaning() {
    let digest =
        |yaml: &str| Policy::from_files([("p.yaml", format!("{ROLES}{yaml}"))]).unwrap().digest().to_owned();
    let one = digest("profiles: {p: {operations: {read: allow, list: ask}}}");
    assert_eq!(one.len(), 64);
    assert_eq!(
        one,
        digest(
            "# said otherwise\nprofiles:\n  p:\n    operations:\n      list: ask\n      read: allow\n    workspace: read-only\n"
        )
    );
    assert_ne!(one, digest("profiles: {p: {operations: {read: allow, list: deny}}}"));
    assert_ne!(one, digest("profiles: {q: {operations: {read: allow, list: ask}}}"));
}

#[test]
fn what_is_missing_is_strict() {
    let policy =
        Policy::from_files([("p.yaml", format!("{ROLES}profiles: {{p: {{operations: {{}}}}}}"))]).unwrap();
    let profile = policy.profile("p").unwrap();
    assert!(profile.operations.is_empty() && !profile.unattended && profile.bounds.hide_git_config);
    assert_eq!((profile.workspace, profile.exec.default), (WorkspaceMode::ReadOnly, Verdict::Deny));
    assert!(
        !profile.exec.read_only_commands && profile.exec.env.is_empty() && profile.allowed_images.is_empty()
    );
    assert_eq!(profile.call_bounds(), ops::Bounds::default());
}

#[test]
fn every_problem_is_reported_with_its_place() {
    let yaml = "\
roles:
  worker:
    allow: [read, wirte]
    inherit: [x]
profiles:
  p:
    workspace: readonly
    operations:
      read: allow
      read: deny
      comit: ask
      list: alow
    limits: {memory_mib: 0, pids: many}
    exec:
      default_timeout_s: 200
      deny: [/bin/x]
      env: [A-B]
      rules:
        - prefix: [cargo]
          decision: allow
          match: [make]
        - prefix: []
          decision: perhaps
          justification: x
        - prefix: [env]
          decision: allow
          justification: ' '
        - prefix: [[make, RM]]
          decision: allow
          justification: x
          not_match: [[make, all]]
          colour: red
  Q: {operations: {}}
limit: 3
";
    assert_eq!(
        problems(yaml),
        [
            "p.yaml:3: roles.worker.allow[1]: unknown value `wirte` (did you mean `write`?)",
            "p.yaml:4: roles.worker.inherit: unknown key (did you mean `inherits`?)",
            "p.yaml:7: profiles.p.workspace: unknown value `readonly` (did you mean `read-only`?)",
            "p.yaml:10: profiles.p.operations.read: given more than once (keep one)",
            "p.yaml:11: profiles.p.operations.comit: unknown operation (did you mean `git.commit`?)",
            "p.yaml:12: profiles.p.operations.list: unknown value `alow` (did you mean `allow`?)",
            "p.yaml:13: profiles.p.limits.memory_mib: must be a whole number from 16 to 1048576",
            "p.yaml:13: profiles.p.limits.pids: expected a whole number, found text",
            "p.yaml:14: profiles.p.exec: default_timeout_s is 200, more than max_timeout_s, 120",
            "p.yaml:16: profiles.p.exec.deny[0]: must be a base name, such as `curl`, or the beginning of some, such as `docker*`",
            "p.yaml:17: profiles.p.exec.env[0]: must be the name of an environment variable, or \"*\" for any",
            "p.yaml:19: profiles.p.exec.rules[0]: `justification` is missing",
            "p.yaml:21: profiles.p.exec.rules[0].match[0]: `make` is not matched by the prefix `cargo`",
            "p.yaml:22: profiles.p.exec.rules[1].prefix: must have at least one word, and one at every position",
            "p.yaml:23: profiles.p.exec.rules[1].decision: unknown value `perhaps` (known: allow, ask, deny)",
            "p.yaml:25: profiles.p.exec.rules[2].prefix: `env` runs other programs, so it is never allowed by a rule; use `ask`",
            "p.yaml:27: profiles.p.exec.rules[2].justification: must not be blank",
            "p.yaml:28: profiles.p.exec.rules[3].prefix: `RM` is on the deny list, so it is never allowed",
            "p.yaml:31: profiles.p.exec.rules[3].not_match[0]: `make all` is matched by the prefix `make|RM`",
            "p.yaml:32: profiles.p.exec.rules[3].colour: unknown key (known: prefix, decision, justification, match, not_match)",
            "p.yaml:33: profiles.Q: the name of a profile must be 1 to 64 characters of `a-z`, `0-9`, `-` and `_`",
            "p.yaml:34: limit: unknown key (known: profiles, roles, anomalies)",
        ]
    );
}

#[test]
fn contradicting_rules_are_named() {
    let rule =
        |decision: &str| format!("        - {{prefix: [make], decision: {decision}, justification: x}}\n");
    let yaml = format!(
        "{ROLES}profiles:\n  p:\n    operations: {{}}\n    exec:\n      rules:\n{}{}",
        rule("ask"),
        rule("deny")
    );
    assert_eq!(problems(&yaml), ["p.yaml:8: profiles.p.exec.rules[1]: contradicts rules[0] (keep one)"]);
}

#[test]
fn roles_inherit_across_files_and_never_themselves() {
    let policy = builtin_and(
        "roles:\n  lead: {inherits: [reader, manager], ask: [read]}\n  reader: {allow: [read, exec.read_only]}\n",
    );
    let lead = policy.role("lead").unwrap();
    assert_eq!(lead.grant("read", false), Some(Grant::AsProfile));
    assert_eq!(lead.grant("write", false), Some(Grant::AsProfile));
    assert_eq!(lead.grant("git.commit", false), Some(Grant::Ask));
    let reader = policy.role("reader").unwrap();
    assert_eq!((reader.grant("exec", true), reader.grant("exec", false)), (Some(Grant::AsProfile), None));

    let profile = "profiles: {p: {operations: {}}}\n";
    assert_eq!(
        problems(&format!(
            "{profile}roles:\n  a: {{inherits: b}}\n  b: {{inherits: [c]}}\n  c: {{inherits: a}}\n  d: {{inherits: a}}\n  e: {{inherits: e}}\n  f: {{inherits: bb}}\n"
        )),
        [
            "p.yaml:3: roles.a.inherits: inherits itself: a → b → c → a",
            "p.yaml:4: roles.b.inherits: inherits itself: b → c → a → b",
            "p.yaml:5: roles.c.inherits: inherits itself: c → a → b → c",
            "p.yaml:7: roles.e.inherits: inherits itself: e → e",
            "p.yaml:8: roles.f.inherits: inherits the unknown role `bb` (did you mean `b`?)",
        ]
    );
    assert_eq!(
        problems(&format!("{profile}roles: {{a: {{allow: [read], ask: [read]}}, b: {{}}}}")),
        [
            "p.yaml:2: roles.a: `read` is under both `allow` and `ask`; keep one",
            "p.yaml:2: roles.b: the role can do nothing (list operations under `allow` or `ask`, or inherit a role)",
        ]
    );
}

#[test]
fn a_directory_replaces_what_is_built_in() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let load = || Policy::load_dir(directory.path());
    assert!(load().unwrap_err().to_string().contains("holds 0 files"));
    place("b.yaml", "profiles: {p: {operations: {read: allow}}}");
    assert!(load().unwrap_err().to_string().contains("no role is defined"));
    place("a.yaml", ROLES);
    place(".hidden.yaml", "not: [");
    place("README.md", "not a policy");
    let policy = load().unwrap();
    assert_eq!(policy.profile_names().collect::<Vec<_>>(), ["p"]);
    assert!(policy.role("worker").is_none());

    place("c.yaml", "profiles: {p: {operations: {}}}");
    let message = load().unwrap_err().to_string();
    assert_eq!(
        message,
        "1 problem in the policy:\n  c.yaml:1: profiles.p: the profile is also in b.yaml (keep one)"
    );
    place("c.yaml", "profiles: [\n");
    fs::create_dir(directory.path().join("d.yaml")).unwrap();
    let Problems(found) = load().unwrap_err();
    assert_eq!(found.iter().map(|problem| problem.file.as_str()).collect::<Vec<_>>(), ["d.yaml", "c.yaml"]);
    place("e.yml", "");
    assert!(load().unwrap_err().to_string().contains("rename or remove it"));
    assert!(Policy::load_dir(&directory.path().join("none")).is_err());
}

#[test]
fn huge_and_hostile_files_are_refused_quickly() {
    let many_unknown = (0..60_000).fold(String::new(), |text, i| text + &format!("k{i}: 1\n"));
    let many_equal = "a: 1\n".repeat(100_000);
    for yaml in
        [many_unknown, many_equal, "#".repeat(10 << 20), "\u{0}".to_owned(), String::new(), "[]".to_owned()]
    {
        let started = Instant::now();
        let found = problems(&yaml);
        assert!((1..=101).contains(&found.len()), "{}", found.len());
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}

#[test]
fn a_web_of_roles_is_refused_quickly() {
    let web = |roles: usize, parents: usize| {
        let role = |number: usize| {
            let parents = (number + 1..roles).take(parents).map(|parent| format!("    - r{parent}\n"));
            format!("  r{number}:\n    allow:\n    - read\n    inherits:\n{}", parents.collect::<String>())
        };
        let all: String = (0..roles - 1).map(role).collect();
        let last = format!("  r{}:\n    allow: [read]\n", roles - 1);
        format!("profiles: {{p: {{operations: {{read: allow}}}}}}\nroles:\n{all}{last}")
    };
    for (roles, parents, expected) in [
        (256, 16, None),
        (257, 1, Some("more than 256 roles")),
        (200, 17, Some("at most 16 others")),
        (900, 100, Some("at most 16 others")),
    ] {
        let started = Instant::now();
        let loaded = Policy::from_files([("web.yaml", web(roles, parents))]);
        match (loaded, expected) {
            (Ok(_), None) => {}
            (Err(problems), Some(expected)) => assert!(problems.to_string().contains(expected), "{problems}"),
            (loaded, _) => panic!("{roles} roles of {parents} parents: {loaded:?}"),
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}
