#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod accounts;
mod ask;
mod commands;
mod egress;
mod elsewhere;
mod engine;
mod finding;
mod host;
mod image;
mod image_store;
mod kernel;
mod kind;
mod remedy;
mod socket;

use std::path::PathBuf;

use commands::Host;

pub use engine::unusable_engine;
pub use finding::{Finding, Verdict, remedies};
pub use image::default_image;
pub use remedy::Remedy;
pub use socket::{join_group, who_may_open};

/// Checks everything that this process can see of its host.
///
/// Without a socket, the engine is the one that `DOCKER_HOST` names, or Docker's own.
pub async fn examine(engine: Option<PathBuf>) -> Vec<Finding> {
    let facts = Host::detect();
    let mut findings = engine::examine(engine, &facts).await;
    findings.extend(host::examine(&facts));
    findings
}
