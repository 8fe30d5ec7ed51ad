//! Registration of a passkey.

use crate::authenticator::Head;
use crate::flaw::Flaw;
use crate::key::PublicKey;
use crate::{RelyingParty, client_data};

/// A passkey that an authenticator has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Id of the passkey, lower-case hex.
    pub credential_id: String,
    pub public_key: PublicKey,
    pub sign_count: u32,
}

/// Reads the answer of an authenticator to a request for a new passkey.
///
/// There is no attestation, so the answer does not prove that its sender has the private key. Without it, the passkey
/// signs nothing and opens nothing.
pub fn register(
    authenticator_data: &[u8],
    client_data_json: &[u8],
    challenge: &[u8],
    party: &RelyingParty,
) -> Result<Registered, Flaw> {
    client_data::check(client_data_json, "webauthn.create", challenge, party)?;
    let head = Head::read(authenticator_data, &party.id)?;
    let (id, public_key) = head.credential()?;
    Ok(Registered { credential_id: hex::encode(id), public_key, sign_count: head.sign_count })
}

#[cfg(test)]
mod tests {
    use super::register;
    use crate::Flaw;
    use crate::testing::{Authenticator, party};

    #[test]
    fn both_kinds_of_keys_are_read_and_nothing_follows_them() {
        for authenticator in [Authenticator::es256(), Authenticator::ed25519()] {
            let data = authenticator.attested(&party().id);
            let client = authenticator.client_data("webauthn.create", &[7; 32], &party().origin);
            let registered = register(&data, &client, &[7; 32], &party()).unwrap();
            assert_eq!(registered.credential_id, hex::encode(authenticator.id()));
            assert_eq!(registered.public_key, authenticator.key());
            for cut in 0..data.len() {
                assert!(register(&data[..cut], &client, &[7; 32], &party()).is_err(), "{cut}");
            }
            let longer = [&data[..], &[0]].concat();
            assert_eq!(register(&longer, &client, &[7; 32], &party()), Err(Flaw::AuthenticatorData));
        }
    }

    #[test]
    fn another_challenge_ceremony_origin_party_and_algorithm_are_refused() {
        let one = Authenticator::es256();
        let data = one.attested(&party().id);
        let of = |ceremony: &str, challenge: u8, origin: &str| {
            let client = one.client_data(ceremony, &[challenge; 32], origin);
            register(&data, &client, &[7; 32], &party()).unwrap_err()
        };
        assert_eq!(of("webauthn.create", 8, &party().origin), Flaw::Challenge);
        assert_eq!(of("webauthn.get", 7, &party().origin), Flaw::Ceremony);
        assert_eq!(of("webauthn.create", 7, "https://console.example.org.evil.example"), Flaw::Origin);
        let client = one.client_data("webauthn.create", &[7; 32], &party().origin);
        let elsewhere = one.attested("example.org");
        assert_eq!(register(&elsewhere, &client, &[7; 32], &party()), Err(Flaw::RelyingParty));
        // RS256 (-257), and ES256 with the keys of its map in another order.
        let at = data.windows(3).position(|part| part == [0xa5, 1, 2]).unwrap();
        for (offset, byte) in [(4, 0x27), (2, 0x03), (0, 0xa6)] {
            let mut other = data.clone();
            other[at + offset] = byte;
            assert_eq!(register(&other, &client, &[7; 32], &party()), Err(Flaw::Key), "{offset}");
        }
        let empty = [&data[..53], &[0, 0], &data[55 + one.id().len()..]].concat();
        assert_eq!(register(&empty, &client, &[7; 32], &party()), Err(Flaw::Size));
    }
}
