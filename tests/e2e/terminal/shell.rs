//! `coffer run shell` at a real pseudo-terminal.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use harness::{Daemon, Image, RunHandle, binary, requests, v1};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::{PATIENCE, Seat, assert_idle, recorded, run};

/// A terminal with `coffer` at it.
struct OperatorTerminal {
    child: Child,
    /// Where a person would sit.
    keys: tokio::fs::File,
    shown: tokio::fs::File,
    /// Where `coffer` sits; kept open, so that its modes can be looked at.
    line: File,
    screen: Vec<u8>,
    seen: usize,
}

fn pty() -> (OwnedFd, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let line = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).unwrap();
    (master, line)
}

impl OperatorTerminal {
    fn sit(daemon: &Daemon, arguments: &[&str]) -> Self {
        let (master, line) = pty();
        let terminal = Self::new(daemon, arguments, master, line);
        terminal.resize(24, 80);
        terminal
    }

    fn new(daemon: &Daemon, arguments: &[&str], master: OwnedFd, line: File) -> Self {
        let side = || Stdio::from(line.try_clone().unwrap());
        let child = Command::new(binary("coffer"))
            .args(["run", "shell"])
            .args(arguments)
            .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
            .env("TERM", "xterm")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let master = File::from(master);
        let keys = tokio::fs::File::from_std(master.try_clone().unwrap());
        let shown = tokio::fs::File::from_std(master);
        Self { child, keys, shown, line, screen: Vec::new(), seen: 0 }
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.line, size).unwrap();
    }

    async fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }

    async fn sees(&mut self, text: &str) {
        let seeing = async {
            loop {
                let new = &self.screen[self.seen..];
                if let Some(at) = new.windows(text.len()).position(|window| window == text.as_bytes()) {
                    self.seen += at + text.len();
                    return;
                }
                let mut bytes = vec![0; 4096];
                let count = self.shown.read(&mut bytes).await.unwrap();
                self.screen.extend(&bytes[..count]);
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seeing).await;
        assert!(seen.is_ok(), "no {text:?} in {:?}", String::from_utf8_lossy(&self.screen));
    }

    /// The session's id, as it is said at the beginning.
    async fn session(&mut self) -> String {
        self.sees("session ").await;
        self.sees(", recorded").await;
        let end = self.seen - ", recorded".len();
        String::from_utf8(self.screen[end - 36..end].to_vec()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap(), signal)
            .unwrap();
    }

    /// The exit code; the terminal must be as it was.
    async fn ends(&mut self, before: &str) -> i32 {
        let status =
            tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("coffer does not end").unwrap();
        assert_eq!(self.modes(), before, "the terminal is not as it was");
        status.code().unwrap()
    }

    fn modes(&self) -> String {
        let modes = tcgetattr(&self.line).unwrap();
        format!("{:?} {:?} {:?}", modes.input_modes, modes.output_modes, modes.local_modes)
    }
}

/// The modes of a terminal that nobody has changed.
fn plain() -> String {
    let (_master, line) = pty();
    let modes = tcgetattr(&line).unwrap();
    format!("{:?} {:?} {:?}", modes.input_modes, modes.output_modes, modes.local_modes)
}

async fn seated(daemon: &Daemon, run: &RunHandle) -> (OperatorTerminal, String) {
    let mut terminal = OperatorTerminal::sit(daemon, &[run.id()]);
    let session = terminal.session().await;
    (terminal, session)
}

#[tokio::test(flavor = "multi_thread")]
async fn coffer_reports_an_image_without_a_shell_and_restores_the_terminal() {
    let image = Image::of_files("no-shell-here", &[("motd", "nothing\n")], &[]);
    let daemon = Daemon::start().await;
    let request = v1::CreateRunRequest { image: image.0.clone(), ..requests::managed("open") };
    let run = daemon.run_on(request).await;
    let mut terminal = OperatorTerminal::sit(&daemon, &[run.id()]);
    terminal.sees("this image has no shell").await;
    assert_ne!(terminal.ends(&plain()).await, 0);
    assert_idle(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn coffer_ends_with_the_exit_code_of_the_shell() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let (mut terminal, _) = seated(&daemon, &run).await;
    terminal.types("echo $((6*7)):$TERM\r").await;
    terminal.sees("42:xterm").await;
    assert_ne!(terminal.modes(), plain(), "keys go to the run as they are");
    // A key that would end coffer at a terminal that is not raw.
    terminal.types("sleep 1000\r").await;
    super::runs(&run, "sleep 1000").await;
    terminal.types("\x03").await;
    terminal.types("echo $((6*8))\r").await;
    terminal.sees("48").await;
    terminal.resize(9, 90);
    // The terminal is not coffer's controlling one, which the kernel would tell by itself.
    terminal.signal(Signal::WINCH);
    terminal
        .types("while :; do case $(./probe window) in *' 9 90') break;; esac; done; echo si''zed\r")
        .await;
    terminal.sees("sized").await;
    terminal.types("exit 7\r").await;
    assert_eq!(terminal.ends(&plain()).await, 7);
    assert_idle(&run);

    let mut terminal =
        OperatorTerminal::sit(&daemon, &[run.id(), "--cwd", "@state", "--", "sh", "-c", "pwd; kill -9 $$"]);
    terminal.sees("/state").await;
    assert_eq!(terminal.ends(&plain()).await, 128 + 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn coffer_reports_that_the_run_is_paused_for_its_terminal() {
    let daemon = Daemon::start().await;
    let mut run = run(&daemon).await;
    let mut terminal = OperatorTerminal::sit(&daemon, &[run.id(), "--paused"]);
    terminal.sees("the rest of the run is frozen").await;
    // A shell that reads no startup file has a plain prompt.
    terminal.types("echo $((6*7)):$HISTFILE:$INPUTRC\r").await;
    terminal.sees("42::/dev/null").await;
    let shown = run.show().await;
    assert_eq!((shown.state(), shown.holds.len()), (v1::run::State::Paused, 1));
    terminal.types("exit 7\r").await;
    assert_eq!(terminal.ends(&plain()).await, 7);
    assert_eq!(run.show().await.state(), v1::run::State::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_can_leave_every_program() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let (mut terminal, session) = seated(&daemon, &run).await;
    terminal.types("trap '' INT QUIT TSTP TERM; sleep 1000\r").await;
    super::runs(&run, "sleep 1000").await;
    terminal.types("\x03\r~?").await;
    terminal.sees("leave the session").await;
    terminal.types("~.").await;
    assert_eq!(terminal.ends(&plain()).await, 0);
    assert_eq!(recorded(&run, &session, "session_closed").await["outcome"]["reason"], "DISCONNECTED");
    assert_idle(&run);

    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1)] {
        let (mut terminal, session) = seated(&daemon, &run).await;
        terminal.types("sleep 1001\r").await;
        super::runs(&run, "sleep 1001").await;
        terminal.signal(signal);
        assert_eq!(terminal.ends(&plain()).await, 128 + number);
        assert_eq!(recorded(&run, &session, "session_closed").await["outcome"]["reason"], "DISCONNECTED");
        assert_idle(&run);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unrequested_end_of_a_session_is_explained() {
    let mut daemon = Daemon::start().await;
    let mut run = run(&daemon).await;
    let (mut terminal, _) = seated(&daemon, &run).await;
    terminal.types("echo $((6*7))\r").await;
    terminal.sees("42").await;
    run.stop().await;
    terminal.sees("the session ended: the run ended").await;
    assert_eq!(terminal.ends(&plain()).await, 1);
    let mut terminal = OperatorTerminal::sit(&daemon, &[run.id()]);
    terminal.sees("RUN_NOT_READY").await;
    assert_eq!(terminal.ends(&plain()).await, 1);

    let other = daemon.run_on(requests::managed("review")).await;
    let (mut terminal, _) = seated(&daemon, &other).await;
    daemon.kill().await;
    terminal.sees("the connection to the daemon broke").await;
    assert_eq!(terminal.ends(&plain()).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_goes_away_ends_the_session() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let (mut terminal, session) = seated(&daemon, &run).await;
    terminal.types("sleep 1000\r").await;
    super::runs(&run, "sleep 1000").await;
    let OperatorTerminal { mut child, keys, shown, line, .. } = terminal;
    // As when a window is closed.
    drop((keys, shown, line));
    tokio::time::timeout(Duration::from_secs(30), child.wait()).await.expect("coffer does not end").unwrap();
    assert_eq!(recorded(&run, &session, "session_closed").await["outcome"]["reason"], "DISCONNECTED");
    // Somebody else can sit down.
    let mut seat = Seat::at(&run).await;
    seat.types("echo $((6*7))\r").await;
    seat.sees("42").await;
}
