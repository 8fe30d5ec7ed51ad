//! The way of each request of one connection: compared with the rule, asked about, and changed as the daemon says.

use std::cell::Cell;
use std::rc::Rc;

use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HOST, HeaderName, HeaderValue, TE,
};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Request, Response, StatusCode, Uri};
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as Message;
use wire::worker::v1::{GitAsked, HttpRequest, ModelAsked, RequestAsked};

use super::body::{Outgoing, Shown, hide_in, seen};
use super::git::{self, Begun};
use super::rule::{Refused, Rule, record};
use super::tally::Tally;
use crate::answer::{Answer, Grant};
use crate::connection::Connection;
use crate::estimate::{self, Parts};
use crate::fault::Fault;
use crate::hide::Hide;
use crate::orders::{Inspect, Upstream};
use crate::usage::Usage;

/// The requests of one connection.
pub(crate) struct Requests {
    pub(super) connection: Rc<Connection>,
    pub(super) fault: Rc<Fault>,
    pub(super) rule: Rule,
    asks: bool,
    /// True if the tokens of responses count.
    pub(super) meters: bool,
    /// Number of the last request.
    last: Cell<u64>,
    /// Response to all requests, if there is no connection to the server.
    refusal: Option<Refused>,
}

/// The part of a grant that its response needs.
pub(super) struct Released {
    hide: Option<Hide>,
    tally: Option<Tally>,
    /// Parts of the body that have been read.
    first: Parts<hyper::Error>,
    /// Response to a push whose server has closed the connection meanwhile.
    pub(super) closed: Option<Refused>,
}

impl Requests {
    pub(crate) fn new(connection: Rc<Connection>, fault: Rc<Fault>, inspect: Inspect) -> Self {
        let (asks, meters) = (inspect.asks, inspect.meters);
        let rule = Rule::new(inspect, connection.destination);
        Self { connection, fault, rule, asks, meters, last: Cell::new(0), refusal: None }
    }

    /// Makes requests whose server could not be connected to.
    pub(crate) fn refused(mut self, refused: Refused) -> Self {
        self.refusal = Some(refused);
        self
    }

    /// Compares a request with the rule. Returns its record.
    pub(super) async fn check<B>(&self, request: &Request<B>) -> Result<HttpRequest, Refused> {
        self.last.set(self.last.get() + 1);
        self.rule.check(request)?;
        if let Some(refused) = &self.refusal {
            return Err(refused.clone());
        }
        let target = request.uri().path_and_query().map(PathAndQuery::as_str).unwrap_or_default();
        self.refuse_placeholder(target.as_bytes(), "path").await?;
        Ok(record(request, self.last.get()))
    }

    /// Reports a further request, or its response. A request about which the daemon is asked needs no report.
    pub(super) async fn report(&self, record: &HttpRequest) {
        if !self.asks || record.status > 0 {
            self.connection.say(Message::Request(record.clone())).await;
        }
    }

    /// Asks about a request if the rule says so, and changes its headers. A refused request of git is read to its end.
    pub(super) async fn release(
        &self,
        request: &mut Request<Incoming>,
        record: &HttpRequest,
    ) -> Result<Released, Refused> {
        let released = self.try_release(request, record).await;
        if released.is_err() && self.rule.is_git {
            git::discard(request.body_mut()).await;
        }
        released
    }

    async fn try_release(
        &self,
        request: &mut Request<Incoming>,
        record: &HttpRequest,
    ) -> Result<Released, Refused> {
        let mut closed = None;
        let (git, model, first) = if self.rule.is_git {
            let begun = self.begin_git(request, record).await?;
            closed = begun.closed;
            (Some(begun.asked), None, Parts::of(begun.read))
        } else if self.meters && self.asks {
            let (model, first) = estimate::read(request, &self.connection.process.bodies).await;
            (None, model, first)
        } else {
            (None, None, Parts::default())
        };
        // Before the answer: a request that its program takes back may have been granted.
        let tally = self.meters.then(|| Tally::new(&self.connection, record.number));
        let grant = if self.asks { self.ask(record, git, model).await? } else { Grant::default() };
        let headers = request.headers_mut();
        // Answered here, and without a use for the server, which gets the body at once.
        headers.remove(EXPECT);
        for (name, _) in &grant.headers {
            remove_alike(headers, name);
        }
        for value in headers.values() {
            self.refuse_placeholder(value.as_bytes(), "header").await?;
        }
        headers.extend(grant.headers.into_iter().map(|(name, value)| (Some(name), value)));
        let hide = Some(grant.hide).filter(|texts| !texts.is_empty()).map(Hide::new);
        if hide.is_some() || tally.is_some() {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            // All other values ask for a compression, too.
            if headers.get_all(TE).iter().any(|value| value != "trailers") {
                headers.remove(TE);
            }
        }
        Ok(Released { hide, tally, first, closed })
    }

    /// Reads a request of git as far as the daemon has to know it. One that is refused here is on record like all others.
    async fn begin_git(
        &self,
        request: &mut Request<Incoming>,
        record: &HttpRequest,
    ) -> Result<Begun, Refused> {
        let begun = git::begin(request).await;
        self.connection.meter.touch();
        if let Err(refused) = &begun {
            self.connection.say(Message::Request(record.clone())).await;
            // Git reads some refusals with the status of a success. The record shows that of a refusal.
            let status = refused.status.as_u16().max(StatusCode::FORBIDDEN.as_u16()).into();
            self.connection.say(Message::Request(HttpRequest { status, ..record.clone() })).await;
        }
        begun
    }

    async fn ask(
        &self,
        record: &HttpRequest,
        git: Option<GitAsked>,
        model: Option<ModelAsked>,
    ) -> Result<Grant, Refused> {
        let mut waiting = self.connection.orders.answers.expect(record.number);
        let asked = RequestAsked { request: Some(record.clone()), git, model };
        self.connection.say(Message::Asked(asked)).await;
        let answer = waiting.answer().await;
        self.connection.meter.touch();
        match answer {
            Answer::Grant(grant) => Ok(grant),
            Answer::Refusal(refusal) => Err(refusal.into()),
        }
    }

    /// Returns true while the daemon decides about a request.
    pub(super) fn is_asking(&self) -> bool {
        !self.connection.orders.answers.is_empty()
    }

    async fn refuse_placeholder(&self, text: &[u8], place: &str) -> Result<(), Refused> {
        let placeholders = self.connection.process.placeholders.as_ref();
        let Some(index) = placeholders.and_then(|placeholders| placeholders.find(text)) else {
            return Ok(());
        };
        self.connection.say(Message::Placeholder(seen(index, place))).await;
        let words = format!(
            "The {place} of the request has the placeholder of a secret, which is worth nothing there. \
             The secret is put into the header that a rule names, for the hosts of the rule alone."
        );
        Err(Refused::forbidden(Cause::Placeholder, &words))
    }

    /// Addresses a request over HTTP/1 to its server.
    pub(super) fn address(&self, request: &mut Request<Incoming>) -> Result<(), Refused> {
        // The server is addressed directly, so it gets a target without a host.
        let Some(target) = request.uri().path_and_query().cloned() else { return Ok(()) };
        let target = match &self.rule.upstream {
            None => target,
            Some(upstream) => {
                let target = format!("{}{target}", upstream.path);
                let target = PathAndQuery::try_from(target).map_err(|_| malformed())?;
                request.headers_mut().insert(HOST, host(upstream).map_err(|_| malformed())?);
                target
            }
        };
        *request.uri_mut() = Uri::from(target);
        Ok(())
    }

    /// Addresses a request over HTTP/2 to its server, by `:authority` alone.
    pub(super) fn address_http2(request: &mut Request<Incoming>) -> Result<(), Refused> {
        let host = request.headers_mut().remove(HOST);
        if request.uri().authority().is_some() {
            return Ok(());
        }
        let host = host.ok_or_else(malformed)?;
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        uri.scheme = Some(hyper::http::uri::Scheme::HTTPS);
        uri.authority = Some(host.as_bytes().try_into().map_err(|_| malformed())?);
        *request.uri_mut() = Uri::from_parts(uri).map_err(|_| malformed())?;
        Ok(())
    }

    /// Returns a request whose body is looked at as it passes.
    pub(super) fn outgoing(&self, request: Request<Incoming>, released: &mut Released) -> Request<Outgoing> {
        if let Some(tally) = &mut released.tally {
            tally.send();
        }
        let first = std::mem::take(&mut released.first);
        request.map(|body| Outgoing::new(first, body, &self.connection, &self.fault))
    }

    /// Returns a response without the texts that the program must not see.
    pub(super) fn shown(&self, response: Response<Incoming>, released: Released) -> Response<Shown> {
        let Released { mut hide, mut tally, .. } = released;
        let (mut parts, body) = response.into_parts();
        if let Some(tally) = &mut tally {
            let value = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
            let content_type = value(CONTENT_TYPE).unwrap_or_default();
            let usage = Usage::for_response(content_type, value(CONTENT_ENCODING));
            tally.begin(parts.status, usage);
            if body.is_end_stream() {
                tally.complete();
            }
        }
        if let Some(hide) = &hide {
            hide_in(&mut parts.headers, hide);
            // It could be an echo, and programs do without it.
            parts.extensions.remove::<ReasonPhrase>();
        }
        if self.rule.is_git && git::is_pack(parts.headers.get(CONTENT_TYPE)) {
            hide = None;
        }
        Response::from_parts(parts, Shown::new(body, hide, tally))
    }
}

/// Removes the headers of a name, and of each that differs from it in `_` and `-` alone: servers with CGI read both signs alike.
pub(super) fn remove_alike(headers: &mut HeaderMap, name: &HeaderName) {
    let plain = |name: &HeaderName| name.as_str().replace('_', "-");
    let wanted = plain(name);
    let alike: Vec<HeaderName> = headers.keys().filter(|other| plain(other) == wanted).cloned().collect();
    for name in alike {
        headers.remove(name);
    }
}

fn malformed() -> Refused {
    let words = "The target of the request is malformed.";
    Refused::new(StatusCode::BAD_REQUEST, Cause::Malformed, words)
}

/// Returns the value of `Host` for an upstream.
fn host(upstream: &Upstream) -> Result<HeaderValue, hyper::header::InvalidHeaderValue> {
    let host =
        if upstream.host.contains(':') { format!("[{}]", upstream.host) } else { upstream.host.clone() };
    let is_usual = upstream.port == if upstream.tls { 443 } else { 80 };
    HeaderValue::try_from(if is_usual { host } else { format!("{host}:{}", upstream.port) })
}
