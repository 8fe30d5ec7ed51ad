//! Tests terminals: messages to the worker, their bounds, and the messages that it may send.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use operations::{Bounds, Exit, KillMethod, Operation};
use tokio_util::sync::CancellationToken;
use wire::worker::v1::from_worker::Body as Said;
use wire::worker::v1::output::Stream::{Stderr, Stdout};
use wire::worker::v1::{self as w, to_worker::Body};

use crate::client::tests::fake::{
    Asked, Fake, Leaf, call, ended, exec, executed, list, listed, spawned, wrote,
};
use crate::client::{
    Client, CloseReason, LaneError, OutputSink, OutputStream, Placement, SessionOver, Terminal,
    TerminalSignal, TerminalSize, TerminalSpec, Violation,
};
use crate::convert::Reply;
use crate::terminal::{MAX_INPUT, MAX_UNTAKEN};

struct Screen;

/// Takes nothing, for ever.
struct Frozen;

impl OutputSink for Frozen {
    fn take(&self, _: OutputStream, _: u64, _: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

impl OutputSink for Screen {
    fn take(&self, stream: OutputStream, _: u64, _: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        assert_eq!(stream, OutputStream::Stdout);
        Box::pin(async {})
    }
}

fn open(client: &Client, placement: Option<Arc<dyn Placement>>) -> Result<Terminal, LaneError> {
    open_on(client, placement, &(Arc::new(Screen) as _))
}

fn open_on(
    client: &Client,
    placement: Option<Arc<dyn Placement>>,
    screen: &Arc<dyn OutputSink>,
) -> Result<Terminal, LaneError> {
    let Operation::Exec(exec) = exec() else { panic!("not exec") };
    let spec = TerminalSpec {
        exec: &exec,
        login_shell: true,
        bounds: &Bounds::default(),
        size: TerminalSize::new(24, 80).unwrap(),
        pipes: false,
        deadline: Duration::from_secs(3600),
        output: screen,
    };
    client.terminal(spec, placement, &CancellationToken::new())
}

async fn opened() -> (Fake, Client, Terminal, u64) {
    let (mut fake, client) = Fake::connected().await;
    let terminal = open(&client, None).unwrap();
    let (id, _) = fake.started().await;
    (fake, client, terminal, id)
}

fn taken(bytes: u64) -> Said {
    Said::Taken(w::Taken { bytes })
}

async fn input(fake: &mut Fake) -> Vec<u8> {
    match fake.heard().await {
        (_, Body::Input(input)) => input.data,
        other => panic!("no input: {other:?}"),
    }
}

#[tokio::test]
async fn a_session_has_a_beginning_a_middle_and_an_end() {
    let (mut fake, client) = Fake::connected().await;
    let (leaf, mut asked) = Leaf::new(None);
    let terminal = open(&client, Some(leaf)).unwrap();
    let (id, start) = fake.started().await;
    let size = Some(w::TerminalSize { rows: 24, columns: 80 });
    assert_eq!(start.terminal, Some(w::Terminal { size, login_shell: true, pipes: false }));
    assert_eq!((start.deadline_ms, start.placed), (3_600_000, true));
    let keyboard = terminal.keyboard();
    // Before it runs, too: the worker keeps it.
    keyboard.write(b"ls\n").await.unwrap();
    assert_eq!(input(&mut fake).await, b"ls\n");
    fake.say(id, spawned(40)).await;
    assert!(matches!(fake.heard().await, (_, Body::Go(_))));
    fake.say(id, taken(3)).await;
    keyboard.resize(TerminalSize::new(50, 100).unwrap()).await.unwrap();
    let (_, Body::Resize(size)) = fake.heard().await else { panic!("no size") };
    assert_eq!((size.rows, size.columns), (50, 100));
    keyboard.signal(TerminalSignal::Quit).await.unwrap();
    assert!(matches!(fake.heard().await, (_, Body::Signal(w::Signal { number: 3 }))));
    fake.say(id, wrote(Stdout, 0, b"a  b\r\n")).await;
    fake.say(id, ended(false)).await;
    assert!(matches!(fake.heard().await, (_, Body::Go(_))));
    fake.say(id, executed(6, 0)).await;
    let Ok(Reply::Command(report)) = terminal.finished().await.unwrap().outcome else { panic!("no report") };
    assert_eq!((report.stdout.text.as_str(), report.stdout.bytes, report.stdout.omitted), ("", 6, 6));
    assert_eq!((report.exit, report.kill.method()), (Exit::Code(0), KillMethod::CgroupV2Kill));
    assert_eq!(asked.recv().await, Some(Asked::Place(40)));
    assert_eq!(asked.recv().await, Some(Asked::Finish { forced: false }));
    assert_eq!(keyboard.write(b"x").await, Err(SessionOver));
    assert_eq!(keyboard.resize(TerminalSize::new(1, 1).unwrap()).await, Err(SessionOver));
    assert_eq!(keyboard.signal(TerminalSignal::Int).await, Err(SessionOver));
}

#[tokio::test]
async fn terminal_messages_follow_the_start() {
    let (mut fake, client) = Fake::connected().await;
    let terminal = open(&client, None).unwrap();
    let keyboard = terminal.keyboard();
    keyboard.write(b"x").await.unwrap();
    keyboard.resize(TerminalSize::new(1, 1).unwrap()).await.unwrap();
    fake.started().await;
    assert_eq!(input(&mut fake).await, b"x");
    assert!(matches!(fake.heard().await, (_, Body::Resize(_))));
    drop(terminal);
}

#[tokio::test]
async fn fast_typing_waits_for_the_terminal() {
    let (mut fake, client, terminal, id) = opened().await;
    let keyboard = terminal.keyboard();
    let typing = tokio::spawn(async move { keyboard.write(&vec![b'k'; 200_000]).await });
    let mut under_way = 0;
    while under_way < MAX_UNTAKEN {
        let data = input(&mut fake).await;
        assert!(data.len() <= MAX_INPUT);
        under_way += data.len();
    }
    // It does not hold up others.
    let other = call(&client, list());
    let (listing, _) = fake.started().await;
    fake.say(listing, listed(1)).await;
    assert!(other.await.unwrap().is_ok());
    assert!(!typing.is_finished());
    while under_way < 200_000 {
        fake.say(id, taken(MAX_INPUT as u64)).await;
        under_way += input(&mut fake).await.len();
    }
    assert_eq!(typing.await.unwrap(), Ok(()));
    drop(terminal);
}

#[tokio::test]
async fn typing_fails_when_the_terminal_is_lost() {
    for lost in [false, true] {
        let (mut fake, client, terminal, id) = opened().await;
        let keyboard = terminal.keyboard();
        let typing = tokio::spawn(async move { keyboard.write(&vec![b'k'; 200_000]).await });
        for _ in 0..MAX_UNTAKEN / MAX_INPUT {
            input(&mut fake).await;
        }
        if lost {
            client.shutdown().await;
            assert_eq!(terminal.finished().await, Err(LaneError::Lost(CloseReason::Shutdown)));
        } else {
            fake.say(id, executed(0, 0)).await;
            assert!(terminal.finished().await.is_ok());
        }
        assert_eq!(typing.await.unwrap(), Err(SessionOver));
    }
}

#[tokio::test]
async fn input_is_read_once_if_there_is_any() {
    for bodies in [
        vec![taken(1)],
        vec![taken(0)],
        vec![taken(u64::MAX)],
        vec![taken(4), taken(2)],
        vec![wrote(Stderr, 0, b"x")],
    ] {
        let (mut fake, client, terminal, id) = opened().await;
        if bodies.len() == 2 || bodies == [taken(0)] {
            terminal.keyboard().write(b"12345").await.unwrap();
            input(&mut fake).await;
        }
        let expected =
            if matches!(bodies[0], Said::Output(_)) { Violation::Output } else { Violation::Taken };
        for body in bodies {
            fake.say(id, body).await;
        }
        assert_eq!(client.closed().await, CloseReason::Protocol(expected));
    }
    // Not before the command runs, and not of a command without a terminal.
    let (mut fake, client) = Fake::connected().await;
    let (leaf, _asked) = Leaf::new(None);
    let terminal = open(&client, Some(leaf)).unwrap();
    let (id, _) = fake.started().await;
    terminal.keyboard().write(b"x").await.unwrap();
    input(&mut fake).await;
    fake.say(id, taken(1)).await;
    assert_eq!(client.closed().await, CloseReason::Protocol(Violation::Taken));
    for operation in [exec(), list()] {
        let (mut fake, client) = Fake::connected().await;
        let calling = call(&client, operation);
        let (id, _) = fake.started().await;
        fake.say(id, taken(1)).await;
        assert_eq!(client.closed().await, CloseReason::Protocol(Violation::Taken));
        assert!(calling.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn dropped_terminal_is_closed() {
    let (mut fake, client, terminal, id) = opened().await;
    drop(terminal);
    assert!(matches!(fake.heard().await, (cancelled, Body::Cancel(_)) if cancelled == id));
    let terminal = open(&client, None).unwrap();
    fake.started().await;
    let finished = tokio::spawn(terminal.finished());
    tokio::task::yield_now().await;
    finished.abort();
    assert!(matches!(fake.heard().await, (_, Body::Cancel(_))));
}

#[tokio::test(start_paused = true)]
async fn a_screen_that_is_frozen_does_not_keep_a_session_that_is_over() {
    let (mut fake, client) = Fake::connected().await;
    let terminal = open_on(&client, None, &(Arc::new(Frozen) as _)).unwrap();
    let (id, _) = fake.started().await;
    fake.say(id, wrote(Stdout, 0, b"$ ")).await;
    fake.say(id, executed(2, 0)).await;
    let pongs = tokio::spawn(async move { fake.heard().await });
    let began = tokio::time::Instant::now();
    assert!(terminal.finished().await.is_ok());
    assert_eq!(began.elapsed().as_secs(), 8);
    pongs.abort();
}

#[tokio::test]
async fn terminals_have_separate_slots() {
    let (mut fake, client) = Fake::connected().await;
    let mut terminals: Vec<_> = (0..8).map(|_| open(&client, None).unwrap()).collect();
    assert_eq!(open(&client, None).err(), Some(LaneError::Busy));
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(fake.started().await.0);
    }
    let calling = call(&client, list());
    let (id, _) = fake.started().await;
    fake.say(id, listed(0)).await;
    calling.await.unwrap().unwrap();
    fake.say(ids[0], executed(0, 0)).await;
    terminals.remove(0).finished().await.unwrap();
    open(&client, None).unwrap();
    client.shutdown().await;
    assert_eq!(open(&client, None).err(), Some(LaneError::Lost(CloseReason::Shutdown)));
}
