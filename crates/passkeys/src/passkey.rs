//! One passkey, as it is stored.

use consent_proof::PublicKey;
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

/// A reviewer's passkey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passkey {
    /// Id that its authenticator gave it, lower-case hex.
    pub credential_id: String,
    pub principal: String,
    /// Name that the principal gave it.
    pub name: String,
    pub public_key: PublicKey,
    pub created_at: UnixMillis,
    /// Time of the last decision that it signed.
    #[serde(default)]
    pub used_at: Option<UnixMillis>,
    /// Counter of the authenticator at its last signature; 0 if it has none.
    pub sign_count: u32,
    /// True if its removal has begun and could not be completed. It signs nothing.
    #[serde(default)]
    pub ended: bool,
}
