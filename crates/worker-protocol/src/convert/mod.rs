//! Converts between messages of the worker protocol and domain types, each direction once.
//!
//! Operations and results are the API's own messages: [`operations::Operation`] parses and makes them.

mod bound;
mod bounds;
mod outcome;

pub use bound::{file_to_wire, preview_to_wire};
pub use bounds::{bounds_from_wire, bounds_to_wire};
pub use outcome::{
    MAX_OUTCOME, Reply, carried, failure_from_wire, outcome_from_wire, outcome_to_wire, report_to_wire,
};

#[cfg(test)]
mod tests;
