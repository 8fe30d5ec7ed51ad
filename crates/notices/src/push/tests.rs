use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hkdf::Hkdf;
use operations::Reason;
use refusal::Refusal;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::rand::SystemRandom;
use ring::signature::{self, ECDSA_P256_SHA256_FIXED};
use sha2::Sha256;
use store::{OutcomeBounds, Store};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use webhook::Target;

use super::{Hosts, MAX_OF_PRINCIPAL, Push, PushSettings, Subscription, Wanted};

/// A browser, which reads one message.
pub(super) struct Browser {
    key: Cell<Option<EphemeralPrivateKey>>,
    pub(super) point: Vec<u8>,
    pub(super) auth: [u8; 16],
}

impl Browser {
    pub(super) fn new() -> Self {
        let key = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
        let point = key.compute_public_key().unwrap().as_ref().to_vec();
        Self { key: Cell::new(Some(key)), point, auth: [7; 16] }
    }

    /// Opens a message as RFC 8291 says, if it is for this browser.
    pub(super) fn open(&self, body: &[u8]) -> Option<Vec<u8>> {
        let (salt, rest) = body.split_at(16);
        assert_eq!(rest[..5], [0, 0, 16, 0, 65]);
        let (theirs, sealed) = rest[5..].split_at(65);
        let agreed =
            agree_ephemeral(self.key.take()?, &UnparsedPublicKey::new(&ECDH_P256, theirs), <[u8]>::to_vec);
        let derive = |salt: &[u8], material: &[u8], info: &[u8], length: usize| {
            let mut out = vec![0; length];
            Hkdf::<Sha256>::new(Some(salt), material).expand(info, &mut out).unwrap();
            out
        };
        let info = [b"WebPush: info\0", &self.point[..], theirs].concat();
        let material = derive(&self.auth, &agreed.unwrap(), &info, 32);
        let key = derive(salt, &material, b"Content-Encoding: aes128gcm\0", 16);
        let nonce = derive(salt, &material, b"Content-Encoding: nonce\0", 12);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let mut text = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(&nonce).unwrap();
        let text = key.open_in_place(nonce, Aad::empty(), &mut text).ok()?;
        let end = text.iter().rposition(|byte| *byte != 0)?;
        assert_eq!(text[end], 2);
        Some(text[..end].to_vec())
    }
}

fn settings() -> PushSettings {
    PushSettings {
        hosts: Hosts::parse(["push.example.org"]).unwrap(),
        contact: "mailto:security@example.org".into(),
    }
}

fn wanted(name: &str) -> Wanted {
    let browser = Browser::new();
    Wanted {
        name: name.into(),
        endpoint: format!("https://push.example.org/{name}"),
        p256dh: browser.point,
        auth: browser.auth.to_vec(),
    }
}

/// Puts a subscription on record.
async fn on_record(_: Subscription) -> Result<(), Refusal> {
    Ok(())
}

#[tokio::test]
async fn a_subscription_is_on_record_before_it_is_there() {
    let place = tempfile::tempdir().unwrap();
    let open = || {
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        Push::open(store, settings()).unwrap()
    };
    {
        let push = open();
        let refused = |made: Subscription| {
            let stored = push.store.push_subscriptions().unwrap().len();
            assert!(push.list("token:a").is_empty() && stored == 1, "the key alone is stored: {made:?}");
            async { Err(Refusal::new(Reason::Overloaded, "the log takes no records")) }
        };
        let refused = push.subscribe("token:a", wanted("phone"), refused).await.unwrap_err();
        assert_eq!(refused.reason, Reason::Overloaded);
        assert!(push.list("token:a").is_empty());
    }
    assert!(open().list("token:a").is_empty(), "it would get notices after a restart");
}

#[tokio::test]
async fn subscriptions_and_the_key_outlive_the_daemon_and_belong_to_their_principal() {
    let place = tempfile::tempdir().unwrap();
    let open = || {
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        Push::open(store, settings()).unwrap()
    };
    let (key, id) = {
        let push = open();
        let made = push.subscribe("token:a", wanted("phone"), on_record).await.unwrap();
        let again = push.subscribe("token:a", wanted("phone"), on_record).await.unwrap();
        assert_eq!((&made.id, made.created_at), (&again.id, again.created_at), "it is renewed");
        let other = push.subscribe("token:b", wanted("phone"), on_record).await.unwrap_err();
        assert_eq!(other.reason, Reason::AlreadyExists);
        (push.key(), made.id)
    };
    let push = open();
    assert_eq!(push.key(), key);
    assert_eq!(push.list("token:a").len(), 1);
    assert!(push.list("token:b").is_empty());
    assert!(!format!("{:?}", push.list("token:a")).contains("/phone"), "an endpoint is a secret");
    assert_eq!(push.unsubscribe("token:b", &id).await.unwrap_err().reason, Reason::NotFound);
    push.unsubscribe("token:a", &id).await.unwrap();
    assert!(push.list("token:a").is_empty() && open().list("token:a").is_empty());
}

type Recorded = oneshot::Sender<Result<(), Refusal>>;
type Subscribing = JoinHandle<Result<Subscription, Refusal>>;

/// Subscribes a browser of `token:a`. Returns when that is about to be on record, with the sender that lets it go on, and the result.
async fn slowly(push: &Arc<Push>, name: &'static str) -> (Recorded, Subscribing) {
    let (begun, begins) = oneshot::channel();
    let (recorded, is_recorded) = oneshot::channel();
    let push = push.clone();
    let subscribing = tokio::spawn(async move {
        let record = |_: Subscription| async move {
            begun.send(()).unwrap();
            is_recorded.await.unwrap()
        };
        push.subscribe("token:a", wanted(name), record).await
    });
    begins.await.unwrap();
    (recorded, subscribing)
}

#[tokio::test]
async fn a_record_that_takes_long_holds_up_no_other_subscription() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
    let push = Push::open(store, settings()).unwrap();
    let before = push.subscribe("token:b", wanted("before"), on_record).await.unwrap();
    let (recorded, slow) = slowly(&push, "slow").await;
    let others = async {
        push.subscribe("token:b", wanted("other"), on_record).await.unwrap();
        push.unsubscribe("token:b", &before.id).await.unwrap();
        assert_eq!((push.list("token:a").len(), push.list("token:b").len()), (0, 1));
        for (principal, reason) in [("token:a", Reason::Overloaded), ("token:b", Reason::AlreadyExists)] {
            let refused = push.subscribe(principal, wanted("slow"), on_record).await.unwrap_err();
            assert_eq!(refused.reason, reason, "the browser is taken: {principal}");
        }
        for nr in 1..MAX_OF_PRINCIPAL {
            push.subscribe("token:a", wanted(&nr.to_string()), on_record).await.unwrap();
        }
        let over = push.subscribe("token:a", wanted("more"), on_record).await.unwrap_err();
        assert_eq!(over.reason, Reason::Overloaded, "it counts before it is on record");
    };
    timeout(Duration::from_secs(60), others).await.unwrap();
    recorded.send(Ok(())).unwrap();
    slow.await.unwrap().unwrap();
    assert_eq!(push.list("token:a").len(), MAX_OF_PRINCIPAL);
}

#[tokio::test]
async fn an_end_comes_after_a_renewal_that_is_under_way_and_outlives_the_daemon() {
    let place = tempfile::tempdir().unwrap();
    let open = || {
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        Push::open(store, settings()).unwrap()
    };
    let push = open();
    let made = push.subscribe("token:a", wanted("phone"), on_record).await.unwrap();
    let (recorded, renewing) = slowly(&push, "phone").await;
    recorded.send(Err(Refusal::new(Reason::AuditUnavailable, "no record"))).unwrap();
    assert_eq!(renewing.await.unwrap().unwrap_err().reason, Reason::AuditUnavailable);
    assert_eq!(push.list("token:a"), std::slice::from_ref(&made), "it is as before");
    let (recorded, renewing) = slowly(&push, "phone").await;
    // The sender has read it before its renewal.
    push.end(&made).await;
    assert_eq!(push.list("token:a"), std::slice::from_ref(&made));
    let (pushing, id) = (push.clone(), made.id.clone());
    let ending = tokio::spawn(async move { pushing.unsubscribe("token:a", &id).await });
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(!ending.is_finished(), "the renewal would bring it back");
    recorded.send(Ok(())).unwrap();
    let renewed = renewing.await.unwrap().unwrap();
    assert_eq!(renewed.id, made.id);
    timeout(Duration::from_secs(60), ending).await.unwrap().unwrap().unwrap();
    assert!(push.list("token:a").is_empty());
    drop(push);
    assert!(open().list("token:a").is_empty());
}

#[tokio::test]
async fn a_sender_ends_no_subscription_that_was_renewed_since() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
    let push = Push::open(store, settings()).unwrap();
    let read = push.subscribe("token:a", wanted("phone"), on_record).await.unwrap();
    let renewed = push.subscribe("token:a", wanted("phone"), on_record).await.unwrap();
    assert_ne!(read, renewed, "its keys are other ones");
    push.end(&read).await;
    assert_eq!(push.list("token:a"), std::slice::from_ref(&renewed));
    push.end(&renewed).await;
    assert!(push.list("token:a").is_empty());
}

#[tokio::test]
async fn subscriptions_are_bounded_and_checked() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
    let push = Push::open(store, settings()).unwrap();
    let changes: [fn(&mut Wanted); 6] = [
        |it| it.name.clear(),
        |it| it.name = "a\nb".into(),
        |it| it.endpoint = "https://evil.example/".into(),
        |it| it.auth.clear(),
        |it| it.p256dh = vec![4; 65],
        |it| it.p256dh.clear(),
    ];
    for change in changes {
        let mut bad = wanted("phone");
        change(&mut bad);
        assert_eq!(
            push.subscribe("token:a", bad, on_record).await.unwrap_err().reason,
            Reason::InvalidArgument
        );
    }
    for nr in 0..MAX_OF_PRINCIPAL {
        push.subscribe("token:a", wanted(&nr.to_string()), on_record).await.unwrap();
    }
    let over = push.subscribe("token:a", wanted("more"), on_record).await.unwrap_err();
    assert_eq!(over.reason, Reason::Overloaded);
    push.subscribe("token:b", wanted("more"), on_record).await.unwrap();
}

#[test]
fn an_authorization_is_for_one_push_service_and_half_a_day() {
    let (vapid, record) = super::vapid::Vapid::generate().unwrap();
    let read = super::vapid::Vapid::read(record.as_bytes()).unwrap();
    assert_eq!(read.public_key(), vapid.public_key());
    let target = Target::parse("https://push.example.org:8443/secret-path", false).unwrap();
    let header = vapid.authorization(&target, "mailto:x@example.org", 1_000).unwrap();
    let (token, key) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
    assert_eq!(URL_SAFE_NO_PAD.decode(key).unwrap(), vapid.public_key());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let public = signature::UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, vapid.public_key());
    public.verify(signed.as_bytes(), &signature).unwrap();
    let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.').unwrap().1).unwrap();
    let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["aud"], "https://push.example.org:8443");
    assert_eq!((&claims["exp"], &claims["sub"]), (&44_200.into(), &"mailto:x@example.org".into()));
}
