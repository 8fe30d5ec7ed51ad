#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod egress;
mod engine;
mod finding;
mod host;
mod kernel;
mod socket;

use std::path::PathBuf;

pub use finding::{Finding, Verdict};
pub use socket::who_may_open;

/// Checks everything that this process can see of its host.
///
/// Without a socket, the engine is the one that `DOCKER_HOST` names, or Docker's own.
pub async fn examine(engine: Option<PathBuf>) -> Vec<Finding> {
    let mut findings = engine::examine(engine).await;
    findings.extend(host::examine());
    findings
}
