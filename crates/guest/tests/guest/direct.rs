//! The direct channel that a guest offers, taken as the daemon takes it: root reaches into a non-dumpable process.

use operations::{Exec, List, OpResult, Operation};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use worker_protocol::client::{Channel, CloseReason, ConnectError, ConnectOptions, Greeted};
use worker_protocol::convert::Reply;

use crate::harness::{Guest, command, result};

/// The channel that the guest offered.
fn taken(process: &Child, number: u32) -> Channel {
    let pid = Pid::from_raw(process.id().unwrap().try_into().unwrap()).unwrap();
    let handle = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let fd = pidfd_getfd(handle, number.try_into().unwrap(), PidfdGetfdFlags::empty());
    Channel::new(fd.expect("these tests take descriptors of other processes: run them as root")).unwrap()
}

async fn direct() -> Guest {
    Guest::start_with(async |process, input, output| {
        let greeted = Greeted::greet(input, output, ConnectOptions::default()).await.unwrap();
        let peer = greeted.peer();
        (greeted.serve_directly(taken(process, peer.channel)).await.unwrap(), peer)
    })
    .await
}

#[tokio::test]
async fn calls_go_over_it() {
    let guest = direct().await;
    std::fs::write(guest.project().join("a"), "").unwrap();
    let list = List::new(jail::SandboxPath::parse("@project").unwrap());
    let Ok(Reply::Result(OpResult::List(listed))) = guest.call(Operation::List(list)).await else {
        panic!("not listed")
    };
    assert_eq!(listed.entries.len(), 1);
    let echo = Exec { stdin: vec![b'x'; 100_000], ..command(&["wc", "-c"]) };
    assert_eq!(result(guest.call(Operation::Exec(echo)).await).stdout.trim(), "100000");
}

#[tokio::test]
async fn commands_do_not_inherit_it() {
    let guest = direct().await;
    let open = guest.ran(command(&["ls", "-l", "/proc/self/fd"])).await.stdout;
    assert!(!open.contains("socket:"), "{open}");
}

#[tokio::test]
async fn the_guest_ends_with_it() {
    let mut guest = direct().await;
    guest.client.shutdown().await;
    assert!(guest.process.wait().await.unwrap().success());
}

#[tokio::test]
async fn the_end_of_the_guest_is_noticed() {
    let mut guest = direct().await;
    let closed = guest.client.closed();
    guest.process.kill().await.unwrap();
    assert_eq!(closed.await, CloseReason::Eof);
}

/// A guest whose daemon said `Switch` but took no channel.
async fn switched() -> (Child, ChildStdin) {
    use wire::worker::v1::{Hello, Switch, ToWorker, to_worker::Body};
    use worker_protocol::frame::encode;
    let mut process = crate::harness::binary(&["serve"]).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    let hello = Hello { protocol: worker_protocol::PROTOCOL, nonce: vec![1; 32], ..Hello::default() };
    for body in [Body::Hello(hello), Body::Switch(Switch {})] {
        input.write_all(&encode(&ToWorker { id: 0, body: Some(body) }).unwrap()).await.unwrap();
    }
    (process, input)
}

#[tokio::test]
async fn the_guest_ends_with_the_first_stream() {
    let (mut process, input) = switched().await;
    drop(input);
    assert!(process.wait().await.unwrap().success());
}

#[tokio::test]
async fn only_connected_unix_streams_are_channels() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(Channel::new(one.into()).is_ok());
    let listener = {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap()
    };
    assert!(Channel::new(listener.into()).is_err());
    assert!(Channel::new(std::fs::File::open("/dev/null").unwrap().into()).is_err());
    assert!(Channel::new(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()).is_err());
    assert!(Channel::new(std::os::unix::net::UnixDatagram::unbound().unwrap().into()).is_err());
}

#[tokio::test]
async fn channel_to_another_process_is_refused() {
    let mut process = crate::harness::binary(&["serve"]).spawn().unwrap();
    let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    let greeted = Greeted::greet(input, output, ConnectOptions::default()).await.unwrap();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    // It hangs up instead of answering the hello.
    drop(theirs);
    let error = greeted.serve_directly(Channel::new(ours.into()).unwrap()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Closed | ConnectError::Io(_)), "{error}");
    process.wait().await.unwrap();
}
