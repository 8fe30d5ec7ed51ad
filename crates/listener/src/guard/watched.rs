//! Ends an answer with the credential that opened it.
//!
//! If the caller's token is revoked, replaced or expires, or if its certificate is revoked or expires, a waiting
//! request is refused and a stream is cut at the next message. An answer that is already made still arrives.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use operations::Reason;
use refusal::Refusal;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Response};

use super::CREDENTIAL;
use crate::ending::End;
use admission::Share;

/// Number of frames that are still sent after the end: a message and its trailers.
const AFTER: u8 = 2;

/// End of the credential and share of a request, held while the request is answered.
pub(crate) struct Watch {
    end: Option<End>,
    share: Option<Share>,
}

impl Watch {
    pub(super) fn new(end: Option<End>, share: Option<Share>) -> Self {
        Self { end, share }
    }

    /// Waits for the answer until the credential ends, and watches over the answer from then on.
    ///
    /// A handler whose answer comes too late is dropped, as it is when its client leaves.
    pub(super) async fn over<E>(
        self,
        answer: impl Future<Output = Result<Response<Body>, E>>,
    ) -> Result<Response<Body>, E> {
        let Self { mut end, share } = self;
        let answer = match &mut end {
            Some(end) => tokio::select! {
                biased;
                answer = answer => answer?,
                () = end => return Ok(ended().into_http()),
            },
            None => answer.await?,
        };
        Ok(answer.map(|body| Body::new(Watched { body, end, after: None, _share: share })))
    }
}

/// Returns the status for a request that outlives its credential.
fn ended() -> Status {
    let message = "the token or certificate of this request has expired or was revoked";
    Refusal::new(Reason::PermissionDenied, message).with(CREDENTIAL, "ended").into()
}

struct Watched {
    body: Body,
    /// End of the credential; `None` after it has come, or if there is none.
    end: Option<End>,
    /// Number of frames that may still be sent; `None` before the end.
    after: Option<u8>,
    _share: Option<Share>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.end.as_mut().is_some_and(|end| Pin::new(end).poll(context).is_ready()) {
            this.end = None;
            this.after = Some(AFTER);
        }
        if this.after == Some(0) {
            return Poll::Ready(this.cut());
        }
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Pending if this.after.is_some() => Poll::Ready(this.cut()),
            frame => {
                this.after = this.after.map(|after| after.saturating_sub(1));
                frame
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // Unknown, because the body may be cut.
        SizeHint::default()
    }
}

impl Watched {
    /// Returns the last frame, which contains the reason. No frame follows it.
    fn cut(&mut self) -> Option<Result<Frame<Bytes>, Status>> {
        self.after = Some(0);
        if self.body.is_end_stream() {
            return None;
        }
        self.body = Body::empty();
        let mut trailers = HeaderMap::new();
        Some(ended().add_header(&mut trailers).map(|()| Frame::trailers(trailers)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::{pending, poll_fn, ready};
    use std::sync::Arc;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;

    const LONG: Duration = Duration::from_secs(86_400);

    /// Frames that are there at once, and then, unless it ends, none for ever.
    struct Frames(VecDeque<Frame<Bytes>>, bool);

    impl HttpBody for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None if self.1 => Poll::Ready(None),
                None => Poll::Pending,
            }
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty() && self.1
        }
    }

    fn answer(messages: usize, ends: bool) -> Frames {
        let mut frames: VecDeque<_> = (0..messages).map(|_| Frame::data(Bytes::from_static(b"m"))).collect();
        if ends {
            frames.push_back(Frame::trailers(HeaderMap::new()));
        }
        Frames(frames, ends)
    }

    /// Messages, and the status of the trailers.
    async fn read(frames: Frames, end: Option<End>) -> (usize, Option<String>) {
        let answer = ready(Ok::<_, Infallible>(Response::new(Body::new(frames))));
        let mut body = Watch::new(end, None).over(answer).await.unwrap().into_body();
        let (mut messages, mut status) = (0, None);
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame.unwrap().into_trailers() {
                Ok(trailers) => {
                    let value = trailers.get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
                    status = Some(value.unwrap_or_default());
                }
                Err(_) => messages += 1,
            }
        }
        (messages, status)
    }

    fn over() -> End {
        let token = CancellationToken::new();
        token.cancel();
        End::after_or(LONG, token)
    }

    #[tokio::test]
    async fn one_answer_arrives_and_a_stream_is_cut() {
        assert_eq!(read(answer(1, true), Some(over())).await, (1, Some(String::new())));
        assert_eq!(read(answer(1, false), Some(over())).await, (1, Some("7".to_owned())));
        assert_eq!(read(answer(0, false), Some(over())).await, (0, Some("7".to_owned())));
        // One that never rests is cut all the same.
        assert_eq!(read(answer(1_000, true), Some(over())).await, (2, Some("7".to_owned())));
        assert_eq!(read(answer(1_000, true), None).await, (1_000, Some(String::new())));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_may_come_by_time_or_while_the_stream_is_idle() {
        let later = Some(End::after(Duration::from_secs(5)));
        assert_eq!(read(answer(3, false), later).await, (3, Some("7".to_owned())));
        let token = CancellationToken::new();
        let end = Some(End::after_or(LONG, token.clone()));
        let reader = tokio::spawn(read(answer(3, false), end));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!reader.is_finished());
        token.cancel();
        assert_eq!(reader.await.unwrap(), (3, Some("7".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_still_waits_is_refused_at_the_end_and_its_handler_dropped() {
        let handler = Arc::new(());
        let held = handler.clone();
        let waiting = async move {
            let answer = pending::<Result<Response<Body>, Infallible>>().await;
            drop(held);
            answer
        };
        let watch = Watch::new(Some(End::after(Duration::from_secs(5))), None);
        let answer = watch.over(waiting).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "7");
        assert_eq!(Arc::strong_count(&handler), 1);
    }
}
