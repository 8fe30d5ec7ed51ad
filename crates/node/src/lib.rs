#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the daemon calls it

mod bounds;
mod drain;
mod gate;
mod images;
mod node;
mod service;
mod settings;
mod throttle;
mod watchers;

pub use drain::FORMAT;
pub use gate::{Gate, Service};
pub use node::Node;
pub use service::Nodes;
pub use settings::{CapacitySettings, Settings};
