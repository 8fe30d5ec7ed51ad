#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::error::Error;

use bytes::Bytes;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{Body as HttpBody, Service};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

/// Largest answer that a client accepts, bytes: more than any of the daemon's.
pub const LARGEST_MESSAGE: usize = 16 << 20;

type BoxError = Box<dyn Error + Send + Sync>;

/// The error of a broken connection to the daemon.
#[derive(Debug, thiserror::Error)]
#[error("the daemon cannot be reached")]
pub struct Broken(#[source] BoxError);

/// Access to the daemon's services: a connection, or the services themselves.
pub type Api = BoxCloneSyncService<Request<Body>, Response<Body>, Broken>;

/// Wraps a connection to the daemon, such as a `Channel`, or its services.
pub fn api<S, B>(service: S) -> Api
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    BoxCloneSyncService::new(
        service
            .map_response(|response: Response<B>| response.map(Body::new))
            .map_err(|error| Broken(error.into())),
    )
}
