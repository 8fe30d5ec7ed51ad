//! `coffer top` and `coffer approval watch` through a pseudo-terminal: what a person sees, and what the keys do.

use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use harness::v1::approval::State as Approved;
use harness::v1::run::State;
use harness::{Daemon, RunHandle, Setup, binary, calls, requests, v1};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// Time that a screen has to show something.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time that a text is on the screen before a decision counts, and some more.
const GLANCE: Duration = Duration::from_millis(1_300);

/// A terminal with a command of `coffer` at it, and the screen that a person sees.
struct Terminal {
    child: Child,
    master: tokio::fs::File,
    line: File,
    screen: vt100::Parser,
    /// All bytes that came, for sequences that are no text.
    bytes: Vec<u8>,
    before: String,
}

impl Terminal {
    fn open(daemon: &Daemon, arguments: &[&str], (rows, columns): (u16, u16)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let line = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).unwrap();
        set_size(&line, rows, columns);
        let before = modes(&line);
        let side = || Stdio::from(line.try_clone().unwrap());
        // With a session of its own the pseudo-terminal is its controlling terminal, as for a person.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(binary("coffer"))
            .args(arguments)
            .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let master = tokio::fs::File::from_std(File::from(master));
        Self {
            child,
            master,
            line,
            screen: vt100::Parser::new(size(rows), size(columns), 0),
            bytes: Vec::new(),
            before,
        }
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        set_size(&self.line, rows, columns);
        self.screen.screen_mut().set_size(size(rows), size(columns));
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    async fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).await.unwrap();
        self.master.flush().await.unwrap();
    }

    /// Reads until the screen fulfils a condition.
    async fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) {
        let seeing = async {
            while !is_so(&self.screen.screen().contents()) {
                let mut bytes = vec![0; 16 * 1024];
                let count = self.master.read(&mut bytes).await.unwrap();
                self.screen.process(&bytes[..count]);
                self.bytes.extend_from_slice(&bytes[..count]);
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seeing).await;
        assert!(seen.is_ok(), "no {what:?} on the screen:\n{}", self.screen.screen().contents());
    }

    async fn sees(&mut self, text: &str) {
        self.until(text, |screen| screen.contains(text)).await;
    }

    /// The exit code. The terminal must be as it was before, and show its own screen again.
    async fn ends(mut self) -> i32 {
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = status.expect("coffer does not end").unwrap();
        assert_eq!(modes(&self.line), self.before, "the terminal is not as it was");
        let restoring = async {
            while self.screen.screen().alternate_screen() || self.screen.screen().hide_cursor() {
                let mut bytes = vec![0; 64 * 1024];
                let count = self.master.read(&mut bytes).await.unwrap();
                self.screen.process(&bytes[..count]);
            }
        };
        let restored = tokio::time::timeout(PATIENCE, restoring).await;
        assert!(restored.is_ok(), "the other screen is still shown, or the cursor is hidden");
        status.code().unwrap_or(-1)
    }
}

fn size(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).unwrap()
}

fn set_size(line: &File, rows: u16, columns: u16) {
    tcsetwinsize(line, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

fn modes(line: &File) -> String {
    let modes = tcgetattr(line).unwrap();
    format!("{:?} {:?} {:?}", modes.input_modes, modes.output_modes, modes.local_modes)
}

async fn state(run: &mut RunHandle, state: State) {
    harness::until("the state", async || run.show().await.state() == state).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_shown_paused_resumed_and_stopped_with_single_keys() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "x")).await;
    let mut terminal = Terminal::open(&daemon, &["top"], (24, 80));
    terminal.sees("runs 1 (1 ready, 0 paused)").await;
    terminal.sees("READY").await;
    terminal.types("p").await;
    terminal.sees("is PAUSED").await;
    state(&mut run, State::Paused).await;
    terminal.sees("runs 1 (0 ready, 1 paused)").await;
    terminal.types("p").await;
    state(&mut run, State::Ready).await;
    terminal.sees("runs 1 (1 ready, 0 paused)").await;
    // The whole of it, and back.
    terminal.types("\r").await;
    terminal.sees("\"runId\"").await;
    terminal.types("q").await;
    terminal.sees("RUN").await;
    // Calls of it, and a filter that hides them.
    terminal.types("2").await;
    terminal.sees("write").await;
    terminal.types("/nothing").await;
    terminal.sees("none that the filter shows").await;
    terminal.types("\x1b").await;
    terminal.sees("succeeded").await;
    terminal.types("1x").await;
    terminal.sees("stop run").await;
    terminal.types("n").await;
    terminal.sees("not stopped").await;
    assert_eq!(run.show().await.state(), State::Ready);
    terminal.types("xy").await;
    state(&mut run, State::Stopped).await;
    terminal.types("q").await;
    assert_eq!(terminal.ends().await, 0);
}

/// The last line on the screen of those that are read, and their number: of `3-20 of 64`, 20 and 64. None while the screen is half drawn,
/// because then the title does not have as many lines as there is space for.
fn part(screen: &str) -> Option<(usize, usize)> {
    let title = screen.lines().nth(1)?.trim_end();
    let (shown, all) = title.rsplit_once("  ")?.1.split_once(" of ")?;
    let (first, last) = shown.split_once('-')?;
    let (first, last, all): (usize, _, _) = (first.parse().ok()?, last.parse().ok()?, all.parse().ok()?);
    // Beside them there are the state, the title and the keys.
    (last + 1 == first + screen.lines().count() - 3).then_some((last, all))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_given_only_after_all_of_it_was_on_the_screen() {
    let daemon = Daemon::start().await;
    let before = (0..120).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
    let workspace = daemon.workspace("w", &[("a.txt", &before)]);
    let mut run = daemon.run("review", &workspace).await;
    let after = (0..120).map(|line| format!("changed {line}\x1b[2J\u{202e}\n")).collect::<Vec<_>>().concat();
    let asked = run.asks(calls::write("a.txt", &after)).await;
    let mut terminal = Terminal::open(&daemon, &["top"], (24, 80));
    terminal.sees("approvals 1").await;
    terminal.types("3").await;
    terminal.sees("APPROVAL").await;
    terminal.types("a").await;
    terminal.sees("Space: go on").await;
    tokio::time::sleep(GLANCE).await;
    terminal.types("a").await;
    terminal.sees("lines were not shown yet").await;
    assert_eq!(run.clients.approval(&asked.approval_id).await.state(), Approved::Pending);
    // To the end with a jump leaves the middle unseen.
    terminal.types("\x1b[F").await;
    terminal.until("the end", |screen| part(screen).is_some_and(|(last, all)| last == all)).await;
    terminal.types("a").await;
    terminal.sees("lines were not shown yet").await;
    terminal.types("\x1b[H").await;
    terminal.until("first page", |screen| part(screen).is_some_and(|(last, _)| last < 24)).await;
    // Lines count once they were on the screen.
    while let Some((before, all)) = part(&terminal.screen.screen().contents())
        && before < all
    {
        terminal.types(" ").await;
        terminal.until("next page", |screen| part(screen).is_some_and(|(last, _)| last != before)).await;
    }
    terminal.sees("changed 119␛[2J<U+202E>").await;
    // A resize keeps what was shown.
    terminal.resize(30, 100);
    terminal.until("the larger page", |screen| part(screen).is_some() && screen.lines().count() == 30).await;
    terminal.types("a").await;
    terminal.sees("is APPROVED").await;
    let outcome = run.outcome(&asked.call_id).await;
    assert_eq!(outcome.status(), v1::call_response::Status::Succeeded);
    terminal.types("q").await;
    assert_eq!(terminal.ends().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_come_one_after_the_other_with_a_notification_and_are_denied_with_a_key() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let mut terminal = Terminal::open(&daemon, &["approval", "watch"], (24, 80));
    terminal.sees("none").await;
    for content in ["first", "second"] {
        let asked = run.asks(calls::write("a.txt", content)).await;
        terminal.sees(&asked.approval_id).await;
        terminal.types(" ").await;
        terminal.sees(&format!("+{content}")).await;
        // Within the first second the key could be meant for the one before.
        tokio::time::sleep(GLANCE).await;
        terminal.types("d").await;
        terminal.sees("is DENIED").await;
        assert_eq!(run.clients.approval(&asked.approval_id).await.state(), Approved::Denied);
    }
    let told = terminal.bytes.windows(4).any(|window| window == b"\x1b]9;");
    assert!(told, "no notification");
    terminal.types("q").await;
    assert_eq!(terminal.ends().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_gone_is_told_and_found_again_and_a_signal_restores_the_terminal() {
    let mut daemon = Daemon::start_with(Setup::default()).await;
    let run = daemon.run_on(requests::managed("open")).await;
    let mut terminal = Terminal::open(&daemon, &["top"], (10, 40));
    terminal.sees("runs 1").await;
    daemon.kill().await;
    terminal.sees("the daemon is gone").await;
    terminal.types("p").await;
    terminal.sees("nothing was done").await;
    daemon.launch().await;
    terminal.sees("runs 1 (1 ready").await;
    terminal.resize(3, 12);
    terminal.sees("the terminal").await;
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.ends().await, 128 + 15);
    drop(run);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_round_is_printed_as_tables_or_json_without_a_terminal() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "x")).await;
    let of = async |line: &[&str]| {
        let mut command = Command::new(binary("coffer"));
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
        let output = command.args(line).stdin(Stdio::null()).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, out, _) = of(&["top", "--once"]).await;
    assert!(code == 0 && out.contains("RUN") && out.contains("READY") && out.contains("write"), "{out}");
    let (code, out, _) = of(&["top", "--output", "json"]).await;
    let board: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    assert_eq!(board["runs"]["items"][0]["runId"], run.id());
    assert_eq!(board["calls"]["items"][0]["operation"], "write");
    let (code, _, err) = of(&["top"]).await;
    assert!(code == 2 && err.contains("needs a terminal"), "{err}");
}
