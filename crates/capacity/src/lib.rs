#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the command line calls it

mod amounts;
mod costs;
mod fit;
pub mod this_host;

pub use amounts::{Amounts, CORE, Resource};
pub use costs::{BadCosts, Costs, Measured, Parts};
pub use fit::{Fit, Host, within};
