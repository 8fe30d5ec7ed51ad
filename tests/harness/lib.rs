//! A real daemon on a real engine, in a directory of its own, for tests through the API.
//!
//! Nothing is skipped when the engine is absent: the daemon does not start, and the test fails with its words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)] // what cannot be set up fails its test

/// Makes a test of each call in a table.
#[macro_export]
macro_rules! tests {
    ($($name:ident: $call:expr,)+) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $call.await;
        })+
    };
}

pub mod balancer;
pub mod book;
mod client;
mod container;
mod daemon;
pub mod egress;
mod engine;
mod engine_proxy;
pub mod files;
pub mod forks;
pub mod frames;
mod image;
mod issuer;
mod mounts;
mod network;
mod probe;
pub mod process;
mod remote;
mod run;
pub mod server;
pub mod session;
mod waiting;

pub use client::{Clients, as_user, broke, reason, record};
pub use container::{
    PidNamespace, in_pid_namespace, inspect, inspect_all, memory, pid_in, pid_namespace, pid_of, processes,
};
pub use daemon::{Daemon, Setup, binary, git, own};
pub use engine::{docker, use_mapped_engine};
pub use engine_proxy::EngineProxy;
pub use image::{Image, debian, dev_image, programs_image, rust_image, services_image};
pub use issuer::Issuer;
pub use mounts::mounts_beneath;
pub use network::{Network, free_port};
pub use probe::{Libc, mcp_server, offers, offers_with, probe};
pub use remote::{Bearer, Certificates};
pub use run::{RunHandle, calls, outlives, pending, requests, script};
pub use waiting::until;
pub use wire::v1;
