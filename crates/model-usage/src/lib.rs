#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the daemon calls it

mod account;
mod accounts;
mod bounds;
mod changes;
mod database;
mod day;
mod ledger;
mod prices;
mod report;
mod tokens;

pub use accounts::Who;
pub use bounds::{BoundUse, Exceeded, Scope, Unit, Warning};
pub use database::Unreadable;
pub use day::Day;
pub use ledger::{Admitted, Ledger};
pub use prices::{Price, Prices};
pub use report::{By, Report};
pub use tokens::{Tokens, Usage};

#[cfg(test)]
mod ledger_tests;
