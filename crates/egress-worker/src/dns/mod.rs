//! Answers DNS queries, over UDP and TCP.

pub mod message;
mod names;
mod packet;

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg};
use rustix::net::{SendFlags, sendto};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::{coop, spawn_local};
use tokio::time::timeout;

use crate::channel::Unanswered;
use message::{Asks, Question, Received};
pub(crate) use names::Names;
use names::Turn;
pub(crate) use packet::DOMAIN;

/// Largest query that is read.
const QUERY: usize = 4_096;
/// Pause after an error of a socket.
const PAUSE: Duration = Duration::from_millis(10);
/// Time within which a query over TCP must be there.
const SLOW: Duration = Duration::from_secs(10);

/// The sockets of DNS over UDP.
#[derive(Debug)]
pub(crate) struct Sockets {
    queries: UdpSocket,
    answers: [OwnedFd; 2],
}

/// The addresses of a query over UDP.
#[derive(Debug, Clone, Copy)]
struct Path {
    asked: IpAddr,
    client: SocketAddrV6,
}

impl Sockets {
    pub(crate) fn new(queries: OwnedFd, answers: [OwnedFd; 2]) -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self { queries: UdpSocket::from_std(queries.into())?, answers }))
    }

    /// Answers queries for good.
    pub(crate) async fn serve(self: Rc<Self>, names: Rc<Names>) -> io::Result<()> {
        let mut buffer = [0; QUERY];
        loop {
            coop::consume_budget().await;
            self.queries.readable().await?;
            let received = || receive(&self.queries, &mut buffer);
            match self.queries.try_io(Interest::READABLE, received) {
                Ok(Some((path, length))) => {
                    self.take(&names, path, buffer.get(..length).unwrap_or_default());
                }
                // Too long, or without an address to answer from.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An error of one packet must not end the service; one of the socket must not take the processor.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn take(self: &Rc<Self>, names: &Rc<Names>, path: Path, bytes: &[u8]) {
        match begin(names, bytes) {
            Begun::Answered(answer) => self.send(path, answer.as_deref()),
            Begun::Asking(question, turn) => {
                let sockets = Rc::clone(self);
                spawn_local(async move { sockets.send(path, finish(*question, turn).await.as_deref()) });
            }
        }
    }

    /// Sends an answer. If the kernel does not take it, the program asks again.
    fn send(&self, path: Path, answer: Option<&[u8]>) {
        let client = path.client.ip().to_canonical();
        let packet = answer.and_then(|bytes| packet::packet(path.asked, client, path.client.port(), bytes));
        let (Some(packet), [v4, v6]) = (packet, &self.answers) else { return };
        let _ = match client {
            IpAddr::V4(to) => sendto(v4, &packet, SendFlags::DONTWAIT, &SocketAddrV4::new(to, 0)),
            IpAddr::V6(to) => {
                let to = SocketAddrV6::new(to, 0, 0, path.client.scope_id());
                sendto(v6, &packet, SendFlags::DONTWAIT, &to)
            }
        };
    }
}

/// Receives a query. `None` if it cannot be answered.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Option<(Path, usize)>> {
    let mut parts = [IoSliceMut::new(buffer)];
    let mut space = nix::cmsg_space!(libc::in6_pktinfo);
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrIn6>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let asked = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            Some(IpAddr::from(info.ipi6_addr.s6_addr).to_canonical())
        }
        _ => None,
    });
    let is_whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
    let path = asked.zip(message.address).filter(|_| is_whole);
    Ok(path.map(|(asked, client)| (Path { asked, client: client.into() }, message.bytes)))
}

enum Begun {
    Answered(Option<Vec<u8>>),
    Asking(Box<Question>, Turn),
}

/// Answers a query from the cache, or takes a turn to ask the daemon.
fn begin(names: &Rc<Names>, bytes: &[u8]) -> Begun {
    let question = match message::read(bytes) {
        Received::Nothing => return Begun::Answered(None),
        Received::Answer(answer) => return Begun::Answered(Some(answer)),
        Received::Question(question) => question,
    };
    if let Asks::Name(name) = &question.asks
        && let Ok(known) = names.cached(name)
    {
        return Begun::Answered(question.with_address(known));
    }
    match names.turn() {
        Some(turn) => Begun::Asking(question, turn),
        None => Begun::Answered(question.refuse(ResponseCode::Refused)),
    }
}

async fn finish(question: Question, turn: Turn) -> Option<Vec<u8>> {
    match question.asks.clone() {
        Asks::Name(name) => match turn.address(&name).await {
            Ok(address) => question.with_address(address),
            Err(Unanswered) => question.refuse(ResponseCode::ServFail),
        },
        Asks::Address(address) => match turn.name(address).await {
            Ok(name) => question.with_name(name.as_deref()),
            Err(Unanswered) => question.refuse(ResponseCode::ServFail),
        },
    }
}

/// Answers queries over a TCP connection, one after the other, until it is closed or slow.
pub(crate) async fn serve_connection(mut stream: TcpStream, names: Rc<Names>) {
    while let Ok(Ok(query)) = timeout(SLOW, read_query(&mut stream)).await {
        let answer = match begin(&names, &query) {
            Begun::Answered(answer) => answer,
            Begun::Asking(question, turn) => finish(*question, turn).await,
        };
        let Some(frame) = answer.and_then(|answer| framed(&answer)) else { return };
        if !matches!(timeout(SLOW, stream.write_all(&frame)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Reads a query, which has its length before it (RFC 1035, section 4.2.2).
async fn read_query(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > QUERY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut query = vec![0; length];
    stream.read_exact(&mut query).await?;
    Ok(query)
}

fn framed(answer: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(answer.len()).ok()?;
    Some([&length.to_be_bytes(), answer].concat())
}
