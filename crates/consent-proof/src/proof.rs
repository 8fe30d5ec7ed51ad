//! A decision that a passkey has signed.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::authenticator::{self, Head};
use crate::flaw::Flaw;
use crate::key::PublicKey;
use crate::statement::Statement;
use crate::{RelyingParty, client_data};

/// Most bytes of a signature. One of ECDSA over P-256 has 72 at most.
const MAX_SIGNATURE: usize = 128;

/// Answer of an authenticator, as a client sends it. Everything in it is hostile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assertion {
    pub authenticator_data: Vec<u8>,
    pub client_data_json: Vec<u8>,
    pub signature: Vec<u8>,
}

/// State of the authenticator at a verified assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// Counter of signatures; 0 if the authenticator has none.
    pub sign_count: u32,
}

/// A signed decision with everything that its check needs. It is recorded in this form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    pub statement: Statement,
    pub rp_id: String,
    pub origin: String,
    /// Id of the passkey, lower-case hex.
    pub credential_id: String,
    pub public_key: PublicKey,
    /// Lower-case hex, as are the next two.
    pub authenticator_data: String,
    pub client_data_json: String,
    pub signature: String,
}

impl Proof {
    /// Makes a proof of an assertion, without checking it.
    pub fn new(
        statement: Statement,
        party: &RelyingParty,
        (credential_id, public_key): (String, PublicKey),
        assertion: &Assertion,
    ) -> Self {
        Self {
            statement,
            rp_id: party.id.clone(),
            origin: party.origin.clone(),
            credential_id,
            public_key,
            authenticator_data: hex::encode(&assertion.authenticator_data),
            client_data_json: hex::encode(&assertion.client_data_json),
            signature: hex::encode(&assertion.signature),
        }
    }

    /// Checks that the holder of the key has signed this statement, on this origin, present and verified.
    ///
    /// The caller has to know the key, the relying party, and that the nonce was not used before.
    pub fn verify(&self) -> Result<Presence, Flaw> {
        let bytes = |hex: &str, most: usize| {
            if hex.is_empty() || hex.len() > 2 * most {
                return Err(Flaw::Size);
            }
            hex::decode(hex).map_err(|_| Flaw::Encoding)
        };
        let mut signed = bytes(&self.authenticator_data, authenticator::MAX)?;
        let client_data = bytes(&self.client_data_json, client_data::MAX)?;
        let signature = bytes(&self.signature, MAX_SIGNATURE)?;
        let party = RelyingParty { id: self.rp_id.clone(), origin: self.origin.clone() };
        client_data::check(&client_data, "webauthn.get", &self.statement.challenge(), &party)?;
        let head = Head::read(&signed, &party.id)?;
        head.of_assertion()?;
        let presence = Presence { sign_count: head.sign_count };
        signed.extend_from_slice(&Sha256::digest(&client_data));
        self.public_key.verify(&signed, &signature)?;
        Ok(presence)
    }
}

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;
