#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod addresses;
mod by_client;
mod fair_turns;
mod occurrences;
mod shares;
mod turns;

pub use addresses::{Addresses, ConnectionLimits, Slot, network};
pub use by_client::{Due, OccurrencesByClient};
pub use fair_turns::{FairTurn, FairTurns};
pub use occurrences::Occurrences;
pub use shares::{CurrentShare, Owner, Purpose, Share, ShareLimits, Shares};
pub use turns::{Place, STALL, Turn, Turns, WAIT};
