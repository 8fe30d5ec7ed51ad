#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod claims;
mod condition;
mod crypto;
mod grant;
mod issuer;
mod issuers;
mod keys;
mod refused;
mod source;
#[cfg(test)]
mod testing;

pub use condition::{Condition, Held};
pub use grant::Grant;
pub use issuer::Issuer;
pub use issuers::{Holder, Issuers, looks_like_one};
pub use refused::Refused;
pub use source::Source;
