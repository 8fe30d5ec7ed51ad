//! Fetches a document with one GET, or the answer to one form.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::Incoming;

use crate::exchange::exchange;
use crate::target::Target;
use crate::tls::Tls;

/// Fetches at most `most` bytes within `patience`. Any status but 200 is an error. Messages do not contain the URL's path.
pub async fn fetch(tls: &Tls, target: &Target, most: usize, patience: Duration) -> Result<Bytes, String> {
    let request = Request::get(&target.path)
        .header("host", &target.authority)
        .header("user-agent", concat!("cofferd/", env!("CARGO_PKG_VERSION")))
        .header("accept", "application/json")
        .header("connection", "close")
        .body(Full::default())
        .map_err(|_| "the request cannot be made")?;
    let fetched = exchange(tls, target, request, async |answer| {
        if answer.status() != 200 {
            return Err(format!("answered {}", answer.status().as_u16()));
        }
        bounded(answer.into_body(), most).await
    });
    tokio::time::timeout(patience, fetched).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

/// Posts a form with these further headers. Returns the status and at most `most` bytes of the answer within `patience`.
///
/// Messages do not contain the URL's path, the headers or the form.
pub async fn post_form(
    tls: &Tls,
    target: &Target,
    headers: &[(&'static str, String)],
    form: &str,
    most: usize,
    patience: Duration,
) -> Result<(u16, Bytes), String> {
    let mut request = Request::post(&target.path)
        .header("host", &target.authority)
        .header("user-agent", concat!("cofferd/", env!("CARGO_PKG_VERSION")))
        .header("accept", "application/json")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("connection", "close");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request
        .body(Full::new(Bytes::copy_from_slice(form.as_bytes())))
        .map_err(|_| "the request cannot be made")?;
    let posted = exchange(tls, target, request, async |answer| {
        let status = answer.status().as_u16();
        Ok((status, bounded(answer.into_body(), most).await?))
    });
    tokio::time::timeout(patience, posted).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

async fn bounded(body: Incoming, most: usize) -> Result<Bytes, String> {
    let body = Limited::new(body, most).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            format!("answered more than {most} bytes")
        } else {
            format!("no answer: {error}")
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::{fetch, post_form};
    use crate::{Target, Tls};

    /// What is fetched, up to 1,000 bytes, of a server that does this with the request that it has read.
    async fn fetched<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Result<Vec<u8>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys?x=1", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut sent = [0; 4_096];
            let count = stream.read(&mut sent).await.unwrap();
            let sent = String::from_utf8(sent[..count].to_vec()).unwrap();
            assert!(sent.starts_with("GET /keys?x=1 HTTP/1.1\r\n") && sent.ends_with("\r\n\r\n"), "{sent}");
            serve(stream).await;
        });
        let target = Target::parse(&url, false).unwrap();
        let tls = Tls::trusting([]).unwrap();
        let fetched = fetch(&tls, &target, 1_000, Duration::from_secs(5)).await;
        served.abort();
        fetched.map(|bytes| bytes.to_vec())
    }

    async fn answered(answer: impl Into<Vec<u8>>) -> Result<Vec<u8>, String> {
        let answer = answer.into();
        fetched(move |mut stream| {
            let answer = answer.clone();
            async move {
                let _ = stream.write_all(&answer).await;
            }
        })
        .await
    }

    #[tokio::test]
    async fn a_document_is_whole_or_refused() {
        let ok = "HTTP/1.1 200 OK\r\n";
        assert_eq!(answered(format!("{ok}content-length: 2\r\n\r\n{{}}")).await, Ok(b"{}".to_vec()));
        assert_eq!(answered(format!("{ok}connection: close\r\n\r\n{{}}")).await, Ok(b"{}".to_vec()));
        let chunked = format!("{ok}transfer-encoding: chunked\r\n\r\n1\r\n{{\r\n1\r\n}}\r\n0\r\n\r\n");
        assert_eq!(answered(chunked).await, Ok(b"{}".to_vec()));
        let most = "x".repeat(1_000);
        assert_eq!(answered(format!("{ok}\r\n{most}")).await, Ok(most.clone().into_bytes()));
        for (answer, says) in [
            (
                "HTTP/1.1 302 Found\r\nlocation: https://example.org/\r\ncontent-length: 0\r\n\r\n".into(),
                "answered 302",
            ),
            ("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".into(), "answered 404"),
            ("HTTP/1.1 204 No\r\n\r\n".into(), "answered 204"),
            (format!("{ok}\r\n{most}x"), "answered more than 1000 bytes"),
            (format!("{ok}content-length: 9000000000\r\n\r\n"), "no answer"),
            (format!("{ok}content-length: 3\r\n\r\n{{}}"), "no answer"),
            (format!("{ok}x: {}\r\n\r\n", "y".repeat(100_000)), "no answer"),
            ("nonsense\r\n\r\n".into(), "no answer"),
            (String::new(), "no answer"),
        ] {
            let failed = answered(answer).await.unwrap_err();
            assert!(failed.starts_with(says), "{says}: {failed}");
        }
    }

    #[tokio::test]
    async fn a_form_is_posted_and_its_answer_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let mut heads = Vec::new();
            for size in [10, 11] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut sent = Vec::new();
                while !sent.ends_with(b"code=x%20y") {
                    assert!(stream.read_buf(&mut sent).await.unwrap() > 0);
                }
                heads.push(String::from_utf8(sent).unwrap());
                let answer =
                    format!("HTTP/1.1 400 Bad\r\ncontent-length: {size}\r\n\r\n{}", "x".repeat(size));
                let _ = stream.write_all(answer.as_bytes()).await;
            }
            heads
        });
        let (target, tls) = (Target::parse(&url, false).unwrap(), Tls::trusting([]).unwrap());
        let headers = [("authorization", "Basic YTpi".to_owned())];
        let post = || post_form(&tls, &target, &headers, "code=x%20y", 10, Duration::from_secs(5));
        assert_eq!(post().await, Ok((400, "x".repeat(10).into())));
        assert_eq!(post().await, Err("answered more than 10 bytes".to_owned()));
        let head = served.await.unwrap().remove(0);
        assert!(head.starts_with("POST /token HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("authorization: Basic YTpi\r\n"), "{head}");
        assert!(head.contains("content-type: application/x-www-form-urlencoded\r\n"), "{head}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_without_end_is_left() {
        let drip = |mut stream: TcpStream| async move {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        assert_eq!(fetched(drip).await, Err("no answer in time".to_owned()));
        let silent = |stream: TcpStream| async move {
            let _open = stream;
            std::future::pending::<()>().await;
        };
        assert_eq!(fetched(silent).await, Err("no answer in time".to_owned()));
    }
}
