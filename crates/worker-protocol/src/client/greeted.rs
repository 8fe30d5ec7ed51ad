//! A worker that has answered the hello and has no calls yet. This is the time to switch to a direct channel.
//!
//! The stream over which the worker was started passes through the engine and several of its processes. A worker on this host can offer a
//! socket pair instead. The daemon takes one end with `pidfd_getfd(2)`, which needs no path, no listener and no name that another process
//! could use. The first stream stays open as a lifeline: by its end each side notices that the other is gone. No other data may come on it.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use wire::worker::v1::{Switch, ToWorker, to_worker::Body};

use crate::client::channel::Channel;
use crate::client::shared::Shared;
use crate::client::{Client, ConnectError, ConnectOptions, Peer, hello, tasks};
use crate::frame::{FrameBuffer, encode};

/// A stream whose other end is a worker of this release.
pub struct Greeted<W, R> {
    output: W,
    input: R,
    buffer: FrameBuffer,
    peer: Peer,
    options: ConnectOptions,
}

impl<W, R> Greeted<W, R>
where
    W: AsyncWrite + Send + Unpin + 'static,
    R: AsyncRead + Send + Unpin + 'static,
{
    pub async fn greet(mut output: W, mut input: R, options: ConnectOptions) -> Result<Self, ConnectError> {
        let (peer, buffer) = {
            let exchange = hello::exchange(&mut output, &mut input, options.environment.as_ref());
            in_time(options.hello_timeout, exchange).await?
        };
        Ok(Self { output, input, buffer, peer, options })
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Continues on the same stream.
    pub fn serve(self) -> Client {
        let (shared, frames) = Shared::new(self.options, None);
        tasks::start(&shared, frames, self.output, self.input, self.buffer);
        Client::new(shared)
    }

    /// Switches to the channel that the worker offered, after another hello on it.
    pub async fn serve_directly(mut self, channel: Channel) -> Result<Client, ConnectError> {
        if !self.buffer.is_empty() {
            return Err(ConnectError::NotHello);
        }
        let (mut outgoing, mut incoming) = channel.split();
        let switch = encode(&ToWorker { id: 0, body: Some(Body::Switch(Switch {})) })?;
        let exchanged = in_time(self.options.hello_timeout, async {
            self.output.write_all(&switch).await?;
            self.output.flush().await?;
            hello::exchange(&mut outgoing, &mut incoming, self.options.environment.as_ref()).await
        });
        let (_, buffer) = exchanged.await?;
        let (shared, frames) = Shared::new(self.options, Some(outgoing.now()));
        tasks::start(&shared, frames, outgoing, incoming, buffer);
        tasks::hold(&shared, self.output, self.input);
        Ok(Client::new(shared))
    }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    timeout(limit, work).await.map_err(|_| ConnectError::TimedOut)?
}
