//! Client data (WebAuthn, section 5.8.1): what the browser says about the page that used the passkey.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::RelyingParty;
use crate::flaw::Flaw;

/// Most bytes of client data.
pub(crate) const MAX: usize = 2_048;

/// Client data. Browsers may add members, which are ignored; a member that is there twice is an error.
#[derive(Deserialize)]
struct ClientData {
    r#type: String,
    challenge: String,
    origin: String,
    #[serde(rename = "crossOrigin", default)]
    cross_origin: bool,
    #[serde(rename = "topOrigin", default)]
    top_origin: Option<String>,
}

/// Checks client data against the ceremony, the challenge and the origin that are expected.
pub(crate) fn check(json: &[u8], ceremony: &str, challenge: &[u8], party: &RelyingParty) -> Result<(), Flaw> {
    if json.is_empty() || json.len() > MAX {
        return Err(Flaw::Size);
    }
    let data: ClientData = serde_json::from_slice(json).map_err(|_| Flaw::ClientData)?;
    if data.r#type != ceremony {
        return Err(Flaw::Ceremony);
    }
    if data.challenge != URL_SAFE_NO_PAD.encode(challenge) {
        return Err(Flaw::Challenge);
    }
    if data.origin != party.origin {
        return Err(Flaw::Origin);
    }
    if data.cross_origin || data.top_origin.is_some() {
        return Err(Flaw::Frame);
    }
    Ok(())
}
