#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the daemon calls it

mod account;
mod accounts;
mod bounds;
mod changes;
mod charge;
mod database;
mod day;
mod holds;
mod ledger;
mod prices;
mod report;
mod reservation;
mod tokens;
mod who;

pub use accounts::KEPT_DAYS;
pub use bounds::{BoundUse, Exceeded, Scope, Unit, Warning};
pub use charge::{Answer, Estimate, Extent};
pub use database::{Unreadable, VERSION};
pub use day::Day;
pub use ledger::{Ledger, Settled};
pub use prices::{Price, Prices};
pub use report::{By, Report};
pub use reservation::Reservation;
pub use tokens::{Tokens, Usage};
pub use who::Who;

#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod reservation_tests;
