//! Who may do what, and how often: policy, permission, risk, rate limits, approvals, and the [`Permit`] that only this
//! crate can mint.
//!
//! This is the second audited core, after the path jail. It is small and synchronous on purpose: no engine, no RPC,
//! no runtime, no clock of its own. It decides; others record, wait and execute.
//!
//! ```text
//!              Operation
//!                  │ admit
//!        ┌─────────▼──────────┐   malformed, out of bounds, protected path
//!        │ validation         ├──────────────────────────────────────────────► Refusal
//!        └─────────┬──────────┘
//!        ┌─────────▼──────────┐   profile, role, team, command rule or
//!        │ permission         ├── revocation says deny ──────────────────────► Refusal
//!        └─────────┬──────────┘
//!        ┌─────────▼──────────┐   too many calls of the agent, the run or the principal
//!        │ rate limits        ├──────────────────────────────────────────────► Refusal
//!        └──┬──────────────┬──┘
//!     allow │          ask │ Ticket
//!           │    ┌─────────▼──────────┐
//!           │    │ approval: PENDING  │   denied, expired, cancelled
//!           │    │ … decide           ├──────────────────────────────────────► Refusal
//!           │    └─────────┬──────────┘
//!           │     APPROVED │ redeem: validation and permission again, same call,
//!           │              │ same files, same policy, first time            ───► Refusal
//!           ▼              ▼
//!        ┌────────────────────┐
//!        │ Permit             │   neither Clone nor constructible: the executor spends it, once
//!        └────────────────────┘
//! ```
//!
//! What holds, whatever is asked in whatever order:
//!
//! - No permit without a policy that lets the call through at the moment when the permit is made.
//! - Where the policy asks, no permit without a reviewer's consent to exactly this call, and one permit for one consent.
//! - Unknown profiles, roles, operations and commands are denied; of several rules the strictest wins.
//! - A consent is for one call, unless the reviewer has it remembered for the run, in so many words.
//! - An operator's terminal has a permit of its own kind, which opens nothing else.
//! - What the container does once a command runs is not judged here. The deny list and the command rules say what an
//!   agent may ask for; the container holds what it then does.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod admission;
mod approvals;
mod binding;
mod caller;
mod clock;
mod decision;
pub mod document;
mod exec;
mod explain;
mod gateway;
mod grants;
mod lifecycle;
pub mod limits;
mod measures;
mod permission;
mod permit;
pub mod policy;
mod risk;
mod ruling;
mod session;
mod shown;
mod validate;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod upstream_tests;

pub use admission::{Admission, Ticket};
pub use approvals::{
    Approval, ApprovalFilter, ApprovalState, Ballot, Choice, Consent, Covers, DecideError, FORMAT, Form,
    Level, MAX_COMMENT_CHARS, NotRemembered, PermitState, Remember, RestoreError, Review, Reviewer, Vote,
};
pub use caller::{Caller, RunScope};
pub use clock::{Clock, SystemClock, UnixMillis};
pub use decision::{Decision, Refusal, Risk, Verdict};
pub use document::Problem;
pub use exec::named_files;
pub use explain::{Considered, Explanation, Stage};
pub use gateway::Gateway;
pub use grants::{
    BadPattern, BadPermission, Effect, Ended, MAX_IN_FORCE, PathPattern, Permission, Permissions, Scope,
    Subject, TooMany,
};
pub use measures::{Measure, MeasureScope};
pub use permit::{Permit, PermitParts};
pub use policy::names::covers;
pub use policy::{Anomalies, AnomalyAction, AnomalyRule, AnomalySetting, Severity};
pub use policy::{HttpTarget, McpHttp, McpServer, McpStdio, McpTransport};
pub use policy::{Policy, Problems, Profile, Role, Team};
pub use risk::looks_secret;
pub use session::{SessionCommand, SessionParts, SessionPermit, SessionRequest};
