#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the daemon calls it

mod channel;
mod door;
mod formats;
mod guard;
mod listeners;
mod notify;
mod program;
mod request;
mod socket;
mod stop_signals;
mod successor;

pub use channel::ChannelError;
pub use door::{Door, Terms};
pub use formats::Formats;
pub use guard::{Resumed, guard, resumed};
pub use listeners::{Listeners, Named};
pub use program::hindrance;
pub use request::{Report, RequestError, check, upgrade};
pub use stop_signals::StopSignals;
pub use successor::{Heir, Predecessor, Released, take_over};

/// Option of the program with which it starts as the successor of the daemon that serves.
pub const TAKE_OVER: &str = "--take-over";
/// Option of the program with which it watches a successor, and goes on itself if that one fails.
pub const GUARD: &str = "--guard";
/// Option of the program with which it goes on after a successor failed.
pub const RESUME: &str = "--resume";
/// Option of the program with the configuration that was in force before, beside [`RESUME`].
pub const KEPT: &str = "--kept";
