#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod amount;
mod command;
mod of_run;

pub use command::Usage;
pub use of_run::{left, used};
