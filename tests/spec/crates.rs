//! The crates of the workspace: which may know which, and how large each may be. The compiler refuses a circle; this refuses a new
//! arrow that nobody has thought about.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::root;

/// Each crate, and all others of ours that it is built with. Tests may use more.
const ARROWS: [(&str, &str); 106] = [
    ("admission", ""),
    ("agent-check", "document"),
    ("alert-commands", "command-context fleet-view presentation wire"),
    (
        "anomaly",
        "audit audit-service gateway identity jail operations policy refusal runs store timestamp webhook",
    ),
    ("api-access", ""),
    ("atomic-file", ""),
    ("audit", "atomic-file redact text timestamp"),
    ("audit-service", "admission audit identity metrics operations redact refusal timestamp webhook wire"),
    ("backup", "atomic-file audit seal timestamp"),
    ("backup-service", "audit audit-service backup identity operations refusal runs store timestamp wire"),
    (
        "bases",
        "admission atomic-file audit audit-service disk-quotas executor host-launch identity operations redact refusal runs store timestamp wire",
    ),
    ("bundles", "audit audit-service identity node-id operations redact refusal runs store wire"),
    ("busybox", ""),
    (
        "calls",
        "atomic-file audit audit-service command-rules dialects disk-quotas executor gateway identity jail mcp-upstream metrics node-id operations policy processes redact refusal runs store tenants timestamp traces webhook wire worker-protocol",
    ),
    ("capacity", ""),
    ("certificates", "atomic-file cofferdam-client"),
    (
        "checkpoints",
        "admission atomic-file audit audit-service disk-quotas executor host-launch identity jail operations processes redact refusal runs store timestamp wire",
    ),
    ("checkup", "cofferdam-client command-context doctor mcp presentation wire"),
    (
        "cli",
        "alert-commands audit backup capacity certificates checkup cofferdam-client command-context consent-proof daemon-control document egress-rules egress-sources file-ops fleet-commands fleet-view jail mcp node-commands operations policy presentation run-families text timestamp top transfer-commands tryout usage-report wire",
    ),
    ("cofferdam-client", "node-id wire"),
    ("command-context", "cofferdam-client compose presentation wire"),
    ("command-rules", "jail operations text"),
    (
        "companions",
        "containers egress-rules loopback-dial operations policy refusal text wire worker-protocol",
    ),
    ("comparisons", "admission audit audit-service identity operations refusal runs wire"),
    ("compose", "document"),
    ("confinement", ""),
    ("consent-proof", ""),
    ("containers", "busybox jail leftovers text"),
    (
        "daemon",
        "admission agent-check anomaly atomic-file audit audit-service backup-service bases bundles calls checkpoints comparisons consent-proof containers daemon-log dialects disk-quotas disk-watch doctor document egress egress-rules execution-log executor gateway host-launch identity images jail listener mcp metrics mirrors model-usage node node-id notices oidc oidc-sign-in operations passkeys policy port-forwarding process-memory processes readiness redact refusal runs secrets service-manager store take-over tenants terminals timestamp traces uploads web-console webhook wire worker-protocol",
    ),
    ("daemon-control", "command-context presentation wire"),
    ("daemon-log", "text"),
    ("dialects", "jail operations text wire"),
    ("disk-quotas", "containers identity jail operations refusal wire"),
    ("disk-watch", "audit audit-service containers disk-quotas identity refusal runs"),
    ("doctor", "busybox steering"),
    ("document", ""),
    (
        "egress",
        "audit egress-rules git-wire host-launch model-usage secrets steering tenants timestamp wire worker-protocol",
    ),
    ("egress-rules", "git-wire"),
    ("egress-sources", "egress-rules text timestamp"),
    ("egress-worker", "confinement egress-rules git-wire host-launch signature-twins wire worker-protocol"),
    ("execution-log", "audit audit-service identity refusal runs"),
    (
        "executor",
        "containers gateway host-launch jail mcp-upstream operations policy refusal timestamp wire worker-protocol",
    ),
    ("file-ops", "jail operations text"),
    ("fleet-commands", "atomic-file command-context fleet-config presentation"),
    ("fleet-config", "document node-id"),
    ("fleet-view", "cofferdam-client command-context fleet-config presentation wire"),
    ("gateway", "command-rules document jail node-id operations policy refusal text timestamp"),
    ("git-remote", "git-wire text"),
    ("git-wire", ""),
    ("guest", "file-ops jail operations text wire worker-protocol"),
    ("host-launch", "wire"),
    ("host-worker", "confinement file-ops git-remote host-launch jail operations text wire worker-protocol"),
    ("identity", "node-id operations refusal seal timestamp"),
    (
        "images",
        "admission audit audit-service containers disk-quotas executor identity operations policy refusal runs timestamp wire",
    ),
    ("jail", "text"),
    ("leftovers", ""),
    (
        "listener",
        "admission audit audit-service identity node-id oidc operations refusal runs signature-twins store take-over timestamp wire",
    ),
    ("loopback-dial", ""),
    ("mcp", "admission api-access text wire"),
    ("mcp-upstream", "operations policy text wire"),
    ("metrics", "admission audit operations"),
    (
        "mirrors",
        "admission atomic-file containers egress-rules git-wire host-launch leftovers operations refusal",
    ),
    ("model-usage", "egress-rules timestamp"),
    (
        "node",
        "admission atomic-file audit audit-service bases capacity document identity metrics node-id operations policy refusal runs tenants timestamp warm-pool wire",
    ),
    ("node-commands", "command-context presentation wire"),
    ("node-id", ""),
    ("notices", "operations refusal store text timestamp webhook"),
    ("oidc", "identity webhook"),
    ("oidc-sign-in", "admission document seal webhook"),
    ("operations", "jail wire"),
    ("passkeys", "audit audit-service consent-proof operations refusal store timestamp"),
    ("policy", "document egress-rules jail operations tenants text"),
    (
        "port-forwarding",
        "audit audit-service identity loopback-dial operations policy refusal runs timestamp wire",
    ),
    ("presentation", "certificates cofferdam-client doctor document text timestamp tryout wire"),
    ("process-memory", ""),
    (
        "processes",
        "atomic-file audit audit-service executor gateway identity operations refusal runs seal store text timestamp wire worker-protocol",
    ),
    ("readiness", "audit-service policy refusal runs service-manager store"),
    ("redact", "text"),
    ("refusal", "node-id operations wire"),
    (
        "run-directories",
        "containers executor host-launch identity jail leftovers operations policy refusal run-record",
    ),
    ("run-families", "command-context presentation wire"),
    ("run-files", "atomic-file containers"),
    ("run-record", "audit containers egress-rules host-launch identity operations policy timestamp wire"),
    (
        "runs",
        "admission audit audit-service companions containers disk-quotas egress egress-rules executor host-launch identity jail leftovers mirrors model-usage operations policy redact refusal run-directories run-files run-record store tenants timestamp warm-pool wire",
    ),
    ("seal", "atomic-file"),
    ("secrets", "egress-rules"),
    ("service-manager", "text"),
    ("signature-twins", ""),
    ("steering", ""),
    ("store", "identity refusal seal timestamp"),
    ("tenants", "atomic-file timestamp"),
    (
        "terminals",
        "audit audit-service executor gateway identity operations refusal runs store timestamp wire worker-protocol",
    ),
    ("take-over", ""),
    ("text", ""),
    ("timestamp", ""),
    ("traces", "audit webhook"),
    ("transfer-commands", "cofferdam-client command-context fleet-view presentation wire"),
    ("top", "cofferdam-client command-context presentation text wire"),
    ("tryout", "atomic-file doctor leftovers policy text"),
    ("uploads", "disk-quotas identity jail operations refusal"),
    ("usage-report", "command-context presentation wire"),
    ("warm-pool", ""),
    ("web-console", "admission api-access atomic-file oidc-sign-in seal text timestamp wire"),
    ("webhook", ""),
    ("wire", ""),
    ("worker-protocol", "jail operations text wire"),
];

/// Production lines that a library may have, and a program.
const MOST: usize = 9_000;
const MOST_OF_PROGRAM: usize = 12_600;

/// Crates in the longest chain of arrows. Each crate of it waits for the next to be compiled.
const LONGEST: usize = 11;

/// Crates that may have an arrow to `gateway`: a change of the policy engine compiles them again, and all above.
const MOST_USERS_OF_GATEWAY: usize = 6;

/// What users of the API depend on is not beside what the daemon is made of.
const CLIENT: (&str, &str) = ("cofferdam-client", "clients/rust");

pub(super) fn directory(name: &str) -> PathBuf {
    if name == CLIENT.0 { root().join(CLIENT.1) } else { root().join("crates").join(name) }
}

/// The crates by their directories, and their manifests.
pub(super) fn manifests() -> BTreeMap<String, String> {
    let directories = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap());
    let manifest = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("Cargo.toml")).ok()?;
        Some((entry.file_name().into_string().unwrap(), text))
    };
    let client = std::fs::read_to_string(directory(CLIENT.0).join("Cargo.toml")).unwrap();
    directories.filter_map(manifest).chain([(CLIENT.0.to_owned(), client)]).collect()
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

/// Modules that a file declares for tests alone.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[cfg(test)]").skip(1).filter_map(|after| {
        let declared = after.trim_start().lines().next()?.strip_suffix(';')?;
        declared.rsplit_once("mod ").map(|(_, name)| name)
    })
}

/// The way to a module from the root of its crate.
pub(super) type Module = Vec<String>;

/// The text of each module, without tests: a module of tests ends a file, and a file or directory of tests does not count.
/// `declared` are the modules for tests that the file beside this directory declares.
pub(super) fn sources(directory: &Path, declared: &[String]) -> BTreeMap<Module, String> {
    let modules = |text: &str| -> Vec<String> { test_modules(text).map(str::to_owned).collect() };
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let roots = ["mod.rs", "lib.rs", "main.rs"];
    let root = roots.map(|name| modules(&read(&directory.join(name)))).concat();
    let mut sources = BTreeMap::<Module, String>::new();
    for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name.ends_with("tests") || name == "generated" || root.contains(&name) || declared.contains(&name)
        {
            continue;
        }
        if path.is_dir() {
            let within = self::sources(&path, &modules(&read(&path.with_extension("rs"))));
            sources.extend(
                within.into_iter().map(|(module, text)| ([vec![name.clone()], module].concat(), text)),
            );
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path);
            let end = text.find("\n#[cfg(test)]\nmod ").filter(|at| text[*at..].contains('{'));
            let is_root = roots.iter().any(|root| path.ends_with(root));
            let module = if is_root { Module::new() } else { vec![name] };
            sources.entry(module).or_default().push_str(&text[..end.unwrap_or(text.len())]);
        }
    }
    sources
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

/// Returns the number of crates in the longest chain that begins with `name`.
fn chain(name: &str) -> usize {
    let used = ARROWS.iter().find(|(user, _)| *user == name).map_or("", |(_, used)| used);
    1 + used.split_whitespace().map(chain).max().unwrap_or(0)
}

#[test]
fn no_chain_of_crates_is_longer_than_it_may_be() {
    let longest = ARROWS.iter().map(|(name, _)| chain(name)).max().unwrap();
    assert!(longest <= LONGEST, "a chain of {longest} crates: turn an arrow round, or move a type down");
}

#[test]
fn no_more_crates_know_the_gateway_than_may() {
    let users = ARROWS.iter().filter(|(_, used)| used.split_whitespace().any(|used| used == "gateway"));
    let users: Vec<_> = users.map(|(name, _)| name).collect();
    assert!(users.len() <= MOST_USERS_OF_GATEWAY, "move what they need of it down: {users:?}");
}

#[test]
fn no_crate_is_larger_than_it_may_be() {
    for name in manifests().keys() {
        let directory = directory(name).join("src");
        let lines: usize = sources(&directory, &[]).values().map(|text| text.lines().count()).sum();
        let most = if directory.join("lib.rs").exists() { MOST } else { MOST_OF_PROGRAM };

        assert!(lines <= most, "{name} has {lines} lines: divide it");
    }
}

#[test]
fn modules_of_tests_are_distinguished_from_others() {
    let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod testing;\nmod real;\n#[cfg(test)]\nmod inline {\n}\n";
    assert_eq!(test_modules(text).collect::<Vec<_>>(), ["tests", "testing"]);
}

#[test]
fn dependencies_are_read_from_their_sections_alone() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = { workspace = true }\n\
                    [dev-dependencies]\nc.workspace = true\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n";
    let found: Vec<_> =
        dependencies(manifest).filter(|name| !name.is_empty() && !name.starts_with('[')).collect();
    assert_eq!(found, ["a", "b", "d"]);
}
