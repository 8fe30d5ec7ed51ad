//! Chromium, which has authorities of its own and reads no bundle.

use harness::{programs_image, requests, v1};

use super::super::shell;
use super::{Keys, Origin, SECRET, header, ok};

#[tokio::test(flavor = "multi_thread")]
async fn s54_chromium_trusts_opened_connections_without_a_setting() {
    let keys = Keys::make();
    let origin = Origin::start(Some(&keys.certificates), |_| ok("text/html", "<p>of the page</p>\n")).await;
    let rule = format!(
        "{{ host: files.example.org, ports: [{}], inject: {{ header: Authorization, value: \"${{secret:model}}\" }}, decision: allow }}",
        origin.port
    );
    let daemon = keys.daemon(&[rule], "").await;
    let request = v1::CreateRunRequest { image: programs_image(), ..requests::managed("out") };
    let mut run = daemon.run_on(request).await;
    // Its own sandbox needs namespaces, which a run does not have: the run is the sandbox.
    let script = format!(
        "export TMPDIR=$PWD\n\
         chromium --headless=new --no-sandbox --disable-gpu --user-data-dir=$PWD/profile \
         --dump-dom https://files.example.org:{}/page 2>chromium.log || tail -n 20 chromium.log",
        origin.port
    );
    let (_, said) = shell(&mut run, &script).await;
    assert!(said.contains("<p>of the page</p>"), "{said}");
    let requests = origin.requests();
    let page = requests.iter().find(|request| request.contains("/page")).expect("no request for the page");
    assert_eq!(header(page, "authorization").as_deref(), Some(SECRET));
}
