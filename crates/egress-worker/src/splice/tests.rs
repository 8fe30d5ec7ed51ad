use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use super::*;
use crate::meter::Bounds;

/// Returns the two ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (connected, accepted) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

/// Runs a test with the ends of a program and of a server, between which bytes are passed.
fn spliced<F: Future<Output = ()>>(
    early: Early,
    max_bytes: u64,
    test: impl FnOnce(TcpStream, TcpStream) -> F,
) -> (Result<(), Cause>, u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let ((program, here), (there, server)) = (pair().await, pair().await);
        let meter = Rc::new(Meter::new(&Bounds::new(max_bytes, 0)));
        let counted = Rc::clone(&meter);
        let passing = spawn_local(async move { splice(&here, &there, &counted, early).await });
        test(program, server).await;
        let over = timeout(Duration::from_secs(60), passing).await.unwrap().unwrap();
        assert_eq!(COPIED.get(), 0);
        (over, meter.sent(), meter.received())
    })
}

#[test]
fn an_end_of_one_side_is_passed_on_and_the_other_goes_on() {
    let early = Early { to_server: b"early ".to_vec(), to_program: Vec::new() };
    let over = spliced(early, 0, |mut program, mut server| async move {
        program.write_all(b"question").await.unwrap();
        program.shutdown().await.unwrap();
        let mut question = String::new();
        server.read_to_string(&mut question).await.unwrap();
        assert_eq!(question, "early question");
        for word in [&b"one "[..], b"two"] {
            server.write_all(word).await.unwrap();
            let mut received = vec![0; word.len()];
            program.read_exact(&mut received).await.unwrap();
            assert_eq!(received, word);
        }
    });
    assert_eq!(over, (Ok(()), 14, 7));
}

#[test]
fn a_side_that_does_not_read_holds_the_other_back() {
    let over = spliced(Early::default(), 0, |mut program, mut server| async move {
        let chunk = vec![7; 64 * 1024];
        let mut sent = 0;
        // Until no buffer on the way takes more.
        while timeout(Duration::from_millis(300), program.write_all(&chunk)).await.is_ok() {
            sent += chunk.len();
            assert!(sent < 64 * 1024 * 1024, "nothing holds it back");
        }
        assert!(COPIED.get() <= BUFFER_SIZE);
        let mut received = 0;
        let mut bytes = vec![0; 1024 * 1024];
        while received < sent {
            let read = timeout(Duration::from_secs(60), server.read(&mut bytes)).await.unwrap().unwrap();
            assert!(bytes[..read].iter().all(|byte| *byte == 7));
            received += read;
        }
    });
    assert!(over.1 > 0);
}

#[test]
fn a_reset_of_one_side_ends_both() {
    let over = spliced(Early::default(), 0, |program, mut server| async move {
        program.set_zero_linger().unwrap();
        drop(program);
        // The end of the passing closes this side, too.
        assert!(matches!(server.read(&mut [0]).await, Ok(0) | Err(_)));
    });
    assert_eq!(over.0, Err(Cause::Reset));
}

#[test]
fn no_byte_beyond_the_bound_is_passed() {
    let over = spliced(Early::default(), 10, |mut program, mut server| async move {
        program.write_all(b"0123456789").await.unwrap();
        server.read_exact(&mut [0; 10]).await.unwrap();
        program.write_all(b"x").await.unwrap();
        assert!(matches!(server.read(&mut [0]).await, Ok(0) | Err(_)));
    });
    assert_eq!(over, (Err(Cause::Bytes), 10, 0));
}

/// Bytes of a transfer, each of which has its place.
fn bulk(length: usize) -> Vec<u8> {
    (0..251).cycle().take(length).collect()
}

/// Sends bytes and the end, and receives the same.
async fn exchange(mut stream: TcpStream, bytes: &[u8]) {
    let (mut reading, mut writing) = stream.split();
    let receive = async {
        let mut received = Vec::with_capacity(bytes.len());
        reading.read_to_end(&mut received).await.unwrap();
        assert!(received == bytes, "{} bytes", received.len());
    };
    let send = async {
        writing.write_all(bytes).await.unwrap();
        writing.shutdown().await.unwrap();
    };
    tokio::join!(send, receive);
}

#[test]
fn bulk_passes_both_ways_unchanged() {
    let all = 16 * 1024 * 1024;
    let over = spliced(Early::default(), 0, |program, server| async move {
        let bytes = bulk(all);
        tokio::join!(exchange(program, &bytes), exchange(server, &bytes));
    });
    assert_eq!(over, (Ok(()), all as u64, all as u64));
}

#[test]
fn little_is_read_while_many_bytes_wait() {
    assert_eq!(with_buffer(|buffer| buffer.len()), BUFFER_SIZE);
    let waiting: Vec<Copied> = (0..17).map(|_| Copied::new(vec![0; BUFFER_SIZE])).collect();
    assert_eq!(with_buffer(|buffer| buffer.len()), READ_CROWDED);
    drop(waiting);
    assert_eq!(with_buffer(|buffer| buffer.len()), BUFFER_SIZE);
}

#[test]
fn no_byte_beyond_the_bound_is_passed_in_the_middle_of_bulk() {
    let bound = 5_000_001;
    let mut received = 0;
    let count = &mut received;
    let over = spliced(Early::default(), bound, |mut program, mut server| async move {
        let bytes = bulk(64 * 1024);
        let mut buffer = vec![0; 1024 * 1024];
        let receive = async {
            while let Ok(read @ 1..) = server.read(&mut buffer).await {
                *count += u64::try_from(read).unwrap();
            }
        };
        // Without end, as the buffers on the way take much.
        let send = async { while program.write_all(&bytes).await.is_ok() {} };
        tokio::join!(send, receive);
    });
    assert_eq!(over, (Err(Cause::Bytes), received, 0));
    assert!((1_000_000..=bound).contains(&received), "{received}");
}

#[test]
fn a_reset_in_the_middle_of_bulk_ends_both() {
    let over = spliced(Early::default(), 0, |mut program, mut server| async move {
        let bytes = bulk(64 * 1024);
        let receive = async {
            server.read_exact(&mut vec![0; 8 * 1024 * 1024]).await.unwrap();
            server.set_zero_linger().unwrap();
            drop(server);
        };
        // Without end, as the buffers on the way take much.
        let send = async { while program.write_all(&bytes).await.is_ok() {} };
        tokio::join!(send, receive);
    });
    assert_eq!(over.0, Err(Cause::Reset));
}
