//! Owns a process, in one task: stores its output, gives it its input, and handles its end.
//!
//! ```text
//!  RUNNING ─ over │ killed │ timeout │ run ended │ keeper lost ─► everything ended ─► rest of the output ─► ENDED │ INTERRUPTED
//!     └────── the daemon stops and leaves its runs, or dies ─────► stays, for the next daemon
//! ```
//!
//! The keeper ends last. If the daemon dies before the end is recorded and stored, the next daemon still learns the end from the
//! keeper.

use std::sync::Arc;
use std::time::Duration;

use executor::{Held, KeeperLost, Link, leave};
use operations::{EndedBy, Exit, KillEvidence};
use refusal::chain;
use runs::Run;
use timestamp::{Timestamp, UnixMillis};
use tokio::time::{Instant, sleep_until, timeout};
use wire::v1::process::State;
use wire::v1::{self, signal_process_request::Signal as Wanted};
use wire::worker::v1::keeper_state::Phase;
use wire::worker::v1::output::Stream;
use wire::worker::v1::{
    Attach, Control, Drain, KeeperState, KillForeground, Output as Written, Signal, from_keeper::Body,
    to_keeper,
};

use crate::disk::{Edition, Known, ProcessFiles};
use crate::ended::{RunEnd, ended_event, ends_runs, put_down};
use crate::input::Input;
use crate::process::{Ends, Line, Order, Process};
use crate::shared::Shared;

/// Time that a keeper has to send the rest of its process's output.
const DRAIN: Duration = Duration::from_secs(10);
/// Most bytes of one piece of output.
const MOST: usize = 64 * 1024;

pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: Arc<Run>,
    pub(crate) files: ProcessFiles,
    pub(crate) known: Known,
    pub(crate) process: Arc<Process>,
    pub(crate) link: Link,
    pub(crate) input: Input,
}

/// The reason why a process ends.
enum Why {
    Itself,
    TimedOut,
    Killed,
    RunEnded,
    /// A limit of the run.
    Limit(EndedBy),
    Lost(KeeperLost),
    /// The process lives on, and the next daemon finds it.
    Left,
}

/// The next event of a process.
enum Happening {
    Said(Result<Body, KeeperLost>),
    Ordered(Option<Order>),
    Given(Option<crate::process::Given>),
    Impatient,
    Ends(Why),
}

impl Owner {
    pub(crate) async fn own(mut self, mut ends: Ends, mut state: KeeperState, mut held: Held) {
        // A run with a process is in use.
        let _busy = self.run.busy();
        let (began, oom_kills) = (std::time::Instant::now(), held.oom_kills());
        let why =
            if state.phase() == Phase::Over { Why::Itself } else { self.attend(&mut ends, &mut state).await };
        if matches!(why, Why::Left) {
            return;
        }
        let is_of_stop = ends_runs(&self.shared);
        let (stdin_bytes, _) = self.input.state();
        ends.status.send_modify(|status| status.stdin_bytes = stdin_bytes);
        ends.orders.close();
        ends.input.close();
        let forced = matches!(why, Why::TimedOut);
        let ended = tokio::task::spawn_blocking(move || {
            let ended = held.end(forced);
            let out_of_memory = held.oom_kills() > oom_kills;
            (ended, out_of_memory, held)
        });
        let Ok(((kill, metered), out_of_memory, held)) = ended.await else { return };
        let said_all = matches!(why, Why::Lost(_))
            || timeout(DRAIN, self.drain(&mut state)).await.is_ok_and(|drained| drained.is_ok());
        self.process.output.settle();
        let recording = self.input.finish().await;
        let unrecorded = self.input.unrecorded();
        if kill.left > 0 {
            self.run.fail_for_processes(kill.left, "of a process").await;
        }
        let ended_at = Timestamp::now().to_wire();
        let of_run = match why {
            Why::Lost(_) => RunEnd::decided(&self.run, &self.shared).await,
            _ => RunEnd::now(&self.run, is_of_stop),
        };
        let leaves = self.shared.stop.is_cancelled() && !ends_runs(&self.shared);
        if matches!(why, Why::Lost(_)) && leaves && !of_run.is_lost() {
            // The next daemon sees whether the run is lost, too.
            return;
        }
        let over_quota = self.run.disk.ended_since(began);
        let why = match (why, exit_of(&state).limit(over_quota, out_of_memory)) {
            (Why::Itself, Some(by)) => Why::Limit(by),
            (why, _) => why,
        };
        let usage = metered.over(worker_protocol::client::Usage {
            cpu_time_us: Some(state.cpu_time_us),
            peak_memory_bytes: Some(state.peak_memory_bytes),
        });
        let mut status = self.status(&state, &why, kill);
        put_down(&mut status, &of_run);
        status.cpu_time_us = usage.cpu_time_us.unwrap_or_default();
        status.peak_memory_bytes = usage.peak_memory_bytes.unwrap_or_default();
        if !said_all && (status.ended_by() == EndedBy::RunEnded || status.failure.is_empty()) {
            let between = if status.failure.is_empty() { "" } else { "; " };
            status.failure.push_str(between);
            status.failure.push_str("the end of its output was not read in time");
        }
        status.ended_at = Some(ended_at);
        let event = ended_event(&self.files, &self.known, &status, recording.as_ref(), unrecorded);
        if self.shared.audit.record(event).await.is_err() {
            tracing::error!(process = %self.files.id, "a process's end waits for the audit log");
        }
        if finish(&self.shared, &self.files, &self.known, &status).await {
            if let Err(error) = self.link.say(leave()).await {
                tracing::debug!(%error, "a keeper ended early");
            }
            let _ = tokio::task::spawn_blocking(move || held.close()).await;
        }
        // After the record: a client that learns of the end finds it there.
        let _ = ends.status.send(status);
    }

    /// Waits until the process ends, or has to be ended.
    async fn attend(&mut self, ends: &mut Ends, state: &mut KeeperState) -> Why {
        let (on_stop, stop) = (self.shared.on_stop.clone(), self.shared.stop.clone());
        let until = self
            .known
            .until_ms
            .map(|until| Instant::now() + Duration::from_millis(until.saturating_sub(UnixMillis::now().0)));
        loop {
            let patience = self.input.until();
            let happening = tokio::select! {
                biased;
                () = on_stop.leaves(&stop) => Happening::Ends(Why::Left),
                () = self.run.ended.cancelled() => Happening::Ends(Why::RunEnded),
                () = at(until) => Happening::Ends(Why::TimedOut),
                order = ends.orders.recv() => Happening::Ordered(order),
                given = ends.input.recv(), if self.input.is_free() => Happening::Given(given),
                () = at(patience) => Happening::Impatient,
                // Last, so that a flood of output delays neither orders nor input.
                said = self.link.next() => Happening::Said(said),
            };
            // Outside of the select: a step that has begun is finished.
            let done = match happening {
                Happening::Ends(why) => return why,
                Happening::Said(Ok(body)) => match self.said(body, state).await {
                    Ok(()) if state.phase() == Phase::Over => return Why::Itself,
                    done => done,
                },
                Happening::Said(Err(lost)) => Err(lost),
                Happening::Ordered(Some(Order::Signal(Wanted::Kill, answer))) => {
                    let _ = answer.send(Ok(()));
                    return Why::Killed;
                }
                // The last handle is gone: no client could end the process later.
                Happening::Ordered(None) | Happening::Given(None) => return Why::Killed,
                Happening::Ordered(Some(order)) => self.order(order).await,
                Happening::Given(Some(given)) => self.input.give(given, &mut self.link).await,
                Happening::Impatient => {
                    self.input.answer();
                    Ok(())
                }
            };
            let (taken, open) = self.input.state();
            ends.status.send_if_modified(|status| {
                let changed = (status.stdin_bytes, status.stdin_open) != (taken, open);
                (status.stdin_bytes, status.stdin_open) = (taken, open);
                changed
            });
            if let Err(lost) = done {
                // The end of a run ends its keepers.
                return if self.run.ended.is_cancelled() { Why::RunEnded } else { Why::Lost(lost) };
            }
        }
    }

    async fn order(&mut self, order: Order) -> Result<(), KeeperLost> {
        match order {
            Order::Resize(size, answer) => {
                let recorded = self.input.resized(size).await;
                if recorded.is_ok() {
                    let size = wire::worker::v1::TerminalSize { rows: size.rows, columns: size.columns };
                    self.link.say(to_keeper::Body::Resize(size)).await?;
                }
                let _ = answer.send(recorded);
            }
            Order::Signal(wanted, answer) => {
                let recorded = self.input.signalled(wanted).await;
                if recorded.is_ok() {
                    let number = i32::from(wanted).unsigned_abs();
                    self.link.say(to_keeper::Body::Signal(Signal { number })).await?;
                }
                let _ = answer.send(recorded);
            }
            Order::KillForeground => {
                self.link.say(to_keeper::Body::KillForeground(KillForeground {})).await?;
            }
            Order::Control(Line { data, if_read, record, answer }) => {
                let recorded = match record {
                    Some(text) => self.input.told(text).await,
                    None => true,
                };
                if recorded {
                    self.link.say(to_keeper::Body::Control(Control { data, if_read })).await?;
                }
                let _ = answer.send(recorded);
            }
        }
        Ok(())
    }

    /// Handles a message of the keeper.
    async fn said(&mut self, body: Body, state: &mut KeeperState) -> Result<(), KeeperLost> {
        match body {
            Body::State(said) => {
                if said.phase() < state.phase() {
                    return Err(KeeperLost::Malformed("a process that goes back"));
                }
                *state = said;
            }
            Body::Output(written) => self.wrote(written).await?,
            Body::Taken(taken) => self.input.taken(&taken, &mut self.link).await?,
            // The program could not be executed; the process's end says so, too.
            Body::Failed(failure) => tracing::debug!(failure.message, "a process did not begin"),
            Body::Heard(heard) => {
                if let Some(session) = &self.process.session {
                    session.heard(heard.taken, heard.open);
                }
            }
            Body::Drained(_) => return Err(KeeperLost::Malformed("an end that was not requested")),
        }
        Ok(())
    }

    /// Stores a piece of output, and tells the keeper.
    async fn wrote(&mut self, written: Written) -> Result<(), KeeperLost> {
        let at = match written.stream() {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
            Stream::Unspecified => return Err(KeeperLost::Malformed("output of no stream")),
        };
        let end = self.process.output.ends()[at];
        if written.data.len() > MOST || written.offset < end {
            return Err(KeeperLost::Malformed("output that was sent before, or too much of it"));
        }
        if let Some(session) = self.process.session.as_ref().filter(|_| at == 0) {
            session.saw(&written.data);
        }
        let process = self.process.clone();
        let appended =
            tokio::task::spawn_blocking(move || process.output.append(at, written.offset, &written.data));
        appended.await.map_err(std::io::Error::other)?;
        let [stdout, stderr] = self.process.output.ends();
        self.link.say(to_keeper::Body::Kept(Attach { stdout, stderr })).await
    }

    /// Reads the rest of the output after the last process has ended.
    async fn drain(&mut self, state: &mut KeeperState) -> Result<(), KeeperLost> {
        self.link.say(to_keeper::Body::Drain(Drain {})).await?;
        let mut end: Option<Attach> = None;
        loop {
            let [stdout, stderr] = self.process.output.ends();
            if end.is_some_and(|end| end.stdout <= stdout && end.stderr <= stderr)
                && state.phase() == Phase::Over
            {
                return Ok(());
            }
            match self.link.next().await? {
                Body::Drained(drained) => end = drained.end,
                Body::Taken(_) => {}
                body => self.said(body, state).await?,
            }
        }
    }

    fn status(&self, state: &KeeperState, why: &Why, kill: KillEvidence) -> v1::Process {
        let mut status = self.process.now();
        let exit = exit_of(state);
        status.set_state(State::Ended);
        status.exit_code = exit.code();
        status.signal = exit.signal();
        status.stdin_open = false;
        status.kill = Some(kill);
        let ended_by = match why {
            Why::Itself | Why::Left => EndedBy::Unspecified,
            Why::TimedOut => EndedBy::Timeout,
            Why::Killed => EndedBy::Killed,
            Why::RunEnded => EndedBy::RunEnded,
            Why::Limit(by) => {
                operations::cause(*by).map_or("", |(_, happened)| happened).clone_into(&mut status.failure);
                *by
            }
            Why::Lost(lost) => {
                status.set_state(State::Interrupted);
                status.failure =
                    format!("the keeper of the process in the container was lost: {}", chain(lost));
                EndedBy::Interrupted
            }
        };
        status.set_ended_by(ended_by);
        status
    }
}

/// Returns the exit of the process's first program, as far as it is known.
fn exit_of(state: &KeeperState) -> Exit {
    let known = (state.phase() == Phase::Over).then(|| Exit::of(state.exit_code, state.signal));
    known.flatten().unwrap_or_default()
}

/// Stores how a process ended, durably. Returns true on success. On failure the keeper has to stay, for the next daemon.
pub(crate) async fn finish(
    shared: &Shared,
    files: &ProcessFiles,
    known: &Known,
    status: &v1::Process,
) -> bool {
    let (key, files, known) = (shared.key.clone(), files.clone(), known.with(status));
    let id = files.id;
    let written = tokio::task::spawn_blocking(move || files.write(&key, Edition::Ended, &known)).await;
    let failed = match written {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => chain(&error),
        Err(error) => error.to_string(),
    };
    tracing::error!(process = %id, error = failed, "the end of a process was not stored");
    false
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
