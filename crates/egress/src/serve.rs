//! Connections of the daemon itself, for calls in a run's host lane.
//!
//! They go the way of a program's connection: the rules, a reviewer, the record, the bounds. Their other end speaks plain HTTP, and the
//! process begins TLS with the server. So a run may have them whose programs trust no authority of the process.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use egress_rules::Destination;
use tokio::sync::mpsc;
use wire::worker::v1::Serve;
use wire::worker::v1::to_egress::Body as To;

use crate::messages::message;
use crate::session::Session;
use crate::streams::{Expected, StreamError, Wanted};

/// Time in which the process has to begin a connection.
///
/// Longer than the process keeps a handle: a connection that it begins is expected.
const BEGIN: Duration = Duration::from_secs(30);
/// Most connections that the process has not begun.
const EXPECTED: usize = 32;

impl Session {
    /// Gives streams to calls, for as long as the process lives.
    pub(crate) async fn give_streams(&self, mut wishes: mpsc::Receiver<Wanted>) -> Infallible {
        while let Some(wanted) = wishes.recv().await {
            let Wanted { destination, port, call, answer } = wanted;
            // The call may be over.
            let _ = answer.send(self.open_stream(destination, port, call).await);
        }
        std::future::pending().await
    }

    async fn open_stream(
        &self,
        destination: Destination,
        port: u16,
        call: String,
    ) -> Result<OwnedFd, StreamError> {
        let host = match &destination {
            Destination::Name(name) => name.to_string(),
            // Without the brackets of a URL.
            Destination::Address(address) => address.to_string(),
        };
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        let handle = self.handles.number();
        {
            let mut expected = self.expected.lock();
            expected.retain(|_, expected| expected.since.elapsed() < BEGIN);
            let count = expected.len() + self.live.lock().len();
            if expected.len() >= EXPECTED || count >= self.most {
                return Err(StreamError::Full);
            }
            expected.insert(handle, Expected { destination, port, call, since: Instant::now() });
        }
        self.handles.send(handle, theirs.into()).await?;
        let roots = if self.has_roots.swap(true, Ordering::Relaxed) {
            Vec::new()
        } else {
            self.state.outside.shared().roots.der().to_vec()
        };
        self.send(message(0, To::Serve(Serve { handle, host, port: port.into(), roots }))).await;
        Ok(ours.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;

    use audit::Kind;
    use host_launch::numbered;
    use serde_json::json;
    use tokio::task::JoinHandle;
    use wire::worker::v1::from_egress::Body as From;
    use wire::worker::v1::inspect::Scheme;
    use wire::worker::v1::{ConnectionOpened, ConnectionReady, HttpRequest, Inspect};

    use super::*;
    use crate::testing::Played;

    type Opening = JoinHandle<Result<OwnedFd, StreamError>>;

    fn played(scheme: &str) -> Played {
        let rule =
            json!({ "host": "git.example.org", "ports": [443], "scheme": scheme, "decision": "allow" });
        Played::new(&json!({ "networks": ["203.0.113.0/24"], "rules": [rule] }).to_string())
    }

    fn wish(played: &Played, host: &'static str) -> Opening {
        let state = Arc::clone(&played.state);
        tokio::spawn(async move { state.streams.open(host, 443, "call-7").await })
    }

    /// Has the process begin the connection. Returns its end, and the next order.
    async fn begin(played: &mut Played, number: u64) -> (UnixStream, To) {
        let To::Serve(serve) = played.hear().await else { panic!("nothing to serve") };
        assert_eq!((serve.port, serve.roots.len()), (443, 0));
        let (handle, end) = numbered::receive(&played.handles).unwrap().unwrap();
        assert_eq!(handle, serve.handle);
        let opened = ConnectionOpened { address: vec![0; 4], port: 443, handle };
        played.say(number, From::Opened(opened)).await;
        (UnixStream::from(end), played.hear().await)
    }

    fn ready() -> From {
        let request =
            HttpRequest { method: "GET".into(), path: "/app/info/refs".into(), status: 0, number: 1 };
        From::Connection(ConnectionReady { request: Some(request), ..ConnectionReady::default() })
    }

    #[tokio::test]
    async fn a_call_gets_a_stream_whose_connection_is_judged_and_on_record() {
        let mut played = played("https");
        let stream = wish(&played, "git.example.org");
        let (mut theirs, order) = begin(&mut played, 2).await;
        let mut ours = UnixStream::from(stream.await.unwrap().unwrap());
        ours.write_all(b"GET").unwrap();
        let mut read = [0; 3];
        theirs.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"GET");
        let To::Inspect(inspect) = order else { panic!("not looked at") };
        let Inspect { name, open, upstream: Some(upstream), .. } = &inspect else { panic!("no upstream") };
        assert_eq!((name.as_str(), *open, inspect.scheme()), ("git.example.org", false, Scheme::Http));
        assert_eq!((upstream.tls, upstream.host.as_str(), upstream.port), (true, "git.example.org", 443));
        played.say(2, ready()).await;
        let To::Dial(dial) = played.hear().await else { panic!("not connected") };
        assert_eq!((dial.port, dial.addresses.len()), (443, 1));
        let intent = played.recorded(Kind::EgressIntent).await;
        assert_eq!((&intent["by"], &intent["calls"]), (&json!("host lane"), &json!(["call-7"])));
    }

    #[tokio::test]
    async fn a_refusal_is_a_response_in_words() {
        for (scheme, host, why) in [
            ("https", "other.example.org", "other.example.org:443"),
            ("http", "git.example.org", "plain HTTP"),
        ] {
            let mut played = played(scheme);
            let stream = wish(&played, host);
            let (_theirs, order) = begin(&mut played, 2).await;
            assert!(matches!(order, To::Inspect(inspect) if inspect.upstream.is_none()), "{host}");
            played.say(2, ready()).await;
            let To::End(end) = played.hear().await else { panic!("not ended") };
            assert!(end.http_body.contains(why), "{}", end.http_body);
            stream.await.unwrap().unwrap();
            assert!(played.records(Kind::EgressIntent).is_empty());
        }
    }

    #[tokio::test]
    async fn a_process_begins_no_connection_that_was_not_given_to_it_or_twice() {
        for handle in [1, 9] {
            let mut played = played("https");
            let stream = wish(&played, "git.example.org");
            drop(begin(&mut played, 2).await);
            stream.await.unwrap().unwrap();
            let opened = ConnectionOpened { address: vec![0; 4], port: 443, handle };
            played.say(3, From::Opened(opened)).await;
            assert!(played.broken().await.contains("a connection that cannot be"));
        }
    }

    #[tokio::test]
    async fn streams_are_connections_of_the_run_and_no_more_than_these() {
        let mut played = played("https");
        for _ in 0..16 {
            wish(&played, "git.example.org").await.unwrap().unwrap();
            assert!(matches!(played.hear().await, To::Serve(_)));
        }
        let refused = wish(&played, "git.example.org").await.unwrap();
        assert!(matches!(refused, Err(StreamError::Full)));
    }
}
