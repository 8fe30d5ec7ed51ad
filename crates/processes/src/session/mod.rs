//! Sessions: a process that is a shell, and takes one command after the other.
//!
//! The owner of the process shows everything that the terminal shows to the session as well ([`Session::saw`]), which finds
//! where commands begin and end. The one who has the session's turn gives it something and waits for what comes of it
//! (`talk.rs`).

mod expect;
mod lines;
mod scan;
mod shown;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ops::{Reason, SessionResult, SessionState, ToolFailure};
use tokio::sync::watch;
use wire::v1;

use self::lines::Mark;
use self::scan::Scan;
use self::shown::Told;

pub(crate) use self::expect::Expect;

/// Times that the shell took a line which asks for the mark, one after the other, and said nothing. They come within three seconds.
const PATIENCE: u32 = 8;

/// What is known of a session beside its process.
pub(crate) struct Session {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// One at a time gives it something, and is told what comes of it.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

struct State {
    scan: Scan,
    /// How often the shell was asked in vain.
    unanswered: u32,
    /// The shell takes lines.
    is_open: bool,
}

impl Session {
    /// Of a shell that was just made, or that a former daemon has made: what runs in it is seen when it is asked.
    pub(crate) fn new(at: u64) -> Self {
        let state = State { scan: Scan::new(Mark::new(), at), unanswered: 0, is_open: true };
        Self {
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The terminal shows more.
    pub(crate) fn saw(&self, bytes: &[u8]) {
        self.state().scan.feed(bytes);
        self.changed.send_replace(());
    }

    /// How far the shell has read.
    pub(crate) fn heard(&self, taken: bool, open: bool) {
        let mut state = self.state();
        state.is_open = open;
        state.unanswered = if taken { state.unanswered + 1 } else { 0 };
        drop(state);
        self.changed.send_replace(());
    }

    /// As clients are told, of one that lives.
    pub(crate) fn now(&self) -> v1::session::State {
        let state = self.state();
        match (state.is_open, state.scan.is_idle()) {
            (false, _) => v1::session::State::Replaced,
            (true, true) => v1::session::State::Idle,
            (true, false) => v1::session::State::Busy,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state().scan.is_idle()
    }

    /// Whether what runs was given to it by this daemon, or nothing runs.
    pub(crate) fn is_known(&self) -> bool {
        self.state().scan.is_known()
    }

    /// Hears of whatever may end a wait.
    pub(crate) fn follow(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The first line for its shell.
    pub(crate) fn opening(&self) -> Option<Vec<u8>> {
        self.state().scan.end().map(lines::opening)
    }

    /// The line for this command, which is what it does next. Of what is shown so many bytes are kept.
    pub(crate) fn give(&self, command: &str, limit: usize) -> Vec<u8> {
        let (begin, end) = (Mark::new(), Mark::new());
        let line = lines::command(&begin, &end, command);
        let mut state = self.state();
        state.scan.give(begin, end, limit);
        state.unanswered = 0;
        line
    }

    /// A line that asks the shell for the mark, if there is anything to ask.
    pub(crate) fn probe(&self) -> Option<Vec<u8>> {
        let state = self.state();
        state.scan.end().filter(|_| state.is_open).map(lines::probe)
    }

    /// What ends the wait of the one whose turn it is, once.
    pub(crate) fn answer(&self, expect: &Expect) -> Option<SessionResult> {
        let mut state = self.state();
        if let Some(found) = state.scan.shown.matched(expect) {
            let result = told(SessionState::Matched, found.before);
            return Some(SessionResult { matched: Some(found.which), matched_text: found.text, ..result });
        }
        if state.scan.is_idle() {
            let result = told(SessionState::Done, state.scan.shown.take(false));
            return Some(SessionResult { exit_code: state.scan.take_code(), ..result });
        }
        (state.unanswered >= PATIENCE).then(|| told(SessionState::Unanswered, state.scan.shown.take(true)))
    }

    /// What there is to tell, and how it stands.
    pub(crate) fn take(&self, how: SessionState) -> SessionResult {
        told(how, self.state().scan.shown.take(how == SessionState::Running))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn no_session() -> ToolFailure {
    ToolFailure::new(Reason::NotFound, "session_id: the run has no such session").with("resource", "session")
}

fn told(how: SessionState, told: Told) -> SessionResult {
    let Told { text, bytes, omitted, offset } = told;
    SessionResult {
        state: how.into(),
        output: text,
        output_bytes: bytes,
        omitted_bytes: omitted,
        output_offset: offset,
        ..Default::default()
    }
}
