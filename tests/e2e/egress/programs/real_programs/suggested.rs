//! cargo and go, with the rules that `coffer egress suggest` makes of their configuration.

use std::process::Command;
use std::time::Duration;

use harness::{Certificates, programs_image};
use serde_json::Value;

use super::{MANIFEST, registry};
use crate::egress::programs::suggested::{Suggested, said, trusted};
use crate::egress::site::Site;
use crate::egress::{details, shell};

/// Versions of Debian's cargo have sparse registries behind an option, and the variable that permits it.
const FETCH: &str = "export CARGO_HOME=/workspace/home CARGO_HTTP_CAINFO=/workspace/ca.pem RUSTC_BOOTSTRAP=1\n\
                     cargo -Z sparse-registry fetch --quiet >&2";
/// Variables with which go writes to the workspace alone.
const GO: &str = "export GOENV=/workspace/go.env GOPATH=/workspace/path GOCACHE=/workspace/cache GOFLAGS=-mod=mod \
                  SSL_CERT_FILE=/workspace/ca.pem\n";
const LOOPBACK: &str = "127.0.0.0/8";

/// Starts the site that the configuration names, and returns its authority, too.
async fn site() -> (Site, String) {
    let certificates = Certificates::for_host("files.example.org");
    let site = Site::start(Some(&certificates), Duration::ZERO).await;
    (site, std::fs::read_to_string(certificates.authority()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn n129_cargo_fetches_through_the_rule_that_is_suggested_for_its_source() {
    let (site, authority) = site().await;
    let url = format!("https://files.example.org:{}", site.port);
    site.put(registry(&url));
    let config = format!(
        "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+{url}/index/\"\n"
    );
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), &config).unwrap();
    let suggested = Suggested::of(home.path(), &[("CARGO_HOME", home.path().to_str().unwrap())]);
    assert!(suggested.has_rule_of("cargo"));
    let manifest = format!("{MANIFEST}small = \"1\"\n");
    let files = [
        ("home/config.toml", config.as_str()),
        ("ca.pem", authority.as_str()),
        ("Cargo.toml", manifest.as_str()),
        ("src/lib.rs", ""),
    ];
    let (_daemon, mut run) = suggested.run(programs_image(), &[LOOPBACK.to_owned()], &files).await;
    let script = format!("{FETCH} && cat home/registry/src/*/small-1.0.0/src/lib.rs");
    let (code, said) = shell(&mut run, &script).await;
    assert!(code == Some(0) && said.contains("\"fetched\""), "{code:?} {said}");
}

/// Returns the archive of a module, as a proxy of modules has it.
fn module() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("small.zip");
    let script = "import sys, zipfile\n\
                  at = 'example.org/small@v1.0.0/'\n\
                  with zipfile.ZipFile(sys.argv[1], 'w') as archive:\n    \
                      archive.writestr(at + 'go.mod', 'module example.org/small\\n')\n    \
                      archive.writestr(at + 'small.go', 'package small\\n\\nconst Word = \"fetched\"\\n')\n";
    assert!(Command::new("python3").args(["-c", script]).arg(&file).status().unwrap().success());
    std::fs::read(file).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn n129_go_downloads_modules_through_the_rule_that_is_suggested_for_its_proxy() {
    let (site, authority) = site().await;
    let at = "/go/example.org/small/@v";
    site.put([
        (format!("{at}/list"), b"v1.0.0\n".to_vec()),
        (format!("{at}/v1.0.0.info"), br#"{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}"#.to_vec()),
        (format!("{at}/v1.0.0.mod"), b"module example.org/small\n".to_vec()),
        (format!("{at}/v1.0.0.zip"), module()),
    ]);
    let environment = format!("GOPROXY=https://files.example.org:{}/go\nGOSUMDB=off\n", site.port);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("go.env");
    std::fs::write(&file, &environment).unwrap();
    let suggested = Suggested::of(home.path(), &[("GOENV", file.to_str().unwrap())]);
    assert!(suggested.has_rule_of("go"));
    let files = [
        ("go.env", environment.as_str()),
        ("ca.pem", authority.as_str()),
        ("go.mod", "module example.org/m\n\ngo 1.19\n\nrequire example.org/small v1.0.0\n"),
    ];
    let (_daemon, mut run) = suggested.run(programs_image(), &[LOOPBACK.to_owned()], &files).await;
    let script = format!("{GO}go mod download >&2 && cat path/pkg/mod/example.org/small@v1.0.0/small.go");
    let (code, said) = shell(&mut run, &script).await;
    assert!(code == Some(0) && said.contains("\"fetched\""), "{code:?} {said}");
    let requests = site.requests();
    assert!(requests.contains(&format!("GET {at}/v1.0.0.zip")), "{requests:?}");
}

/// Returns cargo's configuration of this host.
fn cargo_config() -> Option<String> {
    let variable = |name| std::env::var(name).ok();
    let home = variable("CARGO_HOME").or_else(|| Some(format!("{}/.cargo", variable("HOME")?)))?;
    std::fs::read_to_string(format!("{home}/config.toml")).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn n130_cargo_and_go_ask_the_servers_of_this_host_s_configuration() {
    let suggested = Suggested::of_this_host();
    let cargo = cargo_config().filter(|_| suggested.has_rule_of("cargo"));
    let go = said("go", &["env", "GOPROXY"]).filter(|_| suggested.has_rule_of("go"));
    if cargo.is_none() && go.is_none() {
        eprintln!("skipped: neither cargo nor go is configured on this host to use a server");
        return;
    }
    let manifest = format!("{MANIFEST}cfg-if = \"1\"\n");
    let (trusted, config) = (trusted(), cargo.clone().unwrap_or_default());
    let environment = format!("GOPROXY={}\nGOSUMDB=off\n", go.clone().unwrap_or_default());
    let files = [
        ("home/config.toml", config.as_str()),
        ("go.env", environment.as_str()),
        ("ca.pem", trusted.as_str()),
        ("Cargo.toml", manifest.as_str()),
        ("src/lib.rs", ""),
        ("go.mod", "module example.org/m\n\ngo 1.19\n"),
    ];
    let (_daemon, mut run) = suggested.run(programs_image(), &suggested.exceptions(), &files).await;
    if go.is_some() {
        // No proxy has this module: its answer is enough.
        let (_, said) = shell(&mut run, &format!("{GO}go mod download example.org/none@v1.0.0")).await;
        let receipts = details(&mut run, "egress_receipt", 1).await;
        let answered =
            |receipt: &Value| receipt["cause"] == "closed" && receipt["bytes_in"].as_u64() > Some(0);
        assert!(receipts.iter().any(answered), "{said} {receipts:?}");
    }
    if cargo.is_some() {
        let (code, said) = shell(&mut run, FETCH).await;
        assert_eq!(code, Some(0), "{said}");
    }
}
