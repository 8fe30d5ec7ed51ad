//! Tests consent that is signed with a passkey: by an authenticator in software, at every door, and proved from the log alone.

use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use harness::v1::approval::State;
use harness::v1::call_response::Status;
use harness::v1::decide_approval_request::Decision;
use harness::{Daemon, RunHandle, Setup, calls, reason, record, v1};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};
use tonic::transport::Channel;
use wire::v1::passkey_service_client::PasskeyServiceClient;

const POLICY: &str = "
profiles:
  p:
    workspace: read-write
    operations: { read: allow, list: allow, write: ask, edit: ask }
    approvals: { passkey: required }
roles:
  director: { allow: [read, list, write, edit] }
";

/// An authenticator with one passkey of ES256.
struct Authenticator {
    id: Vec<u8>,
    pair: EcdsaKeyPair,
    count: AtomicU32,
    rp_id: String,
    origin: String,
}

impl Authenticator {
    fn new(id: &str, origin: &str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random);
        let host = origin.split_once("://").unwrap().1;
        let rp_id = host.split(':').next().unwrap().to_owned();
        Self {
            id: id.as_bytes().to_vec(),
            pair: pair.unwrap(),
            count: AtomicU32::new(0),
            rp_id,
            origin: origin.to_owned(),
        }
    }

    fn head(&self, flags: u8) -> Vec<u8> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        [&Sha256::digest(&self.rp_id)[..], &[flags], &count.to_be_bytes()].concat()
    }

    fn client_data(&self, ceremony: &str, challenge: &[u8]) -> Vec<u8> {
        let (challenge, origin) = (URL_SAFE_NO_PAD.encode(challenge), &self.origin);
        format!(
            r#"{{"type":"{ceremony}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false}}"#
        )
        .into_bytes()
    }

    /// The authenticator data of a new passkey.
    fn attested(&self) -> Vec<u8> {
        let point = self.pair.public_key().as_ref();
        let length = u16::try_from(self.id.len()).unwrap().to_be_bytes();
        let begin: &[u8] = &[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32];
        let key = [begin, &point[1..33], &[0x22, 0x58, 32], &point[33..]].concat();
        [&self.head(0x45)[..], &[0; 16], &length, &self.id, &key].concat()
    }

    fn sign(&self, challenge: &[u8], flags: u8) -> v1::PasskeyProof {
        let authenticator_data = self.head(flags);
        let client_data_json = self.client_data("webauthn.get", challenge);
        let message = [&authenticator_data[..], &Sha256::digest(&client_data_json)].concat();
        let signature = self.pair.sign(&SystemRandom::new(), &message).unwrap().as_ref().to_vec();
        v1::PasskeyProof { credential_id: self.id.clone(), authenticator_data, client_data_json, signature }
    }
}

async fn started() -> (Daemon, RunHandle, PasskeyServiceClient<Channel>, String) {
    let setup = Setup {
        policy: vec![("p.yaml", POLICY.to_owned())],
        config: "console: { listen: '127.0.0.1:0' }\n".to_owned(),
        ..Default::default()
    };
    let daemon = Daemon::start_with(setup).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let run = daemon.run("p", &workspace).await;
    let passkeys = PasskeyServiceClient::new(daemon.connect().await.channel);
    let origin = daemon.told("the console is served origin=");
    (daemon, run, passkeys, origin)
}

async fn register(
    passkeys: &mut PasskeyServiceClient<Channel>,
    one: &Authenticator,
    with: Option<&Authenticator>,
) -> Result<v1::Passkey, tonic::Status> {
    let options = passkeys.begin_registration(v1::BeginRegistrationRequest {}).await?.into_inner();
    assert_eq!(options.rp_id, one.rp_id);
    let request = v1::FinishRegistrationRequest {
        name: "phone".to_owned(),
        authenticator_data: one.attested(),
        client_data_json: one.client_data("webauthn.create", &options.challenge),
        proof: with.map(|with| with.sign(&options.proof_challenge, 0x05)),
    };
    Ok(passkeys.finish_registration(request).await?.into_inner().passkey.unwrap())
}

async fn begin(
    passkeys: &mut PasskeyServiceClient<Channel>,
    approval_id: &str,
    comment: &str,
) -> Result<v1::BeginConsentResponse, tonic::Status> {
    let request = v1::BeginConsentRequest {
        approval_id: approval_id.to_owned(),
        decision: Decision::Approve.into(),
        comment: comment.to_owned(),
        ..Default::default()
    };
    passkeys.begin_consent(request).await.map(tonic::Response::into_inner)
}

async fn approve(
    run: &mut RunHandle,
    approval_id: &str,
    comment: &str,
    proof: Option<v1::PasskeyProof>,
) -> Result<v1::Approval, tonic::Status> {
    let request = v1::DecideApprovalRequest {
        approval_id: approval_id.to_owned(),
        decision: Decision::Approve.into(),
        comment: comment.to_owned(),
        proof,
        ..Default::default()
    };
    let decided = run.clients.approvals.decide_approval(request).await?;
    Ok(decided.into_inner().approval.unwrap())
}

fn edit() -> v1::operation::Kind {
    calls::replace("a.txt", "one", "two")
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_is_signed_with_a_passkey_and_proved_from_the_log_alone() {
    let (mut daemon, mut run, mut passkeys, origin) = started().await;
    let asked = run.asks(edit()).await;
    let id = asked.approval_id.as_str();
    assert!(run.clients.approval(id).await.needs_passkey);
    let none = begin(&mut passkeys, id, "").await.unwrap_err();
    assert_eq!(reason(&none), "PRECONDITION_FAILED", "it has none yet");

    let phone = Authenticator::new("phone", &origin);
    let made = register(&mut passkeys, &phone, None).await.unwrap();
    assert_eq!((made.algorithm.as_str(), &made.credential_id), ("ES256", &phone.id));

    let asked_to_sign = begin(&mut passkeys, id, "looks right").await.unwrap();
    assert_eq!(asked_to_sign.credential_ids, std::slice::from_ref(&phone.id));
    let proof = phone.sign(&asked_to_sign.challenge, 0x05);
    let decided = approve(&mut run, id, "looks right", Some(proof.clone())).await.unwrap();
    assert_eq!(decided.state(), State::Approved);
    assert!(decided.votes[0].signed);
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);
    assert_eq!(std::fs::read_to_string(daemon.roots().join("w/a.txt")).unwrap(), "two\n");

    let events = run.clients.of_call(&asked.call_id).await;
    let event = events.iter().find(|event| event.kind == "approval_decided").unwrap();
    let recorded = record(event)["details"]["vote"]["proof"].clone();
    assert_eq!(recorded["signature"], hex::encode(&proof.signature), "as it was sent");
    assert_eq!(recorded["statement"]["approval_id"], id);

    daemon.stop().await;
    let log = daemon.state_dir().join("audit").display().to_string();
    let proved = daemon.coffer(&["audit", "consents", &log, "--approval", id]);
    let said = String::from_utf8(proved.stdout).unwrap();
    assert!(proved.status.success() && said.starts_with("proved record "), "{said}");
    assert!(said.contains("with phone") && said.ends_with("1 signed consent holds of 1\n"), "{said}");
    let other = daemon.coffer(&["audit", "consents", &log, "--approval", "nope"]);
    assert_eq!(other.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_without_its_signature_is_refused_at_every_door() {
    let (daemon, mut run, mut passkeys, origin) = started().await;
    let phone = Authenticator::new("phone", &origin);
    register(&mut passkeys, &phone, None).await.unwrap();
    let asked = run.asks(edit()).await;
    let id = asked.approval_id.clone();

    let refused = approve(&mut run, &id, "", None).await.unwrap_err();
    assert_eq!(reason(&refused), "PERMISSION_DENIED");
    assert!(refused.message().contains("passkey"), "{refused}");
    let by_command = daemon.coffer(&["approval", "approve", &id]);
    assert!(!by_command.status.success());
    assert!(String::from_utf8_lossy(&by_command.stderr).contains("passkey"), "{by_command:?}");

    // Each attempt takes its challenge.
    let elsewhere = Authenticator::new("phone", "https://console.example.org");
    let attempts =
        [("changed meanwhile", 0x05, false), ("", 0x01, false), ("", 0x04, false), ("", 0x05, true)];
    for (comment, flags, other_page) in attempts {
        let begun = begin(&mut passkeys, &id, "").await.unwrap();
        let signer = if other_page { &elsewhere } else { &phone };
        let proof = signer.sign(&begun.challenge, flags);
        let refused = approve(&mut run, &id, comment, Some(proof.clone())).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{comment} {flags:#x}: {refused}");
        let again = approve(&mut run, &id, "", Some(proof)).await.unwrap_err();
        assert_eq!(reason(&again), "PRECONDITION_FAILED", "the challenge was used: {again}");
    }
    let begun = begin(&mut passkeys, &id, "").await.unwrap();
    let mut changed = phone.sign(&begun.challenge, 0x05);
    let last = changed.signature.len() - 1;
    changed.signature[last] ^= 1;
    assert_eq!(reason(&approve(&mut run, &id, "", Some(changed)).await.unwrap_err()), "PERMISSION_DENIED");
    let begun = begin(&mut passkeys, &id, "").await.unwrap();
    let mut long = phone.sign(&begun.challenge, 0x05);
    long.client_data_json = vec![b' '; 100_000];
    assert!(approve(&mut run, &id, "", Some(long)).await.is_err());
    let begun = begin(&mut passkeys, &id, "").await.unwrap();
    let unknown = Authenticator::new("unknown", &origin).sign(&begun.challenge, 0x05);
    assert_eq!(reason(&approve(&mut run, &id, "", Some(unknown)).await.unwrap_err()), "NOT_FOUND");
    assert_eq!(run.clients.approval(&id).await.state(), State::Pending);

    // A copy of the passkey, with a lower counter.
    let begun = begin(&mut passkeys, &id, "").await.unwrap();
    let before = phone.count.swap(0, Ordering::Relaxed);
    let copied = phone.sign(&begun.challenge, 0x05);
    assert_eq!(reason(&approve(&mut run, &id, "", Some(copied)).await.unwrap_err()), "PERMISSION_DENIED");
    phone.count.store(before, Ordering::Relaxed);

    let begun = begin(&mut passkeys, &id, "").await.unwrap();
    let proof = phone.sign(&begun.challenge, 0x05);
    approve(&mut run, &id, "", Some(proof.clone())).await.unwrap();
    assert_eq!(run.outcome(&asked.call_id).await.status(), Status::Succeeded);

    // The same signature for the next call, and a denial, which needs none.
    let next = run.asks(calls::replace("a.txt", "two", "three")).await;
    begin(&mut passkeys, &next.approval_id, "").await.unwrap();
    let replayed = approve(&mut run, &next.approval_id, "", Some(proof)).await.unwrap_err();
    assert_eq!(reason(&replayed), "PERMISSION_DENIED");
    let denied = run.clients.decide(&next.approval_id, Decision::Deny).await.unwrap();
    assert_eq!(denied.state(), State::Denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_passkey_needs_the_first_and_a_removed_one_signs_nothing() {
    let (mut daemon, _run, mut passkeys, origin) = started().await;
    let (phone, tablet) = (Authenticator::new("phone", &origin), Authenticator::new("tablet", &origin));
    register(&mut passkeys, &phone, None).await.unwrap();
    let alone = register(&mut passkeys, &tablet, None).await.unwrap_err();
    assert_eq!(reason(&alone), "PERMISSION_DENIED", "a stolen token brings no key of the thief");
    let by_itself = register(&mut passkeys, &tablet, Some(&tablet)).await.unwrap_err();
    assert_eq!(reason(&by_itself), "NOT_FOUND");
    register(&mut passkeys, &tablet, Some(&phone)).await.unwrap();
    let twice = register(&mut passkeys, &tablet, Some(&phone)).await.unwrap_err();
    assert_eq!(reason(&twice), "ALREADY_EXISTS");

    daemon.stop().await;
    daemon.launch().await;
    // The console has another port now, and so another origin: the passkeys stay, as their name does.
    let origin = daemon.told("the console is served origin=");
    let mut passkeys = PasskeyServiceClient::new(daemon.connect().await.channel);
    let listed = passkeys.list_passkeys(v1::ListPasskeysRequest {}).await.unwrap().into_inner().passkeys;
    assert_eq!(
        listed.iter().map(|it| it.credential_id.as_slice()).collect::<Vec<_>>(),
        [b"phone", &b"tablet"[..]]
    );

    let id = hex::encode("phone");
    let removed = daemon.coffer(&["passkey", "remove", &id]);
    assert!(removed.status.success(), "{removed:?}");
    let kinds = ["passkey_registered", "passkey_removed"];
    let mut clients = daemon.connect().await;
    let counts = [clients.events("", kinds[0]).await.len(), clients.events("", kinds[1]).await.len()];
    assert_eq!(counts, [2, 1]);
    let workspace = daemon.workspace("v", &[("a.txt", "one\n")]);
    let mut run = daemon.run("p", &workspace).await;
    let asked = run.asks(edit()).await;
    let begun = begin(&mut passkeys, &asked.approval_id, "").await.unwrap();
    assert_eq!(begun.credential_ids, [b"tablet".to_vec()]);
    let here = Authenticator { origin, ..phone };
    let proof = here.sign(&begun.challenge, 0x05);
    let refused = approve(&mut run, &asked.approval_id, "", Some(proof)).await.unwrap_err();
    assert_eq!(reason(&refused), "NOT_FOUND");
}
