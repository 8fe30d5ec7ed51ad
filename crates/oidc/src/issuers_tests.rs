use std::path::PathBuf;
use std::time::SystemTime;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use ring::hmac;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Holder, Issuers, Refused, looks_like_one};
use crate::testing::{Signer, claims, claims_with, encoded, issuer, now, set};
use crate::{Issuer, Source};

/// Issuers with one, whose keys these are.
fn with_keys(keys: &[Value]) -> (Issuers, TempDir) {
    with(keys, |_| ())
}

fn with(keys: &[Value], change: impl FnOnce(&mut Issuer)) -> (Issuers, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("jwks.json");
    std::fs::write(&path, set(keys)).unwrap();
    let mut one = issuer(Source::File(path));
    change(&mut one);
    (Issuers::open(vec![one]).unwrap(), directory)
}

fn check(issuers: &Issuers, token: &str) -> Result<Holder, Refused> {
    issuers.check(token, None, SystemTime::now())
}

fn refused(issuers: &Issuers, token: &str) -> Refused {
    check(issuers, token).expect_err(token)
}

#[test]
fn an_issuer_that_stays_keeps_its_keys_and_one_that_changes_does_not() {
    let signer = Signer::ec();
    let (earlier, directory) = with_keys(&[signer.jwk("ec")]);
    let same = issuer(Source::File(directory.path().join("jwks.json")));
    let mut other = same.clone();
    (other.name, other.issuer) = ("other".into(), "https://other.example.org/".into());
    std::fs::write(directory.path().join("jwks.json"), set(&[Signer::ec().jwk("new")])).unwrap();
    let issuers = Issuers::open_after(vec![other, same.clone()], &earlier).unwrap();
    check(&issuers, &signer.token("ES256", "ec", &claims())).unwrap();
    let mut changed = same;
    changed.audiences.push("more".into());
    let issuers = Issuers::open_after(vec![changed], &earlier).unwrap();
    let refusal = refused(&issuers, &signer.token("ES256", "ec", &claims()));
    assert!(matches!(refusal, Refused::Wrong | Refused::UnknownKey), "{refusal:?}");
}

#[test]
fn groups_of_a_token_have_the_name_of_their_issuer() {
    let signer = Signer::ec();
    let of = |path: &[&str], groups: Value| {
        let path: Vec<String> = path.iter().map(ToString::to_string).collect();
        let (issuers, _directory) = with(&[signer.jwk("ec")], |issuer| issuer.groups_claim = path);
        let changes = json!({ "groups": groups, "realm": { "roles": ["a:b"] } });
        check(&issuers, &signer.token("ES256", "ec", &claims_with(&changes))).unwrap().groups
    };
    let some = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(of(&["groups"], json!(["ml", 7, "all", ["x"]])), some(&["corp:ml", "corp:all"]));
    assert_eq!(of(&["groups"], json!("ml")), some(&["corp:ml"]));
    assert_eq!(of(&["realm", "roles"], json!([])), some(&["corp:a:b"]));
    for (path, groups) in
        [(&["groups"][..], json!({ "ml": true })), (&["groups"], json!([])), (&[], json!(["ml"]))]
    {
        assert_eq!(of(path, groups), some(&[]), "{path:?}");
    }
    for (path, groups) in
        [(&["groups"][..], json!(null)), (&["other"], json!(["ml"])), (&["realm", "other"], json!([]))]
    {
        assert_eq!(of(path, groups), None, "{path:?}");
    }
}

#[test]
fn j1_a_token_of_each_algorithm_names_its_holder() {
    let signers = [
        ("RS256", Signer::rsa(2_048)),
        ("PS256", Signer::rsa(3_072)),
        ("ES256", Signer::ec()),
        ("EdDSA", Signer::ed()),
    ];
    let keys: Vec<_> = signers.iter().map(|(name, signer)| signer.jwk(name)).collect();
    let (issuers, _directory) = with_keys(&keys);
    for (algorithm, signer) in &signers {
        let token = signer.token(algorithm, algorithm, &claims());
        assert!(looks_like_one(&token));
        let Holder { principal, left, .. } = check(&issuers, &token).unwrap();
        assert_eq!((principal.name.as_str(), principal.uid), ("oidc:corp:alice", identity::NOBODY));
        assert_eq!(principal.roles.names(), ["orchestrator"]);
        assert_eq!(principal.scope.unwrap().profiles, ["open"]);
        assert!((3_600..=3_661).contains(&left.as_secs()), "{left:?}");
    }
    // A list of audiences, a token of the other type, and no type at all.
    let (_, signer) = &signers[2];
    for (header, changes) in [
        (json!({ "alg": "ES256", "kid": "ES256" }), json!({ "aud": ["x", "other"] })),
        (json!({ "alg": "ES256", "kid": "ES256", "typ": "application/AT+JWT" }), json!({ "nbf": null })),
        (
            json!({ "alg": "ES256", "kid": "ES256", "x": { "y": 1 } }),
            json!({ "exp": u32::try_from(now()).map(f64::from).unwrap() + 60.5 }),
        ),
    ] {
        check(&issuers, &signer.token_with(&header, &claims_with(&changes))).unwrap();
    }
    // Nobody's groups: a name without a role.
    let unlisted = signer.token("ES256", "ES256", &claims_with(&json!({ "groups": ["hr"] })));
    let holder = check(&issuers, &unlisted).unwrap().principal;
    assert!(holder.roles.is_empty() && holder.name == "oidc:corp:alice");
}

#[test]
fn j2_only_four_algorithms_with_keys_of_their_type_are_accepted() {
    let (rsa, ec, ed) = (Signer::rsa(2_048), Signer::ec(), Signer::ed());
    let only = |mut key: Value, algorithm: &str| {
        key["alg"] = algorithm.into();
        key
    };
    let keys = [rsa.jwk("rsa"), ec.jwk("ec"), ed.jwk("ed"), only(rsa.jwk("pss"), "PS256")];
    let (issuers, _directory) = with_keys(&keys);
    check(&issuers, &rsa.token("RS256", "rsa", &claims())).unwrap();
    check(&issuers, &rsa.token("PS256", "pss", &claims())).unwrap();
    // Of another type than the key, or what the key is not for.
    for (signer, algorithm, id) in [
        (&rsa, "RS256", "ec"),
        (&rsa, "ES256", "rsa"),
        (&ec, "ES256", "rsa"),
        (&ec, "EdDSA", "ec"),
        (&ed, "EdDSA", "ec"),
        (&ed, "ES256", "ed"),
        (&ec, "RS256", "rsa"),
        (&rsa, "RS256", "pss"),
    ] {
        let refusal = refused(&issuers, &signer.token(algorithm, id, &claims()));
        assert!(matches!(refusal, Refused::Wrong | Refused::UnknownKey), "{algorithm} {id}: {refusal:?}");
    }
    // Known names, but not these; and signatures over nothing.
    for algorithm in [
        "RS384", "RS512", "PS384", "PS512", "ES384", "ES512", "ES256K", "HS256", "HS512", "none", "None",
        "nOnE", "", "rs256",
    ] {
        let header = json!({ "alg": algorithm, "kid": "rsa" });
        let token = rsa.token_with(&header, &claims());
        let unsigned = token.rsplit_once('.').unwrap().0;
        for token in [&token, &format!("{unsigned}."), &format!("{unsigned}.AAAA"), unsigned] {
            assert_eq!(refused(&issuers, token), Refused::Wrong, "{algorithm}");
        }
    }
    // What everybody knows of a key is no secret to sign with.
    let modulus = keys[0]["n"].as_str().unwrap();
    for (id, secret) in [
        ("rsa", modulus.as_bytes().to_vec()),
        ("rsa", keys[0].to_string().into_bytes()),
        ("ec", keys[1].to_string().into_bytes()),
        ("oct", b"k".to_vec()),
    ] {
        let message = format!(
            "{}.{}",
            encoded(json!({ "alg": "HS256", "kid": id }).to_string()),
            encoded(claims().to_string())
        );
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), message.as_bytes());
        assert_eq!(refused(&issuers, &format!("{message}.{}", encoded(signature))), Refused::Wrong);
    }
    // A key that comes with the token is nobody's.
    let own = Signer::ec();
    for header in [
        json!({ "alg": "ES256", "kid": "ec", "jwk": own.jwk("ec") }),
        json!({ "alg": "ES256", "kid": "ec", "jku": "https://keys.example.org/", "x5u": "https://keys.example.org/" }),
    ] {
        assert_eq!(refused(&issuers, &own.token_with(&header, &claims())), Refused::Wrong);
    }
}

#[test]
fn j2_the_key_is_the_one_that_the_token_names() {
    let (one, other) = (Signer::ec(), Signer::ec());
    let (issuers, _directory) = with_keys(&[one.jwk("one"), other.jwk("other")]);
    check(&issuers, &one.token("ES256", "one", &claims())).unwrap();
    assert_eq!(refused(&issuers, &one.token("ES256", "other", &claims())), Refused::Wrong);
    let nameless = json!({ "alg": "ES256" });
    for unknown in ["", "on", "one ", "ONE", "../one"] {
        let refusal = refused(&issuers, &one.token("ES256", unknown, &claims()));
        assert!(matches!(refusal, Refused::Wrong | Refused::UnknownKey), "{unknown}: {refusal:?}");
    }
    check(&issuers, &one.token_with(&nameless, &claims())).expect_err("there is a choice");
    let (alone, _directory) = with_keys(&[one.jwk("one")]);
    check(&alone, &one.token_with(&nameless, &claims())).unwrap();
    assert_eq!(refused(&alone, &other.token_with(&nameless, &claims())), Refused::Wrong);
    let long = one.token("ES256", &"k".repeat(257), &claims());
    assert_eq!(refused(&alone, &long), Refused::Wrong);
}

#[test]
fn j3_claims_that_are_for_others_or_for_another_time_do_not_count() {
    let signer = Signer::ec();
    let (issuers, _directory) = with_keys(&[signer.jwk("k")]);
    let now = now();
    let long = "x".repeat(257);
    for (changes, refusal) in [
        (json!({ "iss": "https://login.example.org" }), Refused::Wrong),
        (json!({ "iss": "https://other.example.org/" }), Refused::Wrong),
        (json!({ "iss": ["https://login.example.org/"] }), Refused::Wrong),
        (json!({ "iss": null }), Refused::Wrong),
        (json!({ "aud": "else" }), Refused::Audience),
        (json!({ "aud": ["else", "Cofferdam", "cofferdam/"] }), Refused::Audience),
        (json!({ "aud": [] }), Refused::Audience),
        (json!({ "aud": null }), Refused::Audience),
        (json!({ "aud": 7 }), Refused::Audience),
        (json!({ "aud": { "cofferdam": 1 } }), Refused::Audience),
        (json!({ "iat": now - 7_200, "nbf": now - 7_200, "exp": now - 3_600 }), Refused::Expired),
        (json!({ "iat": now - 7_200, "nbf": now - 7_200, "exp": now - 90 }), Refused::Expired),
        (json!({ "exp": 0 }), Refused::Expired),
        (json!({ "exp": null }), Refused::Undated),
        (json!({ "exp": format!("{}", now + 60) }), Refused::Undated),
        (json!({ "exp": -1 }), Refused::Undated),
        (json!({ "exp": [now + 60] }), Refused::Wrong),
        (json!({ "nbf": now + 3_600 }), Refused::NotYet),
        (json!({ "nbf": now + 90 }), Refused::NotYet),
        (json!({ "nbf": "0" }), Refused::Undated),
        (json!({ "iat": now + 90, "exp": now + 180 }), Refused::NotYet),
        (json!({ "iat": null }), Refused::Undated),
        (json!({ "iat": "now" }), Refused::Undated),
        (json!({ "iat": 1e300 }), Refused::Undated),
        (json!({ "exp": now + 86_500 }), Refused::TooLong),
        (json!({ "exp": u64::MAX }), Refused::TooLong),
        (json!({ "iat": 0 }), Refused::TooLong),
        (json!({ "sub": null }), Refused::Unnamed),
        (json!({ "sub": "" }), Refused::Unnamed),
        (json!({ "sub": 7 }), Refused::Unnamed),
        (json!({ "sub": "a b" }), Refused::Unnamed),
        (json!({ "sub": "a\nb" }), Refused::Unnamed),
        (json!({ "sub": "jörg" }), Refused::Unnamed),
        (json!({ "sub": long }), Refused::Unnamed),
    ] {
        let token = signer.token("ES256", "k", &claims_with(&changes));
        assert_eq!(refused(&issuers, &token), refusal, "{changes}");
        // Nothing of that is told to who cannot sign.
        let forged = Signer::ec().token("ES256", "k", &claims_with(&changes));
        assert_eq!(refused(&issuers, &forged), Refused::Wrong, "{changes}");
    }
    // Clocks differ a little.
    for changes in
        [json!({ "iat": now - 600, "exp": now - 30 }), json!({ "nbf": now + 30 }), json!({ "iat": now + 30 })]
    {
        check(&issuers, &signer.token("ES256", "k", &claims_with(&changes))).unwrap();
    }
}

#[test]
fn j3_only_verified_addresses_name_a_principal() {
    let signer = Signer::ec();
    let (issuers, _directory) = with(&[signer.jwk("k")], |issuer| issuer.principal_claim = "email".into());
    let named = |changes: Value| {
        check(&issuers, &signer.token("ES256", "k", &claims_with(&changes)))
            .map(|holder| holder.principal.name)
    };
    let verified = named(json!({ "email": "a@example.org", "email_verified": true }));
    assert_eq!(verified.unwrap(), "oidc:corp:a@example.org");
    for claim in [json!(null), json!(false), json!("true"), json!(1)] {
        let changes = json!({ "email": "a@example.org", "email_verified": claim });
        assert_eq!(named(changes).unwrap_err(), Refused::Unnamed, "{claim}");
    }
}

#[test]
fn j3_headers_and_forms_that_are_not_understood_are_refused() {
    let signer = Signer::ec();
    let (issuers, _directory) = with_keys(&[signer.jwk("k")]);
    for more in [
        json!({ "crit": ["exp"] }),
        json!({ "crit": [] }),
        json!({ "crit": ["b64"], "b64": false }),
        json!({ "zip": "DEF" }),
        json!({ "enc": "A128GCM" }),
        json!({ "typ": "logout+jwt" }),
        json!({ "typ": "dpop+jwt" }),
        json!({ "typ": "" }),
        json!({ "typ": "éapplication/jwt" }),
    ] {
        let mut header = json!({ "alg": "ES256", "kid": "k" });
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(refused(&issuers, &signer.token_with(&header, &claims())), Refused::Wrong, "{more}");
    }
    let good = signer.token("ES256", "k", &claims());
    let parts: Vec<_> = good.split('.').collect();
    let [header, payload, signature] = parts[..] else { unreachable!() };
    let deep = format!("{}1{}", "[".repeat(3_000), "]".repeat(3_000));
    let twice = claims().to_string().replacen('{', r#"{"exp":9999999999,"#, 1);
    for bad in [
        String::new(),
        ".".into(),
        "..".into(),
        "...".into(),
        format!("{good}."),
        format!(".{good}"),
        format!("{good} "),
        good.replace('.', ".."),
        format!("{header}.{payload}"),
        format!("{header}.{payload}.{signature}="),
        format!("{header}..{signature}"),
        format!("{payload}.{header}.{signature}"),
        format!("{}.{payload}.{signature}", encoded("null")),
        format!("{header}.{}.{signature}", encoded(&deep)),
        format!("{}.{payload}.{signature}", encoded(&deep)),
        format!("{header}.{}.{signature}", encoded(twice)),
    ] {
        check(&issuers, &bad).expect_err(&bad);
    }
    // It is signed, and too large all the same.
    let padded =
        |length: usize| signer.token("ES256", "k", &claims_with(&json!({ "x": "x".repeat(length) })));
    check(&issuers, &padded(5_000)).unwrap();
    assert_eq!(refused(&issuers, &padded(6_500)), Refused::Wrong);
    assert_eq!(refused(&issuers, &padded(1 << 20)), Refused::Wrong);
}

/// One change to a token's text.
#[derive(Debug, Clone)]
enum Change {
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Swap(Index, Index),
    Repeat(Index, Index),
    Cut(Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let byte = prop_oneof![
        Just(b'.'),
        b'A'..=b'Z',
        b'a'..=b'z',
        b'0'..=b'9',
        Just(b'-'),
        Just(b'_'),
        Just(b'='),
        0x20_u8..0x7f
    ];
    let at = any::<Index>;
    let change = prop_oneof![
        4 => (at(), byte.clone()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        2 => (at(), byte).prop_map(|(at, byte)| Change::Insert(at, byte)),
        2 => at().prop_map(Change::Remove),
        1 => (at(), at()).prop_map(|(one, other)| Change::Swap(one, other)),
        1 => (at(), at()).prop_map(|(one, other)| Change::Repeat(one, other)),
        1 => at().prop_map(Change::Cut),
    ];
    proptest::collection::vec(change, 1..4)
}

fn changed(token: &str, changes: &[Change]) -> String {
    let mut bytes = token.as_bytes().to_vec();
    for change in changes {
        let length = bytes.len().max(1);
        if bytes.is_empty() {
            bytes.push(b'.');
        }
        match change {
            Change::Replace(at, byte) => bytes[at.index(length)] = *byte,
            Change::Insert(at, byte) => bytes.insert(at.index(length), *byte),
            Change::Remove(at) => drop(bytes.remove(at.index(length))),
            Change::Swap(one, other) => bytes.swap(one.index(length), other.index(length)),
            Change::Repeat(one, other) => {
                let (one, other) = (one.index(length), other.index(length));
                let piece = bytes[one.min(other)..one.max(other)].to_vec();
                bytes.splice(other..other, piece);
            }
            Change::Cut(at) => bytes.truncate(at.index(length)),
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn j2_ten_thousand_altered_tokens_are_refused() {
    let signers = [
        ("RS256", Signer::rsa(2_048)),
        ("PS256", Signer::rsa(2_048)),
        ("ES256", Signer::ec()),
        ("EdDSA", Signer::ed()),
    ];
    let keys: Vec<_> = signers.iter().map(|(name, signer)| signer.jwk(name)).collect();
    let (issuers, _directory) = with_keys(&keys);
    let tokens: Vec<_> = signers.iter().map(|(name, signer)| signer.token(name, name, &claims())).collect();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let ran = runner.run(&(0..tokens.len(), changes()), |(at, changes)| {
        let token = changed(&tokens[at], &changes);
        prop_assert!(token == tokens[at] || check(&issuers, &token).is_err(), "{}", token);
        Ok(())
    });
    ran.unwrap();
    for token in &tokens {
        check(&issuers, token).unwrap();
    }
}
