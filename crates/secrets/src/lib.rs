#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod command;
mod error;
mod file;
mod secret;
mod secrets;
mod source;

pub use error::{SecretError, Why};
pub use secret::Secret;
pub use secrets::Secrets;
pub use source::Source;
