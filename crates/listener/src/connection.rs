//! Wraps one accepted connection, of the Unix socket or TCP.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use admission::Slot;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

use super::Peer;
use super::frames::{self, Frames};
use crate::authority::{AuthorityFilter, PREFACE};
use crate::coalesce::Coalesce;

/// Number of bytes that are read from a client at once.
const READ: usize = 16 * 1024;

/// Time that a client has to begin to speak. A silent client occupies a slot that another one could use.
const GREETING: Duration = Duration::from_secs(10);

/// Time for a check of health on a connection in a spare slot, with its greeting.
const CHECK: Duration = Duration::from_secs(2);

pub(super) type Stream = Either<UnixStream, Either<TcpStream, Box<TlsStream<TcpStream>>>>;

/// A connection that carries HTTP/2.
pub struct Connection {
    stream: Coalesce<Stream>,
    peer: Peer,
    input: Input,
    frames: Frames,
    /// Bytes that were received and filtered; the first `taken` of them are read.
    ready: Vec<u8>,
    taken: usize,
    /// Conditions that end the connection, until its client has proven itself.
    unproven: Option<Unproven>,
    hold: Hold,
}

/// Slot of a connection among the others of its listener, held until the connection is over.
pub(super) enum Hold {
    Local { _permit: OwnedSemaphorePermit },
    Remote(Slot),
}

/// Conditions that end a connection whose client has not proven itself.
struct Unproven {
    patience: Pin<Box<Sleep>>,
    /// Over TCP, completes when another connection takes the slot.
    evicted: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Unproven {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(evicted) = &mut self.evicted
            && evicted.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(());
        }
        self.patience.as_mut().poll(context)
    }
}

enum Input {
    /// Input from the Unix socket, where `:authority` has no meaning.
    Filtered(Box<AuthorityFilter>),
    /// Input over TCP: the number of bytes that have arrived, up to the length of the preface.
    Plain(usize),
}

impl Connection {
    pub(super) fn new(stream: Stream, peer: Peer, hold: Hold) -> Self {
        let patience = if peer.is_spare() { CHECK } else { GREETING };
        Self::with_patience(stream, peer, hold, patience)
    }

    fn with_patience(stream: Stream, peer: Peer, hold: Hold, patience: Duration) -> Self {
        let input = match &peer {
            Peer::Local { .. } => Input::Filtered(Box::new(AuthorityFilter::new())),
            Peer::Remote(_) => Input::Plain(0),
        };
        let evicted = match &hold {
            Hold::Local { .. } => None,
            Hold::Remote(slot) => Some(Box::pin(slot.evicted()) as _),
        };
        let patience = Box::pin(tokio::time::sleep(patience));
        Self {
            stream: Coalesce::new(stream),
            peer,
            input,
            frames: Frames::new(Instant::now()),
            ready: Vec::new(),
            taken: 0,
            unproven: Some(Unproven { patience, evicted }),
            hold,
        }
    }

    /// Returns true if the client may be silent from now on.
    ///
    /// Over TCP the connection has to belong to a principal: the subject of a certificate that has a connection to
    /// spare, or the holder of a token that was valid. One in a spare slot may not.
    fn may_rest(&self) -> bool {
        let is_known = match &self.peer {
            Peer::Local { .. } => true,
            Peer::Remote(remote) => remote.is_somebodys() && !remote.is_spare,
        };
        let greeted = match &self.input {
            Input::Filtered(filter) => filter.is_greeted(),
            Input::Plain(heard) => *heard >= PREFACE,
        };
        is_known && greeted
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.ready.clear();
        self.taken = 0;
        match &mut self.input {
            Input::Filtered(filter) => filter.filter(bytes, &mut self.ready),
            Input::Plain(heard) => {
                self.ready.extend_from_slice(bytes);
                *heard = PREFACE.min(*heard + bytes.len());
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unproven.is_some() && this.may_rest() {
            this.unproven = None;
            if let Hold::Remote(slot) = &this.hold {
                slot.prove();
            }
        }
        if let Some(unproven) = &mut this.unproven
            && unproven.poll_end(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        while this.taken == this.ready.len() {
            if this.frames.has_to_yield() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut bytes = [MaybeUninit::uninit(); READ];
            let mut read = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let is_proven = this.unproven.is_none();
            let now = Instant::now();
            if this.frames.count(read.filled(), is_proven, now).is_err() {
                frames::report(this.peer.address(), now);
                if this.frames.is_between_frames() {
                    // The stream sends it when it is dropped.
                    let _ = Pin::new(&mut this.stream).poll_write(context, &frames::GOAWAY);
                }
                return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
            }
            this.hear(read.filled());
        }
        let rest = &this.ready[this.taken..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.frames.sent(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, bytes))?;
        let mut left = count;
        for part in bytes {
            let (sent, _) = part.split_at(left.min(part.len()));
            self.frames.sent(sent);
            left -= sent.len();
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::{Duration, Instant, SystemTime};

    use admission::{Addresses, ConnectionLimits, Owner, Purpose, ShareLimits, Shares, Slot};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;
    use tokio_util::either::Either;

    use super::super::revoked::Shown;
    use super::super::{Peer, Remote, Subject};
    use super::{CHECK, Connection, Hold};

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    async fn after_patience(peer: Peer, said: &[u8]) -> Result<usize, ErrorKind> {
        let (mut client, server) = UnixStream::pair().unwrap();
        let patience = Duration::from_secs(60);
        let mut connection = Connection::with_patience(Either::Left(server), peer, hold(), patience);
        client.write_all(said).await.unwrap();
        let mut bytes = vec![0; said.len()];
        connection.read_exact(&mut bytes).await.unwrap();
        let more = tokio::spawn(async move { connection.read(&mut [0; 16]).await });
        // The clock jumps: however long the greeting took, it was in time.
        tokio::time::pause();
        tokio::time::advance(patience * 2).await;
        // Where the connection has been given up nobody listens.
        let _ = client.write_all(&[0; 9]).await;
        let more = more.await.unwrap();
        tokio::time::resume();
        more.map_err(|error| error.kind())
    }

    /// A slot among `connections` that another may take.
    fn slot(addresses: &Addresses) -> Slot {
        addresses.enter([127, 0, 0, 1].into(), Instant::now()).unwrap()
    }

    fn addresses(connections: usize) -> Addresses {
        Addresses::new(ConnectionLimits { connections, per_address: 64, per_second: 64, spare: 0 })
    }

    fn hold() -> Hold {
        Hold::Remote(slot(&addresses(1)))
    }

    fn remote(certificate: Option<Subject>, connections: &Shares) -> Arc<Remote> {
        Arc::new(Remote::new(IpAddr::from([127, 0, 0, 1]), certificate, true, None, connections.clone()))
    }

    fn shares(per_principal: usize) -> Shares {
        Shares::new(ShareLimits { per_principal, per_address: 64 })
    }

    fn is_now_of(remote: &Remote, principal: &str) -> bool {
        remote.belongs_to(vec![Owner::Principal(principal.to_owned())], Purpose::Other).is_ok()
    }

    fn certificate() -> Subject {
        Subject { name: "ci".into(), not_after: SystemTime::now(), shown: Shown::of(b"ci") }
    }

    #[tokio::test]
    async fn a_client_has_to_greet_in_time_and_may_be_silent_then() {
        let connections = shares(1);
        for peer in [Peer::Local { uid: 0, gid: 0 }, Peer::Remote(remote(Some(certificate()), &connections))]
        {
            assert_eq!(after_patience(peer.clone(), b"").await, Err(ErrorKind::TimedOut));
            assert_eq!(after_patience(peer.clone(), &PREFACE[..20]).await, Err(ErrorKind::TimedOut));
            assert_eq!(after_patience(peer, PREFACE).await, Ok(9));
        }
    }

    #[tokio::test]
    async fn a_connection_in_a_spare_slot_ends_soon_whoever_its_client_is() {
        let known = Remote::new([127, 0, 0, 1].into(), Some(certificate()), true, None, shares(1));
        let spare = Peer::Remote(Arc::new(Remote { is_spare: true, ..known }));
        assert_eq!(after_patience(spare.clone(), PREFACE).await, Err(ErrorKind::TimedOut));
        let (_client, server) = UnixStream::pair().unwrap();
        let connection = Connection::new(Either::Left(server), spare, hold());
        let left = connection.unproven.unwrap().patience.deadline() - tokio::time::Instant::now();
        assert!(left <= CHECK, "{left:?}");
    }

    #[tokio::test]
    async fn r3_frames_that_belong_to_no_stream_end_their_connection() {
        let ping = [&[0, 0, 8, 6, 1][..], &[0; 12]].concat();
        for peer in [Peer::Local { uid: 0, gid: 0 }, Peer::Remote(remote(None, &shares(1)))] {
            let (mut client, server) = UnixStream::pair().unwrap();
            let mut connection = Connection::new(Either::Left(server), peer, hold());
            client.write_all(&[PREFACE, &ping.repeat(300)].concat()).await.unwrap();
            let error = connection.read_to_end(&mut Vec::new()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
            drop(connection);
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer).await;
            assert_eq!(answer, [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0xb]);
        }
    }

    #[tokio::test]
    async fn r2_an_unproven_connection_is_evicted_for_another() {
        let (addresses, shares) = (addresses(1), shares(1));
        let connect = |certificate| {
            let (mut client, server) = UnixStream::pair().unwrap();
            let (peer, hold) = (remote(certificate, &shares), Hold::Remote(slot(&addresses)));
            let connection = Connection::new(Either::Left(server), Peer::Remote(peer), hold);
            async move {
                client.write_all(&[PREFACE, &[0; 9]].concat()).await.unwrap();
                (client, connection)
            }
        };
        let (_client, mut first) = connect(None).await;
        first.read_exact(&mut [0; PREFACE.len() + 9]).await.unwrap();
        let reading = tokio::spawn(async move { first.read(&mut [0; 16]).await });
        tokio::task::yield_now().await;
        let (_client, mut second) = connect(Some(certificate())).await;
        assert_eq!(reading.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        second.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        second.read_exact(&mut [0; 9]).await.unwrap();
        assert!(addresses.enter([127, 0, 0, 2].into(), Instant::now()).is_none());
    }

    #[tokio::test]
    async fn a_client_without_a_certificate_has_to_be_admitted_in_time() {
        let client = remote(None, &shares(1));
        assert_eq!(after_patience(Peer::Remote(client.clone()), PREFACE).await, Err(ErrorKind::TimedOut));
        assert!(is_now_of(&client, "token:ci"));
        assert_eq!(after_patience(Peer::Remote(client.clone()), PREFACE).await, Ok(9));
        assert_eq!(after_patience(Peer::Remote(client), b"").await, Err(ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn excess_connection_has_no_principal_until_another_ends() {
        let connections = shares(2);
        let (first, second) =
            (remote(Some(certificate()), &connections), remote(Some(certificate()), &connections));
        let third = remote(Some(certificate()), &connections);
        assert!(
            is_now_of(&first, "cert:ci") && is_now_of(&second, "cert:ci") && !is_now_of(&third, "cert:ci")
        );
        assert_eq!(after_patience(Peer::Remote(third.clone()), PREFACE).await, Err(ErrorKind::TimedOut));
        // A connection is one principal's at a time: the last who used it.
        assert!(
            is_now_of(&first, "token:a") && is_now_of(&third, "cert:ci") && !is_now_of(&first, "cert:ci")
        );
        assert_eq!(after_patience(Peer::Remote(third), PREFACE).await, Ok(9));
        assert_eq!(after_patience(Peer::Remote(first.clone()), PREFACE).await, Ok(9));
        drop(second);
        assert!(is_now_of(&first, "cert:ci"));
    }
}
