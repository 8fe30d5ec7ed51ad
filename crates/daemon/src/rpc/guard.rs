//! The one layer through which every request passes: it names the principal and asks whether it may call the method.
//! On the way back it gives a stable reason to what the transport refuses by itself.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::TryFutureExt as _;
use futures_util::future::{Either, MapOk, Ready, ready};
use ops::Reason;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::MAX_MESSAGE;
use super::identity::{self, Access};
use super::listen::Peer;
use crate::status::Refusal;

#[derive(Clone)]
pub(super) struct GuardLayer(Arc<Access>);

impl GuardLayer {
    pub(super) fn new(access: Access) -> Self {
        Self(Arc::new(access))
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Guard { access: self.0.clone(), inner }
    }
}

#[derive(Clone)]
pub(super) struct Guard<S> {
    access: Arc<Access>,
    inner: S,
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<MapOk<S::Future, Explain>, Ready<Result<Self::Response, Self::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let principal =
            request.extensions().get::<Peer>().map(|peer| self.access.principal(peer.uid, peer.gid));
        match principal {
            Some(principal) if identity::may_call(principal.roles, request.uri().path()) => {
                request.extensions_mut().insert(Arc::new(principal));
                Either::Left(self.inner.call(request).map_ok(explained as Explain))
            }
            principal => {
                let who = principal.map_or_else(|| "an unknown peer".to_owned(), |principal| principal.name);
                let refusal = Refusal::new(
                    Reason::PermissionDenied,
                    format!(
                        "{who} has no role that allows this; the operator grants roles under `access` in the configuration"
                    ),
                );
                Either::Right(ready(Ok(Status::from(refusal).into_http())))
            }
        }
    }
}

type Explain = fn(Response<Body>) -> Response<Body>;

/// A request that no service has seen because the transport could not take it. Refusals of ours carry details, what
/// tonic says does not.
fn explained(response: Response<Body>) -> Response<Body> {
    let Some(status) =
        Status::from_header_map(response.headers()).filter(|status| status.details().is_empty())
    else {
        return response;
    };
    let refusal = match status.code() {
        Code::OutOfRange => Refusal::invalid("request", format!("is larger than {MAX_MESSAGE} bytes")),
        Code::Internal => Refusal::invalid("request", "cannot be decoded as a message of this method"),
        _ => return response,
    };
    Status::from(refusal).into_http()
}
