//! A response that keeps its place until it has been sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// What is sent.
pub(super) type ResponseBody = BoxBody<Bytes, Infallible>;

/// A body with one of its run's places.
pub(super) struct Held {
    body: ResponseBody,
    _place: Option<OwnedSemaphorePermit>,
}

impl Held {
    pub(super) fn new(body: ResponseBody, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { body, _place: place }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
