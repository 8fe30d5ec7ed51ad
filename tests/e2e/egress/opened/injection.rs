//! Headers that a rule sets, on connections that are opened for it.

use harness::{Certificates, dev_image, requests, v1};

use super::super::{details, shell};
use super::{Keys, Origin, SECRET, header, ok};

/// Returns a request for a run in an image with a client of HTTP that knows certificates.
fn with_curl() -> v1::CreateRunRequest {
    v1::CreateRunRequest { image: dev_image(), ..requests::managed("out") }
}

/// Returns a rule that opens a connection.
fn opening(port: u16) -> String {
    format!(
        "{{ host: files.example.org, ports: [{port}], methods: [GET, POST], paths: [\"/v1/*\"], \
         inject: {{ header: Authorization, value: \"Bearer ${{secret:model}}\" }}, decision: allow }}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_header_is_set_in_place_of_the_agents_and_its_echo_is_hidden() {
    let keys = Keys::make();
    let origin = Origin::start(Some(&keys.certificates), |request| ok("text/plain", request)).await;
    let daemon = keys.daemon(&[opening(origin.port)], "").await;
    let mut run = daemon.run_on(with_curl()).await;
    let url = format!("https://files.example.org:{}", origin.port);
    let script = format!("curl -sS -H 'Authorization: Bearer mine' -H 'X-Other: kept' {url}/v1/a?b=c");
    let (code, said) = shell(&mut run, &script).await;
    assert_eq!(code, Some(0), "{said}");
    let [request] = &origin.requests()[..] else { panic!("not one request") };
    assert_eq!(header(request, "authorization").as_deref(), Some(format!("Bearer {SECRET}").as_str()));
    assert_eq!(header(request, "x-other").as_deref(), Some("kept"));
    assert!(request.starts_with("GET /v1/a?b=c HTTP/1.1\r\n"), "{request}");
    assert!(!said.contains(SECRET) && said.contains(&"*".repeat(SECRET.len())), "{said}");

    // Another path, a path that servers read in two ways, another method: nothing of them goes out.
    for wrong in [
        format!("{url}/v2/a"),
        format!("--path-as-is {url}/v1/../v2"),
        format!("{url}/v1/%2e%2e/v2"),
        format!("-X PUT {url}/v1/a"),
    ] {
        let (_, said) = shell(&mut run, &format!("curl -sS -w ' %{{http_code}}' {wrong}")).await;
        assert!(said.contains("403"), "{wrong}: {said}");
    }
    assert_eq!(origin.requests().len(), 1);

    let receipt = details(&mut run, "egress_receipt", 1).await.remove(0);
    assert_eq!(receipt["injected"], serde_json::json!(["model"]), "{receipt}");
    assert_eq!(receipt["requests"][0]["status"], 200, "{receipt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_basic_authentication_is_set_and_a_redirect_carries_nothing() {
    let keys = Keys::make();
    let other = Origin::start(None, |request| ok("text/plain", request)).await;
    let to = format!("http://git.example.org:{}/landed", other.port);
    let origin = Origin::start(Some(&keys.certificates), move |_| {
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    let rules = [
        format!(
            "{{ host: files.example.org, ports: [{}], inject: {{ basic: {{ user: reader, password: \"${{secret:model}}\" }} }}, decision: allow }}",
            origin.port
        ),
        format!("{{ host: git.example.org, ports: [{}], scheme: http, decision: allow }}", other.port),
    ];
    let daemon = keys.daemon(&rules, "").await;
    let mut run = daemon.run_on(with_curl()).await;
    let script = format!("curl -sS -L --location-trusted https://files.example.org:{}/", origin.port);
    let (code, said) = shell(&mut run, &script).await;
    assert_eq!(code, Some(0), "{said}");
    let authorization = header(&origin.requests()[0], "authorization").unwrap();
    let text = String::from_utf8(base64_decoded(authorization.strip_prefix("Basic ").unwrap())).unwrap();
    assert_eq!(text, format!("reader:{SECRET}"));
    assert_eq!(header(&other.requests()[0], "authorization"), None);
}

fn base64_decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_a_changed_secret_is_used_by_the_next_request_of_a_live_connection() {
    let keys = Keys::make();
    let origin = Origin::start(Some(&keys.certificates), |_| ok("text/plain", "fine")).await;
    let daemon = keys.daemon(&[opening(origin.port)], "").await;
    let mut run = daemon.run_on(with_curl()).await;
    let script = format!(
        "import http.client, os, time\n\
         c = http.client.HTTPSConnection('files.example.org', {})\n\
         c.request('GET', '/v1/a'); print(c.getresponse().read())\n\
         open('first', 'w').close()\n\
         while not os.path.exists('go'): time.sleep(0.05)\n\
         c.request('GET', '/v1/b'); print(c.getresponse().read())\n",
        origin.port
    );
    run.ok(harness::calls::write("twice.py", &script)).await;
    let mut other = run.clone();
    let asked = tokio::spawn(async move { shell(&mut other, "timeout 60 python3 twice.py").await });
    harness::until("the first request", async || origin.requests().len() == 1).await;
    keys.write("another-Secret-0123456789");
    let (code, _) = shell(&mut run, "while [ ! -e first ]; do sleep 0.05; done; touch go").await;
    assert_eq!(code, Some(0));
    let (code, said) = asked.await.unwrap();
    assert_eq!(code, Some(0), "{said}");
    let values: Vec<_> =
        origin.requests().iter().map(|request| header(request, "authorization").unwrap()).collect();
    assert_eq!(values, [format!("Bearer {SECRET}"), "Bearer another-Secret-0123456789".to_owned()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_a_server_that_is_not_signed_for_its_name_gets_no_secret() {
    let keys = Keys::make();
    let stranger = Certificates::for_host("files.example.org");
    let other_name = Origin::start(Some(&keys.certificates), |_| ok("text/plain", "fine")).await;
    let unsigned = Origin::start(Some(&stranger), |_| ok("text/plain", "fine")).await;
    let rules =
        [opening(unsigned.port), opening(other_name.port).replace("files.example.org", "git.example.org")];
    let daemon = keys.daemon(&rules, "").await;
    let mut run = daemon.run_on(with_curl()).await;
    for url in [
        format!("https://files.example.org:{}/v1/a", unsigned.port),
        format!("https://git.example.org:{}/v1/a", other_name.port),
    ] {
        let (_, said) = shell(&mut run, &format!("curl -sS -k -w ' %{{http_code}}' {url}")).await;
        assert!(!said.contains("fine") && !said.contains(" 200"), "{url}: {said}");
    }
    assert!(unsigned.requests().is_empty() && other_name.requests().is_empty());
    for receipt in details(&mut run, "egress_receipt", 2).await {
        assert_eq!(receipt["cause"], "unverified", "{receipt}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s5_a_secret_that_cannot_be_read_stops_the_request_and_is_named() {
    let keys = Keys::make();
    let origin = Origin::start(Some(&keys.certificates), |_| ok("text/plain", "fine")).await;
    let daemon = keys.daemon(&[opening(origin.port)], "").await;
    let mut run = daemon.run_on(with_curl()).await;
    std::fs::remove_file(keys.file()).unwrap();
    let url = format!("https://files.example.org:{}/v1/a", origin.port);
    let (_, said) = shell(&mut run, &format!("curl -sS -w ' %{{http_code}}' {url}")).await;
    assert!(said.contains("model") && said.contains(" 502"), "{said}");
    assert!(!said.contains(&keys.file().display().to_string()), "a path of the host: {said}");
    assert!(origin.requests().is_empty());
    keys.write(SECRET);
    let (_, said) = shell(&mut run, &format!("curl -sS {url}")).await;
    assert_eq!(said, "fine");
}
