//! Authenticator data (WebAuthn, section 6.1): a fixed head, the attested credential of a registration, and extensions.

use sha2::{Digest as _, Sha256};

use crate::flaw::Flaw;
use crate::key::PublicKey;

const USER_PRESENT: u8 = 0x01;
const USER_VERIFIED: u8 = 0x04;
const ATTESTED: u8 = 0x40;
const EXTENSIONS: u8 = 0x80;
/// Length of the head: the hash of the relying party's id, flags, and the counter.
const HEAD: usize = 32 + 1 + 4;
/// Length of the id of the authenticator's model, which is not used.
const MODEL: usize = 16;
/// Most bytes of a credential's id (WebAuthn, section 4).
pub(crate) const MAX_CREDENTIAL: usize = 1_023;
/// Most bytes of authenticator data. They have a credential, a key, and the outputs of extensions.
pub(crate) const MAX: usize = 2_048;

/// The head of authenticator data, checked.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) sign_count: u32,
    attested: bool,
    extended: bool,
    rest: &'a [u8],
}

impl<'a> Head<'a> {
    /// Reads the head. The user must have been present and verified, and the data be of this relying party.
    pub(crate) fn read(data: &'a [u8], rp_id: &str) -> Result<Self, Flaw> {
        if data.len() > MAX {
            return Err(Flaw::Size);
        }
        let (head, rest) = data.split_first_chunk::<HEAD>().ok_or(Flaw::AuthenticatorData)?;
        let [hash @ .., flags, c0, c1, c2, c3] = *head;
        if hash != <[u8; 32]>::from(Sha256::digest(rp_id)) {
            return Err(Flaw::RelyingParty);
        }
        if flags & USER_PRESENT == 0 {
            return Err(Flaw::NotPresent);
        }
        if flags & USER_VERIFIED == 0 {
            return Err(Flaw::NotVerified);
        }
        Ok(Self {
            sign_count: u32::from_be_bytes([c0, c1, c2, c3]),
            attested: flags & ATTESTED != 0,
            extended: flags & EXTENSIONS != 0,
            rest,
        })
    }

    /// Checks that no credential follows. The outputs of extensions are signed, and not used.
    pub(crate) fn of_assertion(&self) -> Result<(), Flaw> {
        if self.attested || self.extended == self.rest.is_empty() {
            return Err(Flaw::AuthenticatorData);
        }
        Ok(())
    }

    /// Returns the id and the key of the credential that follows.
    pub(crate) fn credential(&self) -> Result<(&'a [u8], PublicKey), Flaw> {
        if !self.attested {
            return Err(Flaw::AuthenticatorData);
        }
        let (head, rest) = self.rest.split_first_chunk::<{ MODEL + 2 }>().ok_or(Flaw::AuthenticatorData)?;
        let length = usize::from(u16::from_be_bytes([head[MODEL], head[MODEL + 1]]));
        if !(1..=MAX_CREDENTIAL).contains(&length) {
            return Err(Flaw::Size);
        }
        let (id, rest) = rest.split_at_checked(length).ok_or(Flaw::AuthenticatorData)?;
        let (key, rest) = PublicKey::read(rest)?;
        if self.extended == rest.is_empty() {
            return Err(Flaw::AuthenticatorData);
        }
        Ok((id, key))
    }
}
