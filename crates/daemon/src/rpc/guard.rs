//! The one layer through which every request passes: it names the principal, by the connection or by a run's token, and asks
//! whether it may call the method. Attempts to do more are on record.
//! On the way back it gives a stable reason to what the transport refuses by itself.

use std::sync::Arc;
use std::task::{Context, Poll};

use calls::{Attempt, Escalations};
use futures_util::TryFutureExt as _;
use futures_util::future::{Either, MapOk, Ready, ready};
use identity::{Access, Principal, Roles};
use ops::Reason;
use refusal::Refusal;
use runs::Runs;
use tonic::body::Body;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::MAX_MESSAGE;
use super::listen::Peer;

#[derive(Clone)]
pub(crate) struct GuardLayer(Arc<Gate>);

/// What the guard has to know.
struct Gate {
    access: Access,
    runs: Arc<Runs>,
    escalations: Arc<Escalations>,
}

impl GuardLayer {
    pub(crate) fn new(access: Access, runs: Arc<Runs>, escalations: Arc<Escalations>) -> Self {
        Self(Arc::new(Gate { access, runs, escalations }))
    }
}

impl Gate {
    /// Who this is, if they may make the request.
    fn enter(&self, request: &Request<Body>) -> Result<Principal, Refusal> {
        let path = request.uri().path();
        let principal = match request.extensions().get::<Peer>() {
            Some(peer) => self.access.principal(peer.uid, peer.gid),
            // Nothing but a token opens anything to them.
            None => Principal::anonymous(),
        };
        if let Some(presented) = request.headers().get(AUTHORIZATION) {
            // Whoever presents a token wants to be its holder and nobody else: there is no way back to the uid.
            let token = presented.to_str().ok().and_then(bearer);
            let Some((run, owner)) = token.and_then(|token| self.runs.of_token(token)) else {
                if !token.is_some_and(|token| self.runs.is_former_token(token)) {
                    self.escalations.report(&principal, None, Attempt::BadToken, path);
                }
                return Err(Refusal::new(
                    Reason::PermissionDenied,
                    "the token is not one of a run that lives: it is told once, when the run is made, and ends with it",
                ));
            };
            let holder = Principal { name: owner, roles: Roles::none(), run: Some(run), ..principal };
            if identity::may_call_with_token(path) {
                return Ok(holder);
            }
            self.escalations.report(&holder, Some(run), Attempt::MethodWithToken, path);
            return Err(Refusal::new(
                Reason::PermissionDenied,
                "a run's token is for the tools of its run and for nothing else",
            ));
        }
        if identity::may_call(principal.roles, path) {
            return Ok(principal);
        }
        self.escalations.report(&principal, None, Attempt::Method, path);
        Err(may_not(&principal.name))
    }
}

/// The token in `Bearer TOKEN`, RFC 6750.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn may_not(who: &str) -> Refusal {
    Refusal::new(
        Reason::PermissionDenied,
        format!(
            "{who} has no role that allows this; the operator grants roles under `access` in the configuration"
        ),
    )
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Guard { gate: self.0.clone(), inner }
    }
}

#[derive(Clone)]
pub(crate) struct Guard<S> {
    gate: Arc<Gate>,
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
        match self.gate.enter(&request) {
            Ok(principal) => {
                request.extensions_mut().insert(Arc::new(principal));
                Either::Left(self.inner.call(request).map_ok(explained as Explain))
            }
            Err(refusal) => Either::Right(ready(Ok(Status::from(refusal).into_http()))),
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
