//! Rules that `coffer egress suggest` makes of this host's configuration, and the tools that use them.

use std::process::Command;

use harness::{Daemon, Setup, binary, dev_image, requests, v1};
use serde_json::Value;

use crate::egress::shell;

/// Returns the standard output of a program of the host, without the last line end. `None` if it fails.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Returns true if a rule was made of a tool's setting.
fn has_rule_of(suggested: &Value, tool: &str) -> bool {
    let rules = suggested["rules"].as_array().unwrap().iter();
    rules
        .flat_map(|rule| rule["from"].as_array().unwrap())
        .any(|from| from.as_str().unwrap().starts_with(&format!("{tool}: ")))
}

#[tokio::test(flavor = "multi_thread")]
async fn n78_tools_ask_the_servers_of_this_host_s_configuration_through_suggested_rules() {
    let coffer = binary("coffer");
    let suggest = |arguments: &[&str]| said(coffer.to_str().unwrap(), arguments).unwrap();
    let suggested: Value =
        serde_json::from_str(&suggest(&["--output", "json", "egress", "suggest"])).unwrap();
    let mut asked = Vec::new();
    let index = said("pip", &["config", "get", "global.index-url"])
        .or_else(|| std::env::var("PIP_INDEX_URL").ok())
        .filter(|_| has_rule_of(&suggested, "pip"));
    if let Some(index) = index {
        asked.push(format!("pip download -q --no-cache-dir --no-deps --index-url '{index}' six"));
    }
    let registry = said("npm", &["config", "get", "registry"]).filter(|_| has_rule_of(&suggested, "npm"));
    if let Some(registry) = registry {
        asked.push(format!("npm view --registry '{registry}' left-pad name"));
    }
    if asked.is_empty() {
        eprintln!("skipped: neither pip nor npm is configured on this host to use a server");
        return;
    }
    let section = suggest(&["egress", "suggest"]);
    let policy = format!(
        "profiles:\n  out:\n    workspace: read-write\n    operations: {{ shell: allow }}\n    \
         allowed_images: [\"*\"]\n    exec: {{ default: allow }}\n{section}\n\
         roles: {{ director: {{ allow: \"*\" }} }}\n"
    );
    let daemon = Daemon::start_with(Setup { policy: vec![("out.yaml", policy)], ..Setup::default() }).await;
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") };
    let mut run = daemon.run_on(request).await;
    for script in asked {
        let (code, said) = shell(&mut run, &script).await;
        assert_eq!(code, Some(0), "{said}");
    }
}
