//! A worker that follows the script of an input, at the other end of a client's stream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use operations::{KillEvidence, KillMethod};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::task::JoinHandle;
use wire::worker::v1::{FromWorker, ToWorker, from_worker, to_worker};
use worker_protocol::client::{Client, ConnectOptions, Finished, OutputSink, OutputStream, Placement};
use worker_protocol::convert::Reply;
use worker_protocol::frame::{FrameBuffer, encode};

/// What is under way between the two ends.
const PIPE: usize = 64 * 1024;

/// The worker's end.
pub struct Worker {
    output: WriteHalf<DuplexStream>,
    listener: JoinHandle<()>,
}

impl Worker {
    /// A client that has been told hello.
    pub async fn connected(options: ConnectOptions) -> (Self, Client) {
        let (daemon, worker) = duplex(PIPE);
        let (from_worker, to_worker) = split(daemon);
        let (input, mut output) = split(worker);
        let greet = async {
            let mut input = input;
            let mut heard = FrameBuffer::new();
            let hello = next(&mut input, &mut heard).await.expect("a hello");
            let Some(to_worker::Body::Hello(hello)) = hello.body else { panic!("not a hello: {hello:?}") };
            let answer = FromWorker { id: 0, body: Some(from_worker::Body::Hello(hello)) };
            output.write_all(&encode(&answer).expect("a short frame")).await.expect("a client");
            (input, heard)
        };
        let (connected, (input, heard)) =
            tokio::join!(Client::connect(to_worker, from_worker, options), greet);
        let (client, _) = connected.expect("a hello that was answered");
        (Self { output, listener: tokio::spawn(listen(input, heard)) }, client)
    }

    /// Bytes as they are. A client that has gone does not hear them.
    pub async fn say(&mut self, bytes: &[u8]) {
        let _ = self.output.write_all(bytes).await;
    }

    /// Says nothing more.
    pub async fn fall_silent(&mut self) {
        let _ = self.output.shutdown().await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// What the client says has to be frames, and nobody else's.
async fn listen(mut input: ReadHalf<DuplexStream>, mut heard: FrameBuffer) {
    while let Some(frame) = next(&mut input, &mut heard).await {
        assert!(frame.body.is_some(), "an empty frame from the client");
    }
}

async fn next(input: &mut ReadHalf<DuplexStream>, heard: &mut FrameBuffer) -> Option<ToWorker> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(frame) = heard.pop().expect("a frame of the client") {
            return Some(frame);
        }
        match input.read(&mut bytes).await {
            Ok(count) if count > 0 => heard.extend(&bytes[..count]),
            _ => return None,
        }
    }
}

/// A frame with any body: `field` is the number of its kind, `body` the message in it. So kinds that this code does not
/// know are said, too.
pub fn frame(id: u64, field: u8, body: &[u8]) -> Vec<u8> {
    let mut message = FromWorker { id, body: None }.encode_to_vec();
    prost::encoding::encode_key(field.into(), prost::encoding::WireType::LengthDelimited, &mut message);
    prost::encoding::encode_varint(body.len() as u64, &mut message);
    message.extend_from_slice(body);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &message].concat()
}

/// Counts what it is asked for.
#[derive(Debug, Default)]
pub struct Leaf {
    placed: AtomicUsize,
    finished: AtomicUsize,
}

impl Leaf {
    /// What its evidence says, which no worker can.
    pub const METHOD: KillMethod = KillMethod::CgroupV1Freezer;

    /// A new one.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The contract: finished once for every placing, and never otherwise.
    pub fn check(&self) {
        let (placed, finished) = (self.placed.load(Ordering::Relaxed), self.finished.load(Ordering::Relaxed));
        assert!(placed <= 1 && placed == finished, "placed {placed} times, finished {finished} times");
    }
}

impl Placement for Leaf {
    fn place(&self, pid: u32) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        self.placed.fetch_add(1, Ordering::Relaxed);
        // Some processes cannot be found.
        Box::pin(async move { if pid % 5 == 0 { Err("not there".to_owned()) } else { Ok(()) } })
    }

    fn finish(&self, _: bool) -> Pin<Box<dyn Future<Output = KillEvidence> + Send + '_>> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            KillEvidence { ended: 1, left: 0, method: Self::METHOD.into(), ..KillEvidence::default() }
        })
    }
}

/// Takes output and measures it.
pub struct Gauge {
    most: u64,
    /// It takes its time.
    slow: bool,
    taken: Mutex<[u64; 2]>,
}

impl Gauge {
    /// One that must not get more than `most` bytes.
    pub fn new(most: u64, slow: bool) -> Arc<Self> {
        Arc::new(Self { most, slow, taken: Mutex::default() })
    }

    /// Of a command that ended, everything that the worker says it wrote and that came has been taken: all of it,
    /// unless the command was cut at a limit.
    pub fn check(&self, finished: &Finished<Reply>) {
        let Ok(Reply::Command(report)) = &finished.outcome else { return };
        let [stdout, stderr] = *self.taken.lock();
        assert!(
            stdout <= report.stdout.bytes && stderr <= report.stderr.bytes,
            "{stdout} {stderr} {report:?}"
        );
    }
}

impl OutputSink for Gauge {
    fn take(
        &self,
        stream: OutputStream,
        offset: u64,
        data: bytes::Bytes,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut taken = self.taken.lock();
        let so_far = &mut taken[usize::from(stream == OutputStream::Stderr)];
        assert!(offset == *so_far && !data.is_empty(), "{offset} after {so_far}");
        *so_far += data.len() as u64;
        assert!(taken.iter().sum::<u64>() <= self.most, "{taken:?} is more than {}", self.most);
        let slow = self.slow;
        Box::pin(async move {
            if slow {
                tokio::time::sleep(std::time::Duration::from_secs(3)).await;
            }
        })
    }
}
