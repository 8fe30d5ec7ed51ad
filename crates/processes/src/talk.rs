//! Talks with a session: opens it, gives it a command or input, waits for the result, interrupts it.
//!
//! While a caller waits, the daemon asks the shell for the mark again and again, at growing intervals. The question is a line
//! that is sent only if the shell has read all others. The shell reads such a line when it is back from a command, however the
//! command ended. So an interrupt, an error that breaks off the line, and a restart of the daemon need no special treatment.

use std::time::Duration;

use bytes::Bytes;
use operations::{OpResult, Outcome, Reason, SessionInput, SessionResult, SessionState, ToolFailure};
use refusal::Refusal;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use wire::v1::process::State;
use wire::v1::{self, signal_process_request::Signal};

use crate::process::{Line, Order, Process};
use crate::session::{Expect, Session, no_session};

/// Time that the shell has to take its first command.
const OPENING: Duration = Duration::from_secs(20);
/// Time for a killed program to disappear, and for its shell to report that.
const KILLED: Duration = Duration::from_secs(5);
/// Time that a call waits for its turn: the previous client may have left the session a moment ago.
const TURN: Duration = Duration::from_secs(2);
/// Time that a shell has to report that it is done, if it is.
const SETTLE: Duration = Duration::from_secs(1);
/// The same time for a shell whose state is unknown: it may only be starting.
const SETTLE_UNKNOWN: Duration = Duration::from_secs(5);
/// Shortest and longest pause between two questions to the shell.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The reason why a wait ends without an answer.
enum Over {
    Ended,
    Late,
    Cancelled,
}

impl Process {
    /// Prepares a new shell for commands.
    pub(crate) async fn open_session(&self) -> Result<(), ToolFailure> {
        let session = self.session()?;
        let Some(line) = session.opening() else { return Ok(()) };
        self.tell_shell(line, false, None).await?;
        if !self.settles(session, OPENING).await {
            let message = "the image's shell lacks features that a session needs (looked for bash and sh); use an image with bash";
            return Err(ToolFailure::new(Reason::PreconditionFailed, message));
        }
        // Drops the shell's greetings, which belong to no command.
        session.take(SessionState::Done);
        Ok(())
    }

    /// Performs an operation `session`. Keeps at most `limit` bytes of the output. `oom_kills` returns the number of processes that
    /// the kernel has killed in the run for lack of memory.
    pub(crate) async fn perform(
        &self,
        wanted: &operations::Session,
        limit: usize,
        oom_kills: impl Fn() -> Option<u64>,
        cancel: &CancellationToken,
    ) -> Outcome {
        let session = self.session()?;
        let expect = Expect::compile("session.expect", &wanted.expect).map_err(|error| malformed(&error))?;
        let until = Instant::now() + wanted.timeout;
        let turn = cancel.run_until_cancelled(timeout(TURN.min(wanted.timeout), session.turn.lock())).await;
        let Some(turn) = turn else {
            let message = "the call was cancelled before its session received it; nothing was done";
            return Err(ToolFailure::new(Reason::Cancelled, message));
        };
        let _turn = turn.map_err(|_| {
            ToolFailure::new(
                Reason::Overloaded,
                "another call is waiting for the session: try again when it has ended",
            )
        })?;
        match &wanted.input {
            SessionInput::Command(command) => {
                self.check_takes_commands(session)?;
                let within = if session.is_known() { SETTLE } else { SETTLE_UNKNOWN };
                if !self.settles(session, within).await {
                    return Err(self.busy(session));
                }
                let line = session.give(command, limit, oom_kills());
                self.tell_shell(line, false, Some(format!("{command}\n").into())).await?;
            }
            SessionInput::Typed(input) => {
                if session.is_idle() {
                    let message =
                        "no command runs in the session that could read the input: send a command instead";
                    return Err(ToolFailure::new(Reason::PreconditionFailed, message));
                }
                self.type_in(input, until).await?;
            }
            SessionInput::Nothing => {}
        }
        let result = self.listen(session, &expect, until, cancel).await?;
        Ok(OpResult::Session(session.judge(result, oom_kills())))
    }

    /// Interrupts the running command `attempts` times, and then kills it.
    ///
    /// After each attempt it waits for `each`, and after the last for at least [`KILLED`]. Returns the output, unless another
    /// caller waits for that.
    pub async fn interrupt(
        &self,
        attempts: u32,
        each: Duration,
        expect: &[String],
    ) -> Result<SessionResult, Refusal> {
        let session = self.session().map_err(Refusal::from)?;
        operations::Session::check_patterns("expect", expect)?;
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
                // The session may be ending at this moment.
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

    /// Returns the session's current state, if the process is a session.
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
                let message = "the call was cancelled, but its command continues in the session: interrupt it, or wait for it";
                Err(ToolFailure::new(Reason::Cancelled, message))
            }
        }
    }

    /// Returns the last output of a session that has ended.
    fn last(&self, session: &Session) -> SessionResult {
        let v1::Process { exit_code, ended_by, .. } = self.now();
        SessionResult { exit_code, ended_by, ..session.take(SessionState::Ended) }
    }

    /// Returns true if the shell is done with all commands, or is so within this time.
    async fn settles(&self, session: &Session, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.wait_for(until, None, || session.is_idle().then_some(())).await.is_ok()
    }

    /// Asks for the mark until `look` finds a result.
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
            // Before the look, because a process that has ended shows no further output.
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
                // A lost sender without a final status means that the owner has left the process to the next daemon.
                left = status.changed() => if left.is_err() { return Err(Over::Cancelled) },
                () = sleep_until(asks) => {
                    if let Some(line) = session.probe() {
                        let _ = self.tell_shell(line, true, None).await;
                    }
                    pause = longest.min(pause * 2);
                    asks = Instant::now() + pause;
                }
                // Last, so that endless output delays no question.
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

    /// Types at the terminal, after all earlier input.
    async fn type_in(&self, input: &str, until: Instant) -> Result<(), ToolFailure> {
        let mut rest = Bytes::from(input.to_owned());
        while !rest.is_empty() {
            if Instant::now() >= until {
                let message = format!(
                    "the command in the session did not read {} bytes of the input in time",
                    rest.len()
                );
                return Err(ToolFailure::new(Reason::TimedOut, message));
            }
            let taken = self.append(rest.clone()).await.map_err(refused)?;
            rest = rest.slice(taken.min(rest.len())..);
        }
        Ok(())
    }

    /// Gives the shell a line. Records `record` first.
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
                    "the input of a session must be recorded, and its recording is full or cannot be written";
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

fn malformed(malformed: &operations::Malformed) -> ToolFailure {
    ToolFailure::new(malformed.reason, malformed.to_string())
}

fn refused(refusal: Refusal) -> ToolFailure {
    refusal.into()
}
