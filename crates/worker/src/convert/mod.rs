//! Wire messages ⇄ domain types, each direction once.
//!
//! `cofferdam.v1` messages come from clients and from workers: nothing in them is believed before it has become an
//! [`ops::Operation`] or an [`ops::Outcome`].

mod bound;
mod bounds;
mod operation_from;
mod operation_to;
mod outcome_from;
mod outcome_to;

pub(crate) use bound::bound_from_wire;
pub use bound::{file_to_wire, preview_to_wire};
pub use bounds::{bounds_from_wire, bounds_to_wire};
pub use operation_from::operation_from_wire;
pub use operation_to::operation_to_wire;
pub use ops::Malformed;
pub use outcome_from::outcome_from_wire;
pub(crate) use outcome_to::kill_evidence;
pub use outcome_to::{failure_to_wire, outcome_to_wire, result_to_wire};

#[cfg(test)]
mod tests;
