use serde_json::{Value, json};

use super::{Consent, Entry, Ledger};
use crate::testing::{Authenticator, party};
use crate::{Proof, Statement, digest};

const APPROVAL: &str = "0198a1b2-0000-7000-8000-00000000aaaa";

struct Log {
    registered: Value,
    requested: Value,
    decided: Value,
    /// Number of secrets that each record says were hidden in it.
    redactions: u32,
}

fn log() -> Log {
    signed("once")
}

/// Returns a log of a consent that was signed with this coverage.
fn signed(remember: &str) -> Log {
    let one = Authenticator::es256();
    let statement = Statement {
        approval_id: APPROVAL.into(),
        digest: digest("the call"),
        shown: digest("the preview"),
        principal: "token:phone".into(),
        decision: "approve".into(),
        comment: digest("looks right"),
        remember: remember.into(),
        nonce: "ab".repeat(32),
    };
    let client = one.client_data("webauthn.get", &statement.challenge(), &party().origin);
    let assertion = one.sign(Authenticator::data(0x05, 1, &party().id), client);
    let proof = Proof::new(statement, &party(), (hex::encode(one.id()), one.key()), &assertion);
    Log {
        registered: json!({
            "credential_id": hex::encode(one.id()),
            "principal": "token:phone",
            "name": "phone",
            "public_key": one.key(),
        }),
        requested: json!({ "digest": digest("the call"), "shown": digest("the preview") }),
        decided: json!({ "vote": {
            "principal": "token:phone",
            "choice": "approve",
            "comment": "looks right",
            "proof": proof,
        }}),
        redactions: 0,
    }
}

fn read(log: &Log, ledger: &mut Ledger) -> Option<Consent> {
    let redactions = log.redactions;
    let mut take = |kind, approval_id, details| ledger.take(Entry { kind, approval_id, redactions, details });
    assert!(take("passkey_registered", None, &log.registered).is_none());
    assert!(take("approval_requested", Some(APPROVAL), &log.requested).is_none());
    take("approval_decided", Some(APPROVAL), &log.decided)
}

fn flaw(change: impl FnOnce(&mut Log)) -> String {
    let mut changed = log();
    change(&mut changed);
    read(&changed, &mut Ledger::default()).unwrap().flaw.unwrap()
}

#[test]
fn a_signed_decision_holds() {
    let expected = Consent {
        approval_id: APPROVAL.into(),
        principal: "token:phone".into(),
        decision: "approve".into(),
        passkey: "phone".into(),
        flaw: None,
    };
    assert_eq!(read(&log(), &mut Ledger::default()), Some(expected));
    let mut older = log();
    older.requested.as_object_mut().unwrap().remove("shown");
    assert_eq!(read(&older, &mut Ledger::default()).unwrap().flaw, None);
    let mut unsigned = log();
    unsigned.decided["vote"].as_object_mut().unwrap().remove("proof");
    assert_eq!(read(&unsigned, &mut Ledger::default()), None);
}

#[test]
fn a_hidden_comment_is_believed_where_the_record_says_that_it_was_hidden() {
    let flaw = |comment: &str, settled: bool, redactions| {
        let mut hidden = log();
        hidden.decided["vote"]["comment"] = comment.into();
        if settled {
            hidden.decided["comment"] = comment.into();
        }
        let log = Log { redactions, ..hidden };
        read(&log, &mut Ledger::default()).unwrap().flaw
    };
    let (one, two) = ("looks [redacted:high-entropy]", "[redacted:secret] [redacted:secret]");
    for (comment, settled, redactions) in [(one, false, 1), (one, true, 2), (two, false, 2), (two, true, 5)] {
        assert_eq!(flaw(comment, settled, redactions), None, "{comment} {settled} {redactions}");
    }
    for (comment, settled, redactions) in
        [(one, false, 0), (one, true, 1), (two, false, 1), (two, true, 3), ("never", true, 9)]
    {
        let found = flaw(comment, settled, redactions);
        assert!(found.is_some_and(|flaw| flaw.contains("comment")), "{comment} {settled} {redactions}");
    }
}

#[test]
fn every_change_of_a_record_is_found() {
    assert!(flaw(|log| log.decided["vote"]["principal"] = "token:other".into()).contains("decision"));
    assert!(flaw(|log| log.decided["vote"]["choice"] = "deny".into()).contains("decision"));
    assert!(flaw(|log| log.decided["vote"]["comment"] = "never".into()).contains("comment"));
    assert!(flaw(|log| log.decided["remembered"] = "0198a1b2".into()).contains("covers more"));
    assert!(flaw(|log| log.requested["digest"] = digest("another call").into()).contains("no request"));
    for shown in [json!(digest("another preview")), json!(""), json!(null)] {
        assert!(flaw(|log| log.requested["shown"] = shown).contains("texts of the request"));
    }
    assert!(flaw(|log| log.registered["principal"] = "token:other".into()).contains("no registration"));
    assert!(
        flaw(|log| log.registered["public_key"] = json!(Authenticator::es256().key()))
            .contains("no registration")
    );
    assert!(
        flaw(|log| log.decided["vote"]["proof"]["statement"]["digest"] = "x".into()).contains("challenge")
    );
    assert!(flaw(|log| log.decided["vote"]["proof"]["signature"] = "3000".into()).contains("signature"));
    assert!(flaw(|log| log.decided["vote"]["proof"] = json!({ "truncated": {} })).contains("malformed"));
    assert!(flaw(|log| log.decided["vote"]["proof"]["more"] = 1.into()).contains("malformed"));
}

#[test]
fn a_signature_that_was_taken_away_is_missed_where_one_is_required() {
    let mut log = log();
    log.requested["passkey"] = true.into();
    assert_eq!(read(&log, &mut Ledger::default()).unwrap().flaw, None);
    log.decided["vote"].as_object_mut().unwrap().remove("proof");
    assert!(read(&log, &mut Ledger::default()).unwrap().flaw.unwrap().contains("has to be signed"));
    log.decided["vote"]["choice"] = "deny".into();
    assert_eq!(read(&log, &mut Ledger::default()), None, "a denial needs no signature");
}

#[test]
fn a_consent_is_remembered_for_no_more_than_was_signed() {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (by_digest, by_words) = (json!({ "digest": "d" }), json!({ "prefix": ["cargo", "test"] }));
    let hidden = json!({ "prefix": ["cargo", "[redacted:high-entropy]"] });
    for (remember, covers, redactions, holds) in [
        ("digest".to_owned(), &by_digest, 0, true),
        ("digest".to_owned(), &by_words, 0, false),
        (crate::prefix(&words(&["cargo", "test"])), &by_words, 0, true),
        (crate::prefix(&words(&["cargo", "test", "-p"])), &by_words, 0, false),
        (crate::prefix(&words(&["cargo", "test"])), &by_digest, 0, false),
        (crate::prefix(&words(&["cargo", "s3cret"])), &hidden, 1, true),
        (crate::prefix(&words(&["cargo", "s3cret"])), &hidden, 0, false),
        ("digest".to_owned(), &hidden, 1, false),
        ("digest".to_owned(), &json!({}), 0, false),
    ] {
        let (mut log, mut ledger) = (signed(&remember), Ledger::default());
        log.decided["remembered"] = "0198a1b2".into();
        assert_eq!(read(&log, &mut ledger).unwrap().flaw, None);
        let details = json!({ "consent_id": "0198a1b2", "covers": covers });
        let (kind, approval_id) = ("consent_remembered", Some(APPROVAL));
        let remembered = || Entry { kind, approval_id, redactions, details: &details };
        assert_eq!(ledger.take(remembered()).is_none(), holds, "{remember} {covers}");
        assert_eq!(ledger.take(remembered()), None, "each once");
    }
}

#[test]
fn a_consent_to_one_call_is_not_remembered() {
    for covers in [json!({ "digest": "d" }), json!({ "prefix": ["cargo"] })] {
        let (log, mut ledger) = (log(), Ledger::default());
        assert_eq!(
            read(&log, &mut ledger).unwrap().flaw,
            None,
            "the decision does not name the other record"
        );
        let details = json!({ "consent_id": "0198a1b2", "covers": covers });
        let (kind, approval_id) = ("consent_remembered", Some(APPROVAL));
        let found = ledger.take(Entry { kind, approval_id, redactions: 0, details: &details });
        assert!(found.unwrap().flaw.unwrap().contains("covers more"), "{covers}");
    }
}

#[test]
fn a_signature_counts_once_and_not_after_its_passkey_was_removed() {
    let (log, mut ledger) = (log(), Ledger::default());
    assert_eq!(read(&log, &mut ledger).unwrap().flaw, None);
    assert!(read(&log, &mut ledger).unwrap().flaw.unwrap().contains("earlier record"));
    let mut ledger = Ledger::default();
    let mut take =
        |kind, details| ledger.take(Entry { kind, approval_id: Some(APPROVAL), redactions: 0, details });
    take("passkey_registered", &log.registered);
    take("passkey_removed", &log.registered);
    take("approval_requested", &log.requested);
    let late = take("approval_voted", &log.decided).unwrap();
    assert!(late.flaw.unwrap().contains("no registration"));
}
