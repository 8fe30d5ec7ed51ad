use std::fs;
use std::time::Duration;

use jail::{MountMode, RootMode};
use operations::deny::DenyList;

use crate::{Forward, Grant, Policy, Problems, Profile, Verdict, default_risk};

fn builtin() -> Policy {
    Policy::builtin().unwrap()
}

/// The built-in policy and more.
fn builtin_and(yaml: &str) -> Policy {
    let builtin = Policy::builtin_files().map(|(name, text)| (name.to_owned(), text.to_owned()));
    Policy::from_files(builtin.chain([("more.yaml".to_owned(), yaml.to_owned())])).unwrap()
}

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
    assert_eq!(policy.profile_names().collect::<Vec<_>>(), ["build", "harness", "open", "review", "strict"]);
    assert_eq!(policy.role_names().collect::<Vec<_>>(), ["director", "manager", "worker"]);
    let modes = ["review", "build", "open", "strict"].map(|name| policy.profile(name).unwrap().workspace);
    assert_eq!(modes, [MountMode::ReadOnly, MountMode::ReadWrite, MountMode::ReadWrite, MountMode::ReadOnly]);
    let review = policy.profile("review").unwrap();
    assert!(review.limits.memory_mib >= 2048 && review.limits.pids >= 512);
    assert!(review.permits_image(None));
    // An image cannot weaken the container.
    for name in ["review", "build", "open", "strict"] {
        assert!(policy.profile(name).unwrap().permits_image(Some("rust:1")), "{name}");
    }
}

#[test]
fn shipped_profiles_match_the_snapshot() {
    let policy = builtin();
    let profiles: Vec<_> = policy.profile_names().map(|name| policy.profile(name).unwrap()).collect();
    let row = |key: &str, values: Vec<String>| {
        values
            .iter()
            .fold(format!("{key:<18}"), |row, value| format!("{row} {value:>10}"))
            .trim_end()
            .to_owned()
    };
    let each = |key: &str, value: &dyn Fn(&Profile) -> String| {
        row(key, profiles.iter().map(|profile| value(profile)).collect())
    };
    let mut table = vec![
        row("", policy.profile_names().map(str::to_owned).collect()),
        each("workspace", &|profile| format!("{:?}", profile.workspace).to_lowercase()),
        each("unattended", &|profile| profile.unattended.to_string()),
    ];
    table.extend(operations::Operation::NAMES.iter().filter(|name| **name != "mcp").map(|name| {
        each(name, &|profile| {
            profile.operation(name).map_or_else(|| "-".to_owned(), |(_, verdict)| verdict.to_string())
        })
    }));
    table.extend([
        each("root", &|profile| match profile.root {
            RootMode::ReadOnly => "read-only".to_owned(),
            RootMode::WritableLayer => "layer".to_owned(),
        }),
        each("root_in_userns", &|profile| profile.root_in_user_namespace.to_string()),
        each("container_paths", &|profile| format!("{:?}", profile.container_paths).to_lowercase()),
        each("tmp", &|profile| format!("{:?}", profile.tmp).to_lowercase()),
        each("exec.default", &|profile| profile.exec.default.to_string()),
        each("exec.deny_list", &|profile| format!("{:?}", profile.exec.deny_list).to_lowercase()),
        each("max_timeout_s", &|profile| profile.exec.max_timeout_s.to_string()),
        each("default_timeout_s", &|profile| profile.exec.default_timeout_s.to_string()),
        each("max_transfer_bytes", &|profile| profile.bounds.max_transfer_bytes.to_string()),
        each("max_argv_bytes", &|profile| profile.bounds.max_argv_bytes.to_string()),
        each("max_stdin_bytes", &|profile| profile.bounds.max_stdin_bytes.to_string()),
        each("delete: risk", &|profile| default_risk("delete", profile.exec.deny_list).to_string()),
    ]);
    insta::assert_snapshot!(table.join("\n"));
}

/// Each shipped profile whole, as it is in force: a change of a value, or of a default, changes this snapshot, too.
#[test]
fn the_shipped_profiles_are_in_force_as_they_were() {
    let shown: serde_yaml::Value = serde_yaml::from_str(&builtin().to_yaml().unwrap()).unwrap();
    for (name, profile) in shown["profiles"].as_mapping().unwrap() {
        let name = format!("shipped_{}", name.as_str().unwrap());
        insta::assert_snapshot!(name, serde_yaml::to_string(profile).unwrap());
    }
}

/// Only `strict`, of the profiles from before there were keys for a place to work in, has some: to show what holds without them.
#[test]
fn profiles_without_workspace_keys_get_strict_values() {
    let strict = include_str!("../policies/strict.yaml");
    let since = ["root: read-only", "tmp: noexec", "container_paths: deny", "deny_list: on"];
    let before = strict.lines().filter(|line| !since.contains(&line.trim())).collect::<Vec<_>>().join("\n");
    assert_eq!(before.lines().count() + since.len(), strict.lines().count());
    let shown = |strict: &str| {
        let roles = include_str!("../policies/roles.yaml");
        Policy::from_files([("strict.yaml", strict), ("roles.yaml", roles)]).unwrap().to_yaml().unwrap()
    };
    assert_eq!(shown(&before), shown(strict));
    let policy = builtin();
    for name in ["build", "open", "review", "strict"] {
        let profile = policy.profile(name).unwrap();
        let found = (profile.root, profile.exec.deny_list, profile.exec.max_timeout_s);
        assert_eq!(found, (RootMode::ReadOnly, DenyList::On, 120), "{name}");
        assert!(profile.operation("process").is_none() && profile.operation("session").is_none(), "{name}");
    }
}

#[test]
fn a_deny_list_that_is_off_is_shown_and_changes_nothing_else() {
    let yaml =
        |exec: &str| format!("{ROLES}profiles: {{p: {{operations: {{delete: allow}}, exec: {{{exec}}}}}}}");
    assert_eq!(
        problems(&yaml("deny_list: maybe")).len(),
        2,
        "the strict value holds where it is not understood"
    );
    assert_eq!(
        problems(&yaml("deny_list: on")),
        [
            "p.yaml:2: profiles.p.operations.delete: `delete` is critical, and critical operations need consent (write `ask`)"
        ]
    );
    let policy = Policy::from_files([("p.yaml", yaml("deny_list: off, deny: [curl]"))]).unwrap();
    assert_eq!(policy.without_deny_list().collect::<Vec<_>>(), ["p"]);
    let profile = policy.profile("p").unwrap();
    let bounds = profile.call_bounds();
    assert_eq!((bounds.deny_list, bounds.denied_programs), (DenyList::Off, vec!["curl".to_owned()]));
    assert!(profile.exec.denies("curl") && !profile.exec.denies("rm"));
    let shown = policy.to_yaml().unwrap();
    assert!(shown.contains("deny_list: off") || shown.contains("deny_list: 'off'"), "{shown}");
    assert_eq!(Policy::from_files([("shown.yaml", shown)]), Ok(policy));
    assert!(!builtin().profile("open").unwrap().exec.deny_list.eq(&DenyList::Off));
    let rule = "deny_list: off, rules: [{prefix: [rm], decision: allow, justification: x}]";
    assert_eq!(
        problems(&format!("{ROLES}profiles: {{p: {{operations: {{}}, exec: {{{rule}}}}}}}")),
        Vec::<String>::new()
    );
}

#[test]
fn a_writable_root_excludes_rules_about_programs() {
    let yaml = |root: &str, exec: &str, approvals: &str| {
        format!(
            "{ROLES}profiles: {{p: {{root: {root}, operations: {{}}, exec: {{{exec}}}, approvals: {{{approvals}}}}}}}"
        )
    };
    let found = |exec: &str, approvals: &str| problems(&yaml("writable-layer", exec, approvals));
    assert_eq!(found("deny_list: off, default: allow", "remember: [digest]"), [""; 0]);
    let rule = "rules: [{prefix: [ls], decision: ask, justification: x}]";
    for exec in [
        "",
        "deny_list: off",
        "default: allow",
        "deny_list: off, default: allow, deny: [curl]",
        &format!("deny_list: off, default: allow, {rule}"),
    ] {
        let found = found(exec, "");
        assert_eq!(found.len(), 1, "{exec}: {found:?}");
        assert!(
            found[0].contains("profiles.p.root: `writable-layer` lets a command replace any program"),
            "{found:?}"
        );
    }
    let remembered = found("deny_list: off, default: allow", "remember: [prefix]");
    assert!(remembered.len() == 1 && remembered[0].contains("consent to a command prefix"), "{remembered:?}");
    assert_eq!(problems(&yaml("read-only", "", "remember: [prefix]")), [""; 0]);
    assert_eq!(problems(&yaml("writable", "", "")).len(), 1);
    let policy = Policy::from_files([(
        "p.yaml",
        format!("{ROLES}profiles: {{p: {{root: writable-layer, tmp: exec, operations: {{}}, exec: {{deny_list: off, default: allow}}}}}}"),
    )])
    .unwrap();
    assert_eq!(Policy::from_files([("shown.yaml", policy.to_yaml().unwrap())]), Ok(policy));
    assert!(!builtin().to_yaml().unwrap().contains("root: read-only"), "what is strict is not told");
}

#[test]
fn a_root_in_a_user_namespace_requires_a_writable_root() {
    let yaml = |keys: &str| {
        let exec = "exec: {deny_list: off, default: allow}";
        format!("{ROLES}profiles: {{p: {{{keys}, operations: {{}}, {exec}}}}}")
    };
    let both = yaml("root: writable-layer, root_in_user_namespace: true");
    let policy = Policy::from_files([("p.yaml", &both)]).unwrap();
    assert!(policy.profile("p").unwrap().root_in_user_namespace);
    assert_eq!(Policy::from_files([("shown.yaml", policy.to_yaml().unwrap())]), Ok(policy));
    let refused = "p.yaml:2: profiles.p.root_in_user_namespace: has an effect only with a writable root \
                   (set `root: writable-layer`, or leave this out)";
    for keys in ["root_in_user_namespace: true", "root: read-only, root_in_user_namespace: true"] {
        assert_eq!(problems(&yaml(keys)), [refused]);
    }
    assert_eq!(problems(&yaml("root_in_user_namespace: false")), [""; 0]);
    assert_eq!(problems(&yaml("root: writable-layer, root_in_user_namespace: maybe")).len(), 1);
    assert!(!builtin().to_yaml().unwrap().contains("root_in_user_namespace"), "what is strict is not told");
}

#[test]
fn the_write_limit_of_each_shipped_profile() {
    let policy = builtin();
    let limits = ["strict", "review", "build", "open"]
        .map(|name| policy.profile(name).unwrap().bounds.max_write_bytes);
    assert_eq!(limits, [100_000, 100_000, 1_000_000, 1_000_000]);
    let edits =
        ["strict", "build", "harness"].map(|name| policy.profile(name).unwrap().call_bounds().max_edit_bytes);
    assert_eq!(edits, [100_000, 1_000_000, 8 << 20], "as writes, where a profile is silent");
}

#[test]
fn shown_policy_parses_back() {
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
fn ports_are_forwarded_only_where_a_profile_says_so() {
    let policy = builtin();
    for name in policy.profile_names() {
        assert_eq!(policy.profile(name).unwrap().forward, Forward::Deny, "{name}");
    }
    let yaml = |forward: &str| format!("{ROLES}profiles: {{p: {{operations: {{}}{forward}}}}}");
    let loaded = |forward| Policy::from_files([("p.yaml", yaml(forward))]).unwrap();
    for (text, expected) in
        [("", Forward::Deny), (", forward: deny", Forward::Deny), (", forward: allow", Forward::Allow)]
    {
        assert_eq!(loaded(text).profile("p").unwrap().forward, expected, "{text}");
    }
    assert_eq!(loaded("").digest(), loaded(", forward: deny").digest());
    assert_ne!(loaded("").digest(), loaded(", forward: allow").digest());
    // No reviewer can be asked about a connection.
    for bad in ["ask", "true", "[8000]"] {
        let found = problems(&yaml(&format!(", forward: {bad}")));
        assert!(found.len() == 1 && found[0].contains("forward"), "{bad}: {found:?}");
    }
}

#[test]
fn missing_profile_settings_are_strict() {
    let policy =
        Policy::from_files([("p.yaml", format!("{ROLES}profiles: {{p: {{operations: {{}}}}}}"))]).unwrap();
    let profile = policy.profile("p").unwrap();
    assert!(profile.operations.is_empty() && !profile.unattended && profile.bounds.hide_git_config);
    assert_eq!((profile.workspace, profile.exec.default), (MountMode::ReadOnly, Verdict::Deny));
    assert!(
        !profile.exec.read_only_commands
            && profile.exec.env.is_empty()
            && !profile.permits_image(Some("rust:1"))
    );
    assert_eq!(profile.call_bounds(), operations::Bounds::default());
}

#[test]
fn every_problem_is_reported_with_its_line() {
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
      default_timeout_s: 14401
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
            "p.yaml:3: roles.worker.allow[1]: unknown operation (did you mean `write`?)",
            "p.yaml:4: roles.worker.inherit: unknown key (did you mean `inherits`?)",
            "p.yaml:7: profiles.p.workspace: unknown value `readonly` (did you mean `read-only`?)",
            "p.yaml:10: profiles.p.operations.read: given more than once (keep one)",
            "p.yaml:11: profiles.p.operations.comit: unknown operation (did you mean `git.commit`?)",
            "p.yaml:12: profiles.p.operations.list: unknown value `alow` (did you mean `allow`?)",
            "p.yaml:13: profiles.p.limits.memory_mib: must be a whole number from 16 to 1048576",
            "p.yaml:13: profiles.p.limits.pids: expected a whole number, found text",
            "p.yaml:15: profiles.p.exec.default_timeout_s: must be a whole number from 1 to 14400",
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
            "p.yaml:34: limit: unknown key (known: profiles, roles, teams, tenants, risk, anomalies, mcp_servers, aliases)",
        ]
    );
}

#[test]
fn a_profile_has_a_role_for_runs_that_name_none() {
    let policy = builtin();
    for profile in ["review", "build", "open", "strict"].map(|name| policy.profile(name).unwrap()) {
        assert_eq!(profile.default_role(), "director");
    }
    let profiles =
        "profiles:\n  a: {operations: {read: allow}}\n  b: {operations: {read: allow}, default_role: r}\n";
    let policy = Policy::from_files([("p.yaml", format!("{profiles}{ROLES}"))]).unwrap();
    let roles = ["a", "b"].map(|name| policy.profile(name).unwrap().default_role());
    assert_eq!(roles, ["worker", "r"], "the least one where the profile is silent");
    let shown = Policy::from_files([("shown.yaml", policy.to_yaml().unwrap())]).unwrap();
    assert_eq!(shown.digest(), policy.digest());

    let wrong = format!("{profiles}  c: {{operations: {{read: allow}}, default_role: rr}}\n{ROLES}");
    let expected = ["p.yaml:4: profiles.c.default_role: there is no role `rr` (did you mean `r`?)"];
    assert_eq!(problems(&wrong), expected);
    let elsewhere = "profiles: {c: {operations: {read: allow}, default_role: mine}}\n";
    assert!(Policy::from_part("c.yaml", elsewhere).is_ok(), "its roles are in another file");
    assert!(Policy::from_part("c.yaml", &format!("{elsewhere}{ROLES}")).is_err());
    assert!(Policy::from_part("roles.yaml", ROLES).is_ok(), "its profiles are in another file");
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
        "roles:\n  lead: {inherits: [reader, manager], ask: [read]}\n  reader: {allow: [read, exec.read_only], ask: [git.commit]}\n",
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
fn a_directory_of_policies_replaces_the_shipped_ones() {
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
    type Hostile = (usize, fn(usize) -> String);
    let files: [Hostile; 6] = [
        (15_000, |n| (0..n).fold(String::new(), |text, i| text + &format!("k{i}: 1\n"))),
        (25_000, |n| "a: 1\n".repeat(n)),
        (10 << 20, |n| "#".repeat(n)),
        (1, |n| "\u{0}".repeat(n)),
        (0, |n| "x".repeat(n)),
        (1, |n| "[]".repeat(n)),
    ];
    for (size, file) in files {
        let found = problems(&file(size)).len();
        assert!((1..=101).contains(&found), "{found}");
        effort::assert_linear(size, file, |yaml| problems(yaml));
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
        let web = web(roles, parents);
        let cost =
            effort::processor_time(|| match (Policy::from_files([("web.yaml", web.as_str())]), expected) {
                (Ok(_), None) => {}
                (Err(problems), Some(expected)) => {
                    assert!(problems.to_string().contains(expected), "{problems}");
                }
                (loaded, _) => panic!("{roles} roles of {parents} parents: {loaded:?}"),
            });
        assert!(cost < Duration::from_secs(10), "{cost:?}");
    }
}

#[test]
fn a_rule_that_never_decides_is_named() {
    let rule = |prefix: &str, decision: &str| {
        format!("        - {{prefix: {prefix}, decision: {decision}, justification: x}}\n")
    };
    let with = |rules: &[String]| {
        problems(&format!(
            "{ROLES}profiles:\n  p:\n    operations: {{}}\n    exec:\n      rules:\n{}",
            rules.concat()
        ))
    };
    assert_eq!(
        with(&[rule("[/usr/bin/cargo]", "deny"), rule("[cargo, test]", "allow")]),
        [
            "p.yaml:8: profiles.p.exec.rules[1]: never decides: rules[0] is for all of its commands, and its `deny` is stricter (remove one, or narrow the other)"
        ]
    );
    assert_eq!(with(&[rule("[[make, cmake]]", "allow"), rule("[[make, cmake, ninja]]", "ask")]).len(), 1);
    // The narrower one is the stricter one: that is what rules are for.
    assert_eq!(with(&[rule("[cargo]", "allow"), rule("[cargo, publish]", "deny")]), [""; 0]);
    assert_eq!(with(&[rule("[[make, cmake]]", "allow"), rule("[make]", "ask")]), [""; 0]);
}

#[test]
fn teams_inherit_and_grant_to_their_members_like_roles() {
    let policy = builtin_and(
        "roles: {asker: {ask: [git.commit]}}
teams:
  everyone: {agents: ['*'], deny: [delete]}
  core: {agents: [alice, 'ci-*'], roles: [manager, asker]}
  lead: {inherits: core, agents: bob, allow: [git.commit], ask: [shell]}
",
    );
    let teams = |agent: &str| policy.teams_of(agent).map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(teams("alice"), ["core", "everyone"]);
    assert_eq!(teams("ci-7"), ["core", "everyone"]);
    assert_eq!(teams("bob"), ["lead", "everyone"]);
    assert_eq!(teams("mallory"), ["everyone"]);
    let lead = policy.team("lead").unwrap();
    assert_eq!(
        lead.grant("write", false),
        Some(Grant::AsProfile),
        "of the manager, by the team that it inherits from"
    );
    assert_eq!(lead.grant("git.commit", false), Some(Grant::AsProfile));
    assert_eq!(lead.grant("shell", false), Some(Grant::Ask));
    assert_eq!(policy.team("core").unwrap().grant("git.commit", false), Some(Grant::Ask));
    assert!(policy.team("everyone").unwrap().denies("delete", false));
    let shown = policy.to_yaml().unwrap();
    assert_eq!(Policy::from_files([("shown.yaml", shown)]), Ok(policy));

    let base = format!("{ROLES}profiles: {{p: {{operations: {{}}}}}}\n");
    assert_eq!(
        problems(&format!(
            "{base}teams:\n  a: {{inherits: b, allow: [read]}}\n  b: {{inherits: a}}\n  c: {{agents: ['a b', 'x*y']}}\n  d: {{roles: rr, deny: [raed], allow: [read], colour: red}}\n  e: {{allow: [read], deny: [read]}}\n  f: {{inherits: z}}\n"
        )),
        [
            "p.yaml:6: teams.c: the team changes nothing for its members (list roles or operations, or inherit a team)",
            "p.yaml:6: teams.c.agents[0]: must be the name of an agent, at most 128 characters of [A-Za-z0-9._:@/-], or the beginning of some, such as `ci-*`",
            "p.yaml:6: teams.c.agents[1]: must be the name of an agent, at most 128 characters of [A-Za-z0-9._:@/-], or the beginning of some, such as `ci-*`",
            "p.yaml:7: teams.d.colour: unknown key (known: description, inherits, agents, roles, allow, ask, deny)",
            "p.yaml:7: teams.d.deny[0]: unknown operation (did you mean `read`?)",
            "p.yaml:8: teams.e: `read` is under both `allow` and `deny`; keep one",
            "p.yaml:4: teams.a.inherits: inherits itself: a → b → a",
            "p.yaml:5: teams.b.inherits: inherits itself: b → a → b",
            "p.yaml:7: teams.d.roles: there is no role `rr` (did you mean `r`?)",
            "p.yaml:9: teams.f.inherits: inherits the unknown team `z` (did you mean `a`?)",
        ]
    );
}

#[test]
fn denials_of_a_role_are_inherited() {
    let policy = builtin_and(
        "roles:\n  careful: {inherits: director, deny: [delete, exec.read_only]}\n  heir: {inherits: careful, allow: [delete]}\n",
    );
    for name in ["careful", "heir"] {
        let role = policy.role(name).unwrap();
        assert!(role.denies("delete", false) && role.grant("delete", false).is_none(), "{name}");
        assert!(role.grant("exec", true).is_none() && role.grant("exec", false).is_some(), "{name}");
    }
}

#[test]
fn risk_is_lowered_only_where_the_operator_says_so() {
    let base = "profiles:\n  p:\n    operations: {read: allow, delete: ask}\n    risk:\n";
    let with = |risk: &str, top: &str| problems(&format!("{ROLES}{base}      {risk}\n{top}"));
    assert_eq!(with("write: critical", ""), [""; 0]);
    assert_eq!(
        with("write: low", "risk: {lowerable: [delete]}"),
        [
            "p.yaml:5: profiles.p.risk: write: `low` is lower than its own risk, `high` (raise it, or mark it at the top of a file: `risk: {lowerable: [write]}`)"
        ]
    );
    assert_eq!(with("write: low", "risk: {lowerable: [write]}"), [""; 0]);
    assert_eq!(
        with("wirte: none", "risk: {lowerable: [wirte], colour: red}"),
        [
            "p.yaml:6: profiles.p.risk.wirte: unknown operation (did you mean `write`?)",
            "p.yaml:7: risk.colour: unknown key (known: lowerable)",
            "p.yaml:7: risk.lowerable[0]: unknown operation (did you mean `write`?)",
        ]
    );
    assert_eq!(
        problems(&format!("{ROLES}profiles:\n  p:\n    operations:\n      delete: allow\n")),
        [
            "p.yaml:5: profiles.p.operations.delete: `delete` is critical, and critical operations need consent (write `ask`)"
        ]
    );
}

#[test]
fn thresholds_of_zero_are_refused() {
    let zeros = format!(
        "{ROLES}profiles:\n  p:\n    operations: {{}}\n    limits: {{memory_mib: 0, cpu_millis: 0, pids: 0, file_size_mib: 0, open_files: 0, tmp_mib: 0, shm_mib: 0, disk_mib: 0, disk_files: 0, output_mib: 0}}\n    exec: {{default_timeout_s: 0, max_timeout_s: 0}}\n    bounds: {{max_read_bytes: 0, max_write_bytes: 0, max_output_bytes: 0, max_spool_bytes: 0}}\n    approvals: {{timeout_s: 0}}\n"
    );
    let found = problems(&zeros);
    assert_eq!(found.len(), 17, "{found:#?}");
    assert!(found.iter().all(|problem| problem.contains("must be a whole number from")), "{found:#?}");
}

#[test]
fn a_bound_that_no_transport_carries_is_refused_with_the_largest() {
    use operations::transport::{MAX_COMMAND, MAX_OUTPUT, MAX_READ, MAX_UPSTREAM, MAX_WRITE};
    let bounds = |bounds: &str| {
        problems(&format!("{ROLES}profiles: {{p: {{operations: {{}}, bounds: {{{bounds}}}}}}}"))
    };
    let server = |most: u64| {
        problems(&format!(
            "{ROLES}profiles: {{p: {{operations: {{}}}}}}\nmcp_servers: {{db: {{stdio: {{command: [/bin/db]}}, max_result_bytes: {most}}}}}"
        ))
    };
    for (key, most) in [
        ("max_read_bytes", MAX_READ),
        ("max_write_bytes", MAX_WRITE),
        ("max_output_bytes", MAX_OUTPUT),
        ("max_edit_bytes", operations::Bounds::LARGEST_EDIT),
    ] {
        assert_eq!(bounds(&format!("{key}: {most}")), [""; 0]);
        let refused = bounds(&format!("{key}: {}", most + 1)).concat();
        assert!(refused.contains(key) && refused.contains(&format!("to {most}")), "{refused}");
    }
    assert_eq!(server(MAX_UPSTREAM), [""; 0]);
    assert!(server(MAX_UPSTREAM + 1).concat().contains(&format!("to {MAX_UPSTREAM}")));
    let argv = 2 * 1024 * 1024;
    assert_eq!(bounds(&format!("max_argv_bytes: {argv}, max_stdin_bytes: {}", MAX_COMMAND - argv)), [""; 0]);
    let refused =
        bounds(&format!("max_argv_bytes: {argv}, max_stdin_bytes: {}", MAX_COMMAND - argv + 1)).concat();
    assert!(refused.contains("max_stdin_bytes") && refused.contains(&MAX_COMMAND.to_string()), "{refused}");
    // One key alone, beside the default of the other.
    assert_eq!(bounds("max_stdin_bytes: 3145728"), [""; 0]);
}
