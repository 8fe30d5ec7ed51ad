#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod addresses;
mod shares;

pub use addresses::{Addresses, ConnectionLimits, Place, network};
pub use shares::{Owner, Purpose, Share, ShareLimits, Shares};
