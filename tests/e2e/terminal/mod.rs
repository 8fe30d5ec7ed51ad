//! An operator at a terminal in a run: through the API, and with `coffer` at a real pseudo-terminal.

mod ending;
mod paused;
mod playback;
mod refused;
mod session;
mod shell;

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::v1::open_terminal_request::Event as Said;
use harness::v1::open_terminal_response::Event as Shown;
use harness::v1::{self, AuditEvent, OpenTerminalRequest, TerminalStart, terminal_closed::Reason};
use harness::{Daemon, RunHandle, record};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use wire::v1::terminal_service_client::TerminalServiceClient;

/// An event that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// An operator's end of a session.
struct Seat {
    session: String,
    say: mpsc::Sender<OpenTerminalRequest>,
    shown: Streaming<v1::OpenTerminalResponse>,
    /// Everything so far.
    screen: Vec<u8>,
    /// How much of it a test has looked at.
    seen: usize,
}

impl Seat {
    /// Sits down at a shell in the run.
    async fn at(run: &RunHandle) -> Self {
        Self::with(run, TerminalStart::default()).await.unwrap()
    }

    /// Runs a command on the terminal.
    async fn running(run: &RunHandle, command: &[&str]) -> Result<Self, Status> {
        let command = command.iter().map(ToString::to_string).collect();
        Self::with(run, TerminalStart { command, ..Default::default() }).await
    }

    async fn with(run: &RunHandle, start: TerminalStart) -> Result<Self, Status> {
        let start = TerminalStart { run_id: run.id().to_owned(), ..start };
        Self::open(run.clients.channel.clone(), Said::Start(start)).await
    }

    async fn open(channel: Channel, first: Said) -> Result<Self, Status> {
        let (say, said) = mpsc::channel(64);
        say.try_send(OpenTerminalRequest { event: Some(first) }).unwrap();
        let mut client = TerminalServiceClient::new(channel);
        let mut shown = client.open_terminal(ReceiverStream::new(said)).await?.into_inner();
        let opened = shown.message().await?.and_then(|response| response.event);
        let Some(Shown::Opened(opened)) = opened else { panic!("not opened: {opened:?}") };
        Ok(Self { session: opened.session_id, say, shown, screen: Vec::new(), seen: 0 })
    }

    async fn say(&self, event: Said) {
        self.say.send(OpenTerminalRequest { event: Some(event) }).await.unwrap();
    }

    async fn types(&self, keys: &str) {
        self.say(Said::Input(keys.into())).await;
    }

    async fn signal(&self, kind: v1::terminal_signal::Kind) {
        self.say(Said::Signal(v1::TerminalSignal { kind: kind.into() })).await;
    }

    /// Waits until this is on the screen, behind what was waited for before. What is typed is there, too: wait for what
    /// only an answer can hold.
    async fn sees(&mut self, text: &str) {
        let seeing = async {
            loop {
                let new = &self.screen[self.seen..];
                if let Some(at) = new.windows(text.len()).position(|window| window == text.as_bytes()) {
                    self.seen += at + text.len();
                    return;
                }
                match self.shown.message().await.unwrap().and_then(|response| response.event) {
                    Some(Shown::Output(bytes)) => self.screen.extend(bytes),
                    other => {
                        panic!("{other:?} before {text:?} in {:?}", String::from_utf8_lossy(&self.screen))
                    }
                }
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seeing).await;
        assert!(seen.is_ok(), "no {text:?} in {:?}", String::from_utf8_lossy(&self.screen));
    }

    /// Waits for the end.
    async fn over(&mut self) -> Result<v1::TerminalClosed, Status> {
        let over = async {
            loop {
                match self.shown.message().await?.and_then(|response| response.event) {
                    Some(Shown::Output(bytes)) => self.screen.extend(bytes),
                    Some(Shown::Closed(closed)) => {
                        assert_eq!(self.shown.message().await?, None, "there is a message behind the last");
                        return Ok(closed);
                    }
                    other => panic!("{other:?}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, over).await.expect("the session is not over")
    }

    /// Waits for an end that is none of the operator's faults.
    async fn closed(&mut self) -> (Reason, Option<i32>, Option<i32>) {
        let closed = self.over().await.unwrap();
        (closed.reason(), closed.exit_code, closed.signal)
    }
}

/// A run with the probe in its workspace.
async fn run(daemon: &Daemon) -> RunHandle {
    run_with(daemon, v1::CreateRunRequest::default()).await
}

async fn run_with(daemon: &Daemon, request: v1::CreateRunRequest) -> RunHandle {
    let workspace = daemon.workspace("w", &[]);
    let program = workspace.join("probe");
    std::fs::copy(harness::probe(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    chown(&program, Some(4321), Some(4321)).unwrap();
    let asked = harness::requests::bind("review", &workspace);
    daemon
        .run_on(v1::CreateRunRequest { ttl: request.ttl, idle_timeout: request.idle_timeout, ..asked })
        .await
}

/// The record of a session's event, once there is one.
async fn recorded(run: &RunHandle, session: &str, kind: &str) -> Value {
    let mut run = run.clone();
    let filter = v1::EventFilter { kinds: vec![kind.to_owned()], ..Default::default() };
    let request = v1::StreamEventsRequest { filter: Some(filter), follow: true, ..Default::default() };
    let mut events = run.clients.audit.stream_events(request).await.unwrap().into_inner();
    let waiting = async {
        loop {
            let event: AuditEvent = events.message().await.unwrap().unwrap().event.unwrap();
            let record = record(&event);
            if record["details"]["session_id"] == session {
                return record;
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("no {kind} of {session}"))
}

fn recording(daemon: &Daemon, run: &RunHandle, session: &str) -> PathBuf {
    daemon.state_dir().join("sessions").join(run.id()).join(format!("{session}.cast"))
}

/// The events of a recording.
fn events(recording: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(recording).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(lines.next().unwrap()["version"], 2);
    let mut last = 0.0;
    lines
        .map(|line| {
            let at = line[0].as_f64().unwrap();
            assert!(at >= last, "time goes back: {at} < {last}");
            last = at;
            (line[1].as_str().unwrap().to_owned(), line[2].as_str().unwrap().to_owned())
        })
        .collect()
}

/// All of one kind, as one text.
fn text(events: &[(String, String)], kind: &str) -> String {
    events.iter().filter(|(of, _)| of == kind).map(|(_, text)| text.as_str()).collect()
}

fn digest(path: &Path) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// Waits until a process with this command line runs in the run's container.
async fn runs(run: &RunHandle, line: &str) {
    let begins = async {
        // A process of the container has no other way to tell.
        while !harness::processes(&run.run.container_id).iter().any(|process| process == line) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, begins).await.unwrap_or_else(|_| panic!("{line} does not run"));
}

/// Nothing runs in the container but what runs there always.
fn assert_idle(run: &RunHandle) {
    let mut left = harness::processes(&run.run.container_id);
    left.retain(|line| !line.starts_with("/.cofferdam/guest "));
    assert_eq!(left, Vec::<String>::new());
}
