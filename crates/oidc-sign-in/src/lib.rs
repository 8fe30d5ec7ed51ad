#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod failed;
mod flow;
mod id_token;
mod pending;
mod provider;
mod settings;
mod spent;
#[cfg(test)]
mod testing;

pub use failed::Failed;
pub use flow::{Answered, Begun, Finished, SignIns};
pub use pending::LIFE;
pub use settings::{Client, Known, SignIn, read};
