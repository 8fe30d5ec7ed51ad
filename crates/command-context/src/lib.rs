#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod client;
pub mod companions;
pub mod failure;
pub mod run_ref;
pub mod variables;
