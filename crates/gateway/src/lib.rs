#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only this workspace calls it, and no comment repeats a name

mod admission;
mod approvals;
mod binding;
mod caller;
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
pub mod policy;
mod risk;
mod ruling;
mod session;
mod validate;
mod wrapper;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod upstream_tests;

pub use admission::{Admission, Ticket};
pub use approvals::{
    Approval, ApprovalFilter, ApprovalState, Ballot, Choice, DecideError, FORMAT, MAX_COMMENT_CHARS,
    PermitState, RestoreError, Review, Reviewer, Vote,
};
pub use caller::{Caller, RunScope};
pub use consent::{Consent, Covers, Form, Level, NotRemembered, Remember};
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
pub use policy::{EXEC_READ_ONLY, Grant};
pub use policy::{HttpTarget, McpHttp, McpServer, McpStdio, McpTransport};
pub use policy::{Policy, Problems, Profile, Role, Team};
pub use risk::looks_secret;
pub use session::{SessionCommand, SessionParts, SessionPermit, SessionRequest};
