//! Approvals: a reviewer's consent to one call.
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
//! No arrow goes back. Invariants: a state other than `PENDING` is final; `Available` is left once, and only `redeem`
//! leaves it with a permit; an approval whose digest is not that of the call now is void; nobody votes twice, and nobody
//! on a call of their own. What is remembered beyond one call is in `memory.rs`, and how calls come here and go on from
//! here in `lifecycle.rs`.
//! Nothing here waits, reads a clock or touches a disk: callers say what time it is, and store what is returned.

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
pub(crate) use table::Approvals;
#[cfg(test)]
pub(crate) use table::REDEEM_WITHIN;
pub use vote::{Ballot, Choice, Reviewer, Vote};
