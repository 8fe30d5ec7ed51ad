//! Compares requests with the rule of their connection.

use std::net::{IpAddr, SocketAddr};

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use wire::worker::v1::HttpRequest;
use wire::worker::v1::connection_ended::Cause;

use crate::orders::Inspect;

/// Most bytes of a path on record.
const PATH: usize = 2 * 1024;

/// The host and the methods of a rule.
#[derive(Debug)]
pub(super) struct Rule {
    host: String,
    port: u16,
    methods: Vec<String>,
}

/// The reason against a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) cause: Cause,
    pub(super) words: String,
}

impl Refused {
    pub(super) fn forbidden(cause: Cause, words: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, cause, words }
    }
}

impl Rule {
    pub(super) fn new(inspect: Inspect, destination: SocketAddr) -> Self {
        let host = match (inspect.name.is_empty(), destination.ip()) {
            (false, _) => inspect.name,
            (true, IpAddr::V4(address)) => address.to_string(),
            (true, IpAddr::V6(address)) => format!("[{address}]"),
        };
        Self { host, port: destination.port(), methods: inspect.methods }
    }

    /// Compares a request with the rule.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Refused> {
        if request.method() == Method::CONNECT {
            let words = "This connection goes to one server. It takes no CONNECT.".to_owned();
            return Err(Refused::forbidden(Cause::WrongMethod, words));
        }
        let mut hosts = request.headers().get_all(HOST).iter();
        let is_ours = match (hosts.next(), hosts.next()) {
            (Some(host), None) => self.is_host(host.as_bytes()) && self.is_target(request.uri()),
            _ => false,
        };
        if !is_ours {
            let words = format!(
                "This connection is for {}. The request has no such Host, or more than one.",
                self.host
            );
            return Err(Refused::forbidden(Cause::WrongHost, words));
        }
        let method = request.method().as_str();
        if !self.methods.is_empty() && !self.methods.iter().any(|allowed| allowed == method) {
            let methods = self.methods.join(", ");
            let words = format!(
                "The rule for {} allows {methods}, not {method}. Another method or another way to this server does not help.",
                self.host
            );
            return Err(Refused::forbidden(Cause::WrongMethod, words));
        }
        Ok(())
    }

    /// Returns true if a request may become a WebSocket. All other changes of the protocol are taken out of it, as if not understood.
    ///
    /// After a change no request is seen. HTTP/2 in particular would carry other hosts and methods.
    pub(super) fn upgrade(&self, fields: &mut HeaderMap) -> Result<bool, Refused> {
        let mut asked = fields.get_all(UPGRADE).iter();
        match (asked.next(), asked.next()) {
            (None, _) => return Ok(false),
            (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"websocket") => {
                if self.methods.is_empty() {
                    return Ok(true);
                }
                let words = format!(
                    "The rule for {} allows {} alone, and a WebSocket is more. Another attempt has the same result.",
                    self.host,
                    self.methods.join(", ")
                );
                return Err(Refused::forbidden(Cause::WrongMethod, words));
            }
            _ => {}
        }
        // `Connection` names the other. Hyper writes it anew.
        fields.remove(UPGRADE);
        fields.remove(CONNECTION);
        Ok(false)
    }

    /// Returns true if this is the host of the rule, with or without its port.
    fn is_host(&self, given: &[u8]) -> bool {
        let with_port = format!("{}:{}", self.host, self.port);
        [&self.host, &with_port].iter().any(|host| given.eq_ignore_ascii_case(host.as_bytes()))
    }

    /// Returns true if a target in absolute form is of the host of the rule. Other forms have no host.
    fn is_target(&self, target: &Uri) -> bool {
        match (target.scheme_str(), target.authority()) {
            (None, None) => true,
            (Some("http"), Some(authority)) => self.is_host(authority.as_str().as_bytes()),
            _ => false,
        }
    }
}

/// Returns the record of a request.
pub(super) fn record(request: &Request<Incoming>) -> HttpRequest {
    let path = request.uri().path_and_query().map_or_else(|| request.uri().path(), |path| path.as_str());
    let end = (0..=PATH.min(path.len())).rev().find(|end| path.is_char_boundary(*end)).unwrap_or(0);
    HttpRequest {
        method: request.method().as_str().to_owned(),
        path: path.get(..end).unwrap_or_default().to_owned(),
        status: 0,
    }
}
