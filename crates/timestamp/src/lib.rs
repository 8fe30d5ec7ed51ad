#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
mod duration;
mod millis;
mod nanos;

pub use clock::{Clock, SystemClock};
pub use duration::{duration_from_wire, micros};
pub use millis::UnixMillis;
pub use nanos::{ParseTimestampError, Timestamp};
