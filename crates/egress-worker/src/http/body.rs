//! Bodies on their way: looked at as they pass, and never held as a whole.

use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderValue;
use tokio::time::{Sleep, sleep};
use wire::worker::v1::PlaceholderSeen;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as Message;

use super::tally::Tally;
use crate::connection::Connection;
use crate::estimate::Parts;
use crate::fault::Fault;
use crate::hide::Hide;
use crate::seek::Seek;

/// Time without a byte after which the bytes that wait pass. It is longer than the way to a server and back, which a program can bring
/// about by reading late.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a request. It ends its connection where it has a placeholder.
pub(super) struct Outgoing {
    /// Parts that have been read already.
    first: Parts<hyper::Error>,
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
    /// Makes a body whose `first` parts have been read of `inner`.
    pub(super) fn new(
        first: Parts<hyper::Error>,
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
        let first = self.first.frames.pop_front();
        if self.first.frames.is_empty() {
            self.first = Parts::default();
        }
        let frame = match first {
            Some(part) => Some(part),
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
        self.first.frames.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        with_held(&self.inner, self.first.length())
    }
}

/// The body of a response, without the texts that the program must not see.
pub(super) struct Shown {
    inner: Incoming,
    hide: Option<Hide>,
    tally: Option<Tally>,
    /// Bytes that wait for the next ones.
    held: u64,
    /// End of the time that they wait.
    pause: Option<Pin<Box<Sleep>>>,
    trailers: Option<HeaderMap>,
    is_over: bool,
}

impl Shown {
    pub(super) fn new(inner: Incoming, hide: Option<Hide>, tally: Option<Tally>) -> Self {
        Self { inner, hide, tally, held: 0, pause: None, trailers: None, is_over: false }
    }

    /// Takes bytes. Returns those that can be passed on now.
    fn pass(&mut self, data: Bytes) -> Bytes {
        if let Some(tally) = &mut self.tally {
            tally.push(&data);
            // Reported before the program has the last byte, so that its next request finds its part of a budget free.
            if tally.is_over() || self.inner.is_end_stream() {
                tally.complete();
                self.tally = None;
            }
        }
        let Some(hide) = &mut self.hide else { return data };
        let taken = length(&data);
        let passed = hide.push(data);
        self.held = (self.held + taken).saturating_sub(length(&passed));
        passed
    }

    /// Waits for the next bytes of the server, and passes those that wait if none come in time.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        if self.held == 0 {
            return Poll::Pending;
        }
        ready!(self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE))).as_mut().poll(cx));
        self.pause = None;
        self.held = 0;
        Poll::Ready(self.hide.as_mut().map(Hide::release).unwrap_or_default())
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
            let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx)? else {
                return this.poll_pause(cx).map(|bytes| Some(Ok(Frame::data(bytes))));
            };
            this.pause = None;
            let Some(frame) = frame else {
                this.is_over = true;
                if let Some(mut tally) = this.tally.take() {
                    tally.complete();
                }
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
