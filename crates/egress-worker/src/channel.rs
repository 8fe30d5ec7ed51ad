//! The stream of frames between this process and the daemon.
//!
//! The numbers of questions and connections are chosen here, and each is used once. A message about a number that is not known, or no
//! longer, is ignored: the connection may just have ended. Bytes that are no message of the protocol end the process.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use wire::worker::v1::{FromEgress, LookUpAddress, ResolveName, Serve, ToEgress, from_egress, to_egress};
use worker_protocol::frame::{FrameBuffer, FrameError, encode};

use crate::answer;
use crate::begun::Begun;
use crate::broken::Broken;
use crate::handles::{Connected, Handles};
use crate::orders::{Dial, End, Inspect, Orders};

/// Messages that wait to be written. Connections wait when there are more.
const WAITING: usize = 256;
/// Time that the daemon has for a name, which it knows without asking anybody.
const ANSWER: Duration = Duration::from_secs(5);

/// The end of the channel.
#[derive(Debug, Error)]
pub enum ChannelError {
    #[error("the channel: {0}")]
    Io(#[from] io::Error),
    #[error("the channel: {0}")]
    Frame(#[from] FrameError),
    /// A message of the protocol with content that it does not allow.
    #[error("the channel: a message that breaks the protocol")]
    Broken,
}

impl From<Broken> for ChannelError {
    fn from(Broken: Broken) -> Self {
        Self::Broken
    }
}

/// The lack of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unanswered;

/// The answer to a question.
#[derive(Debug)]
enum Answer {
    Address(Option<Ipv4Addr>),
    Name(Option<String>),
}

/// A connection of the daemon's own.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) begun: Begun,
    /// Authorities that servers have to be signed by from now on, if there are any.
    pub(crate) roots: Vec<Vec<u8>>,
}

/// The other ends of a channel.
pub(crate) struct Ends {
    /// Messages to be written.
    pub(crate) messages: mpsc::Receiver<FromEgress>,
    /// Connections to be served.
    pub(crate) served: mpsc::Receiver<Served>,
}

#[derive(Debug)]
pub(crate) struct Channel {
    out: mpsc::Sender<FromEgress>,
    last: Cell<u64>,
    questions: RefCell<HashMap<u64, oneshot::Sender<Answer>>>,
    connections: RefCell<HashMap<u64, Rc<Orders>>>,
    pub(crate) handles: Handles,
    serves: mpsc::Sender<Served>,
}

impl Channel {
    /// Returns the channel, and its other ends.
    pub(crate) fn new(handles: Handles) -> (Rc<Self>, Ends) {
        let (out, messages) = mpsc::channel(WAITING);
        let (sender, served) = mpsc::channel(handles.most());
        let channel = Self {
            out,
            last: Cell::new(0),
            questions: RefCell::default(),
            connections: RefCell::default(),
            handles,
            serves: sender,
        };
        (Rc::new(channel), Ends { messages, served })
    }

    /// Sends a message. When the channel has ended, so does the process.
    pub(crate) async fn send(&self, id: u64, body: from_egress::Body) {
        let _ = self.out.send(FromEgress { id, body: Some(body) }).await;
    }

    fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Begins a connection.
    pub(crate) fn open(&self) -> (u64, Rc<Orders>) {
        let (id, orders) = (self.next(), Rc::new(Orders::default()));
        self.connections.borrow_mut().insert(id, Rc::clone(&orders));
        (id, orders)
    }

    /// Forgets a connection.
    pub(crate) fn close(&self, id: u64) {
        self.connections.borrow_mut().remove(&id);
    }

    /// Asks for the address of a name. `None` if it does not exist.
    pub(crate) async fn resolve(&self, name: &str) -> Result<Option<Ipv4Addr>, Unanswered> {
        match self.ask(from_egress::Body::Resolve(ResolveName { name: name.to_owned() })).await? {
            Answer::Address(address) => Ok(address),
            Answer::Name(_) => Err(Unanswered),
        }
    }

    /// Asks for the name of an address. `None` if it has none.
    pub(crate) async fn look_up(&self, address: Ipv4Addr) -> Result<Option<String>, Unanswered> {
        let address = address.octets().to_vec();
        match self.ask(from_egress::Body::LookUp(LookUpAddress { address })).await? {
            Answer::Name(name) => Ok(name),
            Answer::Address(_) => Err(Unanswered),
        }
    }

    async fn ask(&self, question: from_egress::Body) -> Result<Answer, Unanswered> {
        let (id, (sender, answer)) = (self.next(), oneshot::channel());
        self.questions.borrow_mut().insert(id, sender);
        self.send(id, question).await;
        let answer = timeout(ANSWER, answer).await;
        self.questions.borrow_mut().remove(&id);
        answer.map_err(|_| Unanswered)?.map_err(|_| Unanswered)
    }

    /// Reads messages until the daemon closes the channel.
    pub(crate) async fn read(
        &self,
        mut stream: OwnedReadHalf,
        mut buffer: FrameBuffer,
    ) -> Result<(), ChannelError> {
        loop {
            while let Some(message) = buffer.pop::<ToEgress>()? {
                self.take(message)?;
            }
            buffer.rest();
            if stream.read_buf(buffer.read_buffer()).await? == 0 {
                return Ok(());
            }
        }
    }

    fn take(&self, message: ToEgress) -> Result<(), ChannelError> {
        use to_egress::Body;
        let id = message.id;
        let connection = |order: &dyn Fn(&Orders)| {
            if let Some(orders) = self.connections.borrow().get(&id) {
                order(orders);
            }
        };
        match message.body.ok_or(Broken)? {
            Body::Start(_) => return Err(ChannelError::Broken),
            Body::Resolved(resolved) => {
                let address = match resolved.address[..] {
                    [] => None,
                    [a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d)),
                    _ => return Err(ChannelError::Broken),
                };
                self.answer(id, Answer::Address(address));
            }
            Body::LookedUp(found) => {
                self.answer(id, Answer::Name(Some(found.name).filter(|name| !name.is_empty())));
            }
            Body::Inspect(inspect) => {
                let inspect = Inspect::try_from(inspect)?;
                connection(&|orders| orders.inspect(inspect.clone()));
            }
            Body::Dial(dial) => {
                let handle = dial.handle;
                let mut dial = Dial::try_from(dial)?;
                if handle > 0 {
                    dial.connected = Some(Connected::new(self.handles.claim(handle)?));
                }
                connection(&|orders| orders.dial(dial.clone()));
            }
            Body::Serve(serve) => self.serve(serve)?,
            Body::AwaitReview(_) => connection(&Orders::await_review),
            Body::Answer(answer) => {
                let (number, answer) = answer::parse(answer)?;
                if let Some(orders) = self.connections.borrow().get(&id) {
                    orders.answers.give(number, answer);
                }
            }
            Body::End(end) => connection(&|orders| orders.end(End { http_body: end.http_body.clone() })),
        }
        Ok(())
    }

    /// Passes a connection on to those that are served. One whose handle has expired is not missed: the daemon waits no longer.
    fn serve(&self, serve: Serve) -> Result<(), ChannelError> {
        let port = u16::try_from(serve.port).ok().filter(|port| *port > 0).ok_or(Broken)?;
        // A name is that of the daemon's order to look at the connection.
        let address = serve.host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        if let Some(program) = self.handles.claim(serve.handle)? {
            let begun = Begun { program, destination: SocketAddr::new(address, port), handle: serve.handle };
            // One too many is closed.
            let _ = self.serves.try_send(Served { begun, roots: serve.roots });
        }
        Ok(())
    }

    fn answer(&self, id: u64, answer: Answer) {
        if let Some(question) = self.questions.borrow_mut().remove(&id) {
            let _ = question.send(answer);
        }
    }
}

/// Writes messages for good.
pub(crate) async fn write(
    mut stream: OwnedWriteHalf,
    mut messages: mpsc::Receiver<FromEgress>,
) -> Result<(), ChannelError> {
    while let Some(message) = messages.recv().await {
        stream.write_all(&encode(&message)?).await?;
    }
    Ok(())
}
