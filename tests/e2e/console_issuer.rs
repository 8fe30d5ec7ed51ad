//! Tests the sign-in to the console at an issuer, with one that a test plays.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use harness::{Certificates, Daemon, Issuer, Setup, record, until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::console::{Answer, Browser};

const GRANTS: &str = "{ claim: groups, value: ops, roles: [approver] }";

/// An issuer, and a daemon whose console signs people in there.
struct Scene {
    daemon: Daemon,
    issuer: Issuer,
    url: String,
    /// Answers of the issuer by path.
    answers: watch::Sender<BTreeMap<&'static str, String>>,
    /// Forms that it got for tokens.
    asked: watch::Receiver<Vec<String>>,
    _certificates: Certificates,
}

impl Scene {
    async fn start() -> Self {
        let (issuer, certificates) = (Issuer::default(), Certificates::make(&[]));
        let (answers, said) = watch::channel(BTreeMap::new());
        let (ask, asked) = watch::channel(Vec::new());
        let port = serve(&certificates, said, ask).await;
        let url = format!("https://localhost:{port}/");
        let discovery = json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}authorize"),
            "token_endpoint": format!("{url}token"),
        });
        answers
            .send_modify(|all| drop(all.insert("/.well-known/openid-configuration", discovery.to_string())));
        let config = issuer
            .config_with_file(GRANTS)
            .replace("https://login.example.org/", &url)
            .replace("audience: cofferdam", "leeway: 0s, audience: [cofferdam, console]");
        let config = format!(
            "{config}console: {{ listen: \"127.0.0.1:0\", sign_in: [{{ issuer: corp, client_id: console }}] }}\n"
        );
        let environment = vec![("SSL_CERT_FILE", certificates.authority().display().to_string())];
        let daemon = Daemon::start_with(Setup { config, environment, ..Default::default() }).await;
        Self { daemon, issuer, url, answers, asked, _certificates: certificates }
    }

    /// Begins a sign-in. The browser has its cookie then. Returns the fields of the issuer's page.
    async fn begin(&self, browser: &mut Browser, to: &str) -> BTreeMap<String, String> {
        let begun = browser.post("/sign-in/issuer", &[("issuer", "corp"), ("to", to)]).await;
        assert_eq!(begun.status, 200, "{}", begun.body);
        let set = begun.header("set-cookie").unwrap();
        assert!(
            set.contains("-sign-in=") && set.contains("HttpOnly") && set.contains("SameSite=Lax"),
            "{set}"
        );
        set.split(';').next().unwrap().clone_into(&mut browser.cookie);
        // No form may lead there, so the page does.
        assert!(begun.header("content-security-policy").unwrap().contains("form-action 'self';"));
        let link = begun.body.split("href=\"https://").nth(1).unwrap().split('"').next().unwrap();
        let (place, query) = link.split_once('?').unwrap();
        assert_eq!(format!("https://{place}"), format!("{}authorize", self.url));
        let fields = query.split("&amp;").map(|field| field.split_once('=').unwrap());
        fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Has the issuer give a token to whom has begun with these fields, with changes of its claims.
    fn grant(&self, fields: &BTreeMap<String, String>, lifetime: u64, changes: &Value) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": self.url, "aud": "console", "sub": "bob", "groups": ["ops"], "nonce": fields["nonce"],
            "iat": now, "exp": now + lifetime,
        });
        for (key, value) in changes.as_object().unwrap() {
            claims[key] = value.clone();
        }
        let token = self.issuer.sign(&claims);
        self.give(&token);
        token
    }

    fn give(&self, token: &str) {
        let granted = json!({ "id_token": token, "token_type": "Bearer" }).to_string();
        self.answers.send_modify(|all| drop(all.insert("/token", granted)));
    }
}

/// Serves answers over TLS, as `localhost`. Returns the port.
async fn serve(
    certificates: &Certificates,
    said: watch::Receiver<BTreeMap<&'static str, String>>,
    ask: watch::Sender<Vec<String>>,
) -> u16 {
    let acceptor = certificates.acceptor();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = Vec::new();
            while !is_whole(&request) && stream.read_buf(&mut request).await.unwrap_or(0) > 0 {}
            let request = String::from_utf8(request).unwrap();
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            if let Some((_, form)) = request.split_once("\r\n\r\n").filter(|_| path == "/token") {
                ask.send_modify(|all| all.push(form.to_owned()));
            }
            let body = said.borrow().get(path.as_str()).cloned().unwrap_or_default();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    port
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

/// Comes back from the issuer, as a browser that another site has sent.
async fn come_back(browser: &Browser, query: &str) -> Answer {
    browser.get(&format!("/sign-in/issuer/answer?{query}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_signs_in_at_the_issuer_and_the_session_ends_with_the_token() {
    let scene = Scene::start().await;
    let mut browser = Browser::of(&scene.daemon);
    assert!(browser.get("/sign-in").await.body.contains("action=\"/sign-in/issuer\""));
    let fields = scene.begin(&mut browser, "/approvals?page=1").await;
    assert_eq!((fields["client_id"].as_str(), fields["code_challenge_method"].as_str()), ("console", "S256"));
    let redirect = format!("http%3A%2F%2F{}%2Fsign-in%2Fissuer%2Fanswer", browser.host.replace(':', "%3A"));
    assert_eq!(fields["redirect_uri"], redirect);
    let token = scene.grant(&fields, 8, &json!({}));
    let state = &fields["state"];
    let entered = come_back(&browser, &format!("code=the-code-of-bob&state={state}")).await;
    assert_eq!(entered.status, 200, "{}", entered.body);
    // It goes on by itself, from this site: only then is the cookie of the session sent.
    assert!(entered.body.contains("content=\"0;url=/approvals?page=1\""), "{}", entered.body);
    assert!(entered.head.contains("-sign-in=; ") && entered.head.contains("Max-Age=0"), "{}", entered.head);
    let form = scene.asked.borrow().last().unwrap().clone();
    assert!(form.contains("code=the-code-of-bob") && form.contains("code_verifier="), "{form}");
    // A copy of the cookie finishes no further sign-in, and the issuer is not asked again.
    let replayed = come_back(&browser, &format!("code=another&state={state}")).await;
    assert!(replayed.status == 403 && !replayed.head.contains("SameSite=Strict"), "{}", replayed.head);
    assert_eq!(scene.asked.borrow().len(), 1);
    let pending = browser.cookie.clone();
    browser.take_cookie(&entered);
    let page = browser.get("/approvals").await;
    assert!(page.status == 200 && page.body.contains("oidc:corp:bob"), "{}", page.body);

    let mut clients = scene.daemon.connect().await;
    let recorded = clients.events("", "console_session").await;
    assert_eq!(recorded[0].principal, "oidc:corp:bob");
    assert_eq!(
        record(&recorded[0])["details"],
        json!({ "state": "opened", "by": "issuer", "address": "127.0.0.1" })
    );
    let all = format!("{:?}{}", clients.events("", "").await, scene.daemon.log());
    for secret in
        [token.rsplit('.').next().unwrap(), pending.split('=').nth(1).unwrap(), state, "the-code-of-bob"]
    {
        assert!(!all.contains(secret), "{secret} is on record");
    }
    until("the session goes on without its token", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        browser.get("/approvals").await.status == 303
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_opens_a_session_only_for_the_browser_that_began_and_with_a_token_for_it() {
    let scene = Scene::start().await;
    let mut browser = Browser::of(&scene.daemon);
    let stranger = browser.clone();
    let from_elsewhere =
        browser.post_from("https://evil.example.org", "/sign-in/issuer", &[("issuer", "corp")]).await;
    assert!(from_elsewhere.status == 403 && from_elsewhere.header("set-cookie").is_none());
    assert_eq!(browser.post("/sign-in/issuer", &[("issuer", "none")]).await.status, 404);

    let fields = scene.begin(&mut browser, "//evil.example.org").await;
    scene.grant(&fields, 600, &json!({}));
    let (state, good) = (&fields["state"], format!("code=c&state={}", fields["state"]));
    // Another browser, another state, no code: the sign-in that is under way goes on.
    let mut others = vec![come_back(&stranger, &good).await];
    for query in ["code=c&state=", "code=c&state=other", &format!("state={state}"), ""] {
        others.push(come_back(&browser, query).await);
    }
    for refused in others {
        assert!(refused.status == 403 && refused.header("set-cookie").is_none(), "{}", refused.head);
    }
    assert!(scene.asked.borrow().is_empty(), "a code was sent");

    let text =
        "error=access_denied&error_description=%3Cscript%3Ealert(1)%3C%2Fscript%3E%0D%0ASet-Cookie:%20a=b";
    let refused = come_back(&browser, &format!("{text}&state={state}")).await;
    assert!(refused.status == 403 && refused.body.contains("&lt;script&gt;alert(1)"), "{}", refused.body);
    assert!(!refused.body.contains("<script>alert") && !refused.head.contains("a=b"), "{}", refused.head);

    for (changes, says) in [
        (json!({ "nonce": "another" }), "made for another sign-in"),
        (json!({ "aud": "cofferdam" }), "for another client"),
        (json!({ "groups": [] }), "has no role"),
        (json!({ "exp": 1_000 }), "has expired"),
    ] {
        let fields = scene.begin(&mut browser, "/").await;
        scene.grant(&fields, 600, &changes);
        let refused = come_back(&browser, &format!("code=c&state={}", fields["state"])).await;
        assert!(refused.status == 403 && refused.body.contains(says), "{says}: {}", refused.body);
        assert!(!refused.head.contains("SameSite=Strict"), "{says}: {}", refused.head);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let fields = scene.begin(&mut browser, "/").await;
    let claims = json!({
        "iss": scene.url, "aud": "console", "sub": "bob", "groups": ["ops"], "nonce": fields["nonce"], "iat": now, "exp": now + 600,
    });
    scene.give(&Issuer::default().sign(&claims));
    let forged = come_back(&browser, &format!("code=c&state={}", fields["state"])).await;
    assert!(forged.status == 403 && forged.body.contains("signature is invalid"), "{}", forged.body);

    let fields = scene.begin(&mut browser, "//evil.example.org").await;
    scene.grant(&fields, 600, &json!({}));
    let entered = come_back(&browser, &format!("code=c&state={}", fields["state"])).await;
    assert!(entered.status == 200 && entered.body.contains("url=/\""), "no other site: {}", entered.body);
}
