//! The policies of the documentation, loaded and asked: what it says they decide is what they decide.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

use std::path::Path;
use std::sync::Arc;

use cofferdam_gateway::Gateway;
use jail::SandboxPath;
use operations::{Delete, Exec, Git, Grep, Mcp, McpTool, Operation, Read, Shell, Write};
use policy::{Caller, ContainerPaths, Policy, RunScope, Verdict};
use timestamp::SystemClock;

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

fn operation(call: &str) -> Operation {
    let (name, rest) = call.split_once(' ').unwrap_or((call, ""));
    match name {
        "read" => Operation::Read(Read::new(path(rest))),
        "grep" => Operation::Grep(Grep::new(path(rest), "x")),
        "write" => Operation::Write(Write::new(path(rest), "x")),
        "delete" => Operation::Delete(Delete { path: path(rest), if_match_sha256: None }),
        "git.commit" => Operation::Git(Git::Commit { message: "x".into() }),
        "exec" => {
            let mut words = rest.split(' ').map(str::to_owned);
            Operation::Exec(Exec::new(words.next().unwrap(), words))
        }
        "shell" => Operation::Shell(Shell::new(rest)),
        tool if tool.starts_with("mcp.") => Operation::Mcp(Mcp {
            tool: McpTool::parse(tool).unwrap(),
            arguments: serde_json::from_str(rest).unwrap(),
        }),
        other => panic!("the example's operation `{other}` is not known to this test"),
    }
}

/// What one line of an example says is what the policy says.
fn ask(policy: &Policy, line: &str) {
    let (who, rest) = line.split_once(": ").unwrap();
    let (call, expected) = rest.rsplit_once(" → ").unwrap();
    let mut who = who.split(' ');
    let (profile, role) = (who.next().unwrap(), who.next().unwrap());
    let agent = who.nth(1).unwrap_or("agent");
    let gateway = Gateway::new(policy.clone(), Arc::new(SystemClock));
    let scope = RunScope { profile: profile.to_owned(), image_id: String::new() };
    let caller = Caller {
        principal: "uid:1".into(),
        agent_id: agent.to_owned(),
        role: role.to_owned(),
        run_id: "run".into(),
    };
    let explained = gateway.explain(policy, &scope, &caller, &operation(call));
    assert_eq!(format!("{} ({})", explained.verdict(), explained.rule()), expected, "{line}\n{explained:#?}");
}

/// The fenced blocks of a text: language and content.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, open.as_mut()) {
            (Some(language), None) => open = Some((language.trim().to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, content))) => {
                content.push_str(line);
                content.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Returns a document as its readers see it: with the policies that it includes.
fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let shown = |line: &str| match included(line) {
        Some(file) => std::fs::read_to_string(path.with_file_name(file)).unwrap(),
        None => format!("{line}\n"),
    };
    std::fs::read_to_string(&path).unwrap().lines().map(shown).collect()
}

/// Returns the YAML file that a line of the book includes.
fn included(line: &str) -> Option<&str> {
    let file = line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?;
    Path::new(file).extension().is_some_and(|extension| extension == "yaml").then_some(file)
}

#[test]
fn every_example_of_the_policy_page_gives_the_stated_decision() {
    let mut policy = None;
    let shipped = Policy::from_files(Policy::builtin_files()).unwrap();
    let (mut policies, mut lines) = (0, 0);
    for (language, content) in blocks(&document("../../docs/src/policies.md")) {
        match language.as_str() {
            "yaml" => {
                let loaded = Policy::from_files([("example.yaml", &content)]);
                policy = Some(loaded.unwrap_or_else(|problems| panic!("{problems}\n{content}")));
                policies += 1;
            }
            "calls" | "calls of the shipped policy" => {
                let policy = if language == "calls" { policy.as_ref() } else { Some(&shipped) };
                let policy = policy.expect("calls stand behind their policy");
                for line in content.lines() {
                    ask(policy, line);
                    lines += 1;
                }
            }
            // `tests/spec/blocks.rs` knows the kinds.
            _ => {}
        }
    }
    assert!(policies >= 4 && lines >= 30, "{policies} policies, {lines} calls");
}

/// The pages of the book, by their paths from this crate.
fn pages(directory: &str) -> Vec<String> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{directory}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            pages.extend(self::pages(&name));
        } else if entry.path().extension().is_some_and(|extension| extension == "md") {
            pages.push(name);
        }
    }
    pages
}

#[test]
fn every_policy_in_the_other_documents_loads() {
    let mut documents = pages("../../docs/src");
    documents.extend(["../../README.md", "../ARCHITECTURE.md", "../../CHANGELOG.md"].map(str::to_owned));
    for name in &documents {
        for (language, content) in blocks(&document(name)) {
            let is_policy = language == "yaml"
                && content.lines().any(|line| line.starts_with("profiles:") || line.starts_with("roles:"));
            if is_policy {
                Policy::from_part(name, &content).unwrap_or_else(|problems| panic!("{problems}"));
            }
        }
    }
}

#[test]
fn the_shipped_profiles_can_be_started_from_one_by_one() {
    for (name, text) in Policy::builtin_files() {
        Policy::from_part(name, text).unwrap_or_else(|problems| panic!("{name}: {problems}"));
    }
}

#[test]
fn every_policy_of_the_book_loads_without_a_note_and_is_on_a_page() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text =
        |name: String| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let pages: String = pages("../../docs/src").into_iter().map(text).collect();
    let mut count = 0;
    for entry in std::fs::read_dir(book.join("policies")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = document(&format!("../../docs/policies/{name}"));
        let header = text.lines().take_while(|line| line.starts_with('#')).count();
        assert!((1..=6).contains(&header), "{name}: its header has {header} lines");
        // Without `from_part`: no role and no profile of the shipped policy completes it.
        let policy = Policy::from_files([(&name, &text)]).unwrap_or_else(|problems| panic!("{problems}"));
        let loose: Vec<_> = policy.without_deny_list().chain(policy.with_container_paths()).collect();
        let notes: Vec<_> = policy.egress_notes().collect();
        assert!(loose.is_empty() && notes.is_empty(), "{name}: {loose:?} {notes:?}");
        assert!(pages.contains(&format!("{{{{#include ../policies/{name}}}}}")), "{name}: no page has it");
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

/// `strict.yaml` says of itself that every key is in it, and that most have the value that holds where a profile is silent.
#[test]
fn the_strict_profile_shows_every_key_and_its_default() {
    let text = Policy::builtin_files().find(|(name, _)| *name == "strict.yaml").unwrap().1;
    let policy = Policy::from_files(Policy::builtin_files()).unwrap();
    let strict = policy.profile("strict").unwrap();
    let bare = format!(
        "profiles:\n  strict:\n    operations: {}\nroles: {{r: {{allow: [read]}}}}\n",
        serde_json::to_string(&strict.operations).unwrap()
    );
    let bare = Policy::from_files([("bare.yaml", &bare)]).unwrap();
    let silent = bare.profile("strict").unwrap();
    let expected = policy::Profile {
        description: strict.description.clone(),
        default_role: strict.default_role.clone(),
        allowed_images: strict.allowed_images.clone(),
        exec: strict.exec.clone(),
        ..silent.clone()
    };
    assert_eq!(*strict, expected);
    assert_eq!(
        (silent.exec.default_timeout_s, silent.exec.max_timeout_s, &silent.exec.env, &silent.exec.deny),
        (strict.exec.default_timeout_s, strict.exec.max_timeout_s, &strict.exec.env, &strict.exec.deny)
    );

    let mut keys: Vec<String> =
        ["container_paths", "image", "runtime", "root_in_user_namespace", "risk"].map(str::to_owned).into();
    let value = serde_json::to_value(strict).unwrap();
    for (key, value) in value.as_object().unwrap() {
        keys.push(key.clone());
        let names_of_operations = ["operations", "rate_limits"].contains(&key.as_str());
        let inner = value.as_object().filter(|_| !names_of_operations);
        keys.extend(inner.into_iter().flat_map(|inner| inner.keys().cloned()));
    }
    for key in keys {
        assert!(text.contains(&format!("{key}:")), "`{key}` is not in strict.yaml");
    }
}

/// What the comments of the other shipped files claim, where it is no decision over a call.
#[test]
fn the_comments_of_the_shipped_profiles_are_true() {
    let policy = Policy::from_files(Policy::builtin_files()).unwrap();
    let profile = |name| policy.profile(name).unwrap();
    for name in ["review", "build", "open", "strict"] {
        assert!(profile(name).exec.max_timeout_s <= 120 && profile(name).exec.deny_list.is_on(), "{name}");
    }
    let harness = profile("harness");
    assert_eq!(harness.exec.default_timeout_s, harness.exec.max_timeout_s, "no timeout is the longest one");
    assert!(harness.operations.values().all(|verdict| *verdict == Verdict::Allow), "nothing asks");
    for name in ["review", "build", "open", "harness", "strict"] {
        assert!(profile(name).limits.tmp_mib * 2 <= profile(name).limits.memory_mib, "{name}");
        assert!(profile(name).limits.file_size_mib <= profile(name).limits.disk_mib, "{name}");
        assert!(profile(name).operations.contains_key("delete"), "{name}");
    }
    let loaders = ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GIT_EXEC_PATH", "*"];
    assert!(!profile("build").exec.env.iter().any(|name| loaders.contains(&name.as_str())));
    for name in ["build", "open"] {
        // "Longer than a command may take: what waits gets its turn."
        let concurrency = profile(name).concurrency;
        assert!(concurrency.wait_s >= profile(name).exec.max_timeout_s, "{name}");
        assert!(concurrency.run + concurrency.waiting <= 256, "{name}");
    }
    let silent = "profiles: {p: {operations: {delete: allow}}}\nroles: {r: {allow: [delete]}}\n";
    assert!(Policy::from_files([("p.yaml", silent)]).is_err(), "`delete: allow` is refused");
    let loose = "profiles: {p: {operations: {read: allow}, exec: {max_timeout_s: 14401}}}\nroles: {r: {allow: [read]}}\n";
    assert!(Policy::from_files([("p.yaml", loose)]).is_err(), "no command runs longer than four hours");
}

/// What a run of each shipped profile may have of what came with runs that last. A row of every profile, and of no other.
#[test]
fn listed_profiles_allow_features_of_lasting_runs() {
    let policy = Policy::builtin().unwrap();
    let variables = [
        ("CI", "1"),
        ("TOOL_MODE", "x"),
        ("PYTHONPATH", "/workspace/src"),
        ("PATH", "/x"),
        ("LD_PRELOAD", "/x"),
    ];
    // Of each variable in turn, any image, files outside of the mounts: a lease and a ttl need no leave.
    let table = [
        ("build", [true, false, true, false, false], true, ContainerPaths::Deny),
        ("harness", [true, true, true, true, true], true, ContainerPaths::Allow),
        ("open", [true, true, true, true, true], true, ContainerPaths::Deny),
        ("review", [true, false, false, false, false], true, ContainerPaths::Deny),
        ("strict", [false, false, false, false, false], true, ContainerPaths::Deny),
    ];
    let profiles: Vec<_> = policy.profile_names().collect();
    assert_eq!(profiles, table.map(|(name, ..)| name));
    for (name, allowed, any_image, container_paths) in table {
        let profile = policy.profile(name).unwrap();
        let has = variables.map(|(variable, value)| {
            let env = [(variable.to_owned(), value.to_owned())].into();
            profile.exec.refuses_for_a_run(&env).is_none()
        });
        assert_eq!(has, allowed, "{name}: {variables:?}");
        assert_eq!(profile.permits_image(Some("tools:1")), any_image, "{name}");
        assert_eq!(profile.container_paths, container_paths, "{name}");
    }
}
