#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod dial;
mod endpoint;
mod exchange;
mod fetch;
mod send;
mod sign;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;

pub use dial::{Stream, dial};
pub use endpoint::{Endpoint, MAX_WAIT, backoff};
pub use fetch::{fetch, post_form};
pub use send::{Failed, Sender};
pub use sign::Secret;
pub use target::Target;
pub use tls::Tls;
