//! The crates of the workspace: which may know which, and how large each may be. The compiler refuses a circle; this refuses a new
//! arrow that nobody has thought about.

use std::collections::BTreeMap;
use std::path::Path;

use super::root;

/// Each crate, and all others of ours that it is built with. Tests may use more.
const ARROWS: [(&str, &str); 25] = [
    ("guest", "jail lock ops text wire worker-protocol"),
    ("audit", ""),
    ("audit-service", "audit ops refusal webhook wire"),
    ("cli", "audit doctor gateway lock mcp text wire"),
    ("containers", "lock text"),
    (
        "daemon",
        "audit audit-service containers dialects doctor executor gateway host-worker identity jail mcp mcp-upstream ops refusal runs store webhook wire worker-protocol",
    ),
    ("dialects", "jail ops text wire"),
    ("doctor", ""),
    ("executor", "containers gateway host-worker jail mcp-upstream ops refusal store wire worker-protocol"),
    ("gateway", "jail lock ops text"),
    ("host-worker", "jail ops text wire worker-protocol"),
    ("identity", "gateway ops refusal seal"),
    ("jail", "text"),
    ("lock", ""),
    ("mcp", "lock text wire"),
    ("mcp-upstream", "gateway ops text wire"),
    ("ops", "jail text wire"),
    ("refusal", "gateway ops wire"),
    (
        "runs",
        "audit audit-service containers executor gateway host-worker identity jail ops refusal store wire",
    ),
    ("seal", ""),
    ("store", "audit containers gateway identity ops refusal seal wire worker-protocol"),
    ("text", ""),
    ("webhook", ""),
    ("wire", ""),
    ("worker-protocol", "jail lock ops wire"),
];

/// Production lines that a crate may have.
const MOST: usize = 12_000;
/// Those that are larger, and how large they are. This list only shrinks: make the number smaller, never larger.
const LARGER: [(&str, usize); 2] = [("daemon", 14_300), ("gateway", 12_500)];

/// The crates by their directories, and their manifests.
fn manifests() -> BTreeMap<String, String> {
    let directories = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap());
    let manifest = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("Cargo.toml")).ok()?;
        Some((entry.file_name().into_string().unwrap(), text))
    };
    directories.filter_map(manifest).collect()
}

/// The names under `[dependencies]`, and under those of a target.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut within = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            within = line.ends_with("dependencies]") && !line.contains("dev-") && !line.contains("build-");
        }
        within.then(|| line.split(['.', ' ', '=']).next()).flatten()
    })
}

/// Lines without tests: a module of tests ends a file, and a file of tests does not count.
fn production_lines(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let lines = entries.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            return if ["tests", "generated"].contains(&name) { 0 } else { production_lines(&path) };
        }
        if path.extension().is_none_or(|extension| extension != "rs")
            || name.ends_with("tests.rs")
            || name == "testing.rs"
        {
            return 0;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let end =
            text.find("\n#[cfg(test)]\nmod ").filter(|at| text[*at..].contains('{')).unwrap_or(text.len());
        text[..end].lines().count()
    });
    lines.sum()
}

#[test]
fn crates_know_the_crates_that_are_listed_and_no_others() {
    let manifests = manifests();
    let found: BTreeMap<&str, Vec<&str>> = manifests
        .iter()
        .map(|(name, manifest)| {
            let mut ours: Vec<_> =
                dependencies(manifest).filter(|used| manifests.contains_key(*used)).collect();
            ours.sort_unstable();
            (name.as_str(), ours)
        })
        .collect();
    let listed = ARROWS.map(|(name, used)| (name, used.split_whitespace().collect()));
    assert_eq!(
        found,
        listed.into(),
        "an arrow has come or gone: is it meant? Then list it in tests/spec/crates.rs"
    );
}

#[test]
fn no_crate_is_larger_than_it_may_be() {
    for name in manifests().keys() {
        let lines = production_lines(&root().join("crates").join(name).join("src"));
        match LARGER.iter().find(|(larger, _)| larger == name) {
            None => assert!(lines <= MOST, "{name} has {lines} lines: divide it"),
            Some((_, most)) => {
                assert!(lines <= *most, "{name} has {lines} lines, and had {most}: it is to become smaller");
                assert!(lines > MOST, "{name} has {lines} lines: take it from the list of larger crates");
            }
        }
    }
}

#[test]
fn dependencies_are_read_from_their_sections_alone() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = { workspace = true }\n\
                    [dev-dependencies]\nc.workspace = true\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n";
    let found: Vec<_> =
        dependencies(manifest).filter(|name| !name.is_empty() && !name.starts_with('[')).collect();
    assert_eq!(found, ["a", "b", "d"]);
}
