use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use audit_service::AuditLog;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use consent_proof::{Assertion, RelyingParty};
use operations::Reason;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};
use store::{OutcomeBounds, Store};

use super::{Answer, Draft, Passkey, Passkeys};

const ORIGIN: &str = "https://console.example.org";
const HOST: &str = "console.example.org";

struct Authenticator {
    id: &'static [u8],
    pair: Ed25519KeyPair,
    count: AtomicU32,
}

impl Authenticator {
    fn new(id: &'static [u8]) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
        Self { id, pair: Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap(), count: AtomicU32::new(0) }
    }

    fn head(&self, flags: u8) -> Vec<u8> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        [&Sha256::digest(HOST)[..], &[flags], &count.to_be_bytes()].concat()
    }

    fn client(ceremony: &str, challenge: &[u8]) -> Vec<u8> {
        let challenge = URL_SAFE_NO_PAD.encode(challenge);
        format!(r#"{{"type":"{ceremony}","challenge":"{challenge}","origin":"{ORIGIN}"}}"#).into_bytes()
    }

    fn sign(&self, challenge: &[u8]) -> (Vec<u8>, Assertion) {
        let authenticator_data = self.head(0x05);
        let client_data_json = Self::client("webauthn.get", challenge);
        let signed = [&authenticator_data[..], &Sha256::digest(&client_data_json)].concat();
        let signature = self.pair.sign(&signed).as_ref().to_vec();
        (self.id.to_vec(), Assertion { authenticator_data, client_data_json, signature })
    }

    fn answer(&self, challenge: &[u8], proof: Option<(Vec<u8>, Assertion)>) -> Answer {
        let length = u16::try_from(self.id.len()).unwrap().to_be_bytes();
        let begin: &[u8] = &[0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 32];
        let key = self.pair.public_key().as_ref();
        Answer {
            name: "phone".into(),
            authenticator_data: [&self.head(0x45)[..], &[0; 16], &length, self.id, begin, key].concat(),
            client_data_json: Self::client("webauthn.create", challenge),
            proof,
        }
    }
}

fn draft() -> Draft {
    Draft {
        approval_id: "a".into(),
        digest: "d".into(),
        shown: "s".into(),
        decision: "approve",
        comment: "fine".into(),
        remember: "prefix",
        prefix: vec!["make".into(), "test".into()],
    }
}

fn open(place: &std::path::Path) -> Passkeys {
    let (audit, ..) = AuditLog::open(&place.join("audit"), audit_service::Settings::default()).unwrap();
    let store = Store::open(&place.join("store.db"), OutcomeBounds::WIDE).unwrap();
    let party = RelyingParty { id: HOST.into(), origin: ORIGIN.into() };
    Passkeys::open(store, Arc::new(audit), Some(party)).unwrap()
}

#[tokio::test]
async fn a_decision_is_signed_by_a_passkey_of_its_principal_and_each_part_of_it_is_bound() {
    let place = tempfile::tempdir().unwrap();
    let passkeys = open(place.path());
    let one = Authenticator::new(b"one");
    let options = passkeys.begin_registration("uid:1").unwrap();
    passkeys.register("uid:1", &one.answer(&options.challenge, None)).await.unwrap();
    assert!(passkeys.begin_consent("uid:2", &draft()).is_err(), "it has no passkey");

    let asked = passkeys.begin_consent("uid:1", &draft()).unwrap();
    let signed = one.sign(&asked.challenge);
    let record = passkeys.verify_consent("uid:1", &draft(), &signed).await.unwrap().into_record();
    assert_eq!(record["statement"]["principal"], "uid:1");
    let again = passkeys.verify_consent("uid:1", &draft(), &signed).await.unwrap_err();
    assert_eq!(again.reason, Reason::PreconditionFailed);

    let changes: [fn(&mut Draft); 6] = [
        |it| it.digest.push('x'),
        |it| it.shown.push('x'),
        |it| it.decision = "deny",
        |it| it.comment.push('x'),
        |it| it.remember = "once",
        |it| it.prefix = vec!["maket".into(), "est".into()],
    ];
    for change in changes {
        let asked = passkeys.begin_consent("uid:1", &draft()).unwrap();
        let (mut other, signed) = (draft(), one.sign(&asked.challenge));
        change(&mut other);
        let refused = passkeys.verify_consent("uid:1", &other, &signed).await.unwrap_err();
        assert_eq!(refused.reason, Reason::PermissionDenied, "{other:?}");
    }
}

#[tokio::test]
async fn passkeys_outlive_the_daemon_with_their_counters_and_a_copy_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let one = Authenticator::new(b"one");
    {
        let passkeys = open(place.path());
        let options = passkeys.begin_registration("uid:1").unwrap();
        passkeys.register("uid:1", &one.answer(&options.challenge, None)).await.unwrap();
        let asked = passkeys.begin_consent("uid:1", &draft()).unwrap();
        passkeys.verify_consent("uid:1", &draft(), &one.sign(&asked.challenge)).await.unwrap();
    }
    let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
    let (audit, ..) =
        AuditLog::open(&place.path().join("audit2"), audit_service::Settings::default()).unwrap();
    let party = RelyingParty { id: HOST.into(), origin: ORIGIN.into() };
    let passkeys = Passkeys::open(store, Arc::new(audit), Some(party)).unwrap();
    assert!(passkeys.list(Some("uid:1"))[0].used_at.is_some() && passkeys.list(Some("uid:2")).is_empty());
    one.count.store(0, Ordering::Relaxed);
    let asked = passkeys.begin_consent("uid:1", &draft()).unwrap();
    let copied = passkeys.verify_consent("uid:1", &draft(), &one.sign(&asked.challenge)).await.unwrap_err();
    assert!(copied.message.contains("counter"), "{}", copied.message);
    one.count.store(10, Ordering::Relaxed);
    let asked = passkeys.begin_consent("uid:1", &draft()).unwrap();
    passkeys.verify_consent("uid:1", &draft(), &one.sign(&asked.challenge)).await.unwrap();

    // A daemon that is killed in the middle of a removal leaves it like this.
    let known = passkeys.list(Some("uid:1")).remove(0);
    passkeys.keep(&Passkey { ended: true, ..known }).await.unwrap();
    drop(passkeys);
    let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
    let (audit, ..) =
        AuditLog::open(&place.path().join("audit3"), audit_service::Settings::default()).unwrap();
    let party = RelyingParty { id: HOST.into(), origin: ORIGIN.into() };
    let passkeys = Passkeys::open(store, Arc::new(audit), Some(party)).unwrap();
    let refused = passkeys.begin_consent("uid:1", &draft()).unwrap_err();
    assert_eq!(refused.reason, Reason::PreconditionFailed);
    passkeys.remove(b"one", "uid:0").await.unwrap();
    assert!(passkeys.list(None).is_empty());
}

#[tokio::test]
async fn another_passkey_is_signed_for_with_one_of_the_same_principal() {
    let place = tempfile::tempdir().unwrap();
    let passkeys = open(place.path());
    let (one, two) = (Authenticator::new(b"one"), Authenticator::new(b"two"));
    let options = passkeys.begin_registration("uid:1").unwrap();
    assert!(options.proof_challenge.is_empty());
    passkeys.register("uid:1", &one.answer(&options.challenge, None)).await.unwrap();
    let options = passkeys.begin_registration("uid:1").unwrap();
    assert_eq!(options.exclude, [hex::encode("one")]);
    let refused = passkeys.register("uid:1", &two.answer(&options.challenge, None)).await.unwrap_err();
    assert_eq!(refused.reason, Reason::PermissionDenied);
    let options = passkeys.begin_registration("uid:1").unwrap();
    let proof = one.sign(&options.proof_challenge);
    passkeys.register("uid:1", &two.answer(&options.challenge, Some(proof))).await.unwrap();
    // The same id cannot be taken by another principal.
    let options = passkeys.begin_registration("uid:2").unwrap();
    let taken = passkeys.register("uid:2", &two.answer(&options.challenge, None)).await.unwrap_err();
    assert_eq!(taken.reason, Reason::AlreadyExists);
    passkeys.remove(b"one", "uid:0").await.unwrap();
    assert_eq!(passkeys.remove(b"one", "uid:0").await.unwrap_err().reason, Reason::NotFound);
    assert_eq!(passkeys.list(None).len(), 1);
    let asked = passkeys.begin_consent("uid:1", &draft()).unwrap();
    let late = passkeys.verify_consent("uid:1", &draft(), &one.sign(&asked.challenge)).await.unwrap_err();
    assert_eq!(late.reason, Reason::NotFound);
}

#[test]
fn a_daemon_without_a_console_takes_no_passkeys() {
    let place = tempfile::tempdir().unwrap();
    let passkeys = Passkeys { party: None, ..open(place.path()) };
    let refused = passkeys.begin_registration("uid:1").unwrap_err();
    assert_eq!(refused.reason, Reason::PreconditionFailed);
    assert!(refused.message.contains("console"), "{}", refused.message);
}
