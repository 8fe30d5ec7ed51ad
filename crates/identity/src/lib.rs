#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod api_token;
mod ids;
mod methods;
mod principal;
mod token;

pub use api_token::{ApiToken, ApiTokenRefused, Ended as ApiTokenEnded, id_of as id_of_api_token};
pub use ids::{
    AlertId, BaseId, CallId, CheckpointId, ConnectionId, PermissionId, RunId, SessionId, TokenId,
    check_client_name, check_principal_name,
};
pub use methods::{Credential, METHODS, Method, method};
pub use principal::{Access, Certified, NOBODY, Principal, Role, Roles, Scope};
pub use token::{DeletedTokens, TokenHash, issue as issue_token, run_of as run_of_token};
