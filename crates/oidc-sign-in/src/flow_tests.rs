use std::collections::BTreeMap;
use std::pin::pin;

use serde_json::{Value, json};
use url::Url;

use super::*;
use crate::testing::{Server, token};

const DOCUMENT: &str = "/.well-known/openid-configuration";
const REDIRECT: &str = "https://console.example.org/sign-in/issuer/answer";

struct Scene {
    server: Server,
    sign_ins: SignIns,
}

async fn scene(secret: Option<&str>) -> Scene {
    let server = Server::start().await;
    let client = Client {
        name: "corp".to_owned(),
        issuer: server.url.clone(),
        id: "console".to_owned(),
        secret: secret.map(str::to_owned),
        scopes: vec!["groups".to_owned()],
    };
    server.say(DOCUMENT, 200, &document(&server));
    let sign_ins = SignIns::new(vec![client], REDIRECT.to_owned(), server.tls.clone());
    Scene { server, sign_ins }
}

fn document(server: &Server) -> Value {
    json!({
        "issuer": server.url,
        "authorization_endpoint": format!("{}/authorize?tenant=7", server.url),
        "token_endpoint": format!("{}/token", server.url),
    })
}

/// Address of the browsers.
const BROWSER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn now() -> SystemTime {
    SystemTime::now()
}

impl Scene {
    /// Begins a sign-in. Returns its cookie, and what the issuer is asked.
    async fn begin(&self) -> (String, BTreeMap<String, String>) {
        let begun = self.sign_ins.begin("corp", "/approvals", now()).await.unwrap();
        let asked = Url::parse(&begun.url).unwrap();
        assert!(begun.url.starts_with(&format!("{}/authorize?tenant=7&", self.server.url)), "{}", begun.url);
        (begun.cookie, asked.query_pairs().into_owned().collect())
    }

    /// Has the issuer give a token with these changes of its claims.
    fn grant(&self, asked: &BTreeMap<String, String>, changes: &[(&str, Value)]) -> String {
        let mut claims =
            json!({ "iss": self.server.url, "aud": "console", "nonce": asked["nonce"], "sub": "a" });
        for (key, value) in changes {
            claims[*key] = value.clone();
        }
        let token = token(&claims);
        self.server.say("/token", 200, &json!({ "id_token": token, "token_type": "Bearer" }));
        token
    }

    async fn finish(&self, cookie: &str, answered: Answered<'_>) -> Result<String, Failed> {
        let finished = self.sign_ins.finish(cookie, answered, BROWSER, now()).await?;
        assert_eq!(finished.to, "/approvals");
        Ok(finished.token)
    }

    /// Returns the form of the last request for a token, and its credentials.
    fn redeemed(&self) -> (BTreeMap<String, String>, Option<String>) {
        let asked = self.server.asked.borrow();
        let (head, form) = asked.last().unwrap().split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /token "), "{head}");
        let header = head.lines().find_map(|line| line.strip_prefix("authorization: ")).map(str::to_owned);
        (url::form_urlencoded::parse(form.as_bytes()).into_owned().collect(), header)
    }
}

#[tokio::test]
async fn a_code_and_its_verifier_bring_a_token() {
    let scene = scene(None).await;
    let (cookie, asked) = scene.begin().await;
    for (key, value) in [
        ("response_type", "code"),
        ("client_id", "console"),
        ("redirect_uri", REDIRECT),
        ("scope", "openid groups"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(asked[key], value);
    }
    let token = scene.grant(&asked, &[]);
    let answered = Answered { state: &asked["state"], code: "c&1", ..Answered::default() };
    assert_eq!(scene.finish(&cookie, answered).await, Ok(token));
    let (form, header) = scene.redeemed();
    assert_eq!((form["code"].as_str(), form["client_id"].as_str(), header), ("c&1", "console", None));
    assert_eq!(
        (form["grant_type"].as_str(), form["redirect_uri"].as_str()),
        ("authorization_code", REDIRECT)
    );
    let pending = Pending::read(&scene.sign_ins.seal, &cookie, &asked["state"], seconds(now())).unwrap();
    assert_eq!((&form["code_verifier"], &asked["code_challenge"]), (&pending.verifier, &pending.challenge()));
    // The document was fetched once.
    let fetched = scene.server.asked.borrow().iter().filter(|request| request.contains(DOCUMENT)).count();
    assert_eq!(fetched, 1);
}

#[tokio::test]
async fn a_secret_is_sent_as_the_issuer_takes_it() {
    let scene = scene(Some("s:cr&t")).await;
    let (cookie, asked) = scene.begin().await;
    scene.grant(&asked, &[]);
    let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
    scene.finish(&cookie, answered).await.unwrap();
    let (form, header) = scene.redeemed();
    assert_eq!(header.unwrap(), format!("Basic {}", STANDARD.encode("console:s%3Acr%26t")));
    assert!(!form.contains_key("client_secret"));

    let scene = self::scene(Some("s:cr&t")).await;
    let mut document = document(&scene.server);
    document["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
    scene.server.say(DOCUMENT, 200, &document);
    let (cookie, asked) = scene.begin().await;
    scene.grant(&asked, &[]);
    let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
    scene.finish(&cookie, answered).await.unwrap();
    let (form, header) = scene.redeemed();
    assert_eq!((form["client_secret"].as_str(), header), ("s:cr&t", None));
}

#[tokio::test]
async fn an_answer_counts_only_in_the_browser_that_began() {
    let scene = scene(None).await;
    let (cookie, asked) = scene.begin().await;
    let (other, _) = scene.begin().await;
    scene.grant(&asked, &[]);
    let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
    for cookie in ["", "e30", &other] {
        assert_eq!(scene.finish(cookie, answered).await, Err(Failed::Stale));
    }
    let late = now() + Duration::from_secs(crate::LIFE);
    assert!(matches!(scene.sign_ins.finish(&cookie, answered, BROWSER, late).await, Err(Failed::Stale)));
    for wrong in [
        Answered { state: "", ..answered },
        Answered { code: "", ..answered },
        Answered { issuer: "https://evil.example.org", ..answered },
    ] {
        assert_eq!(scene.finish(&cookie, wrong).await, Err(Failed::Stale), "{wrong:?}");
    }
    assert!(
        scene.server.asked.borrow().iter().all(|request| !request.starts_with("POST")),
        "no code was sent"
    );
    let named = Answered { issuer: &scene.server.url, ..answered };
    scene.finish(&cookie, named).await.unwrap();
}

#[tokio::test]
async fn a_cookie_is_spent_with_the_first_answer() {
    let scene = scene(None).await;
    let asked_for_tokens =
        || scene.server.asked.borrow().iter().filter(|request| request.starts_with("POST")).count();
    let (cookie, asked) = scene.begin().await;
    scene.grant(&asked, &[]);
    let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
    scene.finish(&cookie, answered).await.unwrap();
    for replayed in [answered, Answered { code: "another", ..answered }] {
        assert_eq!(scene.finish(&cookie, replayed).await, Err(Failed::Stale));
    }
    assert_eq!(asked_for_tokens(), 1);

    // An error spends it, too, and so does a token that is for another sign-in.
    let (cookie, asked) = scene.begin().await;
    let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
    let denied = Answered { error: "access_denied", ..answered };
    assert!(matches!(scene.finish(&cookie, denied).await, Err(Failed::Refused(_))));
    assert_eq!(scene.finish(&cookie, answered).await, Err(Failed::Stale));
    let (cookie, asked) = scene.begin().await;
    let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
    assert!(matches!(scene.finish(&cookie, answered).await, Err(Failed::Token(_))));
    assert_eq!(scene.finish(&cookie, answered).await, Err(Failed::Stale));
    assert_eq!(asked_for_tokens(), 2);
}

#[tokio::test]
async fn an_address_that_finishes_too_many_sign_ins_waits_and_spends_none() {
    let scene = scene(None).await;
    let most = usize::try_from(FINISHING.per_second).unwrap();
    let mut begun = Vec::new();
    for _ in 0..=2 * most {
        begun.push(scene.begin().await);
    }
    let mut busy = Vec::new();
    for (cookie, asked) in &begun {
        let denied = Answered { state: &asked["state"], error: "access_denied", ..Answered::default() };
        match scene.finish(cookie, denied).await {
            Err(Failed::Busy) => busy.push((cookie, asked)),
            other => assert!(matches!(other, Err(Failed::Refused(_))), "{other:?}"),
        }
    }
    let (cookie, asked) = busy.pop().expect("no sign-in had to wait");
    scene.grant(asked, &[]);
    let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
    let other = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    assert!(scene.sign_ins.finish(cookie, answered, other, now()).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_names_itself_has_to_do_so() {
    let scene = scene(None).await;
    let mut document = document(&scene.server);
    document["authorization_response_iss_parameter_supported"] = json!(true);
    scene.server.say(DOCUMENT, 200, &document);
    let (cookie, asked) = scene.begin().await;
    let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
    assert_eq!(scene.finish(&cookie, answered).await, Err(Failed::Stale));
}

#[tokio::test]
async fn a_token_for_another_sign_in_client_or_issuer_is_refused() {
    let scene = scene(None).await;
    for (key, value) in
        [("nonce", json!("another")), ("aud", json!("another")), ("iss", json!("https://evil.example.org"))]
    {
        let (cookie, asked) = scene.begin().await;
        let answered = Answered { state: &asked["state"], code: "c", ..Answered::default() };
        scene.grant(&asked, &[(key, value)]);
        let failed = scene.finish(&cookie, answered).await.unwrap_err();
        assert!(matches!(failed, Failed::Token(_)), "{key}: {failed}");
    }
}

#[tokio::test]
async fn errors_of_an_issuer_are_for_people_and_have_no_secret() {
    let scene = scene(Some("s3cret")).await;
    let (cookie, asked) = scene.begin().await;
    let denied = Answered {
        state: &asked["state"],
        error: "access_denied",
        description: "<b>no</b>",
        ..Answered::default()
    };
    let failed = scene.finish(&cookie, denied).await.unwrap_err();
    assert_eq!(failed, Failed::Refused("access_denied (<b>no</b>)".to_owned()));
    for (status, body, says) in [
        (400, json!({ "error": "invalid_grant" }), "invalid_grant"),
        (500, json!("no"), "answered 500"),
        (302, json!({}), "answered 302"),
        (200, json!({ "access_token": "a" }), "no ID token"),
        (200, json!({ "id_token": "x".repeat(70_000) }), "more than 65536 bytes"),
        (200, json!({ "id_token": 7 }), "no ID token"),
    ] {
        scene.server.say("/token", status, &body);
        let (cookie, asked) = scene.begin().await;
        let answered = Answered { state: &asked["state"], code: "the-code", ..Answered::default() };
        let failed = scene.finish(&cookie, answered).await.unwrap_err().to_string();
        assert!(failed.contains(says), "{says}: {failed}");
        for secret in ["s3cret", "the-code", &asked["nonce"]] {
            assert!(!failed.contains(secret), "{failed}");
        }
    }
}

#[tokio::test]
async fn an_issuer_that_is_down_is_asked_again_after_a_while() {
    let scene = scene(None).await;
    scene.server.say(DOCUMENT, 503, &json!({}));
    for _ in 0..20 {
        let failed = scene.sign_ins.begin("corp", "/", now()).await.unwrap_err().to_string();
        assert!(failed.contains("its discovery document: answered 503"), "{failed}");
    }
    assert_eq!(scene.server.asked.borrow().len(), 1);
    assert!(matches!(scene.sign_ins.begin("other", "/", now()).await, Err(Failed::Unknown)));
    assert_eq!(scene.sign_ins.names().collect::<Vec<_>>(), ["corp"]);
}

#[tokio::test]
async fn an_address_whose_sign_ins_wait_holds_up_no_other() {
    let sign_ins = scene(None).await.sign_ins;
    let other = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    let mut held = Vec::new();
    for _ in 0..TURNS {
        held.push(sign_ins.turn(BROWSER).await.unwrap());
    }
    let (mut more, mut another) = (pin!(sign_ins.turn(BROWSER)), pin!(sign_ins.turn(other)));
    for _ in 0..2 {
        assert!(timeout(Duration::ZERO, &mut more).await.is_err());
        assert!(timeout(Duration::ZERO, &mut another).await.is_err());
    }
    drop(held.pop());
    assert!(timeout(Duration::ZERO, &mut more).await.is_err(), "it came first, and its address has seven");
    assert!(another.await.is_ok());
}
