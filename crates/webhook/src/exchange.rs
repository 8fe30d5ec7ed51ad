//! Sends one request over TCP or TLS and receives its answer.
//!
//! No redirect is followed, no proxy of the environment is used, and no connection is kept. The head of an answer is bounded here. The
//! reader of its body has to bound the body.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::dial::dial;
use crate::target::Target;
use crate::tls::Tls;

/// Longest head of an answer in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Returns the message for an answer that is missing or invalid.
#[allow(clippy::needless_pass_by_value)] // as `map_err` passes it
pub(crate) fn no_answer(error: hyper::Error) -> String {
    format!("no answer: {error}")
}

/// Sends a request to `target`, and returns the result of `take` for the answer. Messages do not contain the URL's path.
pub(crate) async fn exchange<T>(
    tls: &Tls,
    target: &Target,
    request: Request<Full<Bytes>>,
    take: impl AsyncFnOnce(Response<Incoming>) -> Result<T, String>,
) -> Result<T, String> {
    over(dial(tls, target, None).await?, request, take).await
}

async fn over<T>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    take: impl AsyncFnOnce(Response<Incoming>) -> Result<T, String>,
) -> Result<T, String> {
    let connected = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(no_answer)?;
    // Both end with this function. Neither is awaited longer than the answer takes.
    let mut connection = std::pin::pin!(connection);
    let mut answer =
        std::pin::pin!(async { take(sender.send_request(request).await.map_err(no_answer)?).await });
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = &mut connection => match ended {
            Err(error) => Err(no_answer(error)),
            Ok(()) => answer.await,
        },
    }
}
