#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod addresses;
mod occurrences;
mod shares;
mod turns;

pub use addresses::{Addresses, ConnectionLimits, Slot, network};
pub use occurrences::Occurrences;
pub use shares::{CurrentShare, Owner, Purpose, Share, ShareLimits, Shares};
pub use turns::{Turn, Turns};
