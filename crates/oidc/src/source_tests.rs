use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use webhook::{Tls, testing};

use super::{ASK, KeySource, MAX_SET, Source};
use crate::condition::Held;
use crate::testing::{Signer, set};

const HOUR: Duration = Duration::from_secs(3_600);

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn keys(id: &str) -> Vec<u8> {
    ok(&set(&[Signer::ed().jwk(id)]))
}

/// A server with TLS that gives each client the answer of the moment, and a source with its URL.
struct Server {
    answer: watch::Sender<Vec<u8>>,
    asked: watch::Receiver<u32>,
    source: KeySource,
    tls: Tls,
}

async fn server(max_age: Duration) -> Server {
    let (answer, said) = watch::channel(Vec::new());
    let (count, asked) = watch::channel(0);
    let (url, tls) = testing::serve(move |_| {
        count.send_modify(|count| *count += 1);
        said.borrow().clone()
    })
    .await;
    let source = Source::Url { url: format!("{url}/keys"), refresh: HOUR, max_age };
    let source = KeySource::open("corp".into(), source).unwrap();
    Server { answer, asked, source, tls }
}

impl Server {
    /// Whether the source has the key with this id after a look.
    fn has(&self, id: &str) -> bool {
        self.source
            .current()
            .is_some_and(|keys| keys.pick(Some(id), jsonwebtoken::Algorithm::EdDSA).is_some())
    }
}

/// Lets time pass in which nothing happens.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn j4_hostile_key_server_does_not_replace_keys_until_they_expire() {
    let server = server(2 * HOUR).await;
    assert!(server.source.current().is_none(), "nothing is known before the first look");
    server.answer.send_replace(keys("one"));
    server.source.look(&server.tls).await.unwrap();
    assert!(server.has("one"));
    let many: Vec<_> = (0..65).map(|number| Signer::ed().jwk(&number.to_string())).collect();
    for (answer, says) in [
        (
            b"HTTP/1.1 302 Found\r\nlocation: https://localhost/keys\r\ncontent-length: 0\r\n\r\n".to_vec(),
            "answered 302",
        ),
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_vec(), "answered 503"),
        (ok(&"x".repeat(MAX_SET + 1)), "answered more than"),
        (ok(&format!("{{\"keys\":[{}]}}", "[".repeat(10_000))), "holds no JWK Set"),
        (ok("{}"), "holds no JWK Set"),
        (ok("{\"keys\":[]}"), "has no key"),
        (ok(&set(&[json!({ "kty": "oct", "kid": "one", "k": "AAAA" })])), "has no key"),
        (ok(&set(&many)), "has more than 64 keys"),
        (b"SSH-2.0-x\r\n".to_vec(), "no answer"),
        (Vec::new(), "no answer"),
    ] {
        server.answer.send_replace(answer);
        let wrong = server.source.look(&server.tls).await.unwrap_err();
        assert!(wrong.starts_with(says), "{says}: {wrong}");
        assert!(server.has("one"), "{says}");
    }
    // Nobody else's certificate is taken for the issuer's.
    server.answer.send_replace(keys("two"));
    let wrong = server.source.look(&Tls::trusting([]).unwrap()).await.unwrap_err();
    assert!(wrong.starts_with("TLS failed"), "{wrong}");
    assert!(server.has("one"));
    pass(2 * HOUR + Duration::from_secs(1)).await;
    assert!(server.source.current().is_none(), "they are too old");
    server.source.look(&server.tls).await.unwrap();
    assert!(server.has("two") && !server.has("one"));
}

#[tokio::test]
async fn j4_an_unknown_key_has_the_issuer_asked_again_and_not_more_often_than_that() {
    let mut server = server(2 * HOUR).await;
    server.answer.send_replace(keys("one"));
    server.source.look(&server.tls).await.unwrap();
    assert!(!server.source.ask_again(), "it was asked just now");
    pass(ASK).await;
    server.answer.send_replace(keys("two"));
    for _ in 0..1_000 {
        assert!(server.source.ask_again(), "one look is to come");
    }
    let mut looks = server.asked.clone();
    let keeping = server.source.keep_fresh(&server.tls);
    let seen = async {
        // The first look of the keeper, and the one that was asked for.
        looks.wait_for(|count| *count >= 2).await.unwrap();
        while !server.has("two") {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { () = keeping => {}, () = seen => {} }
    for _ in 0..1_000 {
        assert!(!server.source.ask_again());
    }
    assert!(*server.asked.borrow_and_update() <= 3, "{:?}", server.asked);
}

#[tokio::test]
async fn j7_key_condition_follows_the_last_fetch() {
    let server = server(2 * HOUR).await;
    let known = || server.source.condition();
    assert_eq!((known().held, known().wrong), (None, None));
    let mut look = server.source.ask().expect("it was never looked at");
    assert_eq!(known().wrong.as_deref(), Some("no answer yet"));
    assert!(!look.has_changed().unwrap());
    server.answer.send_replace(keys("one"));
    server.source.look(&server.tls).await.unwrap();
    look.changed().await.unwrap();
    let Some(Held { keys: 1, left: Some(left) }) = known().held else { panic!("{:?}", known()) };
    assert!(left <= 2 * HOUR && left > HOUR, "{left:?}");
    assert!(server.source.ask().is_none(), "it was looked at just now");
    server.answer.send_replace(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_vec());
    server.source.look(&server.tls).await.unwrap_err();
    assert_eq!(
        (known().held.map(|held| held.keys), known().wrong.as_deref()),
        (Some(1), Some("answered 503"))
    );
    pass(2 * HOUR + Duration::from_secs(1)).await;
    assert_eq!(known().held, None);
}

fn put(path: &Path, id: &str) {
    std::fs::write(path, set(&[Signer::ed().jwk(id)])).unwrap();
}

#[tokio::test]
async fn j4_a_key_file_is_read_again_when_it_changes_and_only_its_owner_may_change_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    let open = || KeySource::open("corp".into(), Source::File(path.clone()));
    let tls = Tls::trusting([]).unwrap();
    assert!(open().unwrap_err().contains("cannot be read"));
    std::fs::write(&path, "{}").unwrap();
    assert!(open().unwrap_err().contains("holds no JWK Set"));
    put(&path, "one");
    let source = open().unwrap();
    let has = |id: &str| source.current().unwrap().pick(Some(id), jsonwebtoken::Algorithm::EdDSA).is_some();
    assert!(has("one"));
    put(&path, "two");
    source.look(&tls).await.unwrap();
    assert!(has("two") && !has("one"));
    assert_eq!(source.condition().held, Some(Held { keys: 1, left: None }));
    std::fs::write(&path, "nothing").unwrap();
    source.look(&tls).await.unwrap_err();
    assert!(has("two"));
    put(&path, "three");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o664)).unwrap();
    assert!(source.look(&tls).await.unwrap_err().contains("chmod go-w"));
    assert!(has("two") && open().is_err());
    std::fs::write(&path, vec![b' '; MAX_SET + 1]).unwrap();
    assert!(source.look(&tls).await.is_err() && has("two"));
}

#[test]
fn j4_keys_over_plain_http_are_refused() {
    for url in [
        "http://localhost/keys",
        "http://127.0.0.1:1/keys",
        "ftp://example.org/",
        "",
        "https://",
        "https://u:p@example.org/",
    ] {
        let source = Source::Url { url: url.into(), refresh: HOUR, max_age: HOUR };
        assert!(KeySource::open("corp".into(), source).is_err(), "{url}");
    }
}
