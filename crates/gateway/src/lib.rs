#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only this workspace calls it, and no comment repeats a name

mod admission;
mod approvals;
mod awaiting;
mod binding;
mod connection;
mod consent;
mod decision;
mod exec;
mod explain;
mod gateway;
mod grants;
mod lifecycle;
pub mod limits;
mod measures;
mod permission;
mod permit;
mod risk;
mod ruling;
mod session;
mod validate;

#[cfg(test)]
mod path_rules_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod upstream_tests;

pub use admission::{Admission, Ticket};
pub use approvals::{
    Approval, ApprovalFilter, ApprovalState, Ballot, Choice, DecideError, FORMAT, MAX_COMMENT_CHARS,
    PermitState, RestoreError, Review, Reviewer, Vote,
};
pub use connection::{BoundPush, CONNECT, Connect, ConnectReview, PUSH};
pub use consent::{Consent, Covers, NotRemembered, Remember};
pub use decision::{Decision, Refusal};
pub use explain::{Considered, Explanation, Stage};
pub use gateway::Gateway;
pub use grants::{
    BadPattern, BadPermission, Effect, Ended, MAX_IN_FORCE, PathPattern, Permission, Permissions, Scope,
    Subject, TooMany,
};
pub use measures::{Measure, MeasureScope};
pub use permit::{Permit, PermitParts};
pub use risk::looks_secret;
pub use session::{SessionCommand, SessionParts, SessionPermit, SessionRequest};
