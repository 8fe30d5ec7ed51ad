//! Approvals: a reviewer's consent to one call.
//!
//! ```text
//!                    ┌─ approve ─► APPROVED   permit: Available ─┬─ redeem ─────────► Issued
//!                    │                                           └─ cancel, mismatch,
//!  request ─► PENDING┼─ deny ────► DENIED                           policy, too late ─► Withdrawn
//!                    ├─ timeout ─► EXPIRED
//!                    └─ cancel ──► CANCELLED
//! ```
//!
//! No arrow goes back. Invariants: a state other than `PENDING` is final; `Available` is left once, and only `redeem`
//! leaves it with a permit; an approval whose digest is not that of the call now is void.
//! Nothing here waits, reads a clock or touches a disk: callers say what time it is, and store what is returned.

mod approval;
mod book;

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

pub use approval::{
    Approval, ApprovalFilter, ApprovalState, Choice, DecideError, MAX_COMMENT_CHARS, PermitState,
    RestoreError, Review, Reviewer,
};
pub(crate) use book::Approvals;
