//! Approvals: a reviewer's consent to one call, or to one connection out of a run.
//!
//! ```text
//!           vote ┐
//!           ┌────▼───┐  ┌─ enough consents ─► APPROVED   permit: Available ─┬─ redeem ─────────► Issued
//!  request ─► PENDING ──┤                                                   └─ cancel, mismatch,
//!           └────▲───┘  ├─ one denial ──────► DENIED                           policy, too late ─► Withdrawn
//!       reminder ┘      ├─ timeout ─────────► EXPIRED
//!                       └─ cancel ──────────► CANCELLED
//! ```
//!
//! No arrow goes back. Invariants:
//!
//! - A state other than `PENDING` is final.
//! - `Available` is left once, and only `redeem` leaves it with a permit.
//! - An approval is void if its digest differs from that of the call at redemption.
//! - A reviewer votes once, and not on their own call unless development settings allow that.
//!
//! `memory.rs` has the consents that cover more than one call. `lifecycle.rs` shows how calls arrive here and continue.
//! This module neither waits nor reads a clock nor touches a disk: callers pass the time, and store the results.

mod approval;
mod decide;
mod memory;
mod table;
mod vote;

#[cfg(test)]
mod tests;

pub use approval::{
    Approval, ApprovalFilter, ApprovalState, FORMAT, MAX_COMMENT_CHARS, PermitState, RestoreError, Review,
};
pub use decide::DecideError;
pub(crate) use memory::Memory;
#[cfg(test)]
pub(crate) use table::REDEEM_WITHIN;
pub(crate) use table::{Approvals, expiry};
pub use vote::{Ballot, Choice, Reviewer, Vote};
