//! Counts the copies that the daemon makes of a large `write`, from the decoded request to the socket of the host worker.
//!
//! A binary of its own, because it counts what its allocator is asked for.
#![allow(clippy::unwrap_used)] // also outside of test functions
#![allow(unsafe_code)] // an allocator cannot be written without

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use operations::{Bounds, Operation};
use serde_json::json;
use wire::v1::{self, WriteRequest, operation::Kind};
use wire::worker::v1::{FromWorker, Hello, ToWorker, from_worker, to_worker};
use worker_protocol::client::{CallSpec, Client, ConnectOptions};
use worker_protocol::frame::{FrameBuffer, encode};

/// The longest content of a request.
const CONTENT: usize = 3 * 1024 * 1024;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
/// Blocks that were large enough for a copy of the content.
static COPIES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn count(bytes: usize) {
    if bytes >= CONTENT {
        COPIES.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: hands everything to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Answers the hello, and takes one frame without keeping it.
fn take_one_call(mut socket: UnixStream) {
    let (mut frames, mut bytes) = (FrameBuffer::new(), [0; 8 * 1024]);
    let hello: ToWorker = loop {
        let count = socket.read(&mut bytes).unwrap();
        frames.extend(&bytes[..count]);
        if let Some(hello) = frames.pop().unwrap() {
            break hello;
        }
    };
    let Some(to_worker::Body::Hello(hello)) = hello.body else { panic!("no hello: {hello:?}") };
    let hello = from_worker::Body::Hello(Hello { pid: 7, ..hello });
    socket.write_all(&encode(&FromWorker { id: 0, body: Some(hello) }).unwrap()).unwrap();

    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut left = u32::from_be_bytes(length) as usize;
    assert!(left > CONTENT, "{left}");
    while left > 0 {
        let most = left.min(bytes.len());
        left -= socket.read(&mut bytes[..most]).unwrap();
    }
}

#[tokio::test]
async fn a_large_write_is_copied_twice_at_most() {
    let (daemon, worker) = UnixStream::pair().unwrap();
    let worker = tokio::task::spawn_blocking(move || take_one_call(worker));
    daemon.set_nonblocking(true).unwrap();
    let (input, output) = tokio::net::UnixStream::from_std(daemon).unwrap().into_split();
    let (client, _) = Client::connect(output, input, ConnectOptions::default()).await.unwrap();
    let content = "x".repeat(CONTENT);
    let request = WriteRequest { path: "a".to_owned(), content, ..WriteRequest::default() };
    let request = v1::Operation { kind: Some(Kind::Write(request)) };
    assert_eq!(COPIES.swap(0, Ordering::SeqCst), 1, "the counter sees the content itself");

    let (name, _) = operations::sketch(&request);
    let operation = Operation::parse(request).unwrap();
    let record = operation.record(|outline| json!({ name: { "message": format!("{outline:?}") } }));
    assert_eq!(record["content"]["bytes"], CONTENT);
    let bounds = Bounds { max_write_bytes: 4 << 20, ..Bounds::default() };
    let deadline = Duration::from_secs(60);
    let spec = CallSpec { operation: &operation, bounds: &bounds, deadline, preview: false, output: None };
    tokio::select! {
        ended = client.call(spec, None, tokio_util::sync::CancellationToken::new()) => panic!("{ended:?}"),
        taken = worker => taken.unwrap(),
    }
    // The message, and its frame.
    assert_eq!(COPIES.load(Ordering::SeqCst), 2);
}
