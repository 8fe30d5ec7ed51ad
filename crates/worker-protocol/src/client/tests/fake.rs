//! A worker that a test controls.

use std::sync::Arc;
use std::time::Duration;

use jail::SandboxPath;
use operations::{Bounds, Exec, KillEvidence, KillMethod, List, Operation};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;
use wire::v1;
use wire::worker::v1::from_worker::Body;
use wire::worker::v1::{self as w, FromWorker, Hello, ToWorker, to_worker};

use crate::PROTOCOL;
use crate::client::{CallSpec, Client, ConnectError, ConnectOptions, Finished, LaneError, Peer, Placement};
use crate::convert::Reply;
use crate::frame::{FrameBuffer, encode};

pub(super) struct Fake {
    input: ReadHalf<DuplexStream>,
    output: WriteHalf<DuplexStream>,
    buffer: FrameBuffer,
}

impl Fake {
    /// Both ends, nothing said yet.
    pub(super) fn pair() -> (Self, DuplexStream) {
        let (daemon, worker) = duplex(256 * 1024);
        let (input, output) = split(worker);
        (Self { input, output, buffer: FrameBuffer::new() }, daemon)
    }

    /// A client after its hello.
    pub(super) async fn connected() -> (Self, Client) {
        let (mut fake, daemon) = Self::pair();
        let (connected, ()) = tokio::join!(connect(daemon), fake.hello());
        let (client, peer) = connected.unwrap();
        assert_eq!(peer, Peer { pid: 7, channel: 0 });
        (fake, client)
    }

    /// Answers the hello as it should be.
    pub(super) async fn hello(&mut self) {
        let ToWorker { id: 0, body: Some(to_worker::Body::Hello(hello)) } = self.recv().await.unwrap() else {
            panic!("no hello")
        };
        assert_eq!((hello.protocol, hello.nonce.len()), (PROTOCOL, 32));
        self.say(0, Body::Hello(Hello { pid: 7, ..hello })).await;
    }

    /// The next frame; `None` when the client has closed the stream.
    pub(super) async fn recv(&mut self) -> Option<ToWorker> {
        let mut bytes = [0; 1000];
        loop {
            if let Some(frame) = self.buffer.pop().unwrap() {
                return Some(frame);
            }
            match self.input.read(&mut bytes).await.unwrap() {
                0 => return None,
                count => self.buffer.extend(&bytes[..count]),
            }
        }
    }

    /// The next frame but pings, which are answered.
    pub(super) async fn heard(&mut self) -> (u64, to_worker::Body) {
        loop {
            let frame = self.recv().await.expect("a frame");
            match frame.body.unwrap() {
                to_worker::Body::Ping(_) => self.say(0, Body::Pong(w::Pong {})).await,
                body => return (frame.id, body),
            }
        }
    }

    /// The next frame, which begins a call.
    pub(super) async fn started(&mut self) -> (u64, w::Start) {
        match self.heard().await {
            (id, to_worker::Body::Start(start)) => (id, start),
            other => panic!("no start: {other:?}"),
        }
    }

    pub(super) async fn say(&mut self, id: u64, body: Body) {
        self.raw(&encode(&FromWorker { id, body: Some(body) }).unwrap()).await;
    }

    /// Bytes as they are. A client that has gone already does not hear them.
    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.output.write_all(bytes).await;
    }

    pub(super) async fn close_output(&mut self) {
        self.output.shutdown().await.unwrap();
    }
}

pub(super) async fn connect(daemon: DuplexStream) -> Result<(Client, Peer), ConnectError> {
    let (input, output) = split(daemon);
    Client::connect(output, input, ConnectOptions::default()).await
}

pub(super) fn list() -> Operation {
    Operation::List(List::new(SandboxPath::parse("@project").unwrap()))
}

pub(super) fn exec() -> Operation {
    Operation::Exec(Exec { timeout: Duration::from_secs(1), ..Exec::new("true", [""; 0]) })
}

/// Calls in a task of its own, with these bounds.
pub(super) fn call_with(
    client: &Client,
    operation: Operation,
    bounds: Bounds,
    placement: Option<Arc<dyn Placement>>,
    cancel: tokio_util::sync::CancellationToken,
) -> tokio::task::JoinHandle<Result<Finished<Reply>, LaneError>> {
    let client = client.clone();
    tokio::spawn(async move {
        let deadline = Duration::from_secs(1);
        let spec =
            CallSpec { operation: &operation, bounds: &bounds, deadline, preview: false, output: None };
        client.call(spec, placement, cancel).await
    })
}

pub(super) fn call(
    client: &Client,
    operation: Operation,
) -> tokio::task::JoinHandle<Result<Finished<Reply>, LaneError>> {
    call_with(client, operation, Bounds::default(), None, tokio_util::sync::CancellationToken::new())
}

pub(super) fn listed(total_entries: u64) -> Body {
    let result = v1::ListResult { path: "@project".to_owned(), total_entries, ..Default::default() };
    outcome(v1::result::Kind::List(result))
}

pub(super) fn executed(stdout_bytes: u64, stderr_bytes: u64) -> Body {
    let kill = Some(KillEvidence {
        ended: 9,
        left: 0,
        method: KillMethod::Descendants.into(),
        took_us: 9,
        running: 0,
    });
    let report = w::CommandReport {
        exit_code: Some(0),
        stop: w::command_report::Stop::Itself.into(),
        stdout_bytes,
        stderr_bytes,
        cpu_time_us: 5,
        peak_memory_bytes: 6,
        kill,
        ..Default::default()
    };
    end(w::outcome::Kind::Command(report))
}

fn end(kind: w::outcome::Kind) -> Body {
    Body::Outcome(w::Outcome { kind: Some(kind), ..Default::default() })
}

fn outcome(kind: v1::result::Kind) -> Body {
    let result = v1::Result { kind: Some(kind) };
    end(w::outcome::Kind::Result(result))
}

pub(super) fn failed(reason: &str) -> Body {
    let failure =
        v1::ToolFailure { reason: reason.to_owned(), message: "because".to_owned(), ..Default::default() };
    end(w::outcome::Kind::Failure(failure))
}

pub(super) fn wrote(stream: w::output::Stream, offset: u64, data: &[u8]) -> Body {
    Body::Output(w::Output { stream: stream.into(), offset, data: data.to_vec().into() })
}

pub(super) fn spawned(pid: u32) -> Body {
    Body::Spawned(w::Spawned { pid })
}

pub(super) fn ended(forced: bool) -> Body {
    Body::Ended(w::Ended { forced, drain_pid: 0 })
}

/// What a [`Placement`] was asked to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Place(u32),
    Finish { forced: bool },
}

pub(super) struct Leaf {
    asked: mpsc::UnboundedSender<Asked>,
    refusal: Mutex<Option<String>>,
}

impl Leaf {
    pub(super) fn new(refusal: Option<&str>) -> (Arc<Self>, mpsc::UnboundedReceiver<Asked>) {
        let (asked, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self { asked, refusal: Mutex::new(refusal.map(str::to_owned)) }), receiver)
    }
}

impl Placement for Leaf {
    fn place(&self, pid: u32) -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        self.asked.send(Asked::Place(pid)).unwrap();
        let refusal = self.refusal.lock().take();
        Box::pin(async move { refusal.map_or(Ok(()), Err) })
    }

    fn finish(&self, forced: bool) -> std::pin::Pin<Box<dyn Future<Output = KillEvidence> + Send + '_>> {
        let _ = self.asked.send(Asked::Finish { forced });
        Box::pin(async {
            KillEvidence {
                ended: 2,
                left: 0,
                method: KillMethod::CgroupV2Kill.into(),
                took_us: 7,
                running: 0,
            }
        })
    }
}
