//! Bodies on their way: looked at as they pass, and never held as a whole.

use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderValue;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as Message;
use wire::worker::v1::{ModelUsage, PlaceholderSeen};

use crate::connection::Connection;
use crate::fault::Fault;
use crate::hide::Hide;
use crate::seek::Seek;
use crate::usage::Usage;

pub(super) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request. It ends its connection where it has a placeholder.
pub(super) struct Outgoing {
    /// Pieces that have been read already.
    first: VecDeque<Bytes>,
    inner: Incoming,
    watch: Option<Watch>,
}

/// The search for placeholders in one body.
struct Watch {
    seek: Seek,
    connection: Rc<Connection>,
    fault: Rc<Fault>,
}

impl Outgoing {
    /// Makes a body whose `first` pieces have been read of `inner`.
    pub(super) fn new(
        first: VecDeque<Bytes>,
        inner: Incoming,
        connection: &Rc<Connection>,
        fault: &Rc<Fault>,
    ) -> Self {
        let watch = connection.process.placeholders.as_ref().map(|placeholders| Watch {
            seek: Seek::new(placeholders.clone()),
            connection: Rc::clone(connection),
            fault: Rc::clone(fault),
        });
        Self { first, inner, watch }
    }
}

impl Watch {
    fn look(&mut self, frame: &Frame<Bytes>) -> Result<(), BodyError> {
        let placeholders = self.connection.process.placeholders.as_ref();
        let found = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => self.seek.push(data),
            (None, Some(trailers)) => {
                trailers.values().find_map(|value| placeholders?.find(value.as_bytes()))
            }
            (None, None) => None,
        };
        match found {
            None => Ok(()),
            Some(index) => {
                self.connection.post(Message::Placeholder(seen(index, "body")));
                Err(self.fault.error(Cause::Placeholder).into())
            }
        }
    }
}

/// Returns the report of a placeholder.
pub(super) fn seen(index: usize, place: &str) -> PlaceholderSeen {
    PlaceholderSeen { index: u32::try_from(index).unwrap_or(u32::MAX), place: place.to_owned() }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match self.first.pop_front() {
            Some(piece) => Some(Ok(Frame::data(piece))),
            None => ready!(Pin::new(&mut self.inner).poll_frame(cx)),
        };
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            if let Some(watch) = &mut self.watch {
                watch.look(&frame)?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        with_held(&self.inner, self.first.iter().map(length).sum())
    }
}

/// The tokens of one request. They are reported when it is over, however it ends.
pub(super) struct Tally {
    connection: Rc<Connection>,
    request: u64,
    usage: Option<Usage>,
}

impl Tally {
    pub(super) fn new(connection: &Rc<Connection>, request: u64) -> Self {
        Self { connection: Rc::clone(connection), request, usage: None }
    }

    /// Begins to read a response.
    pub(super) fn begin(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let mut usage = ModelUsage { request: self.request, ..ModelUsage::default() };
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

/// The body of a response, without the texts that the program must not see.
pub(super) struct Shown {
    inner: Incoming,
    hide: Option<Hide>,
    tally: Option<Tally>,
    /// Bytes that wait for the next ones.
    held: u64,
    trailers: Option<HeaderMap>,
    is_over: bool,
}

impl Shown {
    pub(super) fn new(inner: Incoming, hide: Option<Hide>, tally: Option<Tally>) -> Self {
        Self { inner, hide, tally, held: 0, trailers: None, is_over: false }
    }

    /// Takes bytes. Returns those that can be passed on now.
    fn pass(&mut self, data: Bytes) -> Bytes {
        if let Some(usage) = self.tally.as_mut().and_then(|tally| tally.usage.as_mut()) {
            usage.push(&data);
        }
        let Some(hide) = &mut self.hide else { return data };
        let taken = length(&data);
        let passed = hide.push(data);
        self.held = (self.held + taken).saturating_sub(length(&passed));
        passed
    }

    /// Returns the bytes that still wait.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        self.held = 0;
        let rest = self.hide.as_mut().map(Hide::finish).unwrap_or_default();
        Some(rest).filter(|rest| !rest.is_empty()).map(Frame::data)
    }
}

/// Returns the bounds of a body of which some bytes are held.
fn with_held(inner: &Incoming, held: u64) -> SizeHint {
    let inner = inner.size_hint();
    let mut hint = SizeHint::new();
    // The upper bound first: the lower one must not be above it.
    if let Some(upper) = inner.upper() {
        hint.set_upper(upper.saturating_add(held));
    }
    hint.set_lower(inner.lower().saturating_add(held));
    hint
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Hides the texts in the values of headers.
pub(super) fn hide_in(headers: &mut HeaderMap, hide: &Hide) {
    for value in headers.values_mut() {
        if let Some(hidden) = hide.header(value.as_bytes()) {
            *value = HeaderValue::from_bytes(&hidden).unwrap_or(HeaderValue::from_static("*"));
        }
    }
}

impl Body for Shown {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            if let Some(trailers) = this.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)?) else {
                this.is_over = true;
                this.tally = None;
                return Poll::Ready(this.rest().map(Ok));
            };
            match frame.into_data() {
                Ok(data) => {
                    let passed = this.pass(data);
                    if !passed.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(passed))));
                    }
                }
                Err(frame) => {
                    let Ok(mut trailers) = frame.into_trailers() else { continue };
                    if let Some(hide) = &this.hide {
                        hide_in(&mut trailers, hide);
                    }
                    this.trailers = Some(trailers);
                    if let Some(rest) = this.rest() {
                        return Poll::Ready(Some(Ok(rest)));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held == 0 && self.trailers.is_none() && (self.is_over || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        with_held(&self.inner, self.held)
    }
}
