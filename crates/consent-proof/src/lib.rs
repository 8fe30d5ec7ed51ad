#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod authenticator;
mod client_data;
mod flaw;
mod key;
mod ledger;
mod proof;
mod registration;
mod statement;

#[cfg(test)]
mod testing;

pub use flaw::Flaw;
pub use key::PublicKey;
pub use ledger::{Consent, Entry, Ledger};
pub use proof::{Assertion, Presence, Proof};
pub use registration::{Registered, register};
pub use statement::{Statement, digest, prefix};

/// The relying party that passkeys belong to: the console's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelyingParty {
    /// Domain that scopes the passkeys, such as `console.example.org`.
    pub id: String,
    /// Origin of the page that asks for them, such as `https://console.example.org`.
    pub origin: String,
}
