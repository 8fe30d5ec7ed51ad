#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod clients;
mod connect;
mod endpoint;
mod error;
mod routed;
mod tls;
mod token;

pub use clients::{AuthenticatedChannel, Client};
pub use connect::Connect;
pub use endpoint::{BadEndpoint, Endpoint};
pub use error::{ConnectError, Unreachable};
pub use node_id::{NODE_METADATA, NodeId};
pub use routed::Routed;
pub use tls::{CA, CERTIFICATE, KEY, Tls};
pub use token::{BadToken, BadTraceContext, Token, TraceContext};
pub use tonic;
pub use wire::{Duration, Timestamp, v1};
