//! Commands at a terminal.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use operations::{Bounds, Exec, ExecResult, Reason, ToolFailure};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use worker_protocol::client::{
    Finished, Keyboard, LaneError, OutputSink, Placement, SessionOver, Terminal, TerminalSignal,
    TerminalSize, TerminalSpec,
};
use worker_protocol::convert::Reply;

use crate::harness::{Group, Guest, command, given_enough, nap, peak_kib, result, running, sh, until};
use crate::sinks::{Gate, Screen};

/// A session and what it shows.
struct Session {
    terminal: Terminal,
    keyboard: Keyboard,
    screen: Arc<Screen>,
    cancel: CancellationToken,
}

fn size(rows: u32, columns: u32) -> TerminalSize {
    TerminalSize::new(rows, columns).unwrap()
}

fn spec<'a>(exec: &'a Exec, bounds: &'a Bounds, output: &'a Arc<dyn OutputSink>) -> TerminalSpec<'a> {
    TerminalSpec {
        exec,
        login_shell: false,
        bounds,
        size: size(24, 80),
        pipes: false,
        deadline: Duration::from_secs(60),
        output,
    }
}

impl Session {
    fn open(guest: &Guest, exec: &Exec) -> Self {
        Self::open_with(guest, exec, false, None)
    }

    fn open_with(
        guest: &Guest,
        exec: &Exec,
        login_shell: bool,
        placement: Option<Arc<dyn Placement>>,
    ) -> Self {
        let screen = Arc::new(Screen::default());
        let (bounds, output) = (Bounds::default(), Arc::clone(&screen) as Arc<dyn OutputSink>);
        let spec = TerminalSpec { login_shell, ..spec(exec, &bounds, &output) };
        let cancel = CancellationToken::new();
        let terminal = guest.client.terminal(spec, placement, &cancel).unwrap();
        Self { keyboard: terminal.keyboard(), terminal, screen, cancel }
    }

    async fn types(&self, text: &str) {
        self.keyboard.write(text.as_bytes()).await.unwrap();
    }

    async fn shows(&self, text: &str) {
        self.screen.shows(text).await;
    }

    async fn ended(self) -> ExecResult {
        let finished = timeout(Duration::from_secs(60), self.terminal.finished()).await.expect("it goes on");
        result(finished.unwrap().outcome)
    }
}

#[tokio::test]
async fn typed_input_is_echoed_and_read() {
    let guest = Guest::start().await;
    let session = Session::open(&guest, &command(&["cat"]));
    session.types("hello\n").await;
    session.shows("hello\r\nhello\r\n").await;
    // Erasing takes whole characters.
    session.types("aä\u{7f}b\n").await;
    session.shows("\r\nab\r\n").await;
    session.types("\u{4}").await;
    let screen = Arc::clone(&session.screen);
    let done = session.ended().await;
    assert_eq!((done.exit_code, done.signal, done.kill.as_ref().unwrap().left), (Some(0), None, 0));
    assert_eq!((done.stdout_bytes, done.stderr_bytes), (screen.text().len() as u64, 0));
    assert_eq!(done.stdout, "");
}

#[tokio::test]
async fn session_has_a_controlling_terminal() {
    let guest = Guest::start().await;
    let script = "for fd in 0 1 2; do test -t $fd || echo no tty; done; \
                  echo from tty >/dev/tty; stty -a | tr ';' '\\n' | grep -o iutf8; ls /proc/self/fd | wc -l; \
                  echo session $$ $(cut -d' ' -f5,6,8 /proc/$$/stat); echo to stderr >&2";
    let session = Session::open(&guest, &sh(script));
    session.shows("to stderr\r\n").await;
    let text = session.screen.text();
    let lines: Vec<_> = text.lines().collect();
    let ["from tty", "iutf8", "4", ids, "to stderr"] = lines[..] else { panic!("{text}") };
    // Its own session, its own group, which is the one in the foreground.
    let ids: Vec<_> = ids.split(' ').skip(1).collect();
    assert!(ids.len() == 4 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(session.ended().await.exit_code, Some(0));
}

#[tokio::test]
async fn terminal_has_the_last_requested_size() {
    let guest = Guest::start().await;
    let script = "stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.02; done";
    let session = Session::open(&guest, &sh(script));
    session.shows("24 80\r\nready\r\n").await;
    session.keyboard.resize(size(50, 132)).await.unwrap();
    session.shows("50 132\r\n").await;
    assert_eq!(session.ended().await.exit_code, Some(5));
}

#[tokio::test]
async fn keys_and_signals_interrupt() {
    let guest = Guest::start().await;
    for (number, signal) in [
        (2, None),
        (2, Some(TerminalSignal::Int)),
        (3, Some(TerminalSignal::Quit)),
        (15, Some(TerminalSignal::Term)),
        (9, Some(TerminalSignal::Kill)),
        (1, Some(TerminalSignal::Hup)),
    ] {
        let nap = nap(30);
        let session = Session::open(&guest, &command(&["sleep", &nap]));
        until(|| running(&nap) > 0).await;
        match signal {
            // Ctrl-C
            None => session.types("\u{3}").await,
            Some(signal) => session.keyboard.signal(signal).await.unwrap(),
        }
        let done = session.ended().await;
        assert_eq!((done.signal, done.timed_out), (Some(number), false), "{signal:?}");
    }
}

#[tokio::test]
async fn a_shell_has_its_jobs() {
    let guest = Guest::start().await;
    let nap = nap(31);
    let session = Session::open_with(&guest, &sh("unused"), true, None);
    session.types("shopt -q login_shell && echo log''in; PS1='ok> '\n").await;
    session.shows("login\r\n").await;
    session.types(&format!("sleep {nap}\n")).await;
    until(|| running(&nap) > 0).await;
    // Stopped by Ctrl-Z, continued in the background, ended by its job's number.
    session.types("\u{1a}").await;
    session.shows("Stopped").await;
    session.types("bg; kill %1; wait; echo go''ne\n").await;
    session.shows("gone\r\n").await;
    assert!(!session.screen.text().contains("job control"), "{}", session.screen.text());
    session.types("exit 3\n").await;
    assert_eq!(session.ended().await.exit_code, Some(3));
}

#[tokio::test]
async fn a_shell_without_arguments_reads_no_startup_file() {
    let guest = Guest::start().await;
    let home = tempfile::tempdir().unwrap();
    for name in [".bashrc", ".bash_profile", ".profile"] {
        fs::write(home.path().join(name), "echo plan''ted\n").unwrap();
    }
    let file = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    // In this mode bash reads `ENV`, as other shells always do.
    let env = [
        ("HOME", file("")),
        ("ENV", file(".bashrc")),
        ("POSIXLY_CORRECT", "1".to_owned()),
        ("PROMPT_COMMAND", "echo plan''ted".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value));
    for (args, planted) in [(vec![], false), (vec!["-l".to_owned()], true)] {
        let exec = Exec { args, env: env.clone().into(), ..sh("unused") };
        let session = Session::open_with(&guest, &exec, true, None);
        session.types("echo o''n; exit 0\n").await;
        session.shows("on\r\n").await;
        assert_eq!(session.screen.text().contains("planted"), planted, "{}", session.screen.text());
        assert_eq!(session.ended().await.exit_code, Some(0));
    }
}

#[tokio::test]
async fn cancelled_session_sends_hangup() {
    let guest = Guest::start().await;
    for placed in [false, true] {
        let (sleep, mark) = (nap(if placed { 32 } else { 33 }), format!("hung-up-{placed}"));
        let group = Arc::new(Group::default());
        let placement = placed.then(|| Arc::clone(&group) as Arc<dyn Placement>);
        let script = format!("trap ': > {mark}; exit' HUP; sleep {sleep} & while :; do sleep 0.02; done");
        let session = Session::open_with(&guest, &sh(&script), false, placement);
        until(|| running(&sleep) > 1).await;
        session.cancel.cancel();
        let done = session.ended().await;
        assert_eq!((done.kill.as_ref().unwrap().left, done.timed_out), (0, false));
        // What was killed may still be on its way out of the kernel.
        until(|| running(&sleep) == 0).await;
        assert!(guest.project().join(mark).exists());
    }
    // An interactive shell does not hear SIGTERM: without a hang-up it would have its whole grace.
    let shell = Session::open_with(&guest, &sh("unused"), true, None);
    shell.types("echo rea''dy\n").await;
    shell.shows("ready").await;
    shell.cancel.cancel();
    let done = shell.ended().await;
    assert_eq!((done.signal, done.kill.as_ref().unwrap().left), (Some(1), 0));
}

#[tokio::test]
async fn processes_end_with_their_session() {
    let guest = Guest::start().await;
    let nap = nap(34);
    let script = format!("trap '' HUP; (setsid nohup sleep {nap} &); nohup sleep {nap} & echo ready; read x");
    let session = Session::open(&guest, &sh(&script));
    session.shows("ready").await;
    until(|| running(&nap) > 1).await;
    session.types("\n").await;
    let done = session.ended().await;
    assert!(done.kill.as_ref().unwrap().ended >= 2 && done.kill.as_ref().unwrap().left == 0, "{done:?}");
    assert_eq!(running(&nap), 0);
    // Nor does one that nobody holds any more.
    let session = Session::open(&guest, &command(&["sleep", &nap]));
    until(|| running(&nap) > 0).await;
    drop(session);
    until(|| running(&nap) == 0).await;
}

#[tokio::test]
async fn a_program_that_reads_nothing_blocks_nothing() {
    let guest = Guest::start().await;
    let nap = nap(35);
    let session = Session::open(&guest, &sh(&format!("stty raw -echo isig; echo ready; sleep {nap}")));
    session.shows("ready").await;
    let typing = {
        let keyboard = session.keyboard.clone();
        tokio::spawn(async move { keyboard.write(&vec![b'k'; 10 << 20]).await })
    };
    for i in 0..20 {
        assert_eq!(guest.ran(sh(&format!("echo {i}"))).await.stdout, format!("{i}\n"));
    }
    assert!(!typing.is_finished());
    assert!(peak_kib(guest.pid) < 16 * 1024, "{} KiB", peak_kib(guest.pid));
    session.keyboard.resize(size(10, 10)).await.unwrap();
    session.keyboard.signal(TerminalSignal::Int).await.unwrap();
    assert_eq!(session.ended().await.signal, Some(2));
    assert_eq!(typing.await.unwrap(), Err(SessionOver));
}

#[tokio::test]
async fn long_input_arrives_whole() {
    let guest = Guest::start().await;
    let script = "stty raw -echo; echo ready; head -c 3000000 | sha256sum";
    let session = Session::open(&guest, &sh(script));
    session.shows("ready").await;
    let input: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    session.keyboard.write(&input).await.unwrap();
    let file = guest.project().join("input");
    fs::write(&file, &input).unwrap();
    let expected = guest.ran(sh("sha256sum < input")).await.stdout;
    session.shows(&expected[..64]).await;
    assert_eq!(session.ended().await.exit_code, Some(0));
}

#[tokio::test]
async fn terminal_output_is_complete_and_bounded() {
    let guest = Guest::start().await;
    let (exec, gate) = (command(&["seq", "300000"]), Arc::new(Gate::slow(4)));
    let output: Arc<dyn OutputSink> = Arc::clone(&gate) as _;
    let bounds = Bounds::default();
    let terminal = guest.client.terminal(spec(&exec, &bounds, &output), None, &CancellationToken::new());
    let done = result(terminal.unwrap().finished().await.unwrap().outcome);
    // Each line has a carriage return, too.
    let expected: u64 = (1..=300_000).map(|line: u32| line.to_string().len() as u64 + 2).sum();
    assert_eq!((done.exit_code, done.stdout_bytes, gate.counts()), (Some(0), expected, (expected, 0)));

    let bounds = Bounds { max_spool_bytes: 1_000_000, ..Bounds::default() };
    let (exec, gate) = (command(&["yes"]), Arc::new(Gate::slow(4)));
    let output: Arc<dyn OutputSink> = Arc::clone(&gate) as _;
    let terminal = guest.client.terminal(spec(&exec, &bounds, &output), None, &CancellationToken::new());
    let done = result(terminal.unwrap().finished().await.unwrap().outcome);
    assert_eq!((gate.counts(), done.timed_out, done.kill.as_ref().unwrap().left), ((1_000_000, 0), false, 0));
    assert!(done.stdout_bytes > 1_000_000);
}

#[tokio::test]
async fn a_terminal_that_was_closed_can_be_opened_again() {
    let guest = Guest::start().await;
    let script = "exec </dev/null >/dev/null 2>&1; sleep 0.1; exec >/dev/tty; echo again";
    let session = Session::open(&guest, &sh(script));
    session.shows("again\r\n").await;
    assert_eq!(session.ended().await.exit_code, Some(0));
}

#[tokio::test]
async fn terminal_time_is_limited() {
    let guest = Guest::start().await;
    let (exec, bounds) = (command(&["cat"]), Bounds::default());
    let output: Arc<dyn OutputSink> = Arc::new(Screen::default());
    let run = async |deadline: Duration| {
        let spec = TerminalSpec { deadline, ..spec(&exec, &bounds, &output) };
        let terminal = guest.client.terminal(spec, None, &CancellationToken::new()).unwrap();
        terminal.finished().await.unwrap().outcome
    };
    let began = |done: &Result<Reply, ToolFailure>| {
        !done.as_ref().is_err_and(|failure| failure.reason == Reason::TimedOut)
    };
    let done = result(given_enough(Duration::from_millis(300), run, began).await);
    assert_eq!((done.timed_out, done.signal, done.kill.as_ref().unwrap().left), (true, Some(1), 0));
}

#[tokio::test]
async fn failed_terminal_command_has_a_reason() {
    let guest = Guest::start().await;
    for (program, reason) in [("no-such-program", Reason::NotFound), ("rm", Reason::CommandNotAllowed)] {
        let finished: Result<Finished<Reply>, LaneError> =
            Session::open(&guest, &command(&[program])).terminal.finished().await;
        assert_eq!(finished.unwrap().outcome.unwrap_err().reason, reason);
    }
}

#[tokio::test]
async fn the_end_of_the_guest_is_the_end_of_its_terminals() {
    let mut guest = Guest::start().await;
    let nap = nap(36);
    let session = Session::open(&guest, &sh(&format!("sleep {nap}; sleep {nap}")));
    until(|| running(&nap) > 1).await;
    guest.process.kill().await.unwrap();
    assert!(matches!(session.terminal.finished().await, Err(LaneError::Lost(_))));
    until(|| running(&nap) == 0).await;
}
