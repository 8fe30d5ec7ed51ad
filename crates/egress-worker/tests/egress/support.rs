//! A steered network namespace, the real program in its jail, and a daemon that follows a script.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use host_launch::{handles, numbered};
use nix::sched::{CloneFlags, setns};
use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use steering::Steered;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection};
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::inspect::Scheme;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{
    AddressLookedUp, AwaitReview, ConnectionEnded, Dial, EgressStart, EndConnection, FromEgress, Inspect,
    NameResolved, RequestAnswer, Serve, ToEgress,
};
use worker_protocol::address::octets;
use worker_protocol::frame::{FrameBuffer, encode};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Variable with the path of another program to test, such as the static one.
const PROGRAM: &str = "EGRESS_TEST_PROGRAM";
/// User and group of the program.
pub(crate) const ID: u32 = 64_321;

/// The rules of the script.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    /// Names that exist.
    pub(crate) names: HashMap<String, Ipv4Addr>,
    /// What is answered to a connection to a port, by the port; all others are ended.
    pub(crate) ports: HashMap<u16, Rule>,
    pub(crate) start: EgressStart,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Rule {
    /// `None` for TCP: the addresses come at once.
    pub(crate) inspect: Option<Inspect>,
    /// The server; `None` ends the connection when it is ready.
    pub(crate) server: Option<SocketAddr>,
    /// Words of such an end.
    pub(crate) words: String,
    /// True if a reviewer decides, who never does.
    pub(crate) is_reviewed: bool,
    /// What is answered to each request that is asked about.
    pub(crate) decision: Option<Decision>,
}

impl Rule {
    fn go_out(&self) -> To {
        if self.is_reviewed {
            return To::AwaitReview(AwaitReview {});
        }
        match self.server {
            Some(server) => To::Dial(Dial {
                addresses: vec![octets(server.ip())],
                port: server.port().into(),
                ..Dial::default()
            }),
            None => To::End(EndConnection { http_body: self.words.clone() }),
        }
    }
}

impl Script {
    pub(crate) fn new(max_connections: u32) -> Self {
        Self { start: EgressStart { max_connections, ..EgressStart::default() }, ..Self::default() }
    }

    #[must_use]
    pub(crate) fn name(mut self, name: &str, address: [u8; 4]) -> Self {
        self.names.insert(name.to_owned(), address.into());
        self
    }

    #[must_use]
    pub(crate) fn rule(mut self, port: u16, scheme: Scheme, name: &str, server: Option<SocketAddr>) -> Self {
        let inspect = Inspect { scheme: scheme.into(), name: name.to_owned(), ..Inspect::default() };
        let words = "no rule".to_owned();
        let rule = Rule { inspect: Some(inspect), server, words, ..Rule::default() };
        self.ports.insert(port, rule);
        self
    }

    /// Adds a rule for TCP.
    #[must_use]
    pub(crate) fn tcp(mut self, port: u16, server: SocketAddr) -> Self {
        let rule = Rule { server: Some(server), ..Rule::default() };
        self.ports.insert(port, rule);
        self
    }

    /// Adds a rule for TCP that asks a reviewer.
    #[must_use]
    pub(crate) fn review(mut self, port: u16) -> Self {
        let rule = Rule { is_reviewed: true, ..Rule::default() };
        self.ports.insert(port, rule);
        self
    }
}

/// All that the program has said.
#[derive(Debug, Default)]
struct Log {
    messages: Mutex<Vec<FromEgress>>,
    more: Condvar,
}

/// A run with egress.
pub(crate) struct Egress {
    namespace: Child,
    pub(crate) program: Child,
    pub(crate) channel: UnixStream,
    /// The end over which the program gets further handles.
    handles: OwnedFd,
    log: Arc<Log>,
}

impl Drop for Egress {
    fn drop(&mut self) {
        let _ = self.channel.shutdown(Shutdown::Both);
        for child in [&mut self.program, &mut self.namespace] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Egress {
    pub(crate) fn start(script: Script) -> Self {
        let namespace = Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
        let began = Instant::now();
        while of(&namespace.id().to_string()) == of("self") {
            assert!(began.elapsed() < DEADLINE);
            thread::sleep(Duration::from_millis(2));
        }
        let Steered { tcp, dns, answers: [v4, v6], link } =
            steering::steer(pidfd(&namespace).as_fd(), Ipv4Addr::new(11, 0, 0, 1)).unwrap();
        let (channel, theirs) = UnixStream::pair().unwrap();
        let (given, further) = numbered::pair().unwrap();
        let sockets = [&further, &tcp, &dns, &v4, &v6, &link].map(OwnedFd::as_fd);
        handles::send(&channel, &sockets).unwrap();
        let program = program(theirs).spawn().unwrap();
        let log = Arc::new(Log::default());
        let mut egress = Self { namespace, program, channel, handles: given, log: Arc::clone(&log) };
        egress.send(0, To::Start(script.start.clone()));
        let (reading, writing) = (egress.channel.try_clone().unwrap(), egress.channel.try_clone().unwrap());
        thread::spawn(move || follow(&script, reading, writing, &log));
        egress.wait("the jail", |message| matches!(message.body, Some(From::Ready(_))));
        egress
    }

    pub(crate) fn send(&mut self, id: u64, body: To) {
        send(&mut self.channel, id, body);
    }

    /// Gives the program a handle.
    pub(crate) fn give(&self, number: u64, handle: impl Into<OwnedFd>) {
        let handle = handle.into();
        rustix::io::ioctl_fionbio(&handle, true).unwrap();
        numbered::send(&self.handles, number, handle.as_fd()).unwrap();
    }

    /// Gives the program a connection to serve, and returns its other end.
    pub(crate) fn serve(&mut self, handle: u64, port: u16, roots: &[Vec<u8>]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.give(handle, theirs);
        ours.set_read_timeout(Some(DEADLINE)).unwrap();
        let (host, roots) = ("api.example.org".to_owned(), roots.to_vec());
        self.send(0, To::Serve(Serve { handle, host, port: port.into(), roots }));
        ours
    }

    /// Waits for a message that was sent or is.
    pub(crate) fn wait(&mut self, what: &str, is_it: impl Fn(&FromEgress) -> bool) -> FromEgress {
        let mut messages = self.log.messages.lock();
        loop {
            if let Some(found) = messages.iter().find(|message| is_it(message)) {
                return found.clone();
            }
            if self.log.more.wait_for(&mut messages, DEADLINE).timed_out() {
                let _ = self.program.kill();
                let mut words = String::new();
                self.program.stderr.take().unwrap().read_to_string(&mut words).unwrap();
                panic!("{what} is missing; {words:?}; {messages:?}");
            }
        }
    }

    /// Waits for the ends of `count` connections, and returns them in their order.
    pub(crate) fn ended(&mut self, count: usize) -> Vec<ConnectionEnded> {
        let began = Instant::now();
        loop {
            let ended: Vec<_> = self
                .messages()
                .into_iter()
                .filter_map(|message| match message.body {
                    Some(From::Ended(ended)) => Some(ended),
                    _ => None,
                })
                .collect();
            if ended.len() >= count {
                return ended;
            }
            assert!(began.elapsed() < DEADLINE, "{ended:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the end of the first connection, and returns its cause.
    pub(crate) fn cause(&mut self) -> Cause {
        self.ended(1)[0].cause()
    }

    pub(crate) fn messages(&self) -> Vec<FromEgress> {
        self.log.messages.lock().clone()
    }

    /// Runs a client within the namespace.
    pub(crate) fn inside<T: Send>(&self, client: impl FnOnce() -> T + Send) -> T {
        let namespace = pidfd(&self.namespace);
        thread::scope(|scope| {
            let client = scope.spawn(move || {
                setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
                client()
            });
            client.join().unwrap()
        })
    }

    pub(crate) fn connect(&self, to: &str) -> TcpStream {
        let to: SocketAddr = to.parse().unwrap();
        let stream = self.inside(move || TcpStream::connect_timeout(&to, DEADLINE)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Connects and waits for a reset, which may come before the client has looked at its connection.
    pub(crate) fn assert_refused(&self, to: &str) {
        let to: SocketAddr = to.parse().unwrap();
        match self.inside(move || TcpStream::connect_timeout(&to, DEADLINE)) {
            Ok(stream) => assert_reset(stream),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    /// Process id of the worker, the child of the program.
    pub(crate) fn worker(&self) -> u32 {
        let pid = self.program.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.trim().parse().unwrap()
    }
}

/// Returns the command of the program, with its end of the channel.
pub(crate) fn program(channel: UnixStream) -> Command {
    let program = std::env::var_os(PROGRAM).unwrap_or_else(|| env!("CARGO_BIN_EXE_coffer-egress").into());
    let mut command = Command::new(program);
    command.args([ID.to_string(), ID.to_string()]).env_clear().current_dir("/");
    command.stdin(Stdio::from(OwnedFd::from(channel))).stderr(Stdio::piped());
    command
}

fn pidfd(process: &Child) -> OwnedFd {
    pidfd_open(Pid::from_child(process), PidfdFlags::empty()).unwrap()
}

fn send(channel: &mut UnixStream, id: u64, body: To) {
    // The program may have ended.
    let _ = channel.write_all(&encode(&ToEgress { id, body: Some(body) }).unwrap());
}

/// Answers as the script says.
fn follow(script: &Script, mut reading: UnixStream, mut writing: UnixStream, log: &Log) {
    let mut buffer = FrameBuffer::new();
    let mut rules = HashMap::new();
    let mut bytes = [0; 4096];
    loop {
        while let Some(message) = buffer.pop::<FromEgress>().unwrap() {
            let id = message.id;
            let answer = match message.body.as_ref().unwrap() {
                From::Resolve(question) => {
                    let address = script.names.get(&question.name);
                    let address = address.map(|address| address.octets().to_vec()).unwrap_or_default();
                    Some(To::Resolved(NameResolved { address }))
                }
                From::LookUp(question) => {
                    let name =
                        script.names.iter().find(|(_, address)| address.octets()[..] == question.address);
                    let name = name.map(|(name, _)| name.clone()).unwrap_or_default();
                    Some(To::LookedUp(AddressLookedUp { name }))
                }
                From::Opened(opened) => Some(match script.ports.get(&u16::try_from(opened.port).unwrap()) {
                    Some(rule) => {
                        rules.insert(id, rule);
                        rule.inspect.clone().map_or_else(|| rule.go_out(), To::Inspect)
                    }
                    None => To::End(EndConnection { http_body: String::new() }),
                }),
                From::Connection(_) => Some(rules[&id].go_out()),
                From::Asked(asked) => rules[&id].decision.clone().map(|decision| {
                    let request = asked.request.as_ref().unwrap().number;
                    To::Answer(RequestAnswer { request, decision: Some(decision) })
                }),
                From::Ready(_)
                | From::Request(_)
                | From::Usage(_)
                | From::Placeholder(_)
                | From::Moved(_)
                | From::Ended(_) => None,
            };
            log.messages.lock().push(message);
            log.more.notify_all();
            if let Some(answer) = answer {
                send(&mut writing, id, answer);
            }
        }
        match reading.read(&mut bytes) {
            Ok(read) if read > 0 => buffer.extend(&bytes[..read]),
            _ => return,
        }
    }
}

/// A server on the loopback of the host that serves each connection in a thread.
pub(crate) fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// A server that sends back everything, and ends when the client does.
pub(crate) fn echo() -> SocketAddr {
    server(|mut stream| {
        let mut reading = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut reading, &mut stream);
        let _ = stream.shutdown(Shutdown::Write);
    })
}

/// Sends bytes, closes that side, and returns everything that comes back.
pub(crate) fn talk(mut stream: TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Returns the first bytes of a TLS client that wants to reach a name.
pub(crate) fn first_bytes(config: ClientConfig, name: &str) -> Vec<u8> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Waits for the reset of a connection, and takes the bytes that come before it.
pub(crate) fn assert_reset(mut stream: TcpStream) {
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
