//! The claims that bind an ID token to its sign-in (OpenID Connect Core, 3.1.3.7).
//!
//! The signature is not checked here. The token came from the issuer over TLS, and the API checks its signature and its times before it
//! opens anything.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;

use crate::failed::Failed;

/// Longest token that the API takes, bytes.
const LONGEST: usize = 8 * 1_024;

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    azp: Option<String>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// Checks that a token is of the issuer, for the client, and for the sign-in with this nonce.
pub(crate) fn check(token: &str, issuer: &str, client: &str, nonce: &str) -> Result<(), Failed> {
    if token.len() > LONGEST {
        return Err(Failed::Token("it is longer than 8 KiB, as tokens with many groups are"));
    }
    let claims = claims(token).ok_or(Failed::Token("it cannot be read"))?;
    if claims.iss != issuer {
        return Err(Failed::Token("it is of another issuer"));
    }
    let (is_own, is_alone) = match &claims.aud {
        Audience::One(audience) => (audience == client, true),
        Audience::Many(all) => (all.iter().any(|audience| audience == client), all.len() == 1),
    };
    let is_party = claims.azp.as_ref().map_or(is_alone, |party| party == client);
    if !is_own || !is_party {
        return Err(Failed::Token("it is for another client"));
    }
    let sent = claims.nonce.unwrap_or_default();
    let is_same: bool = sent.as_bytes().ct_eq(nonce.as_bytes()).into();
    if is_same && !nonce.is_empty() { Ok(()) } else { Err(Failed::Token("it was made for another sign-in")) }
}

fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::token;

    fn checked(claims: &Value) -> Result<(), Failed> {
        check(&token(claims), "https://login.example.org/", "console", "n-1")
    }

    fn claims() -> Value {
        json!({ "iss": "https://login.example.org/", "aud": "console", "nonce": "n-1" })
    }

    #[test]
    fn a_token_is_for_one_issuer_one_client_and_one_sign_in() {
        checked(&claims()).unwrap();
        for (key, value, is_valid) in [
            ("aud", json!(["console"]), true),
            ("azp", json!("console"), true),
            ("azp", json!("other"), false),
            ("aud", json!(["console", "other"]), false),
            ("aud", json!("other"), false),
            ("aud", json!([]), false),
            ("aud", json!(null), false),
            ("iss", json!("https://login.example.org"), false),
            ("nonce", json!("n-2"), false),
            ("nonce", json!(null), false),
            ("nonce", json!(""), false),
        ] {
            let mut changed = claims();
            changed[key] = value.clone();
            assert_eq!(checked(&changed).is_ok(), is_valid, "{key}: {value}");
        }
        let several = json!({ "iss": "https://login.example.org/", "aud": ["a", "console"], "azp": "console", "nonce": "n-1" });
        checked(&several).unwrap();
        let none = json!({ "iss": "https://login.example.org/", "aud": "console", "nonce": "" });
        assert!(check(&token(&none), "https://login.example.org/", "console", "").is_err());
    }

    #[test]
    fn a_text_that_is_no_token_is_refused() {
        for bad in ["", "a.b", "a.b.c", "a.e30.c.d", "..", &"a".repeat(9_000)] {
            assert!(check(bad, "i", "console", "n-1").is_err(), "{bad}");
        }
    }
}
