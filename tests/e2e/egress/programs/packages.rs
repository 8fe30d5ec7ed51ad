//! Package tools and git, from servers of the test.

use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA512, digest};
use serde_json::json;

use crate::egress::site::Files;
use crate::egress::world::{CA, Setting, World};

const WHEEL: &str = "small-1.0-py3-none-any.whl";

/// Returns a wheel with one module.
fn wheel() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let info = "small-1.0.dist-info";
    std::fs::create_dir(directory.path().join(info)).unwrap();
    for (name, text) in [
        ("small.py".to_owned(), "WORD = 'installed'\n"),
        (format!("{info}/METADATA"), "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n"),
        (
            format!("{info}/WHEEL"),
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
        (
            format!("{info}/RECORD"),
            "small.py,,\nsmall-1.0.dist-info/METADATA,,\nsmall-1.0.dist-info/WHEEL,,\nsmall-1.0.dist-info/RECORD,,\n",
        ),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let zip = Command::new("python3")
        .args(["-m", "zipfile", "-c", WHEEL, "small.py", info])
        .current_dir(&directory)
        .status();
    assert!(zip.unwrap().success());
    std::fs::read(directory.path().join(WHEEL)).unwrap()
}

/// Returns the archive of a package for npm.
fn package() -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in [
        ("package/package.json", r#"{ "name": "small", "version": "1.0.0", "main": "index.js" }"#),
        ("package/index.js", "module.exports = 'installed';\n"),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(text.len()).unwrap());
        header.set_mode(0o644);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn n70_pip_installs_from_an_index_that_a_rule_names() {
    let mut world = World::start(Setting::default()).await;
    let wheel = wheel();
    let sum = harness::files::sha256(&wheel);
    let index = format!("<a href=\"/wheels/{WHEEL}#sha256={sum}\">{WHEEL}</a>\n");
    world.site.put([
        (
            "/simple/small/".to_owned(),
            format!("<!DOCTYPE html><html><body>{index}</body></html>").into_bytes(),
        ),
        (format!("/wheels/{WHEEL}"), wheel),
    ]);
    let script = format!(
        "pip install -q --no-cache-dir --disable-pip-version-check --cert {CA} --index-url {}/simple --target lib small && \
         PYTHONPATH=lib python3 -c 'import small; print(small.WORD)'",
        world.url()
    );
    assert_eq!(world.says(&script).await, "installed\n");
    let requests = world.site.requests();
    assert_eq!(requests, ["GET /simple/small/".to_owned(), format!("GET /wheels/{WHEEL}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn n70_npm_installs_from_a_registry_that_a_rule_names() {
    let mut world = World::start(Setting::default()).await;
    let (package, url) = (package(), world.url());
    let integrity = format!("sha512-{}", STANDARD.encode(digest(&SHA512, &package)));
    let dist = json!({ "tarball": format!("{url}/npm/small/-/small-1.0.0.tgz"), "integrity": integrity });
    let document = json!({
        "name": "small",
        "dist-tags": { "latest": "1.0.0" },
        "versions": { "1.0.0": { "name": "small", "version": "1.0.0", "dist": dist } },
    });
    world.site.put([
        ("/npm/small".to_owned(), document.to_string().into_bytes()),
        ("/npm/small/-/small-1.0.0.tgz".to_owned(), package),
    ]);
    let script = format!(
        "mkdir project && cd project && echo '{{}}' >package.json && \
         printf 'registry={url}/npm/\\ncafile={CA}\\naudit=false\\nfund=false\\nupdate-notifier=false\\n' >.npmrc && \
         npm install --silent small >&2 && node -p 'require(\"small\")'"
    );
    assert_eq!(world.says(&script).await, "installed\n");
    assert_eq!(world.site.requests(), ["GET /npm/small", "GET /npm/small/-/small-1.0.0.tgz"]);
}

/// Returns the files of a directory, as a site has them beneath a path.
pub(super) fn served(directory: &Path, at: &str) -> Files {
    let mut files = Files::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let at = format!("{at}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files.extend(served(&entry.path(), &at));
        } else {
            files.insert(at, std::fs::read(entry.path()).unwrap());
        }
    }
    files
}
