#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod connections;
mod context;
mod export;
mod otlp;
mod send;
mod span;
mod stages;
mod tracer;

pub use connections::Connections;
pub use context::{CallTrace, Context};
pub use export::Exporter;
pub use send::{Destination, Headers, Protocol};
pub use span::{Made, Span};
pub use stages::{Stage, Stages};
pub use tracer::{Share, Traces};
