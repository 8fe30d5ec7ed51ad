//! Hears the connections and queries of a run, and serves connections of the daemon, until the daemon closes the channel.

use std::convert::Infallible;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::rc::Rc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{LocalSet, spawn_local};
use wire::worker::v1::{BytesMoved, EgressReady, EgressStart, ToEgress, from_egress, to_egress};
use worker_protocol::frame::FrameBuffer;

use crate::begun::Begun;
pub use crate::channel::ChannelError;
use crate::channel::{Channel, Ends, Served, write};
use crate::dns::{DOMAIN, Names, Sockets};
use crate::handles::Handles;
use crate::meter::Bounds;
use crate::process::Process;
pub use crate::process::ProcessError;
use crate::{dns, life};

/// Most connections that the daemon can ask for.
const CONNECTIONS: u32 = 16 * 1024;
/// Time between two reports of the bytes of open connections.
const BETWEEN: Duration = Duration::from_secs(1);
/// Most connections of one report.
const REPORTED: usize = 1_024;
/// Pause after an error of the listener.
const PAUSE: Duration = Duration::from_millis(10);

/// The error with which the process ends.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The channel, after its first frame.
#[derive(Debug)]
pub struct Started {
    channel: StdStream,
    buffer: FrameBuffer,
    start: EgressStart,
}

/// The sockets to which a network namespace is steered.
#[derive(Debug)]
pub struct Steered {
    pub tcp: OwnedFd,
    pub dns: OwnedFd,
    pub answers: [OwnedFd; 2],
}

/// The sources of connections.
#[derive(Debug)]
pub struct Heard {
    /// The end over which the daemon passes further handles.
    pub handles: OwnedFd,
    /// `None` if the process serves only connections that the daemon gives it.
    pub steered: Option<Steered>,
}

impl Started {
    /// Waits for the first frame of the channel.
    pub fn read(mut channel: StdStream) -> Result<Self, ServeError> {
        let mut buffer = FrameBuffer::new();
        // It may have a few hundred certificates.
        let mut bytes = [0; 16 * 1024];
        loop {
            if let Some(message) = buffer.pop::<ToEgress>().map_err(ChannelError::from)? {
                return match message.body {
                    Some(to_egress::Body::Start(start))
                        if (1..=CONNECTIONS).contains(&start.max_connections) =>
                    {
                        // Here, as the filter of the jail lacks the call.
                        channel.set_nonblocking(true)?;
                        Ok(Self { channel, buffer, start })
                    }
                    _ => Err(ChannelError::Broken.into()),
                };
            }
            let read = channel.read(&mut bytes)?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            buffer.extend(bytes.get(..read).unwrap_or_default());
        }
    }

    /// Returns the most connections at the same time.
    pub fn max_connections(&self) -> u32 {
        self.start.max_connections
    }
}

/// Makes the runtime, of one thread. It may need calls that the filter of the jail lacks, so it comes before the filter.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// Serves until the daemon closes the channel. `missing` are the parts of the jail that this kernel lacks.
pub fn serve(
    runtime: &Runtime,
    started: Started,
    heard: Heard,
    missing: Vec<String>,
) -> Result<(), ServeError> {
    LocalSet::new().block_on(runtime, run(started, heard, missing))
}

async fn run(started: Started, heard: Heard, missing: Vec<String>) -> Result<(), ServeError> {
    let Started { channel: stream, buffer, mut start } = started;
    // Here, in the only process that needs its key.
    let process = Rc::new(Process::new(&mut start)?);
    let (reading, writing) = UnixStream::from_std(stream)?.into_split();
    let handles = Handles::new(heard.handles, start.max_connections)?;
    let (channel, Ends { messages, served }) = Channel::new(handles);
    let ready = EgressReady { missing, authority: process.certificate() };
    let front = Front {
        process,
        channel: Rc::clone(&channel),
        bounds: Bounds::new(start.max_bytes, start.idle_timeout_ms),
        slots: Rc::new(Semaphore::new(
            usize::try_from(start.max_connections).unwrap_or(Semaphore::MAX_PERMITS),
        )),
    };
    channel.send(0, from_egress::Body::Ready(ready)).await;
    tokio::select! {
        ended = channel.read(reading, buffer) => Ok(ended?),
        ended = write(writing, messages) => Ok(ended?),
        error = channel.handles.receive() => Err(error.into()),
        ended = front.hear(heard.steered) => ended,
        ended = front.take(served) => ended,
        never = front.report() => match never {},
    }
}

/// The parts that all connections share.
struct Front {
    process: Rc<Process>,
    channel: Rc<Channel>,
    bounds: Rc<Bounds>,
    /// Places for connections.
    slots: Rc<Semaphore>,
}

impl Front {
    /// Serves the connections and queries of a network namespace.
    async fn hear(&self, steered: Option<Steered>) -> Result<(), ServeError> {
        let Some(Steered { tcp, dns, answers }) = steered else { return std::future::pending().await };
        let listener = TcpListener::from_std(StdListener::from(tcp))?;
        let sockets = Sockets::new(dns, answers)?;
        let names = Names::new(Rc::clone(&self.channel));
        tokio::select! {
            ended = sockets.serve(Rc::clone(&names)) => Ok(ended?),
            never = self.accept(&listener, &names) => never,
        }
    }

    async fn accept(&self, listener: &TcpListener, names: &Rc<Names>) -> Result<(), ServeError> {
        loop {
            let Some((stream, destination)) = accepted(listener).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            if destination.port() == DOMAIN {
                self.spawn(stream, |stream| dns::serve_connection(stream, Rc::clone(names)));
            } else {
                self.spawn(stream, |program| self.life(Begun { program, destination, handle: 0 }));
            }
        }
    }

    /// Serves the connections that the daemon gives.
    async fn take(&self, mut served: mpsc::Receiver<Served>) -> Result<(), ServeError> {
        while let Some(Served { begun, roots }) = served.recv().await {
            if !roots.is_empty() {
                self.process.trust(roots).map_err(ProcessError::from)?;
            }
            let Begun { program, destination, handle } = begun;
            self.spawn(program, |program| self.life(Begun { program, destination, handle }));
        }
        Ok(())
    }

    /// Reports the bytes of open connections.
    async fn report(&self) -> Infallible {
        loop {
            self.bounds.moved().await;
            tokio::time::sleep(BETWEEN).await;
            for connections in self.bounds.report().chunks(REPORTED) {
                let report = BytesMoved { connections: connections.to_vec() };
                self.channel.send(0, from_egress::Body::Moved(report)).await;
            }
        }
    }

    fn life(&self, begun: Begun) -> impl Future<Output = ()> + use<> {
        life::serve(Rc::clone(&self.process), Rc::clone(&self.channel), Rc::clone(&self.bounds), begun)
    }

    /// Serves a connection in the background if there is a place for it. Otherwise the connection is reset.
    fn spawn<F: Future<Output = ()> + 'static>(&self, stream: TcpStream, serve: impl FnOnce(TcpStream) -> F) {
        let Ok(slot) = self.slots.try_acquire() else {
            // So that the program knows at once.
            let _ = stream.set_zero_linger();
            return;
        };
        slot.forget();
        let slots = Rc::clone(&self.slots);
        let served = serve(stream);
        spawn_local(async move {
            served.await;
            slots.add_permits(1);
        });
    }
}

/// Accepts a connection. Returns it with the address that the program meant.
async fn accepted(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    let (stream, _) = listener.accept().await.ok()?;
    let destination = stream.local_addr().ok()?;
    Some((stream, SocketAddr::new(destination.ip().to_canonical(), destination.port())))
}
