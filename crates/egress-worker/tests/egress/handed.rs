//! Handles that the program gets while it serves.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use host_launch::{UNSTEERED, numbered};
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{Dial, EgressStart, FromEgress, Serve, ToEgress};
use worker_protocol::frame::{FrameBuffer, encode};

use crate::support::{DEADLINE, Egress, Script, echo, program};

/// Returns the id of the first connection.
fn opened(egress: &mut Egress) -> u64 {
    egress.wait("a connection", |message| matches!(message.body, Some(From::Opened(_)))).id
}

fn dial(handle: u64) -> To {
    To::Dial(Dial { port: 22, handle, ..Dial::default() })
}

#[test]
fn a_connection_of_the_daemon_is_that_of_a_program_to_its_server() {
    let mut egress = Egress::start(Script::new(16).review(22));
    let mut stream = egress.connect("11.0.0.9:22");
    let id = opened(&mut egress);
    egress.give(3, TcpStream::connect(echo()).unwrap());
    egress.send(id, dial(3));
    stream.write_all(b"hello").unwrap();
    let mut read = [0; 5];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"hello");
    drop(stream);
    let ended = egress.ended(1).remove(0);
    assert_eq!(
        (ended.cause(), ended.bytes_out, ended.bytes_in, ended.address.len()),
        (Cause::Closed, 5, 5, 0)
    );
}

#[test]
fn a_handle_that_was_not_given_reaches_no_server() {
    let mut egress = Egress::start(Script::new(16).review(22));
    let _stream = egress.connect("11.0.0.9:22");
    let id = opened(&mut egress);
    egress.send(id, dial(3));
    assert_eq!(egress.cause(), Cause::Unreachable);
}

#[test]
fn a_handle_that_no_frame_claims_is_closed() {
    let egress = Egress::start(Script::new(16));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let began = Instant::now();
    egress.give(1, theirs);
    ours.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(ours.read(&mut [0]).unwrap(), 0);
    assert!(began.elapsed() > Duration::from_secs(5));
}

#[test]
fn a_process_of_a_task_serves_the_connections_that_it_is_given() {
    let (mut channel, theirs) = UnixStream::pair().unwrap();
    channel.set_read_timeout(Some(DEADLINE)).unwrap();
    let (handles, further) = numbered::pair().unwrap();
    host_launch::handles::send(&channel, &[further.as_fd()]).unwrap();
    let mut program = program(theirs).arg(UNSTEERED).spawn().unwrap();
    let mut say =
        |body: To| channel.write_all(&encode(&ToEgress { id: 0, body: Some(body) }).unwrap()).unwrap();
    say(To::Start(EgressStart { max_connections: 2, ..EgressStart::default() }));
    let (mut ours, stream) = UnixStream::pair().unwrap();
    rustix::io::ioctl_fionbio(&stream, true).unwrap();
    numbered::send(&handles, 5, stream.as_fd()).unwrap();
    drop(stream);
    say(To::Serve(Serve { handle: 5, host: "git.example.org".to_owned(), port: 443, roots: Vec::new() }));
    let mut buffer = FrameBuffer::new();
    let mut bytes = [0; 4096];
    let mut heard = Vec::new();
    while heard.len() < 2 {
        while let Some(message) = buffer.pop::<FromEgress>().unwrap() {
            heard.push(message.body.unwrap());
        }
        let read = if heard.len() < 2 { channel.read(&mut bytes).unwrap() } else { 0 };
        buffer.extend(&bytes[..read]);
    }
    assert!(matches!(&heard[..], [From::Ready(_), From::Opened(opened)] if opened.handle == 5), "{heard:?}");
    drop(channel);
    assert!(program.wait().unwrap().success());
    assert_eq!(ours.read(&mut [0]).unwrap_or_default(), 0);
}

#[test]
fn an_order_with_a_handle_and_addresses_ends_the_process() {
    let mut egress = Egress::start(Script::new(16));
    let both = Dial { addresses: vec![vec![127, 0, 0, 1]], port: 22, handle: 1, ..Dial::default() };
    egress.send(7, To::Dial(both));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = egress.program.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < DEADLINE);
        thread::sleep(Duration::from_millis(5));
    };
    assert!(!status.success());
}
