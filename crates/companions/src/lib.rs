#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod all;
mod companion;
mod log;
mod program;
mod ready;
mod request;

pub use all::Companions;
pub use companion::Companion;
pub use program::{NoProgram, Program};
pub use ready::NotReady;
pub use request::{Requested, requested};
