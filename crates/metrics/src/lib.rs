#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod families;
mod labels;
mod latency;
mod record;
mod sample;
mod serve;

pub use families::{Metrics, Own};
pub use labels::StageTimes;
pub use latency::latency;
pub use sample::{AuditSample, DiskSample, NodeSample, PoolSample, Ready, RunsSample, Sample, TenantSample};
pub use serve::{Access, CONTENT_TYPE, Pages, Stream, Text, TokenInForce, serve};
