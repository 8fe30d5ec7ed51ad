#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod arguments;
pub mod client;
pub mod companions;
pub mod failure;
pub mod file;
pub mod follow;
pub mod run_ref;
pub mod variables;
