//! Passes the bytes of a connection in both directions, each as fast as its reader takes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use operations::Fault;
use refusal::Refusal;
use runs::record::{EndCause, Record};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::Sender;
use tonic::{Code, Status};
use wire::v1::forward_closed::Reason;
use wire::v1::forward_port_response::Event;
use wire::v1::{ForwardClosed, ForwardFinished, ForwardPortRequest, ForwardPortResponse};

use super::{Response, start};

/// Most bytes of the server in one message.
const PIECE: usize = 32 * 1024;

/// Time in which the worker of a run is missed after a connection was reset, if their container has ended.
const MISSED: Duration = Duration::from_millis(200);

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    Closed(Reason),
    /// The run ended. The status of [`over`] follows the last message.
    WithRun(Refusal),
    /// The client gets a status: it sent an invalid message, or the connection did not begin.
    Refused(Refusal),
}

impl End {
    pub(super) const DISCONNECTED: Self = Self::Closed(Reason::Disconnected);
    pub(super) const RUN_PAUSED: Self = Self::Closed(Reason::RunPaused);
    pub(super) const NOT_ALLOWED: Self = Self::Closed(Reason::NotAllowed);
    pub(super) const STOPPING: Self = Self::Closed(Reason::Stopping);
    const RESET: Self = Self::Closed(Reason::Reset);

    /// Returns the time after which the end of the run is seen if it can be the reason of this end. `None` if it cannot.
    ///
    /// The end of a container is first seen by the ends of its connections. Servers can bring these about, but not that end.
    pub(super) fn patience(&self) -> Option<Duration> {
        match self {
            Self::Closed(Reason::Reset) => Some(MISSED),
            // Most servers that close a connection live on, and their clients must not wait.
            Self::Closed(Reason::Finished) => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Returns the last message of the stream, the status that ends it, or both.
    pub(super) fn last(self, bytes_in: u64, bytes_out: u64) -> Vec<Response> {
        let closed = |reason: Reason| {
            let closed = ForwardClosed { reason: reason.into(), bytes_in, bytes_out };
            Ok(message(Event::Closed(closed)))
        };
        match self {
            Self::Closed(reason) => vec![closed(reason)],
            Self::WithRun(refusal) => vec![closed(Reason::RunEnded), Err(refusal.into())],
            Self::Refused(refusal) => vec![Err(refusal.into())],
        }
    }
}

/// Returns the status of a connection whose run has ended: whose failure that is, and the facts that show it.
pub(super) fn over(run: &Record) -> Refusal {
    let fault = run.fault().unwrap_or(Fault::Caller);
    let (reason, ended) = match fault {
        Fault::Infrastructure => (operations::Reason::RunLost, "was lost"),
        _ => (operations::Reason::RunNotReady, "ended"),
    };
    let cause = run.end_cause.map(EndCause::as_str);
    let why = run.failure.as_deref().or(cause).unwrap_or("it was stopped");
    let message = format!("the run {ended}: {why}");
    // The bytes that passed may have had an effect.
    Refusal { origin: run.origin(), ..Refusal::new(reason, message) }.by(fault).retry_safe(false)
}

/// Bytes of a connection, and its client.
pub(super) struct Transfer {
    out: Sender<Response>,
    /// Bytes that the server got.
    bytes_in: AtomicU64,
    /// Bytes that the server sent.
    bytes_out: AtomicU64,
}

impl Transfer {
    pub(super) fn new(out: Sender<Response>) -> Self {
        Self { out, bytes_in: AtomicU64::new(0), bytes_out: AtomicU64::new(0) }
    }

    /// Returns the bytes to the server and of the server.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.bytes_in.load(Ordering::Relaxed), self.bytes_out.load(Ordering::Relaxed))
    }

    /// Passes bytes until both sides have finished, or one fails.
    pub(super) async fn pass<R>(&self, server: TcpStream, requests: R) -> End
    where
        R: Stream<Item = Result<ForwardPortRequest, Status>> + Unpin,
    {
        let (from, to) = server.into_split();
        match tokio::try_join!(self.send(requests, to), self.receive(from)) {
            // The stream of requests and both halves of the socket are kept until both sides have finished.
            Ok(_both) => End::Closed(Reason::Finished),
            Err(end) => end,
        }
    }

    async fn send<R>(&self, mut requests: R, mut to: OwnedWriteHalf) -> Result<(R, OwnedWriteHalf), End>
    where
        R: Stream<Item = Result<ForwardPortRequest, Status>> + Unpin,
    {
        while let Some(request) = requests.next().await {
            let request = request.map_err(|status| match status.code() {
                // The message cannot be decoded. Every other error is the end of the client's stream.
                Code::Internal | Code::OutOfRange => {
                    End::Refused(Refusal::invalid("request", "cannot be decoded as a message of this method"))
                }
                _ => End::DISCONNECTED,
            })?;
            let data = start::data(request).map_err(End::Refused)?;
            to.write_all(&data).await.map_err(|_| End::RESET)?;
            self.bytes_in.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        to.shutdown().await.map_err(|_| End::RESET)?;
        Ok((requests, to))
    }

    async fn receive(&self, mut from: OwnedReadHalf) -> Result<OwnedReadHalf, End> {
        let mut piece = vec![0; PIECE];
        loop {
            let count = from.read(&mut piece).await.map_err(|_| End::RESET)?;
            let data = piece.get(..count).unwrap_or_default();
            let event = match data {
                [] => Event::Finished(ForwardFinished {}),
                data => Event::Data(data.to_vec()),
            };
            self.out.send(Ok(message(event))).await.map_err(|_| End::DISCONNECTED)?;
            if count == 0 {
                return Ok(from);
            }
            self.bytes_out.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

/// Returns a message for the client.
pub(super) fn message(event: Event) -> ForwardPortResponse {
    ForwardPortResponse { event: Some(event) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use operations::{Evidence, Fault, Reason as Stable, ToolFailure};
    use runs::record::{EndCause, State};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc::{self, Receiver, Sender};
    use tokio::task::JoinHandle;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::{Code, Status};
    use wire::v1::ForwardPortRequest;
    use wire::v1::forward_closed::Reason;
    use wire::v1::forward_port_request::Event as Said;
    use wire::v1::forward_port_response::Event;

    use super::{End, Response, Transfer, over};

    type Requests = Sender<Result<ForwardPortRequest, Status>>;

    /// Returns the client's two ends, the server's connection, and the transfer with its counts.
    async fn begun() -> (Requests, Receiver<Response>, TcpStream, JoinHandle<(End, (u64, u64))>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let outside = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let (say, said) = mpsc::channel(1);
        let (out, answers) = mpsc::channel(1);
        let passing = tokio::spawn(async move {
            let transfer = Transfer::new(out);
            let end = transfer.pass(outside, ReceiverStream::new(said)).await;
            (end, transfer.counts())
        });
        (say, answers, server, passing)
    }

    fn data(bytes: &[u8]) -> ForwardPortRequest {
        ForwardPortRequest { event: Some(Said::Data(bytes.to_vec())) }
    }

    async fn next(answers: &mut Receiver<Response>) -> Event {
        answers.recv().await.unwrap().unwrap().event.unwrap()
    }

    #[tokio::test]
    async fn each_side_finishes_by_itself_and_the_other_goes_on() {
        for client_first in [true, false] {
            let (say, mut answers, mut server, passing) = begun().await;
            say.send(Ok(data(b"ask"))).await.unwrap();
            let mut asked = [0; 3];
            server.read_exact(&mut asked).await.unwrap();
            assert_eq!(&asked, b"ask");
            if client_first {
                drop(say);
                assert_eq!(server.read(&mut asked).await.unwrap(), 0, "the server sees the end");
                server.write_all(b"answer").await.unwrap();
                assert_eq!(next(&mut answers).await, Event::Data(b"answer".to_vec()));
                server.shutdown().await.unwrap();
                assert!(matches!(next(&mut answers).await, Event::Finished(_)));
            } else {
                server.shutdown().await.unwrap();
                assert!(matches!(next(&mut answers).await, Event::Finished(_)));
                say.send(Ok(data(b"more"))).await.unwrap();
                let mut more = [0; 4];
                server.read_exact(&mut more).await.unwrap();
                assert_eq!(&more, b"more");
                drop(say);
            }
            let (end, counts) = passing.await.unwrap();
            assert!(matches!(end, End::Closed(Reason::Finished)), "{end:?}");
            assert_eq!(counts, if client_first { (3, 6) } else { (7, 0) });
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_holds_the_server_back() {
        let (_say, mut answers, mut server, passing) = begun().await;
        let flood = tokio::spawn(async move {
            let mut sent = 0_usize;
            while let Ok(count) =
                tokio::time::timeout(Duration::from_secs(1), server.write(&[7; 16_000])).await
            {
                sent += count.unwrap();
            }
            sent
        });
        let sent = flood.await.unwrap();
        assert!(sent < 64 << 20, "the daemon took {sent} bytes");
        let mut received = 0;
        while let Some(answer) = answers.recv().await {
            match answer.unwrap().event.unwrap() {
                Event::Data(data) => received += data.len(),
                Event::Finished(_) => break,
                event => panic!("{event:?}"),
            }
        }
        assert_eq!(received, sent);
        passing.abort();
    }

    #[tokio::test]
    async fn a_reset_a_lost_client_and_an_invalid_message_end_it() {
        let (say, _answers, server, passing) = begun().await;
        server.set_zero_linger().unwrap();
        drop(server);
        assert!(matches!(passing.await.unwrap().0, End::Closed(Reason::Reset)));
        drop(say);

        let (say, _answers, _server, passing) = begun().await;
        say.send(Err(Status::cancelled("gone"))).await.unwrap();
        assert!(matches!(passing.await.unwrap().0, End::Closed(Reason::Disconnected)));

        let (say, _answers, _server, passing) = begun().await;
        say.send(Ok(ForwardPortRequest { event: None })).await.unwrap();
        assert!(matches!(passing.await.unwrap().0, End::Refused(_)));
    }

    #[test]
    fn the_end_of_a_run_is_the_last_message_and_a_status_with_its_party_and_facts() {
        let killed = || ToolFailure::new(Stable::RunLost, "killed").shown_by(Evidence::new("a", 1));
        let drained = vec![Evidence::new("run.end_cause", "node_drained")];
        let lost = vec![Evidence::new("a", 1)];
        for (failure, cause, reason, fault, evidence, words) in [
            (Some(killed()), None, Stable::RunLost, Fault::Infrastructure, lost.clone(), "lost: killed"),
            (Some(killed().by(Fault::Program)), None, Stable::RunNotReady, Fault::Program, lost, "killed"),
            (
                None,
                Some(EndCause::NodeDrained),
                Stable::RunLost,
                Fault::Infrastructure,
                drained,
                "node_drained",
            ),
            (None, Some(EndCause::Ttl), Stable::RunNotReady, Fault::Caller, vec![], "ended: ttl"),
            (None, None, Stable::RunNotReady, Fault::Caller, vec![], "stopped"),
        ] {
            let mut run = runs::testing::record();
            run.end_cause = cause;
            run.enter(State::Stopping, failure);
            let told = over(&run);
            assert_eq!((told.reason, told.origin.fault), (reason, Some(fault)), "{told:?}");
            assert_eq!((&told.origin.evidence, told.origin.retry_safe), (&evidence, Some(false)), "{told:?}");
            assert!(told.message.contains(words), "{}", told.message);
            let [closed, status] = <[Response; 2]>::try_from(End::WithRun(told).last(3, 5)).unwrap();
            let Some(Event::Closed(closed)) = closed.unwrap().event else { panic!("not closed") };
            assert_eq!((closed.reason(), closed.bytes_in, closed.bytes_out), (Reason::RunEnded, 3, 5));
            assert_eq!(status.unwrap_err().code(), Code::FailedPrecondition);
        }
    }
}
