//! A run with the programs of `images/dev`, and sites that it may reach.

use std::path::PathBuf;
use std::time::Duration;

use harness::{Certificates, Daemon, RunHandle, dev_image, requests, v1};

use super::site::Site;
use super::{daemon, details, shell};

/// Path of the authority's certificate in a run.
pub(super) const CA: &str = "/workspace/ca.pem";

/// A run with the programs, and sites that it may reach.
pub(super) struct World {
    pub(super) run: RunHandle,
    pub(super) daemon: Daemon,
    /// `files.example.org` with TLS.
    pub(super) site: Site,
    /// The same without.
    pub(super) plain: Site,
}

/// The parts of a world that differ.
pub(super) struct Setting<'a> {
    pub(super) certificates: Certificates,
    /// Further ports of `files.example.org` with TLS.
    pub(super) https: &'a [u16],
    /// Ports of `git.example.org`, over which anything passes.
    pub(super) tcp: &'a [u16],
    /// Further keys of the section `egress`.
    pub(super) keys: &'a str,
    /// Rules after the others, each with a comma before it. `HTTPS` and `HTTP` are the ports of the sites.
    pub(super) rules: &'a str,
    /// Time before the last event.
    pub(super) silence: Duration,
    pub(super) limits: Option<v1::Limits>,
    pub(super) image: String,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        let certificates = Certificates::for_host("files.example.org");
        let silence = Duration::ZERO;
        Self {
            certificates,
            https: &[],
            tcp: &[],
            keys: "",
            rules: "",
            silence,
            limits: None,
            image: dev_image(),
        }
    }
}

impl World {
    pub(super) async fn start(setting: Setting<'_>) -> Self {
        let Setting { certificates, https, tcp, keys, rules, silence, limits, image } = setting;
        let site = Site::start(Some(&certificates), silence).await;
        let plain = Site::start(None, silence).await;
        let https = [&[site.port][..], https].concat();
        let tcp: &[u16] = if tcp.is_empty() { &[9] } else { tcp };
        let ports = [("HTTPS", site.port), ("HTTP", plain.port)];
        let rules =
            ports.iter().fold(rules.to_owned(), |rules, (name, port)| rules.replace(name, &port.to_string()));
        let section = format!(
            "{{ networks: [\"127.0.0.0/8\"], {keys} rules: [\
             {{ host: files.example.org, ports: {https:?}, decision: allow }}, \
             {{ host: files.example.org, ports: [{}], scheme: http, decision: allow }}, \
             {{ host: git.example.org, ports: {tcp:?}, scheme: tcp, decision: allow }}{rules}] }}",
            plain.port
        );
        let daemon = daemon(&section).await;
        let authority = std::fs::read_to_string(certificates.authority()).unwrap();
        let files = [
            ("ca.pem", authority.as_str()),
            ("at_once.py", include_str!("scripts/at_once.py")),
            ("attempts.py", include_str!("scripts/attempts.py")),
            ("encrypted_hello.py", include_str!("scripts/encrypted_hello.py")),
            ("events.py", include_str!("scripts/events.py")),
            ("flood.py", include_str!("scripts/flood.py")),
            ("loop.py", include_str!("scripts/loop.py")),
            ("names.py", include_str!("scripts/names.py")),
            ("websocket.py", include_str!("scripts/websocket.py")),
        ];
        let workspace = daemon.workspace("programs", &files);
        let request = v1::CreateRunRequest { image, limits, ..requests::bind("out", &workspace) };
        let run = daemon.run_on(request).await;
        let mut world = Self { run, daemon, site, plain };
        let environment = world.says("env").await.to_ascii_lowercase();
        assert!(!environment.contains("proxy"), "{environment}");
        world
    }

    /// Returns the beginning of the URLs of the site with TLS.
    pub(super) fn url(&self) -> String {
        format!("https://files.example.org:{}", self.site.port)
    }

    /// Returns the beginning of the URLs of the site without TLS.
    pub(super) fn plain_url(&self) -> String {
        format!("http://files.example.org:{}", self.plain.port)
    }

    /// Runs a script that has to succeed, and returns what it says.
    pub(super) async fn says(&mut self, script: &str) -> String {
        let (code, said) = shell(&mut self.run, script).await;
        assert_eq!(code, Some(0), "{script}: {said}");
        said
    }

    /// Waits for the receipts of so many connections to a port, and returns their bytes out and in.
    pub(super) async fn bytes(&mut self, port: u16, count: usize) -> Vec<(u64, u64)> {
        let receipts = details(&mut self.run, "egress_receipt", count).await;
        let of_port = receipts.iter().filter(|receipt| receipt["port"] == port);
        let bytes = of_port.map(|receipt| {
            assert_eq!(receipt["cause"], "closed", "{receipt}");
            (receipt["bytes_out"].as_u64().unwrap(), receipt["bytes_in"].as_u64().unwrap())
        });
        bytes.collect()
    }

    /// Makes a repository without a work tree.
    pub(super) fn repository(&self, files: &[(&str, &str)]) -> PathBuf {
        let [source, bare] = ["source", "repo.git"].map(|name| self.daemon.outside().join(name));
        std::fs::create_dir(&source).unwrap();
        for (name, text) in files {
            std::fs::write(source.join(name), text).unwrap();
        }
        let clone = ["clone", "-q", "--bare", ".", bare.to_str().unwrap()];
        for arguments in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "first"], &clone] {
            harness::git(&source, arguments);
        }
        harness::git(&bare, &["update-server-info"]);
        bare
    }
}
