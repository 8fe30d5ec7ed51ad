#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod ids;
mod principal;
mod token;

pub use ids::{AlertId, CallId, PermissionId, RunId, SessionId, check_client_name};
pub use principal::{Access, Principal, Role, Roles, may_call, may_call_with_token};
pub use token::{DeletedTokens, TokenHash, issue as issue_token, run_of as run_of_token};
