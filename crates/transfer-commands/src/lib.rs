#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod base;
mod image;
mod nodes;
mod push;
mod relay;

pub use base::PushBase;
pub use image::Command as ImageCommand;

use command_context::client;
use presentation::{failure, ids, output, quantity, time};
