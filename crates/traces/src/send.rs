//! One attempt to export: one request, and the status of its answer.
//!
//! A receiver is not trusted: the head and the body of an answer are bounded, the body is thrown away, and the whole attempt has a
//! deadline. No connection is kept, since a batch goes out once in a second at most.

use std::fmt;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::{http1, http2};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TE, USER_AGENT};
use hyper::http::request::Builder;
use hyper::rt::Executor;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use webhook::{Failed, Target, Tls, dial};

/// Path of the service in gRPC.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Path over HTTP if the URL has none.
const HTTP_PATH: &str = "/v1/traces";
/// Longest head of an answer in bytes.
const MAX_HEAD: u32 = 16 * 1024;
/// Longest body of an answer in bytes.
const MAX_BODY: u32 = 64 * 1024;
/// Most headers of the configuration.
const MAX_HEADERS: usize = 16;
/// Codes of gRPC after which the same request can succeed, as OTLP lists them.
const LATER: [&str; 7] = ["1", "4", "8", "10", "11", "14", "15"];
/// Headers that requests have already, or that say how they are sent.
const OWN: [&str; 11] = [
    "host",
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "user-agent",
    "grpc-timeout",
];

/// Form of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    /// Protobuf over HTTP/1.1.
    Http,
}

/// Headers that each request has, such as a receiver's key. They are secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(HeaderMap);

impl Headers {
    /// Parses one `name: value` a line. Messages do not contain values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let (name, value) = line.split_once(':').ok_or(format!("line {number} is not `name: value`"))?;
            let name: HeaderName =
                name.trim().parse().map_err(|_| format!("line {number} has no valid name"))?;
            let value = HeaderValue::from_str(value.trim());
            let mut value = value.map_err(|_| format!("line {number} has no valid value"))?;
            value.set_sensitive(true);
            if OWN.contains(&name.as_str()) {
                return Err(format!("line {number} has a header that the daemon sets itself: {name}"));
            }
            if headers.insert(name, value).is_some() || headers.len() > MAX_HEADERS {
                return Err(format!("has a name twice, or more than {MAX_HEADERS} headers"));
            }
        }
        Ok(Self(headers))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} headers", self.0.len())
    }
}

/// A receiver of traces.
#[derive(Debug, Clone)]
pub struct Destination {
    target: Target,
    protocol: Protocol,
    headers: Headers,
    /// Time for a whole attempt.
    timeout: Duration,
}

impl Destination {
    pub fn new(target: Target, protocol: Protocol, headers: Headers, timeout: Duration) -> Self {
        let target = match protocol {
            Protocol::Http if target.path() == "/" => target.with_path(HTTP_PATH),
            Protocol::Http => target,
            Protocol::Grpc => target.with_path(EXPORT),
        };
        Self { target, protocol, headers, timeout }
    }

    /// Sends a request once.
    pub(crate) async fn send(&self, tls: &Tls, body: &[u8]) -> Result<(), Failed> {
        let attempt = async {
            match self.protocol {
                Protocol::Http => self.http(tls, body).await,
                Protocol::Grpc => self.grpc(tls, body).await,
            }
        };
        timeout(self.timeout, attempt).await.unwrap_or_else(|_| Err(later("no answer in time")))
    }

    async fn http(&self, tls: &Tls, body: &[u8]) -> Result<(), Failed> {
        let request =
            self.request(Request::post(self.target.path()).header(HOST, self.target.authority()), body)?;
        let stream = dial(tls, &self.target, None).await.map_err(later)?;
        let connected =
            http1::Builder::new().max_buf_size(MAX_HEAD as usize).handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(no_answer)?;
        let answer = driven(connection, sender.send_request(request)).await?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status @ (StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT) => Err(later(format!("answered {}", status.as_u16()))),
            status => Err(never(format!("answered {}", status.as_u16()))),
        }
    }

    async fn grpc(&self, tls: &Tls, body: &[u8]) -> Result<(), Failed> {
        let length = u32::try_from(body.len()).map_err(|_| never("the request is too large"))?;
        let mut frame = BytesMut::with_capacity(5 + body.len());
        frame.put_u8(0);
        frame.put_u32(length);
        frame.put_slice(body);
        let url = format!("{}://{}{}", self.target.scheme(), self.target.authority(), self.target.path());
        let request = self.request(Request::post(url).header(TE, "trailers"), &frame)?;
        let stream = dial(tls, &self.target, Some(b"h2")).await.map_err(later)?;
        let ended = CancellationToken::new();
        let _ends = ended.clone().drop_guard();
        let mut builder = http2::Builder::new(Tasks(ended));
        let builder = builder.max_header_list_size(MAX_HEAD).initial_stream_window_size(MAX_BODY);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(no_answer)?;
        let answered = async {
            let answer = sender.send_request(request).await?;
            let (status, head) = (answer.status(), answer.headers().get("grpc-status").cloned());
            let body = Limited::new(answer.into_body(), MAX_BODY as usize).collect().await;
            let trailers = body.as_ref().ok().and_then(|body| body.trailers()?.get("grpc-status").cloned());
            Ok((status, head.or(trailers)))
        };
        let (status, code) = driven(connection, answered).await?;
        let code = code.as_ref().and_then(|code| code.to_str().ok()).unwrap_or_default();
        match code {
            "0" => Ok(()),
            "" => Err(later(format!("answered {} and no status of gRPC", status.as_u16()))),
            code if LATER.contains(&code) => Err(later(format!("answered the gRPC status {code}"))),
            // A number of two digits at most; anything else is not repeated.
            code if code.len() <= 2 => Err(never(format!("answered the gRPC status {code}"))),
            _ => Err(never("answered no valid gRPC status")),
        }
    }

    fn request(&self, builder: Builder, body: &[u8]) -> Result<Request<Full<Bytes>>, Failed> {
        let content_type = match self.protocol {
            Protocol::Http => "application/x-protobuf",
            Protocol::Grpc => "application/grpc",
        };
        let request = builder
            .header(CONTENT_TYPE, content_type)
            .header(USER_AGENT, concat!("cofferd/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::copy_from_slice(body)));
        let mut request = request.map_err(|_| never("the request cannot be made"))?;
        request.headers_mut().extend(self.headers.0.clone());
        Ok(request)
    }
}

/// Tasks of one HTTP/2 connection, which end when the token is cancelled.
///
/// Left alone, one that waits until a receiver takes more of the request would wait for ever, and keep the socket.
#[derive(Clone)]
struct Tasks(CancellationToken);

impl<F> Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        let ended = self.0.clone();
        tokio::spawn(async move {
            ended.run_until_cancelled(task).await;
        });
    }
}

/// Awaits `answer` while the connection works. Both end with this function.
async fn driven<T>(
    connection: impl Future<Output = Result<(), hyper::Error>>,
    answer: impl Future<Output = Result<T, hyper::Error>>,
) -> Result<T, Failed> {
    let (mut connection, mut answer) = (std::pin::pin!(connection), std::pin::pin!(answer));
    tokio::select! {
        biased;
        answer = &mut answer => answer.map_err(no_answer),
        ended = &mut connection => match ended {
            Err(error) => Err(no_answer(error)),
            Ok(()) => answer.await.map_err(no_answer),
        },
    }
}

fn later(message: impl Into<String>) -> Failed {
    Failed { message: message.into(), for_good: false }
}

fn never(message: impl Into<String>) -> Failed {
    Failed { message: message.into(), for_good: true }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
fn no_answer(error: hyper::Error) -> Failed {
    later(format!("no answer: {error}"))
}

#[cfg(test)]
mod tests {
    use super::Headers;

    #[test]
    fn headers_are_one_a_line_and_are_not_shown() {
        let headers = Headers::parse("authorization: Bearer s3cret:x\n\nx-key:1\n").unwrap();
        assert_eq!(headers.0.get("authorization").unwrap(), "Bearer s3cret:x");
        assert_eq!(headers.0.get("x-key").unwrap(), "1");
        assert!(!format!("{headers:?}").contains("s3cret"));
        for (text, says) in [
            ("x", "line 1 is not"),
            ("a: 1\nb c: 2", "line 2 has no valid name"),
            ("a: \u{1}", "line 1 has no valid value"),
            ("Host: x", "sets itself: host"),
            ("grpc-timeout: 1S", "sets itself"),
            ("a: 1\nA: 2", "twice"),
        ] {
            assert!(Headers::parse(text).unwrap_err().contains(says), "{text}");
        }
        let many = (0..17).map(|number| format!("x-{number}: 1\n")).collect::<Vec<_>>().concat();
        assert!(Headers::parse(&many).is_err());
    }
}
