//! Rules that `coffer egress suggest` makes of a configuration, and the tools that use them.

use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::process::Command;

use egress_rules::check;
use harness::{Daemon, RunHandle, Setup, binary, dev_image, requests, v1};
use serde_json::Value;

use crate::egress::shell;

/// Certificates that a host of Debian's family trusts.
const TRUSTED: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Rules for the servers that tools are configured to use.
pub(super) struct Suggested {
    /// Section `egress` of a profile.
    section: String,
    rules: Vec<Value>,
}

impl Suggested {
    /// Runs `coffer egress suggest` in a directory, with further variables.
    pub(super) fn of(directory: &Path, variables: &[(&str, &str)]) -> Self {
        let suggest = |arguments: &[&str]| {
            let mut coffer = Command::new(binary("coffer"));
            coffer.args(arguments).args(["egress", "suggest"]).current_dir(directory);
            let output = coffer.envs(variables.iter().copied()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let listed: Value = serde_json::from_str(&suggest(&["--output", "json"])).unwrap();
        Self { section: suggest(&[]), rules: listed["rules"].as_array().unwrap().clone() }
    }

    /// Makes the rules of this host.
    pub(super) fn of_this_host() -> Self {
        Self::of(Path::new("."), &[])
    }

    /// Returns true if a rule was made of a tool's setting.
    pub(super) fn has_rule_of(&self, tool: &str) -> bool {
        let mut from = self.rules.iter().flat_map(|rule| rule["from"].as_array().unwrap());
        from.any(|from| from.as_str().unwrap().starts_with(&format!("{tool}: ")))
    }

    /// Returns the servers' addresses that a policy has to except, as it names them.
    pub(super) fn exceptions(&self) -> Vec<String> {
        let hosts = self.rules.iter().map(|rule| rule["host"].as_str().unwrap());
        let addresses = hosts.filter_map(|host| (host, 0).to_socket_addrs().ok()).flatten();
        let addresses = addresses.map(|address| address.ip());
        let excepted = addresses.filter(|address| {
            check(*address, &[], None).is_err() && check(*address, &[(*address).into()], None).is_ok()
        });
        excepted.map(|address| format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })).collect()
    }

    /// Starts a run under these rules, with these exceptions and files. Names without a server lead to the loopback.
    pub(super) async fn run(
        &self,
        image: String,
        networks: &[String],
        files: &[(&str, &str)],
    ) -> (Daemon, RunHandle) {
        let section = self.section.replacen(
            "    egress:\n",
            &format!("    egress:\n      networks: {networks:?}\n"),
            1,
        );
        let policy = format!(
            "profiles:\n  out:\n    workspace: read-write\n    operations: {{ shell: allow }}\n    \
             allowed_images: [\"*\"]\n    exec: {{ default: allow, default_timeout_s: 240, max_timeout_s: 240 }}\n{section}\n\
             roles: {{ director: {{ allow: \"*\" }} }}\n"
        );
        let config = "egress: { hosts: { files.example.org: 127.0.0.1 } }\n".to_owned();
        let policy = vec![("out.yaml", policy)];
        let daemon = Daemon::start_with(Setup { config, policy, ..Setup::default() }).await;
        let workspace = daemon.workspace("tools", files);
        let request = v1::CreateRunRequest { image, ..requests::bind("out", &workspace) };
        let run = daemon.run_on(request).await;
        (daemon, run)
    }
}

/// Returns the standard output of a program of the host, without the last line end. `None` if it fails.
pub(super) fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Returns the certificates that this host trusts; empty if there are none.
pub(super) fn trusted() -> String {
    std::fs::read_to_string(TRUSTED).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn n78_tools_ask_the_servers_of_this_host_s_configuration_through_suggested_rules() {
    let suggested = Suggested::of_this_host();
    let mut asked = Vec::new();
    let index = said("pip", &["config", "get", "global.index-url"])
        .or_else(|| std::env::var("PIP_INDEX_URL").ok())
        .filter(|_| suggested.has_rule_of("pip"));
    if let Some(index) = index {
        asked.push(format!("pip download -q --no-cache-dir --no-deps --index-url '{index}' six"));
    }
    let registry = said("npm", &["config", "get", "registry"]).filter(|_| suggested.has_rule_of("npm"));
    if let Some(registry) = registry {
        asked.push(format!("npm view --registry '{registry}' left-pad name"));
    }
    if asked.is_empty() {
        eprintln!("skipped: neither pip nor npm is configured on this host to use a server");
        return;
    }
    let (_daemon, mut run) = suggested.run(dev_image(), &suggested.exceptions(), &[]).await;
    for script in asked {
        let (code, said) = shell(&mut run, &script).await;
        assert_eq!(code, Some(0), "{said}");
    }
}

/// Returns apt's sources of this host, with their paths in a workspace.
fn sources() -> Vec<(String, String)> {
    let directory = Path::new("/etc/apt");
    let more = std::fs::read_dir(directory.join("sources.list.d")).into_iter().flatten().flatten();
    let files = more.map(|entry| entry.path()).chain([directory.join("sources.list")]);
    let files = files.filter(|file| file.extension().is_some_and(|form| form == "list" || form == "sources"));
    let files = files.filter_map(|file| {
        let text = std::fs::read_to_string(&file).ok()?;
        Some((format!("apt/etc/{}", file.strip_prefix(directory).unwrap().display()), text))
    });
    files.collect()
}

/// Apt in a directory of the workspace. It checks neither signatures nor dates, because the image has the keys of Debian alone.
const APT: &str = "\
Dir::Etc \"/workspace/apt/etc\";
Dir::State \"/workspace/apt/state\";
Dir::State::status \"/workspace/apt/status\";
Dir::Cache \"/workspace/apt/cache\";
APT::Sandbox::User \"\";
Acquire::AllowInsecureRepositories \"true\";
Acquire::Check-Valid-Until \"false\";
Acquire::Check-Date \"false\";
Acquire::Languages \"none\";
";

#[tokio::test(flavor = "multi_thread")]
async fn n128_apt_reads_the_sources_of_this_host_through_suggested_rules() {
    let suggested = Suggested::of_this_host();
    if !suggested.has_rule_of("apt") {
        eprintln!("skipped: apt is not configured on this host to use a server");
        return;
    }
    if let Some(proxy) =
        ["http_proxy", "https_proxy"].into_iter().find(|name| std::env::var_os(name).is_some())
    {
        eprintln!("skipped: this host reaches the servers of apt through the proxy of {proxy}");
        return;
    }
    let (trusted, mut conf) = (trusted(), APT.to_owned());
    if !trusted.is_empty() {
        conf.push_str("Acquire::https::CaInfo \"/workspace/ca.pem\";\n");
    }
    let sources = sources();
    let mut files: Vec<(&str, &str)> =
        sources.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    files.extend([("apt/conf", conf.as_str()), ("apt/status", ""), ("ca.pem", trusted.as_str())]);
    let (_daemon, mut run) = suggested.run(dev_image(), &suggested.exceptions(), &files).await;
    let script = "cd apt && mkdir -p state/lists/partial cache/archives/partial etc/apt.conf.d etc/preferences.d && \
                  APT_CONFIG=/workspace/apt/conf apt-get -q update && ls state/lists";
    let (code, said) = shell(&mut run, script).await;
    assert!(code == Some(0) && said.contains("_Packages"), "{code:?} {said}");
}
