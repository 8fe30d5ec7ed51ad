//! One connection of the present process.

use std::net::IpAddr;
use std::time::Instant;

use egress_rules::{Decision, Destination, Verdict};
use timestamp::Timestamp;
use tokio_util::sync::DropGuard;
use wire::worker::v1::HttpRequest;
use wire::worker::v1::connection_ended::Cause;

use crate::view::{Connection, Phase, Request};

/// Requests of a connection that are on record one by one.
const REQUESTS: usize = 64;
/// Longest text that is kept of what the process reports, bytes.
const TEXT: usize = 2048;

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: String,
    pub(crate) destination: Destination,
    pub(crate) port: u16,
    pub(crate) verdict: Verdict,
    pub(crate) opened: Instant,
    pub(crate) opened_at: Timestamp,
    pub(crate) calls: Vec<String>,
    pub(crate) step: Step,
    pub(crate) server_name: String,
    /// True if its ClientHello has the extension `encrypted_client_hello`.
    pub(crate) has_encrypted_hello: bool,
    pub(crate) requests: Vec<Request>,
    /// Number of all requests.
    pub(crate) request_count: u64,
    /// Reason that the daemon ended it.
    pub(crate) ended_for: Option<String>,
    /// The approval with which it goes out.
    pub(crate) approval: Option<String>,
    /// True if it goes out through the daemon's upstream proxy.
    pub(crate) is_proxied: bool,
}

/// How far a connection has come.
#[derive(Debug)]
pub(crate) enum Step {
    /// The process looks at it.
    LookedAt,
    /// It waits for a reviewer, until this is dropped.
    Waits { _until: DropGuard },
    /// It is looked at only for a response with this text.
    Turned(String),
    /// It was refused.
    Refused,
    /// Its intent is on record, or about to be.
    Out,
}

impl Live {
    /// Returns the host as people write it.
    pub(crate) fn host(&self) -> String {
        self.destination.to_string()
    }

    /// Adds a request, or the status of the last one.
    pub(crate) fn request(&mut self, request: HttpRequest) {
        if request.status == 0 {
            self.request_count += 1;
            if self.requests.len() < REQUESTS {
                let path = cut(request.path);
                self.requests.push(Request { method: cut(request.method), path, status: 0 });
            }
        } else if let Some(open) = self.requests.iter_mut().find(|known| known.status == 0) {
            open.status = request.status;
        }
    }

    /// Returns the connection for people.
    pub(crate) fn shown(&self, end: Option<(&'static str, u64, u64, Option<IpAddr>)>) -> Connection {
        let (cause, bytes_out, bytes_in, address) =
            end.map_or((None, 0, 0, None), |(cause, out, into, address)| (Some(cause), out, into, address));
        let is_refused = self.verdict.decision == Decision::Deny;
        Connection {
            id: self.id.clone(),
            host: self.host(),
            port: self.port,
            scheme: if is_refused { String::new() } else { self.verdict.scheme.to_string() },
            rule: self.verdict.rule.clone(),
            ended_at: cause.map(|_| Timestamp::now()),
            phase: match cause {
                Some(cause) => Phase::Ended(cause),
                None if self.is_waiting() => Phase::Waiting,
                None => Phase::Open,
            },
            server_name: self.server_name.clone(),
            address,
            bytes_out,
            bytes_in,
            requests: self.requests.clone(),
            opened_at: self.opened_at,
            calls: self.calls.clone(),
        }
    }
}

/// Returns a text of the process, which is bounded.
pub(crate) fn cut(mut text: String) -> String {
    let mut end = TEXT.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Returns the name of an end on record.
pub(crate) fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Unspecified => "unknown",
        Cause::Closed => "closed",
        Cause::Reset => "reset",
        Cause::Ended => "ended",
        Cause::WrongScheme => "wrong_scheme",
        Cause::WrongServerName => "wrong_server_name",
        Cause::WrongHost => "wrong_host",
        Cause::WrongMethod => "wrong_method",
        Cause::Malformed => "malformed",
        Cause::Slow => "slow",
        Cause::Unreachable => "unreachable",
        Cause::Idle => "idle",
        Cause::Bytes => "max_bytes",
        Cause::Proxy => "upstream_proxy",
    }
}

/// Returns the reason of an end for people, if it is a refusal of what the program sent.
pub(crate) fn refusal(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::WrongScheme => "what it sent is not of the rule's scheme",
        Cause::WrongServerName => "the TLS server name is missing, or not the name that was connected to",
        Cause::WrongHost => "a request's host is not the name that was connected to",
        Cause::WrongMethod => "the rule does not have the request's method",
        Cause::Malformed => "a request is malformed, ambiguous or too large",
        Cause::Slow => "it sent nothing in time",
        Cause::Bytes => "the run has used its bytes (max_bytes)",
        Cause::Proxy => "the daemon's upstream proxy did not connect to the server",
        Cause::Closed
        | Cause::Reset
        | Cause::Ended
        | Cause::Unreachable
        | Cause::Idle
        | Cause::Unspecified => return None,
    })
}
