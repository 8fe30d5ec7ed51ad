#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only runs and the daemon call it

pub mod deny_list;
pub mod directories;
pub mod linked;
pub mod mounting;
pub mod resources;
pub mod trash;
pub mod workspace;
