#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apt;
mod cargo;
mod docker;
mod domains;
mod form;
mod found;
mod git;
mod go;
mod host;
mod ini;
mod learn;
mod npm;
mod pip;
mod records;
mod refused;
mod remote;
mod suggest;
mod tools;

pub use host::Host;
pub use learn::{Learnt, Proposal, learn};
pub use records::Records;
pub use refused::Refused;
pub use suggest::{Suggested, Suggestions, suggest};
