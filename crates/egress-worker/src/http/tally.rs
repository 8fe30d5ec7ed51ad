//! The tokens of one request, from the daemon's grant to its end.

use std::rc::Rc;

use hyper::StatusCode;
use wire::worker::v1::ModelUsage;
use wire::worker::v1::from_egress::Body as Message;
use wire::worker::v1::model_usage::Extent;

use crate::connection::Connection;
use crate::usage::Usage;

/// The tokens of one request. They are reported when this is dropped, so however the request ends: the daemon holds a part of a budget
/// for it until then.
pub(super) struct Tally {
    connection: Rc<Connection>,
    request: u64,
    usage: Option<Usage>,
    extent: Extent,
    body_bytes: u64,
}

impl Tally {
    pub(super) fn new(connection: &Rc<Connection>, request: u64) -> Self {
        let connection = Rc::clone(connection);
        Self { connection, request, usage: None, extent: Extent::NotSent, body_bytes: 0 }
    }

    /// Notes that the request goes to the server.
    pub(super) fn send(&mut self) {
        self.extent = Extent::Unanswered;
    }

    /// Begins to read a response.
    pub(super) fn begin(&mut self, status: StatusCode, usage: Usage) {
        self.extent = if status.is_success() { Extent::Cut } else { Extent::Refused };
        self.usage = Some(usage);
    }

    /// Takes a piece of the response.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.body_bytes = self.body_bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if let Some(usage) = &mut self.usage {
            usage.push(piece);
        }
    }

    /// Returns true if the response has said that nothing more is to come.
    pub(super) fn is_over(&self) -> bool {
        self.usage.as_ref().is_some_and(Usage::is_over)
    }

    /// Notes that the whole response has arrived.
    pub(super) fn complete(&mut self) {
        if self.extent == Extent::Cut {
            self.extent = Extent::Whole;
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let mut usage = ModelUsage {
            request: self.request,
            extent: self.extent.into(),
            body_bytes: self.body_bytes,
            ..ModelUsage::default()
        };
        if let Some(reported) = self.usage.take().map(Usage::finish) {
            usage.model = reported.model;
            usage.input_tokens = reported.input_tokens;
            usage.output_tokens = reported.output_tokens;
            usage.cached_input_tokens = reported.cached_input_tokens;
            usage.cache_write_tokens = reported.cache_write_tokens;
            usage.is_reported = reported.is_reported;
        }
        self.connection.post(Message::Usage(usage));
    }
}
