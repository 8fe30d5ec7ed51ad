//! One connection of the present process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use egress_rules::{Decision, Destination, Verdict};
use model_usage::Reservation;
use timestamp::Timestamp;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;
use wire::worker::v1::HttpRequest;
use wire::worker::v1::to_egress::Body;

use crate::bytes::Moved;
use crate::messages::{inspect, inspect_served};
use crate::view::{Connection, ModelTokens, Phase, Request};

/// Requests of a connection that are on record one by one.
const REQUESTS: usize = 64;
/// Longest text that is kept of what the process reports, bytes.
const TEXT: usize = 2048;
/// Calls of a connection that are on record.
const CALLS: usize = 64;
/// Models of a connection that are counted one by one.
const MODELS: usize = 16;
/// Name under which all other models are counted.
const OTHERS: &str = "(others)";

/// The side that opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opener {
    /// A program of the run.
    Program,
    /// A call in the host lane, over plain HTTP. The process begins TLS with the server.
    HostLane,
}

/// A connection that has just begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) destination: Destination,
    pub(crate) port: u16,
    pub(crate) calls: Vec<String>,
    pub(crate) by: Opener,
}

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: String,
    pub(crate) by: Opener,
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
    /// True once its intent is on record and its addresses are checked. No request of it is granted before.
    pub(crate) may_connect: bool,
    /// True if it goes out through the daemon's upstream proxy.
    pub(crate) is_proxied: bool,
    /// Numbers of the requests that are being decided about.
    pub(crate) deciding: BTreeSet<u64>,
    /// Requests that went out and whose tokens are not known yet, by number.
    pub(crate) unmetered: BTreeMap<u64, Reservation>,
    /// Numbers of the requests that are being decided about and that their program has taken back.
    pub(crate) taken_back: BTreeSet<u64>,
    /// Names of the secrets that its requests had.
    pub(crate) injected: BTreeSet<String>,
    /// Approvals of the pushes that went out over it and have no response, by the number of the request.
    pub(crate) consented: BTreeMap<u64, String>,
    /// Bytes that are counted.
    pub(crate) moved: Moved,
    /// Cancelled when it has ended.
    left: CancellationToken,
    _left: DropGuard,
    /// Tokens that its responses said, by model.
    usage: BTreeMap<String, ModelTokens>,
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
    pub(crate) fn new(begun: Begun, verdict: Verdict) -> Self {
        let Begun { destination, port, calls, by } = begun;
        let left = CancellationToken::new();
        Self {
            id: Uuid::now_v7().to_string(),
            by,
            destination,
            port,
            verdict,
            opened: Instant::now(),
            opened_at: Timestamp::now(),
            calls,
            step: Step::LookedAt,
            server_name: String::new(),
            has_encrypted_hello: false,
            requests: Vec::new(),
            request_count: 0,
            ended_for: None,
            approval: None,
            may_connect: false,
            is_proxied: false,
            deciding: BTreeSet::new(),
            unmetered: BTreeMap::new(),
            taken_back: BTreeSet::new(),
            injected: BTreeSet::new(),
            consented: BTreeMap::new(),
            moved: Moved::default(),
            _left: left.clone().drop_guard(),
            left,
            usage: BTreeMap::new(),
        }
    }

    /// Returns the token that is cancelled when it has ended.
    pub(crate) fn left(&self) -> CancellationToken {
        self.left.clone()
    }

    /// Returns the host as people write it.
    pub(crate) fn host(&self) -> String {
        match self.companion() {
            Some(name) => format!("companion:{name}"),
            None => self.destination.to_string(),
        }
    }

    /// Adds a request, or the status of a known one. Both have the same number, and may come several times.
    pub(crate) fn request(&mut self, request: HttpRequest) {
        let HttpRequest { method, path, status, number } = request;
        // Numbers begin at 1, and requests over HTTP/2 may be reported in another order.
        self.request_count = self.request_count.max(number);
        if let Some(known) = self.requests.iter_mut().find(|known| known.number == number) {
            if known.status == 0 {
                known.status = status;
            }
        } else if status == 0 && self.requests.len() < REQUESTS {
            self.requests.push(Request { number, method: cut(method), path: cut(path), status });
        }
    }

    /// Shows the status with which a request was answered in place of its server.
    pub(crate) fn answered(&mut self, number: u64, status: u32) {
        if let Some(known) = self.requests.iter_mut().find(|known| known.number == number) {
            known.status = status;
        }
    }

    /// Adds calls whose commands are running. A connection of a call has no others.
    pub(crate) fn add_calls(&mut self, calls: Vec<String>) {
        if self.by == Opener::HostLane {
            return;
        }
        for call in calls {
            if self.calls.len() < CALLS && !self.calls.contains(&call) {
                self.calls.push(call);
            }
        }
    }

    /// Adds the tokens of one response.
    pub(crate) fn add_tokens(&mut self, tokens: &ModelTokens) {
        let is_known = self.usage.contains_key(&tokens.model);
        let name = if is_known || self.usage.len() < MODELS { tokens.model.as_str() } else { OTHERS };
        let sum = self.usage.entry(name.to_owned());
        sum.or_insert_with(|| ModelTokens { model: name.to_owned(), ..ModelTokens::default() }).add(tokens);
    }

    /// Returns the tokens that its responses said, by model.
    pub(crate) fn usage(&self) -> impl Iterator<Item = &ModelTokens> {
        self.usage.values()
    }

    /// Returns true if the process begins its TLS with the server.
    pub(crate) fn is_opened(&self) -> bool {
        let is_opened = self.by == Opener::HostLane || self.verdict.opens_tls();
        self.verdict.decision != Decision::Deny && is_opened
    }

    /// Returns the order to look at it as its verdict says. `None` if there is nothing to look at.
    pub(crate) fn inspect(&self) -> Option<Body> {
        match self.by {
            Opener::Program => inspect(&self.destination, &self.verdict),
            Opener::HostLane => Some(inspect_served(&self.destination, self.port, &self.verdict)),
        }
    }

    /// Returns the server that its requests go to in place of its host.
    pub(crate) fn upstream(&self) -> Option<String> {
        let upstream = self.verdict.opening.upstream.as_ref();
        upstream.filter(|_| self.verdict.decision != Decision::Deny).map(ToString::to_string)
    }

    /// Returns the connection for people.
    pub(crate) fn shown(&self, end: Option<(&'static str, Option<IpAddr>)>) -> Connection {
        let (cause, address) = end.map_or((None, None), |(cause, address)| (Some(cause), address));
        let is_refused = self.verdict.decision == Decision::Deny;
        Connection {
            id: self.id.clone(),
            // The view adds its own.
            companion: String::new(),
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
            bytes_out: self.moved.out,
            bytes_in: self.moved.into,
            requests: self.requests.clone(),
            opened_at: self.opened_at,
            calls: self.calls.clone(),
            opened: self.is_opened(),
            upstream: self.upstream().unwrap_or_default(),
            injected: self.injected.iter().cloned().collect(),
            usage: self.usage().cloned().collect(),
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

#[cfg(test)]
mod tests {
    use egress_rules::{Narrowed, Rules};

    use super::*;

    fn live() -> Live {
        let destination = Destination::parse("files.example.org").unwrap();
        let verdict = Narrowed::new(Rules::none()).decide(&destination, 443);
        Live::new(Begun { destination, port: 443, calls: Vec::new(), by: Opener::Program }, verdict)
    }

    fn request(number: u64, status: u32) -> HttpRequest {
        HttpRequest { method: "GET".to_owned(), path: format!("/{number}"), status, number }
    }

    #[test]
    fn statuses_are_paired_by_number_in_any_order() {
        let mut live = live();
        for (number, status) in [(1, 0), (2, 0), (2, 0), (3, 0), (3, 204), (1, 200), (1, 500), (9, 200)] {
            live.request(request(number, status));
        }
        let shown = live.requests.iter().map(|request| (request.number, request.status));
        assert_eq!(shown.collect::<Vec<_>>(), [(1, 200), (2, 0), (3, 204)]);
        live.answered(2, 403);
        assert_eq!(live.requests[1].status, 403);
        for number in 10..1000 {
            live.request(request(number, 0));
        }
        assert_eq!((live.requests.len(), live.request_count), (REQUESTS, 999));
    }

    #[test]
    fn many_models_are_counted_together_and_sums_stop_at_the_largest_number() {
        let mut live = live();
        let tokens =
            |model: String, input| ModelTokens { model, input, requests: 1, ..ModelTokens::default() };
        for number in 0..1000 {
            live.add_tokens(&tokens(format!("m{number}"), 1));
        }
        live.add_tokens(&tokens("m0".to_owned(), u64::MAX));
        let sums: BTreeMap<_, _> =
            live.usage().map(|sum| (sum.model.as_str(), (sum.requests, sum.input))).collect();
        assert_eq!(sums.len(), MODELS + 1);
        assert_eq!(sums["(others)"], (1000 - MODELS as u64, 1000 - MODELS as u64));
        assert_eq!(sums["m0"], (2, u64::MAX));
    }
}
