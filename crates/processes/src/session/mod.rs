//! Sessions: processes that are shells, and take one command after the other.
//!
//! The owner of the process also passes the terminal's output to the session ([`Session::saw`]), which finds where commands begin
//! and end. The caller that has the session's turn gives it a command and waits for the result (`talk.rs`).

mod expect;
mod lines;
mod scan;
mod shown;

use operations::{Exit, Reason, SessionResult, SessionState, ToolFailure};
use parking_lot::Mutex;
use tokio::sync::watch;
use wire::v1;

use self::lines::Mark;
use self::scan::Scan;
use self::shown::Told;

pub(crate) use self::expect::Expect;

/// Most lines that the shell may take, one after the other, without writing the mark that they ask for. They are sent within
/// three seconds.
const PATIENCE: u32 = 8;

/// The state of a session beside its process.
pub(crate) struct Session {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// Held by the one caller that may give it a command and get the result.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

struct State {
    scan: Scan,
    /// Number of unanswered questions to the shell.
    unanswered: u32,
    /// The shell takes lines.
    is_open: bool,
    /// Number of processes that the kernel had killed for lack of memory when the command began, if that is known.
    oom_kills: Option<u64>,
}

impl Session {
    /// Returns the session of a new shell, or of an earlier daemon's. The shell's answers show what runs in it.
    pub(crate) fn new(at: u64) -> Self {
        let state = State { scan: Scan::new(Mark::new(), at), unanswered: 0, is_open: true, oom_kills: None };
        Self {
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Adds output of the terminal.
    pub(crate) fn saw(&self, bytes: &[u8]) {
        self.state.lock().scan.feed(bytes);
        self.changed.send_replace(());
    }

    /// Notes how far the shell has read.
    pub(crate) fn heard(&self, taken: bool, open: bool) {
        let mut state = self.state.lock();
        state.is_open = open;
        state.unanswered = if taken { state.unanswered + 1 } else { 0 };
        drop(state);
        self.changed.send_replace(());
    }

    /// Returns the state of a living session, as clients see it.
    pub(crate) fn now(&self) -> v1::session::State {
        let state = self.state.lock();
        match (state.is_open, state.scan.is_idle()) {
            (false, _) => v1::session::State::Replaced,
            (true, true) => v1::session::State::Idle,
            (true, false) => v1::session::State::Busy,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().scan.is_idle()
    }

    /// Returns true if this daemon started the running command, or no command runs.
    pub(crate) fn is_known(&self) -> bool {
        self.state.lock().scan.is_known()
    }

    /// Returns a receiver of all changes that may end a wait.
    pub(crate) fn follow(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the first line for its shell.
    pub(crate) fn opening(&self) -> Option<Vec<u8>> {
        self.state.lock().scan.end().map(lines::opening)
    }

    /// Returns the line for this command, which becomes the current one. Keeps at most `limit` bytes of its output.
    pub(crate) fn give(&self, command: &str, limit: usize, oom_kills: Option<u64>) -> Vec<u8> {
        let (begin, end) = (Mark::new(), Mark::new());
        let line = lines::command(&begin, &end, command);
        let mut state = self.state.lock();
        state.scan.give(begin, end, limit);
        (state.unanswered, state.oom_kills) = (0, oom_kills);
        line
    }

    /// Names the limit that ended the command of a result, if one did. `oom_kills` is the present number.
    pub(crate) fn judge(&self, result: SessionResult, oom_kills: Option<u64>) -> SessionResult {
        let limit = match (result.state(), Exit::of(result.exit_code, None)) {
            (SessionState::Done, Some(exit)) => {
                let before = self.state.lock().oom_kills;
                let out_of_memory = before.zip(oom_kills).is_some_and(|(before, now)| now > before);
                exit.limit(false, out_of_memory)
            }
            // The end of the shell is that of its process, which has its own cause.
            _ => None,
        };
        match limit {
            Some(limit) => SessionResult { ended_by: limit.into(), ..result },
            None => result,
        }
    }

    /// Returns a line that asks the shell for the mark, if a command runs and the shell takes lines.
    pub(crate) fn probe(&self) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.scan.end().filter(|_| state.is_open).map(lines::probe)
    }

    /// Returns, once, the result that ends the wait of the caller whose turn it is.
    pub(crate) fn answer(&self, expect: &Expect) -> Option<SessionResult> {
        let mut state = self.state.lock();
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

    /// Returns the new output, with `how` as the state.
    pub(crate) fn take(&self, how: SessionState) -> SessionResult {
        told(how, self.state.lock().scan.shown.take(how == SessionState::Running))
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

#[cfg(test)]
mod tests {
    use operations::EndedBy;

    use super::*;

    #[test]
    fn a_limit_that_ended_a_command_is_named() {
        let session = Session::new(0);
        let judged = |state: SessionState, code, oom_kills| {
            let result = SessionResult { state: state.into(), exit_code: code, ..Default::default() };
            session.judge(result, oom_kills).ended_by()
        };
        assert_eq!(
            judged(SessionState::Done, Some(137), Some(9)),
            EndedBy::Unspecified,
            "no number is known"
        );
        session.give("true", 100, Some(1));
        assert_eq!(judged(SessionState::Done, Some(137), Some(1)), EndedBy::Unspecified);
        assert_eq!(judged(SessionState::Done, Some(137), Some(2)), EndedBy::MemoryLimit);
        assert_eq!(judged(SessionState::Done, Some(0), Some(2)), EndedBy::Unspecified);
        assert_eq!(judged(SessionState::Done, Some(153), None), EndedBy::FileSizeLimit);
        // What ended the shell is known of its process.
        assert_eq!(judged(SessionState::Ended, Some(137), Some(2)), EndedBy::Unspecified);
        assert_eq!(judged(SessionState::Running, None, Some(2)), EndedBy::Unspecified);
    }
}
