//! Guards every request: identifies the principal by the connection or by a token, and checks that it may call the
//! method.
//!
//! Attempts to do more are recorded. On the way back, errors of the transport get a stable reason.

mod node;
mod watched;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use admission::{Owner, Purpose, Share, ShareLimits, Shares};
use audit_service::{Attempt, Escalations};
use futures_util::future::{BoxFuture, Either, FutureExt as _, Ready, TryFutureExt as _, ready};
use identity::{Access, Credential, Method, Principal, Role, Roles};
use node_id::NodeId;
use oidc::{Holder, Issuers, Refused};
use operations::Reason;
use operations::transport::MESSAGE;
use parking_lot::RwLock;
use refusal::Refusal;
use runs::Runs;
use tonic::body::Body;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use self::watched::Watch;
use crate::ending::End;
use crate::tokens::Tokens;
use crate::{Peer, Remote};

/// Time after which an issuer's keys may be available.
const ISSUER_AGAIN: Duration = Duration::from_secs(2);

/// Advice to a client with too many connections.
const USE_ANOTHER: &str = "use one that is open, or close one";

/// Name of the detail that says which kind of credential was not accepted, for the client's hint.
const CREDENTIAL: &str = "credential";

#[derive(Clone)]
pub struct GuardLayer(Arc<Gate>);

/// State that the guard needs.
struct Gate {
    access: RwLock<Access>,
    runs: Arc<Runs>,
    tokens: Arc<Tokens>,
    issuers: RwLock<Arc<Issuers>>,
    escalations: Arc<Escalations>,
    /// Numbers of requests over TCP, on all connections.
    requests: Shares,
}

impl GuardLayer {
    pub fn new(
        access: Access,
        runs: Arc<Runs>,
        (tokens, issuers): (Arc<Tokens>, Arc<Issuers>),
        escalations: Arc<Escalations>,
        requests: ShareLimits,
    ) -> Self {
        let requests = Shares::new(requests);
        let (access, issuers) = (RwLock::new(access), RwLock::new(issuers));
        Self(Arc::new(Gate { access, runs, tokens, issuers, escalations, requests }))
    }

    /// Replaces the roles of users and certificates, for requests from now on.
    pub fn replace_access(&self, access: Access) {
        *self.0.access.write() = access;
    }

    /// Returns the roles that the user or the certificate with this name of a principal has now. `None` if the name is of neither.
    pub fn roles_of(&self, name: &str) -> Option<Roles> {
        self.0.access.read().roles_of(name)
    }

    /// Returns the issuers whose tokens are accepted.
    pub fn issuers(&self) -> Arc<Issuers> {
        self.0.issuers.read().clone()
    }

    /// Replaces the issuers whose tokens are accepted, for requests from now on.
    pub fn replace_issuers(&self, issuers: Arc<Issuers>) {
        *self.0.issuers.write() = issuers;
    }
}

/// Principal of a request, and the credential that it has presented.
struct Named {
    principal: Principal,
    /// Credential; `None` if none was presented. Then no method is open.
    credential: Option<Credential>,
    /// End of the credential, and of everything that it opened.
    end: Option<End>,
}

impl Gate {
    /// Returns the principal, if it may make the request, and the watch that ends the answer with the credential.
    fn enter(&self, request: &Request<Body>) -> Result<(Principal, Option<Watch>), Status> {
        node::check(request.headers(), NodeId::own())?;
        let path = request.uri().path();
        let peer = request.extensions().get::<Peer>();
        let by_connection = self.by_connection(peer)?;
        let mut shown = request.headers().get_all(AUTHORIZATION).iter();
        let Named { principal, credential, end } = match (shown.next(), shown.next()) {
            // A client that presents a token acts only as its holder. There is no way back to the uid.
            (Some(shown), None) => self.by_token(shown, by_connection.principal, peer, path)?,
            // A proxy on the way may have checked the other one.
            (_, Some(_)) => {
                let message = "the request has several authorization headers: send one";
                let refusal = Refusal::new(Reason::PermissionDenied, message);
                return Err(self.refuse(&by_connection.principal, Attempt::BadToken, path, refusal).into());
            }
            (None, None) => by_connection,
        };
        let Some(method) = identity::method(path) else {
            return Err(if principal.roles.is_empty() {
                self.refuse(&principal, Attempt::Method, path, may_not(&principal.name, &[])).into()
            } else {
                Status::unimplemented("there is no such method")
            });
        };
        match credential {
            None => {
                let message = "the request has no token and the connection no client certificate: this listener requires one of the two";
                let refusal = Refusal::new(Reason::PermissionDenied, message).with(CREDENTIAL, "none");
                return Err(self.refuse(&principal, Attempt::Method, path, refusal).into());
            }
            Some(credential) if !method.credentials.contains(&credential) => {
                let (attempt, message) = match credential {
                    Credential::RunToken => {
                        (Attempt::MethodWithToken, "a run token gives access to the tools of its run only")
                    }
                    Credential::NarrowToken => (
                        Attempt::MethodWithApiToken,
                        "a token that is limited to runs or profiles gives access to methods about runs only",
                    ),
                    _ => (
                        Attempt::MethodWithApiToken,
                        "this method accepts no token: use the Unix socket or a client certificate",
                    ),
                };
                let refusal = Refusal::new(Reason::PermissionDenied, message);
                return Err(self.refuse(&principal, attempt, path, refusal).into());
            }
            // The token opens only its own run, and needs no role.
            Some(Credential::RunToken) => {}
            Some(_) if principal.roles.has_any(method.roles) => {}
            Some(Credential::Certificate) if method.admits_certificates => {}
            Some(_) => {
                let refusal = may_not(&principal.name, method.roles);
                return Err(self.refuse(&principal, Attempt::Method, path, refusal).into());
            }
        }
        // A request over the Unix socket is not counted.
        let Some(Peer::Remote(remote)) = peer else {
            return Ok((principal, end.map(|end| Watch::new(Some(end), None))));
        };
        let share = self.share(remote, &principal, method)?;
        Ok((principal, Some(Watch::new(end, Some(share)))))
    }

    /// Counts a request over TCP, and its connection, for the owners of its credential and address.
    fn share(&self, remote: &Remote, principal: &Principal, method: &Method) -> Result<Share, Refusal> {
        let (name, purpose) =
            (&principal.name, if method.steers { Purpose::Steering } else { Purpose::Other });
        let too_many = |what: &str, limit: &'static str, hint: &'static str| {
            Refusal::new(Reason::Overloaded, format!("{what}: {hint}"))
                .with("limit", limit)
                .with("hint", hint)
        };
        // The check of health alone, so that a busy balancer does not take this node for dead.
        if remote.is_spare && !method.admits_certificates {
            let what = "this address has too many connections, or opens too many in a second";
            return Err(too_many(what, "connections_per_address", USE_ANOTHER));
        }
        let by_whom = |full: &Owner| match full {
            Owner::Principal(_) => name.clone(),
            Owner::RunToken(_) => "this run's token".to_owned(),
            Owner::RunTokensOf(_) => "the tokens of this user's runs".to_owned(),
            Owner::Address(_) => "this address".to_owned(),
            Owner::RunTokensAt(_) => "the run tokens at this address".to_owned(),
        };
        let verb = |full: &Owner| {
            if matches!(full, Owner::RunTokensOf(_) | Owner::RunTokensAt(_)) { "have" } else { "has" }
        };
        let credential = owners(principal);
        let mut all = credential.clone();
        all.push(Owner::Address(remote.network()));
        if principal.run.is_some() {
            all.push(Owner::RunTokensAt(remote.network()));
        }
        let share = self.requests.take(all, purpose).map_err(|full| {
            let limit = match full {
                Owner::Address(_) | Owner::RunTokensAt(_) => "streams_per_address",
                _ => "streams_per_principal",
            };
            let what = format!("{} {} too many requests at the same time", by_whom(&full), verb(&full));
            too_many(&what, limit, "wait for one to end")
        })?;
        remote.belongs_to(credential, purpose).map_err(|full| {
            let limit = match full {
                Owner::Address(_) | Owner::RunTokensAt(_) => "connections_per_address",
                _ => "connections_per_principal",
            };
            let what = format!("{} {} too many connections at the same time", by_whom(&full), verb(&full));
            too_many(&what, limit, USE_ANOTHER)
        })?;
        Ok(share)
    }

    fn by_connection(&self, peer: Option<&Peer>) -> Result<Named, Refusal> {
        let remote = match peer {
            Some(Peer::Local { uid, gid }) => {
                let principal = self.access.read().principal(*uid, *gid);
                return Ok(Named { principal, credential: Some(Credential::Uid), end: None });
            }
            Some(Peer::Remote(remote)) => remote,
            // Only a token gives access to clients within this process.
            None => return Ok(Named { principal: Principal::anonymous(), credential: None, end: None }),
        };
        let address = Some(remote.address);
        let Some(certificate) = &remote.certificate else {
            let principal = Principal { address, ..Principal::anonymous() };
            return Ok(Named { principal, credential: None, end: None });
        };
        let principal = Principal { address, ..self.access.read().certified(&certificate.name) };
        // The certificate was valid when the connection began.
        let Ok(left) = certificate.not_after.duration_since(SystemTime::now()) else {
            let refusal = Refusal::new(
                Reason::PermissionDenied,
                "the client certificate has expired: connect again with a valid one",
            )
            .with(CREDENTIAL, "certificate");
            return Err(self.refuse(&principal, Attempt::BadCertificate, "TLS", refusal));
        };
        if remote.is_revoked() {
            let message = "the client certificate was revoked: connect again with a valid one";
            let refusal = Refusal::new(Reason::PermissionDenied, message).with(CREDENTIAL, "certificate");
            return Err(self.refuse(&principal, Attempt::BadCertificate, "TLS", refusal));
        }
        let end = End::first(left, remote.revoked());
        Ok(Named { principal, credential: Some(Credential::Certificate), end: Some(end) })
    }

    fn by_token(
        &self,
        shown: &HeaderValue,
        caller: Principal,
        peer: Option<&Peer>,
        path: &str,
    ) -> Result<Named, Refusal> {
        let token = shown.to_str().ok().and_then(bearer).unwrap_or_default();
        let is_taken = |remote: &Arc<Remote>| remote.takes_tokens;
        if matches!(peer, Some(Peer::Remote(remote)) if !is_taken(remote)) {
            let message = "this listener accepts no tokens: use a client certificate";
            let refusal = Refusal::new(Reason::PermissionDenied, message).with(CREDENTIAL, "certificate");
            return Err(self.refuse(&caller, Attempt::TokenElsewhere, path, refusal));
        }
        if identity::id_of_api_token(token).is_some() {
            return match self.tokens.open(token, caller.address) {
                Ok(held) => {
                    let (token, end) = (&held.token, held.end());
                    let credential =
                        if token.is_narrow() { Credential::NarrowToken } else { Credential::Token };
                    let principal = token.principal(caller.address);
                    Ok(Named { principal, credential: Some(credential), end: Some(end) })
                }
                Err((attempt, message)) => {
                    let refusal = Refusal::new(Reason::PermissionDenied, message).with(CREDENTIAL, "token");
                    Err(self.refuse(&caller, attempt, path, refusal))
                }
            };
        }
        if !self.issuers.read().is_empty() && oidc::looks_like_one(token) {
            return self.by_issuer(token, &caller, path);
        }
        let Some(shown) = self.runs.of_token(token) else {
            let refusal = Refusal::new(
                Reason::PermissionDenied,
                "unknown token: a run's token ends with its run; every token is shown once, when it is created",
            )
            .with(CREDENTIAL, "token");
            if self.runs.is_retired_token(token) {
                return Err(refusal);
            }
            return Err(self.refuse(&caller, Attempt::BadToken, path, refusal));
        };
        let (name, run) = (shown.principal.clone(), Some(shown.run));
        let principal = Principal { name, roles: Roles::none(), run, ..caller };
        let end = Some(End::when(shown.replaced()));
        Ok(Named { principal, credential: Some(Credential::RunToken), end })
    }

    /// Identifies the principal by an issuer's token. Such a token opens no more than an API token.
    fn by_issuer(&self, token: &str, caller: &Principal, path: &str) -> Result<Named, Refusal> {
        let issuers = self.issuers.read().clone();
        let refused = match issuers.check(token, caller.address, SystemTime::now()) {
            Ok(Holder { principal, left, groups }) => {
                self.runs.launcher.tenancy().show_groups(&principal.name, groups.as_deref());
                let credential =
                    if principal.scope.is_some() { Credential::NarrowToken } else { Credential::Token };
                return Ok(Named { principal, credential: Some(credential), end: Some(End::after(left)) });
            }
            Err(refused) => refused,
        };
        let refusal = |reason| Refusal::new(reason, refused.message()).with(CREDENTIAL, "issuer_token");
        match refused {
            // The daemon lacks the keys, so this is no attempt to get in.
            Refused::NoKeys => Err(refusal(Reason::Overloaded).retry_after(ISSUER_AGAIN)),
            Refused::UnknownKey => {
                let refusal = refusal(Reason::Overloaded).retry_after(ISSUER_AGAIN);
                Err(self.refuse(caller, Attempt::BadToken, path, refusal))
            }
            Refused::Expired => {
                Err(self.refuse(caller, Attempt::ExpiredToken, path, refusal(Reason::PermissionDenied)))
            }
            _ => Err(self.refuse(caller, Attempt::BadToken, path, refusal(Reason::PermissionDenied))),
        }
    }

    /// Records the attempt, and returns the refusal.
    fn refuse(&self, principal: &Principal, attempt: Attempt, target: &str, refusal: Refusal) -> Refusal {
        self.escalations.report(principal, principal.run, attempt, target);
        refusal
    }
}

/// Returns the owners for which the requests of a credential are counted.
fn owners(principal: &Principal) -> Vec<Owner> {
    let name = principal.name.clone();
    match principal.run {
        Some(run) => Owner::of_run_token(run, name),
        None => vec![Owner::Principal(name)],
    }
}

/// Returns the token of `Bearer TOKEN`, RFC 6750.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Refuses a method. `roles` are the roles that permit it.
fn may_not(who: &str, roles: &[Role]) -> Refusal {
    let names: Vec<&str> =
        Role::ALL.iter().filter(|(_, role)| roles.contains(role)).map(|(name, _)| *name).collect();
    let needs = match &names[..] {
        [] => String::new(),
        [one] => format!(": it needs {one}"),
        several => format!(": it needs one of {}", several.join(", ")),
    };
    let message = format!(
        "{who} has no role that allows this{needs}; the operator grants roles under `access` in the configuration"
    );
    Refusal::new(Reason::PermissionDenied, message).with("roles", names.join(","))
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Guard { gate: self.0.clone(), inner }
    }
}

#[derive(Clone)]
pub struct Guard<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<
        BoxFuture<'static, Result<Self::Response, Self::Error>>,
        Ready<Result<Self::Response, Self::Error>>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        match self.gate.enter(&request) {
            Ok((principal, watch)) => {
                request.extensions_mut().insert(Arc::new(principal));
                let answer = self.inner.call(request).map_ok(explained);
                Either::Left(match watch {
                    Some(watch) => watch.over(answer).map_ok(named).boxed(),
                    None => answer.map_ok(named).boxed(),
                })
            }
            Err(refused) => Either::Right(ready(Ok(named(refused.into_http())))),
        }
    }
}

/// Adds this node to the metadata of an answer.
fn named(mut response: Response<Body>) -> Response<Body> {
    node::name(response.headers_mut(), NodeId::own());
    response
}

/// Adds a reason to a refusal of the transport, whose request no service has seen.
///
/// Our refusals carry details; tonic's do not.
fn explained(response: Response<Body>) -> Response<Body> {
    let Some(status) =
        Status::from_header_map(response.headers()).filter(|status| status.details().is_empty())
    else {
        return response;
    };
    let refusal = match status.code() {
        Code::OutOfRange => Refusal::invalid("request", format!("is larger than {MESSAGE} bytes")),
        Code::Internal => Refusal::invalid("request", "cannot be decoded as a message of this method"),
        _ => return response,
    };
    Status::from(refusal).into_http()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    /// A method without a row is closed: this finds the one that was forgotten, and the row of one that is no more.
    #[test]
    fn every_method_that_is_served_has_a_row_and_no_other() {
        let described = [
            wire::DESCRIPTORS,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let mut served = BTreeSet::new();
        for bytes in described {
            for file in FileDescriptorSet::decode(bytes).unwrap().file {
                for service in &file.service {
                    let name = format!("{}.{}", file.package(), service.name());
                    served.extend(service.method.iter().map(|method| format!("/{name}/{}", method.name())));
                }
            }
        }
        assert!(served.len() > 50, "{served:?}");
        let rows = identity::METHODS.iter().map(|method| method.path.to_owned()).collect();
        assert_eq!(served, rows);
    }
}
