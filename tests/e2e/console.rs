//! Tests the web console: people sign in, read requests and decide, and no other site and no text of an agent gets in.

use std::time::Duration;

use harness::v1::approval::State;
use harness::{Daemon, RunHandle, Setup, binary, calls, pending, record, v1};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use wire::v1::token_service_client::TokenServiceClient;

/// Longer than an event takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser without scripts.
#[derive(Clone)]
pub(crate) struct Browser {
    pub(crate) address: String,
    pub(crate) host: String,
    pub(crate) cookie: String,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.head.lines().filter_map(|line| line.split_once(": "));
        found.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// Returns the values of the hidden fields of this name.
    fn fields(&self, name: &str) -> Vec<String> {
        let marker = format!("name=\"{name}\" value=\"");
        self.body.split(&marker).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    }
}

impl Browser {
    /// Reads the console's address in the daemon's log.
    pub(crate) fn of(daemon: &Daemon) -> Self {
        let log = daemon.log();
        let line = log.lines().rev().find(|line| line.contains("the console is served")).unwrap();
        let value = |name: &str| {
            line.split(&format!("{name}=")).nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
        };
        let host = value("origin").strip_prefix("http://").unwrap().to_owned();
        Self { address: value("address"), host, cookie: String::new() }
    }

    /// Signs in by a link of the user that runs the test.
    async fn signed_in(daemon: &Daemon) -> Self {
        let mut browser = Self::of(daemon);
        let code = link(daemon).await;
        let entered = browser.post("/sign-in/link", &[("code", &code)]).await;
        assert_eq!(entered.status, 303, "{}", entered.body);
        browser.take_cookie(&entered);
        browser
    }

    pub(crate) fn take_cookie(&mut self, answer: &Answer) {
        let set = answer.header("set-cookie").expect("it signs in");
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
        set.split(';').next().unwrap().clone_into(&mut self.cookie);
    }

    async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let host =
            if headers.contains("Host: ") { String::new() } else { format!("Host: {}\r\n", self.host) };
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}Cookie: {}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            self.cookie,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "").await
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let origin = format!("http://{}", self.host);
        self.post_from(&origin, path, fields).await
    }

    pub(crate) async fn post_from(&self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let encode = |text: &str| -> String {
            text.bytes()
                .map(|byte| match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
                    byte => format!("%{byte:02X}"),
                })
                .collect()
        };
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let headers = format!("Origin: {origin}\r\nContent-Type: application/x-www-form-urlencoded\r\n");
        self.send("POST", path, &headers, &body.join("&")).await
    }

    /// Decides on the request whose page this is.
    async fn decide(&self, path: &str, page: &Answer, decision: &str) -> Answer {
        let csrf = page.fields("csrf").remove(0);
        let approvals = page.fields("approval");
        let mut fields = vec![("csrf", csrf.as_str()), ("decision", decision), ("comment", "read")];
        fields.extend(approvals.iter().map(|approval| ("approval", approval.as_str())));
        self.post(path, &fields).await
    }
}

/// Returns the code of a new link.
async fn link(daemon: &Daemon) -> String {
    let mut clients = daemon.connect().await;
    let made =
        clients.console.create_console_link(v1::CreateConsoleLinkRequest {}).await.unwrap().into_inner();
    made.url.split_once("?code=").unwrap().1.to_owned()
}

async fn started() -> Daemon {
    let config =
        "console: { listen: \"127.0.0.1:0\" }\napprovals: { allow_self_approval: true }\n".to_owned();
    Daemon::start_with(Setup { config, ..Default::default() }).await
}

async fn review(daemon: &Daemon, name: &str) -> RunHandle {
    let workspace = daemon.workspace(name, &[("a.txt", "one\n")]);
    daemon.run("review", &workspace).await
}

fn content(daemon: &Daemon) -> String {
    std::fs::read_to_string(daemon.roots().join("w/a.txt")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_approved_or_denied_in_the_console() {
    let daemon = started().await;
    let mut run = review(&daemon, "w").await;
    let browser = Browser::signed_in(&daemon).await;
    assert!(browser.get("/approvals").await.body.contains("0 requests wait"));

    let waiting = run.waits(calls::replace("a.txt", "one", "three"));
    let denied = pending(&mut run).await;
    let path = format!("/approvals/{}", denied.approval_id);
    let page = browser.get(&path).await;
    assert_eq!(browser.decide(&path, &page, "deny").await.status, 303);
    assert!(waiting.await.unwrap().is_err());
    assert_eq!(content(&daemon), "one\n");

    let waiting = run.waits(calls::replace("a.txt", "one", "two"));
    let asked = pending(&mut run).await;
    let queue = browser.get("/approvals").await;
    let path = format!("/approvals/{}", asked.approval_id);
    assert!(queue.body.contains("1 request waits") && queue.body.contains(&path), "{}", queue.body);
    let page = browser.get(&path).await;
    for part in ["<del>one", "<ins>two", &asked.digest, &asked.rule, "denied"] {
        assert!(page.body.contains(part), "{part} is not in {}", page.body);
    }
    // Enter in a field presses the first button of its form.
    let form = page.body.split("id=\"decide\"").nth(1).unwrap();
    let (first, _) = form.split_once("<button ").unwrap().1.split_once('>').unwrap();
    assert_eq!(first, "type=\"submit\" disabled hidden");
    let decided = browser.decide(&path, &page, "approve").await;
    assert_eq!((decided.status, decided.header("location")), (303, Some(path.as_str())), "{}", decided.body);
    waiting.await.unwrap().unwrap();
    assert_eq!(content(&daemon), "two\n");
    assert!(browser.get(&path).await.body.contains("Approved"));
    let settled = run.clients.approval(&asked.approval_id).await;
    assert_eq!((settled.state(), settled.comment.as_str()), (State::Approved, "read"));
    let history = browser.get("/approvals/history").await;
    assert!(history.body.contains(&path) && history.body.contains("approved"), "{}", history.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_counts_only_for_what_was_shown() {
    let daemon = started().await;
    let mut run = review(&daemon, "w").await;
    let (browser, other) = (Browser::signed_in(&daemon).await, Browser::signed_in(&daemon).await);
    let _waiting = run.waits(calls::replace("a.txt", "one", "two"));
    let asked = pending(&mut run).await;
    let path = format!("/approvals/{}", asked.approval_id);
    let csrf = browser.get("/approvals").await.fields("csrf").remove(0);
    let shown = format!("{}:{}", asked.approval_id, asked.digest);
    let fields =
        |approval| [("csrf", csrf.clone()), ("decision", "approve".to_owned()), ("approval", approval)];
    let decide = async |approval: String| {
        let fields = fields(approval);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.post(&path, &fields).await
    };
    let unseen = decide(shown.clone()).await;
    assert!(unseen.status == 409 && unseen.body.contains("look at the request first"), "{}", unseen.body);
    // The refusal has shown it. It still is bound to its digest.
    let changed = decide(format!("{}:{}", asked.approval_id, "0".repeat(64))).await;
    assert!(changed.status == 409 && changed.body.contains("has changed"), "{}", changed.body);
    assert_eq!(run.clients.approval(&asked.approval_id).await.state(), State::Pending);

    let page = other.get(&path).await;
    assert_eq!(decide(shown).await.status, 303);
    let late = other.decide(&path, &page, "deny").await;
    assert_eq!(late.status, 409, "{}", late.body);
    assert!(late.body.contains("does not count") && late.body.contains("by uid:"), "{}", late.body);
    assert_eq!(run.clients.approval(&asked.approval_id).await.state(), State::Approved);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_are_decided_together() {
    let daemon = started().await;
    let mut runs = [review(&daemon, "w").await, review(&daemon, "v").await];
    let browser = Browser::signed_in(&daemon).await;
    let mut waiting = Vec::new();
    for run in &mut runs {
        waiting.push(run.waits(calls::replace("a.txt", "one", "two")));
        pending(run).await;
    }
    let queue = browser.get("/approvals").await;
    let path =
        queue.body.split("href=\"/approvals/group/").nth(1).expect("a group").split('"').next().unwrap();
    let path = format!("/approvals/group/{path}");
    let page = browser.get(&path).await;
    assert_eq!(page.fields("approval").len(), 2, "{}", page.body);
    let decided = browser.decide(&path, &page, "approve").await;
    assert_eq!(decided.status, 303, "{}", decided.body);
    for one in waiting {
        one.await.unwrap().unwrap();
    }
    let again = browser.decide(&path, &page, "approve").await;
    assert!(again.status == 409 && again.body.contains("0 of 2 decided"), "{}", again.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_an_agent_is_never_markup() {
    let daemon = started().await;
    let mut run = review(&daemon, "w").await;
    let browser = Browser::signed_in(&daemon).await;
    let hostile = "<script>alert(1)</script><a href='//evil.example.org'>\u{202e}\u{1b}[2K\u{200b}</pre>";
    let _waiting = run.waits(calls::write("<img src=x>.txt", hostile));
    let asked = pending(&mut run).await;
    let shown = format!("/approvals/{}", asked.approval_id);
    assert!(browser.get(&shown).await.body.contains("&lt;script&gt;"));
    for path in ["/approvals", &shown] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 200, "{}", page.body);
        for bad in ["<script>", "<img", "evil.example.org'>", "\u{202e}", "\u{1b}", "\u{200b}"] {
            assert!(!page.body.contains(bad), "{bad:?} is in {}", page.body);
        }
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("cache-control"), Some("no-store"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_other_sites_are_refused() {
    let daemon = started().await;
    let browser = Browser::signed_in(&daemon).await;
    let page = browser.get("/approvals").await;
    // With `no-referrer`, browsers would send `null` as the origin of the console's own forms.
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    let csrf = page.fields("csrf").remove(0);
    for host in ["evil.example.org", "127.0.0.1", &browser.address] {
        let answer = browser.send("GET", "/approvals", &format!("Host: {host}\r\n"), "").await;
        assert_eq!(answer.status, 421, "{host}");
    }
    for origin in ["http://evil.example.org", "null", "http://localhost:3000"] {
        let answer = browser.post_from(origin, "/sign-out", &[("csrf", &csrf)]).await;
        assert_eq!(answer.status, 403, "{origin}");
    }
    for fields in [&[][..], &[("csrf", "0")]] {
        assert_eq!(browser.post("/sign-out", fields).await.status, 403);
    }
    let framed = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n";
    assert_eq!(browser.send("GET", "/approvals", framed, "").await.status, 403);
    // A link on another site, which sends no cookie.
    let stranger = Browser { cookie: String::new(), ..browser.clone() };
    let linked = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    let asked_again = stranger.send("GET", "/approvals/history", linked, "").await;
    assert!(asked_again.status == 200 && asked_again.body.contains("0;url=/approvals/history"));
    // Of the same domain, so with the cookie.
    let near = linked.replace("cross-site", "same-site");
    let asked_again = browser.send("GET", "/runs", &near, "").await;
    assert!(asked_again.body.contains("Continue to the console"), "{}", asked_again.body);
    assert!(!asked_again.body.contains("Signed in as"), "{}", asked_again.body);
    assert_eq!(browser.get("/approvals").await.status, 200, "none of it has signed it out");
    assert_eq!(browser.post("/sign-out", &[("csrf", &csrf)]).await.status, 303);
    assert_eq!(browser.get("/approvals").await.header("location"), Some("/sign-in?to=%2Fapprovals"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_signs_in_once() {
    let daemon = started().await;
    let browser = Browser::of(&daemon);
    let code = link(&daemon).await;
    let mut clients = daemon.connect().await;
    // A program that looks at the link before its reader does.
    for _ in 0..2 {
        let looked = browser.get(&format!("/sign-in/link?code={code}")).await;
        assert!(
            looked.status == 200 && looked.body.contains("uid:") && looked.header("set-cookie").is_none()
        );
    }
    assert!(clients.events("", "console_session").await.is_empty());
    assert_eq!(browser.post("/sign-in/link", &[("code", &code)]).await.status, 303);
    let recorded = clients.events("", "console_session").await;
    let details: Vec<_> = recorded.iter().map(|event| record(event)["details"].clone()).collect();
    let expected = serde_json::json!({ "state": "opened", "by": "link", "address": "127.0.0.1" });
    assert_eq!(details, [expected]);
    let again = browser.post("/sign-in/link", &[("code", &code)]).await;
    assert!(again.status == 403 && again.header("set-cookie").is_none(), "{}", again.body);
    let guessed = browser.post("/sign-in/link", &[("code", &"0".repeat(64))]).await;
    assert_eq!(guessed.status, 403);
    let token = browser.post("/sign-in/token", &[("token", "cft_nonsense")]).await;
    assert!(token.status == 403 && token.header("set-cookie").is_none(), "{}", token.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn coffer_prints_a_link_and_says_if_there_is_no_console() {
    let endpoint = |daemon: &Daemon| format!("unix:{}", daemon.socket().display());
    let coffer = async |daemon: &Daemon| {
        let mut command = tokio::process::Command::new(binary("coffer"));
        command.env("COFFERDAM_ENDPOINT", endpoint(daemon)).arg("console").output().await.unwrap()
    };
    let daemon = started().await;
    let made = coffer(&daemon).await;
    let printed = String::from_utf8(made.stdout).unwrap();
    let expected = format!("http://{}/sign-in/link?code=", Browser::of(&daemon).host);
    assert!(made.status.success() && printed.starts_with(&expected), "{printed}");

    let without = Daemon::start().await;
    let refused = coffer(&without).await;
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("serves no console"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_after_a_restart_and_ends_with_its_token() {
    let port = harness::free_port();
    let config = format!("console: {{ listen: \"127.0.0.1:{port}\" }}\n");
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let by_link = Browser::signed_in(&daemon).await;

    let mut tokens = TokenServiceClient::new(daemon.connect().await.channel);
    let token = v1::Token { name: "reader".into(), roles: vec!["approver".into()], ..Default::default() };
    let request = v1::CreateTokenRequest { token: Some(token), lifetime: None };
    let made = tokens.create_token(request).await.unwrap().into_inner();
    let mut by_token = Browser::of(&daemon);
    let entered =
        by_token.post("/sign-in/token", &[("token", &made.secret), ("to", "//evil.example.org")]).await;
    assert_eq!((entered.status, entered.header("location")), (303, Some("/")), "{}", entered.body);
    by_token.take_cookie(&entered);
    assert!(by_token.get("/approvals").await.body.contains("token:reader"));

    daemon.stop().await;
    daemon.launch().await;
    assert_eq!(by_link.get("/approvals").await.status, 200);
    assert_eq!(by_token.get("/approvals").await.status, 303, "the daemon keeps no token");
    let entered = by_token.post("/sign-in/token", &[("token", &made.secret)]).await;
    by_token.take_cookie(&entered);
    assert_eq!(by_token.get("/approvals").await.status, 200);
    let mut tokens = TokenServiceClient::new(daemon.connect().await.channel);
    let token_id = made.token.unwrap().token_id;
    tokens.revoke_token(v1::RevokeTokenRequest { token_id }).await.unwrap();
    assert_eq!(by_token.get("/approvals").await.status, 303);
    let own = by_token.send("GET", "/approvals", "cofferdam-refresh: 1\r\n", "").await;
    assert_eq!(own.status, 401);
    assert_eq!(by_link.get("/approvals").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_hears_of_a_request() {
    let daemon = started().await;
    let run = review(&daemon, "w").await;
    let browser = Browser::signed_in(&daemon).await;
    let mut stream = TcpStream::connect(&browser.address).await.unwrap();
    let request = format!(
        "GET /events/approvals HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nAccept: text/event-stream\r\n\r\n",
        browser.host, browser.cookie
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut hears = async |event: &str| {
        let heard = tokio::time::timeout(PATIENCE, async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line == format!("event: {event}") {
                    return;
                }
            }
            panic!("the stream has ended before {event}");
        });
        heard.await.expect(event);
    };
    hears("hello").await;
    let _waiting = run.waits(calls::replace("a.txt", "one", "two"));
    hears("change").await;
}
