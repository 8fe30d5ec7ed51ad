#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod clients;
mod connect;
mod endpoint;
mod error;
mod tls;
mod token;

pub use clients::{AuthenticatedChannel, Client};
pub use connect::Connect;
pub use endpoint::{BadEndpoint, Endpoint};
pub use error::{ConnectError, Unreachable};
pub use tls::{CA, CERTIFICATE, KEY, Tls};
pub use token::{BadToken, BadTraceContext, Token, TraceContext};
pub use tonic;
pub use wire::{Duration, Timestamp, v1};
