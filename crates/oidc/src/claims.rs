//! Checks a token's claims besides its signature, audience and expiry.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::grant::Claims;
use crate::issuer::Issuer;
use crate::refused::Refused;

/// Longest subject in bytes.
const MAX_SUBJECT: usize = 256;

/// Returns a claim in seconds since 1970 (RFC 7519, 2: `NumericDate`).
fn date(claims: &Claims, name: &str) -> Option<u64> {
    let number = claims.get(name)?.as_number()?;
    number.as_u64().or_else(|| {
        let seconds = number.as_f64().filter(|seconds| (0.0..1e15).contains(seconds))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        Some(seconds as u64)
    })
}

/// Returns for how long the token is valid from now on, including the leeway for clocks.
pub(crate) fn left(claims: &Claims, issuer: &Issuer, now: SystemTime) -> Result<Duration, Refused> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (Some(begins), Some(ends)) = (date(claims, "iat"), date(claims, "exp")) else {
        return Err(Refused::Undated);
    };
    if Duration::from_secs(begins) > now + issuer.leeway {
        return Err(Refused::NotYet);
    }
    if Duration::from_secs(ends.saturating_sub(begins)) > issuer.max_lifetime {
        return Err(Refused::TooLong);
    }
    (Duration::from_secs(ends) + issuer.leeway).checked_sub(now).ok_or(Refused::Expired)
}

/// Returns the subject that the token names.
pub(crate) fn subject<'a>(claims: &'a Claims, claim: &str) -> Result<&'a str, Refused> {
    let is_plain = |name: &&str| {
        !name.is_empty() && name.len() <= MAX_SUBJECT && name.bytes().all(|byte| byte.is_ascii_graphic())
    };
    // A user who can choose an unverified address could choose another user's identity.
    let is_shown = claim != "email" || claims.get("email_verified") == Some(&Value::Bool(true));
    claims.get(claim).and_then(Value::as_str).filter(is_plain).filter(|_| is_shown).ok_or(Refused::Unnamed)
}
