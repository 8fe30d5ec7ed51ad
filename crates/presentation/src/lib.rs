#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod broken;
pub mod ending;
pub mod exit;
pub mod failure;
pub mod ids;
pub mod output;
pub mod quantity;
pub mod question;
pub mod time;
pub mod ui;
mod unreachable;
