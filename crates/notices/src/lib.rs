#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // the daemon alone calls it

mod board;
mod form;
mod hook;
mod push;

pub use board::{Board, Notice};
pub use form::Form;
pub use hook::{Hook, Links};
pub use push::{Hosts, MakeLink, OpenError, Push, PushSettings, Reviewers, Subscription, Wanted};
