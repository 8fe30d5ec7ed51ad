//! Hears the connections and queries of a run, until the daemon closes the channel.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::rc::Rc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};
use wire::worker::v1::{EgressReady, EgressStart, ToEgress, from_egress, to_egress};
use worker_protocol::frame::FrameBuffer;

pub use crate::channel::ChannelError;
use crate::channel::{Channel, write};
use crate::dns::{DOMAIN, Names, Sockets};
use crate::meter::Bounds;
use crate::process::Process;
pub use crate::process::ProcessError;
use crate::{dns, life};

/// Most connections that the daemon can ask for.
const CONNECTIONS: u32 = 16 * 1024;
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
pub struct Heard {
    pub tcp: OwnedFd,
    pub dns: OwnedFd,
    pub answers: [OwnedFd; 2],
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
    let listener = TcpListener::from_std(StdListener::from(heard.tcp))?;
    let sockets = Sockets::new(heard.dns, heard.answers)?;
    let (channel, messages) = Channel::new();
    let names = Names::new(Rc::clone(&channel));
    let bounds = Bounds::new(start.max_bytes, start.idle_timeout_ms);
    let ready = EgressReady { missing, authority: process.certificate() };
    channel.send(0, from_egress::Body::Ready(ready)).await;
    tokio::select! {
        ended = channel.read(reading, buffer) => Ok(ended?),
        ended = write(writing, messages) => Ok(ended?),
        ended = sockets.serve(Rc::clone(&names)) => Ok(ended?),
        never = accept(&listener, &process, &channel, &bounds, &names, start.max_connections) => never,
    }
}

async fn accept(
    listener: &TcpListener,
    process: &Rc<Process>,
    channel: &Rc<Channel>,
    bounds: &Rc<Bounds>,
    names: &Rc<Names>,
    most: u32,
) -> Result<(), ServeError> {
    let slots = Rc::new(Semaphore::new(usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS)));
    loop {
        let Some((stream, destination)) = accepted(listener).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let slots = Rc::clone(&slots);
        let (process, channel) = (Rc::clone(process), Rc::clone(channel));
        let (bounds, names) = (Rc::clone(bounds), Rc::clone(names));
        let Ok(slot) = slots.try_acquire() else {
            // Reset, so that the program knows at once.
            let _ = stream.set_zero_linger();
            continue;
        };
        slot.forget();
        spawn_local(async move {
            if destination.port() == DOMAIN {
                dns::serve_connection(stream, names).await;
            } else {
                life::serve(process, channel, bounds, stream, destination).await;
            }
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
