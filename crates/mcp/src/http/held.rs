//! A response that holds its slot, and keeps its session in use, until it has been sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::sessions::Busy;

pub(super) type ResponseBody = BoxBody<Bytes, Infallible>;

/// A slot of the run, and the use of a session.
type Guards = (OwnedSemaphorePermit, Option<Busy>);

/// A body with the guards that it holds.
pub(super) struct Held {
    body: ResponseBody,
    _guards: Option<Guards>,
}

impl Held {
    pub(super) fn new(body: ResponseBody, guards: Option<Guards>) -> Self {
        Self { body, _guards: guards }
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
