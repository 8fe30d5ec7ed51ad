//! Speaking with a session: opening it, giving it something, waiting for what comes of it, interrupting it.
//!
//! While somebody waits, the shell is asked for the mark again and again, ever more seldom, by a line that is given to it only
//! if it has read all others. It reads such a line when it is back from a command, however that ended; so an interrupt, an error
//! that breaks off the line, and a daemon that was restarted all come to the same.

use std::time::Duration;

use bytes::Bytes;
use ops::{OpResult, Outcome, Reason, SessionInput, SessionResult, SessionState, ToolFailure};
use refusal::Refusal;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use wire::v1::process::State;
use wire::v1::{self, signal_process_request::Signal};

use crate::process::{Line, Order, Process};
use crate::session::{Expect, Session, no_session};

/// For the shell to take its first command.
const OPENING: Duration = Duration::from_secs(20);
/// For a program that was killed to be gone, and its shell to say so.
const KILLED: Duration = Duration::from_secs(5);
/// For a call that waits for the session to go: its client may have left it a moment ago.
const TURN: Duration = Duration::from_secs(2);
/// For a shell to say that it is done, if it is.
const SETTLE: Duration = Duration::from_secs(1);
/// The same for one of which nothing is known: it may just begin to run.
const SETTLE_UNKNOWN: Duration = Duration::from_secs(5);
/// Between two questions to the shell: at first, and at last.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// Why the wait is over before there is an answer.
enum Over {
    Ended,
    Late,
    Cancelled,
}

impl Process {
    /// Makes a new shell ready.
    pub(crate) async fn open_session(&self) -> Result<(), ToolFailure> {
        let session = self.session()?;
        let Some(line) = session.opening() else { return Ok(()) };
        self.tell_shell(line, false, None).await?;
        if !self.settles(session, OPENING).await {
            let message = "the image's shell does not do what a session needs (looked for bash and sh)";
            return Err(ToolFailure::new(Reason::PreconditionFailed, message));
        }
        // Greetings of the shell are nobody's.
        session.take(SessionState::Done);
        Ok(())
    }

    /// Does what an operation `session` asks for. Of what is shown so many bytes are kept.
    pub(crate) async fn perform(
        &self,
        wanted: &ops::Session,
        limit: usize,
        cancel: &CancellationToken,
    ) -> Outcome {
        let session = self.session()?;
        let expect = Expect::compile("session.expect", &wanted.expect).map_err(|error| malformed(&error))?;
        let until = Instant::now() + wanted.timeout;
        let turn = cancel.run_until_cancelled(timeout(TURN.min(wanted.timeout), session.turn.lock())).await;
        let Some(turn) = turn else {
            let message = "the call was cancelled before its session took it; nothing of it has happened";
            return Err(ToolFailure::new(Reason::Cancelled, message));
        };
        let _turn = turn.map_err(|_| {
            ToolFailure::new(Reason::Overloaded, "another call waits for what the session does")
        })?;
        match &wanted.input {
            SessionInput::Command(command) => {
                self.check_takes_commands(session)?;
                let within = if session.is_known() { SETTLE } else { SETTLE_UNKNOWN };
                if !self.settles(session, within).await {
                    return Err(self.busy(session));
                }
                let line = session.give(command, limit);
                self.tell_shell(line, false, Some(format!("{command}\n").into())).await?;
            }
            SessionInput::Typed(input) => {
                if session.is_idle() {
                    let message = "nothing runs in the session that could read it: give it a command";
                    return Err(ToolFailure::new(Reason::PreconditionFailed, message));
                }
                self.type_in(input, until).await?;
            }
            SessionInput::Nothing => {}
        }
        self.listen(session, &expect, until, cancel).await.map(OpResult::Session)
    }

    /// Interrupts what runs, `attempts` times, and then kills it, with so much time after each, and no less than [`KILLED`] after the
    /// last. Tells what it showed, unless another one waits for that.
    pub async fn interrupt(
        &self,
        attempts: u32,
        each: Duration,
        expect: &[String],
    ) -> Result<SessionResult, Refusal> {
        let session = self.session().map_err(Refusal::from)?;
        ops::Session::check_patterns("expect", expect)?;
        let expect = Expect::compile("expect", expect)?;
        let turn = session.turn.try_lock().ok();
        let state = |idle| if idle { SessionState::Done } else { SessionState::Running };
        for attempt in 0..=attempts {
            if session.is_idle() || !self.lives() {
                break;
            }
            let (sent, each) = if attempt < attempts {
                (self.signal(Signal::Int).await, each)
            } else {
                (self.order(Order::KillForeground).await, each.max(KILLED))
            };
            if let Err(refusal) = sent {
                // It ends at this moment.
                if self.wait(each).await.state() == State::Running {
                    return Err(refusal);
                }
                break;
            }
            let until = Instant::now() + each;
            if turn.is_none() {
                self.settles(session, each).await;
            } else if let Ok(answer) = self.wait_for(until, None, || session.answer(&expect)).await {
                return Ok(answer);
            }
        }
        if turn.is_none() {
            return Ok(SessionResult { state: state(session.is_idle()).into(), ..Default::default() });
        }
        if !self.lives() {
            return Ok(self.last(session));
        }
        Ok(session.answer(&expect).unwrap_or_else(|| session.take(SessionState::Running)))
    }

    /// As it is now, of a process that is a session.
    pub fn session_now(&self) -> Option<v1::Session> {
        let session = self.session.as_ref()?;
        let process = self.now();
        let state = match process.state() {
            State::Running => session.now(),
            State::Unspecified | State::Ended | State::Interrupted => v1::session::State::Closed,
        };
        Some(v1::Session { session_id: self.id.to_string(), state: state.into(), process: Some(process) })
    }

    fn session(&self) -> Result<&Session, ToolFailure> {
        self.session.as_ref().ok_or_else(no_session)
    }

    async fn listen(
        &self,
        session: &Session,
        expect: &Expect,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<SessionResult, ToolFailure> {
        match self.wait_for(until, Some(cancel), || session.answer(expect)).await {
            Ok(answer) => Ok(answer),
            Err(Over::Ended) => Ok(self.last(session)),
            Err(Over::Late) => Ok(session.take(SessionState::Running)),
            Err(Over::Cancelled) => {
                let message =
                    "the call was cancelled; what it gave the session runs on: interrupt it, or wait for it";
                Err(ToolFailure::new(Reason::Cancelled, message))
            }
        }
    }

    /// What a session that has ended showed at last.
    fn last(&self, session: &Session) -> SessionResult {
        let v1::Process { exit_code, ended_by, .. } = self.now();
        SessionResult { exit_code, ended_by, ..session.take(SessionState::Ended) }
    }

    /// Whether the shell is done with everything, or is so within this time.
    async fn settles(&self, session: &Session, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.wait_for(until, None, || session.is_idle().then_some(())).await.is_ok()
    }

    /// Asks for the mark until there is something.
    async fn wait_for<T>(
        &self,
        until: Instant,
        cancel: Option<&CancellationToken>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, Over> {
        let Some(session) = &self.session else { return Err(Over::Ended) };
        let (mut changed, mut status) = (session.follow(), self.status.clone());
        let [mut pause, longest] = PAUSES;
        let mut asks = Instant::now() + pause;
        loop {
            changed.borrow_and_update();
            // Before the look: what has ended shows nothing more.
            let has_ended = status.borrow_and_update().state() != State::Running;
            if let Some(found) = look() {
                return Ok(found);
            }
            if has_ended {
                return Err(Over::Ended);
            }
            tokio::select! {
                biased;
                () = cancelled(cancel) => return Err(Over::Cancelled),
                () = sleep_until(until) => return Err(Over::Late),
                // Without its last word its owner has left it to the next daemon.
                left = status.changed() => if left.is_err() { return Err(Over::Cancelled) },
                () = sleep_until(asks) => {
                    if let Some(line) = session.probe() {
                        let _ = self.tell_shell(line, true, None).await;
                    }
                    pause = longest.min(pause * 2);
                    asks = Instant::now() + pause;
                }
                // Last: what is shown without end holds up no question.
                _ = changed.changed() => {}
            }
        }
    }

    fn check_takes_commands(&self, session: &Session) -> Result<(), ToolFailure> {
        if !self.lives() {
            return Err(ToolFailure::new(
                Reason::PreconditionFailed,
                "the session has ended: open another one",
            ));
        }
        if session.now() == v1::session::State::Replaced {
            let message = "the shell of the session has become another program (exec), or has closed its input: close it, and open another one";
            return Err(ToolFailure::new(Reason::PreconditionFailed, message));
        }
        Ok(())
    }

    fn busy(&self, session: &Session) -> ToolFailure {
        if let Err(failure) = self.check_takes_commands(session) {
            return failure;
        }
        let message = "the session still runs the last command, or its shell no longer answers: wait for it, interrupt it, or \
                       close the session";
        ToolFailure::new(Reason::PreconditionFailed, message)
    }

    /// Types at the terminal, after all that was typed there.
    async fn type_in(&self, input: &str, until: Instant) -> Result<(), ToolFailure> {
        let mut rest = Bytes::from(input.to_owned());
        while !rest.is_empty() {
            if Instant::now() >= until {
                let message = format!("{} bytes of it were not read in time by what runs", rest.len());
                return Err(ToolFailure::new(Reason::TimedOut, message));
            }
            let taken = self.append(rest.clone()).await.map_err(refused)?;
            rest = rest.slice(taken.min(rest.len())..);
        }
        Ok(())
    }

    /// Gives the shell a line, after what is to be recorded of it.
    async fn tell_shell(
        &self,
        data: Vec<u8>,
        if_read: bool,
        record: Option<Bytes>,
    ) -> Result<(), ToolFailure> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::Control(Line { data, if_read, record, answer })).await.map_err(refused)?;
        match answered.await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message =
                    "what a session is given is recorded, and its recording is full or cannot be written";
                Err(ToolFailure::new(Reason::WriteLimit, message))
            }
            Err(_) => Err(refused(crate::process::has_ended())),
        }
    }
}

async fn cancelled(cancel: Option<&CancellationToken>) {
    match cancel {
        Some(cancel) => cancel.cancelled().await,
        None => std::future::pending().await,
    }
}

fn malformed(malformed: &ops::Malformed) -> ToolFailure {
    ToolFailure::new(malformed.reason, malformed.to_string())
}

fn refused(refusal: Refusal) -> ToolFailure {
    refusal.into()
}
