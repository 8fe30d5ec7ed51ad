use super::{Flaw, Presence, Proof, Statement};
use crate::testing::{Authenticator, party};
use crate::{PublicKey, digest};

fn statement() -> Statement {
    Statement {
        approval_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
        digest: digest("the call"),
        shown: digest("the preview"),
        principal: "token:phone".into(),
        decision: "approve".into(),
        comment: digest(""),
        remember: "once".into(),
        nonce: "ab".repeat(32),
    }
}

fn signed(one: &Authenticator, flags: u8, client: &[u8]) -> Proof {
    let assertion = one.sign(Authenticator::data(flags, 9, &party().id), client.to_vec());
    Proof::new(statement(), &party(), (hex::encode(one.id()), one.key()), &assertion)
}

fn client(one: &Authenticator) -> Vec<u8> {
    one.client_data("webauthn.get", &statement().challenge(), &party().origin)
}

#[test]
fn a_proof_holds_also_after_it_was_recorded() {
    for one in [Authenticator::es256(), Authenticator::ed25519()] {
        let proof = signed(&one, 0x05, &client(&one));
        assert_eq!(proof.verify(), Ok(Presence { sign_count: 9 }));
        let recorded = serde_json::to_string(&proof).unwrap();
        let read: Proof = serde_json::from_str(&recorded).unwrap();
        assert_eq!((read.verify(), &read), (Ok(Presence { sign_count: 9 }), &proof));
    }
}

#[test]
fn each_field_of_the_statement_is_signed() {
    let one = Authenticator::es256();
    let proof = signed(&one, 0x05, &client(&one));
    let changes: [fn(&mut Statement); 8] = [
        |it| it.approval_id.push('0'),
        |it| it.digest = digest("another call"),
        |it| it.shown = digest("another preview"),
        |it| it.principal = "token:other".into(),
        |it| it.decision = "deny".into(),
        |it| it.comment = digest("not mine"),
        |it| it.remember = "digest".into(),
        |it| it.nonce = "ac".repeat(32),
    ];
    for (nr, change) in changes.iter().enumerate() {
        let mut other = proof.clone();
        change(&mut other.statement);
        assert_eq!(other.verify(), Err(Flaw::Challenge), "field {nr}");
    }
    // Bytes that move from one field to the next change the challenge as well.
    let mut shifted = statement();
    shifted.approval_id.push_str(&shifted.digest);
    shifted.digest.clear();
    assert_ne!(shifted.challenge(), statement().challenge());
}

#[test]
fn a_changed_or_cut_byte_of_what_was_signed_is_found() {
    for one in [Authenticator::es256(), Authenticator::ed25519()] {
        let proof = signed(&one, 0x05, &client(&one));
        let fields: [fn(&mut Proof) -> &mut String; 3] =
            [|it| &mut it.authenticator_data, |it| &mut it.client_data_json, |it| &mut it.signature];
        for field in fields {
            let length = field(&mut proof.clone()).len();
            for at in 0..length {
                let mut changed = proof.clone();
                let digit = field(&mut changed).as_bytes()[at];
                let other = if digit == b'0' { "1" } else { "0" };
                field(&mut changed).replace_range(at..=at, other);
                assert!(changed.verify().is_err(), "digit {at}");
            }
            for cut in 0..length {
                let mut changed = proof.clone();
                field(&mut changed).truncate(cut);
                assert!(changed.verify().is_err(), "cut at {cut}");
            }
            let mut long = proof.clone();
            *field(&mut long) = "00".repeat(100_000);
            assert_eq!(long.verify(), Err(Flaw::Size));
        }
    }
}

#[test]
fn the_user_must_be_present_and_verified() {
    let one = Authenticator::es256();
    for (flags, flaw) in [
        (0x00, Flaw::NotPresent),
        (0x04, Flaw::NotPresent),
        (0x01, Flaw::NotVerified),
        // A credential or extensions that are announced and do not follow.
        (0x45, Flaw::AuthenticatorData),
        (0x85, Flaw::AuthenticatorData),
    ] {
        assert_eq!(signed(&one, flags, &client(&one)).verify(), Err(flaw), "{flags:#x}");
    }
}

#[test]
fn another_page_frame_ceremony_and_party_are_refused() {
    let one = Authenticator::es256();
    let challenge = statement().challenge();
    let json = String::from_utf8(client(&one)).unwrap();
    for (client, flaw) in [
        (one.client_data("webauthn.create", &challenge, &party().origin), Flaw::Ceremony),
        (one.client_data("webauthn.get", &[0; 32], &party().origin), Flaw::Challenge),
        (one.client_data("webauthn.get", &challenge, "http://console.example.org"), Flaw::Origin),
        (one.client_data("webauthn.get", &challenge, "https://console.example.org:8443"), Flaw::Origin),
        (json.replace("false", "true").into_bytes(), Flaw::Frame),
        (json.replace("false", r#"false,"topOrigin":"https://evil.example""#).into_bytes(), Flaw::Frame),
        (json.replace(r#""origin""#, r#""type":"webauthn.get","origin""#).into_bytes(), Flaw::ClientData),
        (b"[]".to_vec(), Flaw::ClientData),
        (b"\xff".to_vec(), Flaw::ClientData),
    ] {
        assert_eq!(signed(&one, 0x05, &client).verify(), Err(flaw), "{}", String::from_utf8_lossy(&client));
    }
    let extended = json.replace("false", r#"false,"other":{"a":1}"#).into_bytes();
    assert!(signed(&one, 0x05, &extended).verify().is_ok(), "browsers may add members");
    let mut elsewhere = signed(&one, 0x05, &client(&one));
    elsewhere.rp_id = "example.org".into();
    assert_eq!(elsewhere.verify(), Err(Flaw::RelyingParty));
}

#[test]
fn a_key_signs_with_its_own_algorithm_alone() {
    let (es, ed) = (Authenticator::es256(), Authenticator::ed25519());
    let mut proof = signed(&es, 0x05, &client(&es));
    proof.public_key = ed.key();
    assert_eq!(proof.verify(), Err(Flaw::Signature));
    proof.public_key = Authenticator::es256().key();
    assert_eq!(proof.verify(), Err(Flaw::Signature));
    proof.public_key = PublicKey::Es256([4; 65]);
    assert_eq!(proof.verify(), Err(Flaw::Signature), "not on the curve");
    for (algorithm, hex) in
        [("none", "00"), ("EdDSA", "00"), ("ES256", "04"), ("RS256", "04"), ("ES256", &"02".repeat(65))]
    {
        let key = serde_json::json!({ "algorithm": algorithm, "hex": hex });
        assert!(serde_json::from_value::<PublicKey>(key).is_err(), "{algorithm} {hex}");
    }
}
