//! Compares requests with the rule of their connection.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use egress_rules::{PathPattern, is_plain_path};
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use wire::worker::v1::HttpRequest;
use wire::worker::v1::connection_ended::Cause;

use crate::answer::Refusal;
use crate::orders::{Inspect, Scheme, Upstream};

/// Most bytes of a path on record.
const PATH: usize = 2 * 1024;
/// Most bytes of a method.
const METHOD: usize = 32;
/// Most patterns of paths that a refusal names.
const NAMED: usize = 8;
/// Headers that some servers take for the method, in place of the request's own.
const OTHER_METHODS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// Headers that some servers take for the path.
const OTHER_PATHS: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// The host, the methods and the paths of a rule.
#[derive(Debug)]
pub(super) struct Rule {
    host: String,
    port: u16,
    scheme: &'static str,
    methods: Vec<String>,
    paths: Vec<Vec<PathPattern>>,
    pub(super) upstream: Option<Upstream>,
    /// True if the tokens of responses count, which a WebSocket would not show.
    meters: bool,
    /// True if requests have to be those of git, and a WebSocket is none.
    pub(super) is_git: bool,
}

/// The response to a request that does not go out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(super) status: StatusCode,
    pub(crate) cause: Cause,
    pub(super) content_type: HeaderValue,
    pub(super) body: Bytes,
    /// Value of `Retry-After`, seconds; 0 for none.
    pub(super) retry_after: u32,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, cause: Cause, words: &str) -> Self {
        let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
        Self { status, cause, content_type, body: Bytes::from(format!("{words}\n")), retry_after: 0 }
    }

    pub(super) fn forbidden(cause: Cause, words: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, cause, words)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let Refusal { status, content_type, body, retry_after } = refusal;
        Self { status, cause: Cause::RequestRefused, content_type, body, retry_after }
    }
}

impl Rule {
    pub(super) fn new(inspect: Inspect, destination: SocketAddr) -> Self {
        let host = match (inspect.name.is_empty(), destination.ip()) {
            (false, _) => inspect.name,
            (true, IpAddr::V4(address)) => address.to_string(),
            (true, IpAddr::V6(address)) => format!("[{address}]"),
        };
        Self {
            host,
            port: destination.port(),
            scheme: match inspect.scheme {
                Scheme::Http => "http",
                Scheme::Https => "https",
            },
            methods: inspect.methods,
            paths: inspect.paths,
            upstream: inspect.upstream,
            meters: inspect.meters,
            is_git: inspect.is_git,
        }
    }

    /// Compares a request with the rule.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Refused> {
        if request.method() == Method::CONNECT {
            let words = "This connection goes to one server. It takes no CONNECT.";
            return Err(Refused::forbidden(Cause::WrongMethod, words));
        }
        let method = request.method().as_str();
        if method.len() > METHOD {
            let words = "The method of the request is too long.";
            return Err(Refused::new(StatusCode::BAD_REQUEST, Cause::Malformed, words));
        }
        if !self.has_host(request) {
            let words = format!(
                "This connection is for {}. The request has no such Host, or more than one.",
                self.host
            );
            return Err(Refused::forbidden(Cause::WrongHost, &words));
        }
        if !self.methods.is_empty() && !self.methods.iter().any(|allowed| allowed == method) {
            let methods = self.methods.join(", ");
            let words = format!(
                "The rule for {} allows {methods}, not {method}. Another method or another way to this server does not help.",
                self.host
            );
            return Err(Refused::forbidden(Cause::WrongMethod, &words));
        }
        self.check_headers(request.headers())?;
        self.check_path(request.uri().path())
    }

    /// Refuses headers by which some servers take another method or another path than the rule allows.
    fn check_headers(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let refused =
            headers.iter().find_map(|(name, value)| Some((name, self.other_than_allowed(name, value)?)));
        let Some((name, cause)) = refused else { return Ok(()) };
        let words = format!(
            "Some servers take the header {name} for another method or path than the rule for {} allows. \
             Send the request without it.",
            self.host
        );
        Err(Refused::forbidden(cause, &words))
    }

    /// Returns the cause of a refusal for a header that could bring another method or another path.
    fn other_than_allowed(&self, name: &HeaderName, value: &HeaderValue) -> Option<Cause> {
        let has_methods = self.is_git || !self.methods.is_empty();
        let has_paths = self.is_git || self.has_base() || !self.paths.is_empty();
        // Servers with CGI read both signs alike.
        let name = name.as_str().replace('_', "-");
        let is_allowed = |method: &String| value.as_bytes().eq_ignore_ascii_case(method.as_bytes());
        if has_methods && OTHER_METHODS.contains(&name.as_str()) && !self.methods.iter().any(is_allowed) {
            return Some(Cause::WrongMethod);
        }
        (has_paths && OTHER_PATHS.contains(&name.as_str())).then_some(Cause::WrongPath)
    }

    /// Returns true if requests go below a path of another server.
    fn has_base(&self) -> bool {
        self.upstream.as_ref().is_some_and(|upstream| !upstream.path.is_empty())
    }

    /// Compares a path with the patterns of the rule, if it has any. A path of another server is not left by dot segments.
    fn check_path(&self, given: &str) -> Result<(), Refused> {
        if self.upstream.is_some() && !given.starts_with('/') {
            let words = format!("A request to {} needs a path that begins with a slash.", self.host);
            return Err(Refused::forbidden(Cause::WrongPath, &words));
        }
        let is_bounded = self.has_base() || !self.paths.is_empty();
        if is_bounded && !is_plain_path(given) {
            let words = format!(
                "The rule for {} names paths, and servers may read the path of this request in different ways. \
                 Send it without dot segments, empty segments, semicolons, and escapes of slashes.",
                self.host
            );
            return Err(Refused::forbidden(Cause::WrongPath, &words));
        }
        let lacking = |list: &&Vec<PathPattern>| !list.iter().any(|pattern| pattern.matches(given));
        let Some(list) = self.paths.iter().find(lacking) else { return Ok(()) };
        let named: Vec<&str> = list.iter().take(NAMED).map(PathPattern::as_str).collect();
        let more = if list.len() > NAMED { " and others" } else { "" };
        let words = format!(
            "The rule for {} allows the paths {}{more}, and not that of this request. Another way to this server does not help.",
            self.host,
            named.join(", ")
        );
        Err(Refused::forbidden(Cause::WrongPath, &words))
    }

    /// Returns true if a request may become a WebSocket. All other changes of the protocol are taken out of it, as if not understood.
    ///
    /// After a change no request is seen. HTTP/2 in particular would carry other hosts and methods.
    pub(super) fn upgrade(&self, fields: &mut HeaderMap) -> Result<bool, Refused> {
        let mut asked = fields.get_all(UPGRADE).iter();
        match (asked.next(), asked.next()) {
            (None, _) => return Ok(false),
            (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"websocket") => {
                if self.methods.is_empty() && !self.meters && !self.is_git {
                    return Ok(true);
                }
                let allows = match &self.methods[..] {
                    [] if self.is_git => "allows git alone".to_owned(),
                    [] => "counts the tokens of responses".to_owned(),
                    methods => format!("allows {} alone", methods.join(", ")),
                };
                let words = format!(
                    "The rule for {} {allows}, and a WebSocket is more. Another attempt has the same result.",
                    self.host
                );
                return Err(Refused::forbidden(Cause::WrongMethod, &words));
            }
            _ => {}
        }
        // `Connection` names the other. Hyper writes it anew.
        fields.remove(UPGRADE);
        fields.remove(CONNECTION);
        Ok(false)
    }

    /// Returns true if a request has the host of the rule, in each place that can have one.
    ///
    /// HTTP/1 has it in one `Host`. HTTP/2 has it in `:authority`, and may have it in `host` as well.
    fn has_host<B>(&self, request: &Request<B>) -> bool {
        let mut hosts = request.headers().get_all(HOST).iter();
        let target = request.uri();
        match (hosts.next(), hosts.next()) {
            (Some(host), None) => self.is_host(host.as_bytes()) && self.is_target(target),
            (None, _) => {
                request.version() == Version::HTTP_2 && target.authority().is_some() && self.is_target(target)
            }
            (Some(_), Some(_)) => false,
        }
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
            (Some(scheme), Some(authority)) => {
                scheme == self.scheme && self.is_host(authority.as_str().as_bytes())
            }
            _ => false,
        }
    }
}

/// Returns the record of a request.
pub(super) fn record<B>(request: &Request<B>, number: u64) -> HttpRequest {
    let path = request.uri().path_and_query().map_or_else(|| request.uri().path(), |path| path.as_str());
    let end = (0..=PATH.min(path.len())).rev().find(|end| path.is_char_boundary(*end)).unwrap_or(0);
    HttpRequest {
        method: request.method().as_str().to_owned(),
        path: path.get(..end).unwrap_or_default().to_owned(),
        status: 0,
        number,
    }
}
