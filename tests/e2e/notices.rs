//! Tests notices of approvals: webhooks, chats, and web push to a stand-in push service.

use std::path::Path;
use std::time::Duration;

use harness::{Bearer, Certificates, Daemon, RunHandle, Setup, calls, reason, record, v1};
use hkdf::Hkdf;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::rand::SystemRandom;
use serde_json::Value;
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use wire::v1::push_service_client::PushServiceClient;

use crate::receiver::{answer, header, receiver, secret, signature};

const SECRET_TEXT: &str = "an-argument-that-stays-on-the-host";

fn edit() -> v1::operation::Kind {
    calls::replace("a.txt", "one", SECRET_TEXT)
}

async fn review(daemon: &Daemon, name: &str) -> RunHandle {
    let workspace = daemon.workspace(name, &[("a.txt", "one\n")]);
    daemon.run("review", &workspace).await
}

/// A file with the URL of a chat's hook.
fn url(directory: &Path, port: u16) -> String {
    let path = directory.join(format!("url-{port}"));
    std::fs::write(&path, format!("http://127.0.0.1:{port}/hook/T0K3N\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// The next request, which is answered with 200.
async fn next(requests: &mut mpsc::Receiver<(TcpStream, String)>) -> (String, Value) {
    let received = tokio::time::timeout(Duration::from_secs(60), requests.recv()).await;
    let (stream, request) = received.expect("a notice comes").unwrap();
    answer(stream, "200 OK").await;
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let body = serde_json::from_str(body).unwrap();
    (request, body)
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_are_told_of_a_waiting_call_and_of_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let (signed, mut pager) = receiver().await;
    let (slack, mut team) = receiver().await;
    let (teams, mut others) = receiver().await;
    let config = format!(
        "console: {{ listen: '127.0.0.1:0' }}
notices:
  webhooks:
    - {{ name: pager, url: 'http://127.0.0.1:{signed}/hook', secret_file: {}, batch: 1s, max_per_minute: 60 }}
    - {{ name: team, form: slack, url_file: {}, batch: 1s, max_per_minute: 60 }}
    - {{ name: others, form: teams, url_file: {}, batch: 1s, max_per_minute: 60, details: true }}
",
        secret(directory.path()).display(),
        url(directory.path(), slack),
        url(directory.path(), teams),
    );
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut run = review(&daemon, "w").await;
    let asked = run.asks(edit()).await;

    let (request, body) = next(&mut pager).await;
    assert_eq!(header(&request, "webhook-signature"), signature(&[1; 24], &request));
    assert_eq!(body["type"], "approval.waiting");
    let told = &body["data"]["approvals"][0];
    assert_eq!(
        (&told["approval_id"], &told["operation"]),
        (&asked.approval_id.as_str().into(), &"edit".into())
    );
    assert_eq!((&told["profile"], &body["data"]["run_id"]), (&"review".into(), &run.id().into()));
    let origin = daemon.told("the console is served origin=");
    let link = format!("{origin}/approvals/{}", asked.approval_id);
    assert_eq!(told["link"], link.as_str());
    assert!(told["left_s"].as_u64().unwrap() > 0);
    assert!(!request.contains(SECRET_TEXT), "arguments stay on the host");

    let (request, body) = next(&mut team).await;
    assert!(request.starts_with("POST /hook/T0K3N ") && header(&request, "webhook-signature").is_empty());
    assert_eq!(body["blocks"][1]["accessory"]["url"], link.as_str());
    assert!(!request.contains(SECRET_TEXT));
    let (request, body) = next(&mut others).await;
    assert!(request.contains(SECRET_TEXT), "with details: true");
    assert_eq!(body["attachments"][0]["content"]["actions"][0]["url"], link.as_str());

    run.clients.approve(&asked.approval_id).await.unwrap();
    let (_, body) = next(&mut pager).await;
    assert_eq!(body["type"], "approval.ended");
    assert_eq!(body["data"]["ended"][0]["state"], "APPROVED");
    assert!(!daemon.log().contains("T0K3N"), "the URL is a secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_fails_delays_no_call_and_hears_no_decided_approval() {
    let directory = tempfile::tempdir().unwrap();
    let (port, mut requests) = receiver().await;
    let config = format!(
        "notices: {{ webhooks: [{{ name: pager, url: 'http://127.0.0.1:{port}/', secret_file: {}, batch: 1s, max_per_minute: 60, first_retry: 1s, timeout: 60s }}] }}\n",
        secret(directory.path()).display()
    );
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let (mut one, mut other) = (review(&daemon, "w").await, review(&daemon, "v").await);
    let first = one.asks(edit()).await;
    let (held, request) = requests.recv().await.unwrap();
    assert!(request.contains(&first.approval_id));
    // The receiver does not answer, and the call comes to its end.
    one.clients.approve(&first.approval_id).await.unwrap();
    one.outcome(&first.call_id).await;
    let second = other.asks(edit()).await;
    answer(held, "500 Oops").await;
    let (request, body) = next(&mut requests).await;
    assert!(request.contains(&second.approval_id) && !request.contains(&first.approval_id), "{request}");
    assert_eq!(body["data"]["approvals"][0]["link"], "", "this daemon has no console");
}

/// A push service: gives the head and the body of each request, and answers with `status`.
async fn push_service(
    certificates: &Certificates,
    status: &'static str,
) -> (u16, mpsc::Receiver<(String, Vec<u8>)>) {
    let acceptor = certificates.acceptor();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, received) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut sent = Vec::new();
            let whole = loop {
                let mut piece = [0; 4_096];
                let Ok(count) = stream.read(&mut piece).await else { break None };
                sent.extend_from_slice(&piece[..count]);
                let Some(end) = sent.windows(4).position(|part| part == b"\r\n\r\n") else {
                    if count == 0 {
                        break None;
                    }
                    continue;
                };
                let head = String::from_utf8(sent[..end].to_vec()).unwrap();
                let length = header(&head, "content-length").parse::<usize>().unwrap();
                if sent.len() >= end + 4 + length {
                    break Some((head, sent[end + 4..].to_vec()));
                }
                assert_ne!(count, 0);
            };
            let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(reply.as_bytes()).await;
            let _ = stream.shutdown().await;
            if let Some(whole) = whole {
                let _ = requests.send(whole).await;
            }
        }
    });
    (port, received)
}

/// Opens a message as RFC 8291 says.
fn opened(key: EphemeralPrivateKey, auth: &[u8], body: &[u8]) -> Value {
    let point = key.compute_public_key().unwrap().as_ref().to_vec();
    let (salt, theirs, sealed) = (&body[..16], &body[21..86], &body[86..]);
    let agreed = agree_ephemeral(key, &UnparsedPublicKey::new(&ECDH_P256, theirs), <[u8]>::to_vec).unwrap();
    let derive = |salt: &[u8], material: &[u8], info: &[u8], length: usize| {
        let mut out = vec![0; length];
        Hkdf::<Sha256>::new(Some(salt), material).expand(info, &mut out).unwrap();
        out
    };
    let material = derive(auth, &agreed, &[b"WebPush: info\0", &point[..], theirs].concat(), 32);
    let key = derive(salt, &material, b"Content-Encoding: aes128gcm\0", 16);
    let nonce = derive(salt, &material, b"Content-Encoding: nonce\0", 12);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
    let mut text = sealed.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
    let text = key.open_in_place(nonce, Aad::empty(), &mut text).unwrap();
    let end = text.iter().rposition(|byte| *byte != 0).unwrap();
    serde_json::from_slice(&text[..end]).unwrap()
}

/// A request to the console by HTTP; the answer's head and body.
async fn http(
    origin: &str,
    port: u16,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (String, String) {
    let host = origin.split_once("://").unwrap().1;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\norigin: {origin}\r\nconnection: close\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_gets_an_encrypted_link_that_shows_one_approval_once() {
    let certificates = Certificates::make(&[]);
    let (port, mut pushed) = push_service(&certificates, "201 Created").await;
    let setup = Setup {
        config: format!(
            "console: {{ listen: '127.0.0.1:0' }}\npush: {{ hosts: ['localhost:{port}'], contact: 'mailto:security@example.org' }}\n"
        ),
        tcp: certificates.listen("tokens: {}"),
        environment: vec![("SSL_CERT_FILE", certificates.authority().display().to_string())],
        ..Default::default()
    };
    let daemon = Daemon::start_with(setup).await;
    let phone = v1::Token { name: "phone".into(), roles: vec!["approver".into()], ..Default::default() };
    let (token, shown) = daemon.token(phone, None).await;
    let bearer = Bearer::new(&shown);
    let mut push = PushServiceClient::new(certificates.connect(&daemon, None).await.unwrap());
    let server = push.get_push_key(bearer.shows(v1::GetPushKeyRequest {})).await.unwrap().into_inner();
    assert_eq!(server.public_key.len(), 65);

    let key = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
    let subscribe = |endpoint: String| v1::SubscribeRequest {
        name: "phone".into(),
        endpoint,
        p256dh: key.compute_public_key().unwrap().as_ref().to_vec(),
        auth: vec![7; 16],
    };
    for elsewhere in
        ["https://127.0.0.1/", "http://localhost/", "https://169.254.169.254/", "https://push.example.org/"]
    {
        let refused = push.subscribe(bearer.shows(subscribe(elsewhere.into()))).await.unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT", "{elsewhere}");
    }
    let endpoint = format!("https://localhost:{port}/s/S3CR3T");
    push.subscribe(bearer.shows(subscribe(endpoint))).await.unwrap();
    let subscribed = daemon.connect().await.events("", "push_subscription").await;
    let [subscribed] = &subscribed[..] else { panic!("{subscribed:?}") };
    let on_record = record(subscribed);
    assert_eq!(
        (&on_record["principal"], &on_record["details"]["state"]),
        (&"token:phone".into(), &"subscribed".into())
    );
    assert!(!on_record.to_string().contains("S3CR3T"), "the endpoint is a secret");

    let mut run = review(&daemon, "w").await;
    let asked = run.asks(edit()).await;
    let (head, body) = tokio::time::timeout(Duration::from_secs(60), pushed.recv()).await.unwrap().unwrap();
    assert!(head.starts_with("POST /s/S3CR3T HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "content-encoding"), "aes128gcm");
    assert!(header(&head, "authorization").starts_with("vapid t="), "{head}");
    let text = opened(key, &[7; 16], &body);
    assert_eq!(text.as_object().unwrap().len(), 1, "the link alone");
    let origin = daemon.told("the console is served origin=");
    let link = text["link"].as_str().unwrap().strip_prefix(&origin).unwrap().to_owned();
    let console: std::net::SocketAddr =
        daemon.told(&format!("the console is served origin={origin} address=")).parse().unwrap();

    // Looking at the link uses nothing up; following it opens one session, of this approval.
    let (head, page) = http(&origin, console.port(), "GET", &link, "", "").await;
    assert!(
        head.starts_with("HTTP/1.1 200") && page.contains("token:phone") && !page.contains(SECRET_TEXT),
        "{page}"
    );
    let code = link.split_once('?').unwrap().1;
    let (head, _) = http(&origin, console.port(), "POST", "/notice", "", code).await;
    assert!(head.starts_with("HTTP/1.1 303"), "{head}");
    let path = header(&head, "location").to_owned();
    assert_eq!(path, format!("/approvals/{}", asked.approval_id));
    let cookie = format!("cookie: {}\r\n", header(&head, "set-cookie").split(';').next().unwrap());
    let (head, page) = http(&origin, console.port(), "GET", &path, &cookie, "").await;
    assert!(
        head.starts_with("HTTP/1.1 200") && page.contains(SECRET_TEXT),
        "the whole is shown first: {head}"
    );
    for other in ["/approvals", "/passkeys", "/push"] {
        let (head, _) = http(&origin, console.port(), "GET", other, &cookie, "").await;
        assert!(head.starts_with("HTTP/1.1 403"), "{other}: {head}");
    }
    let (head, _) = http(&origin, console.port(), "POST", "/notice", "", code).await;
    assert!(head.starts_with("HTTP/1.1 403"), "a link works once: {head}");

    let field = |name: &str| {
        let (_, after) = page.split_once(&format!("name=\"{name}\" value=\"")).expect(name);
        after.split('"').next().unwrap().to_owned()
    };
    let form =
        format!("csrf={}&approval={}&remember=once&decision=approve", field("csrf"), field("approval"));
    let (head, _) = http(&origin, console.port(), "POST", &path, &cookie, &form).await;
    assert!(head.starts_with("HTTP/1.1 303"), "{head}");
    assert_eq!(run.clients.approval(&asked.approval_id).await.decided_by, "token:phone");

    // The subscription and the session end with the last token of their principal.
    let mut tokens = v1::token_service_client::TokenServiceClient::new(daemon.connect().await.channel);
    let (head, _) = http(&origin, console.port(), "GET", &path, &cookie, "").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    tokens.revoke_token(v1::RevokeTokenRequest { token_id: token.token_id }).await.unwrap();
    let (head, _) = http(&origin, console.port(), "GET", &path, &cookie, "").await;
    assert!(header(&head, "location").starts_with("/sign-in"), "{head}");
    // A new token of the same name is not for the old phone.
    let new = v1::Token { name: "phone".into(), roles: vec!["approver".into()], ..Default::default() };
    daemon.token(new, None).await;
    let mut again = review(&daemon, "v").await;
    let waiting = again.asks(edit()).await;
    assert!(tokio::time::timeout(Duration::from_secs(12), pushed.recv()).await.is_err());
    again.clients.approve(&waiting.approval_id).await.unwrap();
    assert!(!daemon.log().contains("S3CR3T"), "an endpoint is a secret");
}
