#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod escalation;
mod filter;
mod follow;
mod hooks;
mod index;
mod log;
mod maintenance;
mod matching;
mod tail;
mod thread;

pub use escalation::{Attempt, Escalations};
pub use filter::Filter;
pub use follow::Follow;
pub use hooks::Couriers;
pub use index::{Bound, Index, IndexError, Page, Query, State as IndexState};
pub use log::{AuditLog, LAST_WAIT, Settings, StartError};
pub use maintenance::Maintenance;
pub use matching::Matching;
pub use tail::Line;
pub use thread::{Signed, Unavailable};
