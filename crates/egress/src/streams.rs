//! Wishes of calls for streams to servers, on their way to the session of the present process.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use egress_rules::Destination;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

/// Time in which a process has to be there, and to take a wish. One may have been lost just now.
const PROCESS: Duration = Duration::from_secs(15);
/// Wishes that wait for the session.
const WAITING: usize = 32;
/// Most characters of a host in an error.
const SHOWN: usize = 256;

/// The reason why a call has no stream to a server. It is fit for an agent.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("`{0}` is no host to connect to")]
    Host(String),
    #[error("the run has as many connections as its rules allow (max_connections); try again later")]
    Full,
    #[error("the run's way out is not ready; try again")]
    Process,
    #[error("a stream to the server cannot be made")]
    Io(#[from] io::Error),
}

/// A stream that a call wants.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) destination: Destination,
    pub(crate) port: u16,
    /// Id of the call.
    pub(crate) call: String,
    pub(crate) answer: oneshot::Sender<Result<OwnedFd, StreamError>>,
}

/// A connection that the process has not begun.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) destination: Destination,
    pub(crate) port: u16,
    /// Id of the call.
    pub(crate) call: String,
    pub(crate) since: Instant,
}

/// The way of wishes to the session of the present process.
#[derive(Debug)]
pub(crate) struct Streams(watch::Sender<Option<mpsc::Sender<Wanted>>>);

impl Streams {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Returns the wishes from now on, for a new session.
    pub(crate) fn offer(&self) -> mpsc::Receiver<Wanted> {
        let (sender, wishes) = mpsc::channel(WAITING);
        self.0.send_replace(Some(sender));
        wishes
    }

    /// Opens a stream to a server for a call.
    ///
    /// The rules decide once the process has begun the connection. A refusal is the response to the first request.
    pub(crate) async fn open(&self, host: &str, port: u16, call: &str) -> Result<OwnedFd, StreamError> {
        let destination = Destination::parse(host).ok().filter(|_| port > 0);
        let destination = destination.ok_or_else(|| StreamError::Host(host.chars().take(SHOWN).collect()))?;
        let asked = async {
            let lives = |sender: &Option<mpsc::Sender<Wanted>>| {
                sender.as_ref().is_some_and(|sender| !sender.is_closed())
            };
            let mut sessions = self.0.subscribe();
            let present = sessions.wait_for(lives).await.ok().and_then(|sender| sender.clone());
            let (answer, answered) = oneshot::channel();
            let wanted = Wanted { destination, port, call: call.to_owned(), answer };
            present.ok_or(StreamError::Process)?.send(wanted).await.map_err(|_| StreamError::Process)?;
            answered.await.map_err(|_| StreamError::Process)?
        };
        timeout(PROCESS, asked).await.map_err(|_| StreamError::Process)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wish_needs_a_host_and_goes_to_the_session_that_lives() {
        let streams = Streams::new();
        for (host, port) in [("", 443), ("a b", 443), ("git.example.org/x", 443), ("git.example.org", 0)] {
            let refused = streams.open(host, port, "call").await;
            assert!(matches!(refused, Err(StreamError::Host(_))), "{host}");
        }
        drop(streams.offer());
        let mut wishes = streams.offer();
        let serve = async {
            let wanted = wishes.recv().await.unwrap();
            assert_eq!((wanted.destination.to_string(), wanted.port), ("git.example.org".to_owned(), 443));
            assert_eq!(wanted.call, "call");
            wanted.answer.send(Err(StreamError::Full)).unwrap();
        };
        let (opened, ()) = tokio::join!(streams.open("Git.Example.org", 443, "call"), serve);
        assert!(matches!(opened, Err(StreamError::Full)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wish_ends_without_a_session_and_with_one_that_ends() {
        let streams = Streams::new();
        assert!(matches!(streams.open("git.example.org", 443, "call").await, Err(StreamError::Process)));
        let mut wishes = streams.offer();
        let lose = async { drop(wishes.recv().await) };
        let (opened, ()) = tokio::join!(streams.open("git.example.org", 443, "call"), lose);
        assert!(matches!(opened, Err(StreamError::Process)));
    }
}
