//! The one layer through which every request passes: it names the principal and asks whether it may call the method.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use ops::Reason;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

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
    type Future = Either<S::Future, Ready<Result<Self::Response, Self::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let principal =
            request.extensions().get::<Peer>().map(|peer| self.access.principal(peer.uid, peer.gid));
        match principal {
            Some(principal) if identity::may_call(principal.roles, request.uri().path()) => {
                request.extensions_mut().insert(Arc::new(principal));
                Either::Left(self.inner.call(request))
            }
            principal => {
                let who = principal.map_or_else(|| "an unknown peer".to_owned(), |principal| principal.name);
                let refusal = Refusal::new(
                    Reason::PermissionDenied,
                    format!(
                        "{who} has no role that allows this; the operator grants roles under `access` in the configuration"
                    ),
                );
                Either::Right(ready(Ok(tonic::Status::from(refusal).into_http())))
            }
        }
    }
}
