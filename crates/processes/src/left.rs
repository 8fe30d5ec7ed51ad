//! Keeps the processes that a command left running, in a profile that allows it: one entry of the table, without keeper and output.
//!
//! ```text
//!  RUNNING ─ all gone │ KILL │ run ended ─► everything ended ─► ENDED
//!     └────── the daemon stops and leaves its runs, or dies ─────► stays, for the next daemon
//! ```
//!
//! The processes are in their leaf cgroup before the table has their entry. A daemon that dies in between leaves a leaf that the
//! next daemon does not know and ends.

use std::sync::Arc;

use audit::{Event, Kind};
use executor::Left;
use identity::CallId;
use operations::{EndedBy, KillEvidence, Reason};
use refusal::{Refusal, chain};
use runs::Run;
use serde_json::json;
use timestamp::Timestamp;
use wire::v1::process::State;
use wire::v1::{self, signal_process_request::Signal};

use crate::cut::cut;
use crate::disk::{Edition, Known, ProcessFiles};
use crate::ended::{RunEnd, ended_event, ends_runs, put_down};
use crate::input::Unrecorded;
use crate::owner::finish;
use crate::process::{Ends, Order, Process};
use crate::shared::Shared;
use crate::table::Processes;

/// The call that left processes running, and its caller.
pub struct LeftBy<'c> {
    pub call: CallId,
    pub principal: &'c str,
    pub agent: &'c str,
    /// The command.
    pub request: v1::ProcessRequest,
}

impl Processes {
    /// Enters the processes that a call left running. If that fails, ends all of them and returns the evidence.
    pub async fn keep_left(&self, run: &Arc<Run>, by: &LeftBy<'_>, left: Left) -> Result<(), KillEvidence> {
        let (run_id, id) = (run.record().id, by.call);
        let (request, request_cut) = cut(&by.request);
        let status = v1::Process {
            process_id: id.to_string(),
            run_id: run_id.to_string(),
            request: Some(request),
            request_cut,
            state: State::Running.into(),
            started_at: Some(Timestamp::now().to_wire()),
            left_behind: left.processes,
            ..Default::default()
        };
        let known = Known::new(&status, by.principal, by.agent, None, 0);
        let shared = self.shared();
        let files = ProcessFiles::new(&shared.root, run_id, id);
        if let Err(failure) = self.enter(run_id, id) {
            tracing::warn!(run = %run_id, call = %id, why = failure.message, "the processes that a call left running are ended");
            return Err(end_left(left).await);
        }
        let (made, key, written) = (files.clone(), shared.key.clone(), known.clone());
        let written = tokio::task::spawn_blocking(move || {
            made.make()?;
            made.write(&key, Edition::Living, &written)
        });
        let written = written.await.map_err(std::io::Error::other).and_then(|written| written);
        let output = match written {
            Ok(()) => self.output(&files, 0, None).await,
            Err(error) => Err(error),
        };
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                tracing::error!(run = %run_id, call = %id, error = %chain(&error), "the processes that a call left running cannot be recorded on the daemon's disk, and are ended");
                let evidence = end_left(left).await;
                self.forget(run_id, id);
                let _ = tokio::task::spawn_blocking(move || files.remove()).await;
                return Err(evidence);
            }
        };
        // The entry gets no output, so it takes only its record's size from the run's allowance.
        output.settle();
        let event = Event::new(Kind::ProcessesLeft)
            .run(run_id.to_string())
            .call(id.to_string())
            .principal(by.principal)
            .agent(by.agent)
            .details(json!({ "process_id": id.to_string(), "processes": left.processes }));
        if shared.audit.enqueue(event).await.is_err() {
            tracing::error!(call = %id, "the background processes of a call are not in the audit log");
        }
        self.own_left(run.clone(), files, known, (status, output), left);
        Ok(())
    }

    /// Starts the task that owns the processes.
    pub(crate) fn own_left(
        &self,
        run: Arc<Run>,
        files: ProcessFiles,
        known: Known,
        (status, output): (v1::Process, Arc<crate::output::Output>),
        left: Left,
    ) {
        let (process, ends) = Process::new(files.run, files.id, status, output);
        self.insert(process.clone());
        let shared = self.shared().clone();
        let owner = Owner { shared: shared.clone(), run, files, known, process };
        shared.tasks.spawn(owner.own(left, ends));
    }
}

struct Owner {
    shared: Arc<Shared>,
    run: Arc<Run>,
    files: ProcessFiles,
    known: Known,
    process: Arc<Process>,
}

impl Owner {
    async fn own(self, left: Left, mut ends: Ends) {
        let left = Arc::new(left);
        let Some(mut ended_by) = self.attend(&left, &mut ends).await else { return };
        let is_of_stop = ends_runs(&self.shared);
        ends.orders.close();
        ends.input.close();
        let (kill, metered) = end_shared(&left).await;
        if kill.left > 0 {
            self.run.fail_for_processes(kill.left, "that a command left").await;
        }
        let ended_at = Timestamp::now().to_wire();
        let of_run = match ended_by {
            // The entry counts as a living one meanwhile.
            EndedBy::Unspecified => RunEnd::decided(&self.run, &self.shared).await,
            _ => RunEnd::now(&self.run, is_of_stop),
        };
        if ended_by == EndedBy::Unspecified && of_run.is_lost() {
            ended_by = EndedBy::RunEnded;
        }
        let mut status = self.process.now();
        status.set_state(State::Ended);
        status.set_ended_by(ended_by);
        status.kill = Some(kill);
        put_down(&mut status, &of_run);
        let usage = metered.over(worker_protocol::client::Usage::default());
        status.cpu_time_us = usage.cpu_time_us.unwrap_or_default();
        status.peak_memory_bytes = usage.peak_memory_bytes.unwrap_or_default();
        status.ended_at = Some(ended_at);
        let event = ended_event(&self.files, &self.known, &status, None, Unrecorded::default());
        if self.shared.audit.record(event).await.is_err() {
            tracing::error!(process = %self.files.id, "a process's end waits for the audit log");
        }
        finish(&self.shared, &self.files, &self.known, &status).await;
        // After the record: a client that learns of the end finds it there.
        let _ = ends.status.send(status);
    }

    /// Waits until all processes have ended, or have to be ended. Returns the reason; `None` leaves them to the next daemon.
    async fn attend(&self, left: &Arc<Left>, ends: &mut Ends) -> Option<EndedBy> {
        loop {
            tokio::select! {
                biased;
                () = self.shared.on_stop.leaves(&self.shared.stop) => return None,
                () = self.run.ended.cancelled() => return Some(EndedBy::RunEnded),
                order = ends.orders.recv() => match order {
                    Some(Order::Signal(Signal::Kill, answer)) => {
                        let _ = answer.send(Ok(()));
                        return Some(EndedBy::Killed);
                    }
                    Some(Order::Signal(signal, answer)) => {
                        let left = left.clone();
                        let sent = tokio::task::spawn_blocking(move || left.signal(signal.into())).await;
                        let sent = sent.map_err(std::io::Error::other).and_then(|sent| sent);
                        let _ = answer.send(sent.map_err(|error| Refusal::internal("sending the signal", &chain(&error))));
                    }
                    Some(Order::Resize(_, answer)) => {
                        let _ = answer.send(Err(no_stream("the process has no terminal")));
                    }
                    Some(Order::KillForeground | Order::Control(_)) => {}
                    // The last handle is gone: no client could end the processes later.
                    None => return Some(EndedBy::Killed),
                },
                given = ends.input.recv() => match given {
                    Some(given) => {
                        let _ = given.answer.send(Err(no_stream("the process reads nothing: its standard input is closed")));
                    }
                    None => return Some(EndedBy::Killed),
                },
                () = left.over() => return Some(EndedBy::Unspecified),
            }
        }
    }
}

fn no_stream(why: &str) -> Refusal {
    Refusal::new(Reason::PreconditionFailed, why)
}

/// Ends processes that a command left running, and returns the evidence.
pub async fn end_left(left: Left) -> KillEvidence {
    end_shared(&Arc::new(left)).await.0
}

async fn end_shared(left: &Arc<Left>) -> (KillEvidence, executor::Metered) {
    let left = left.clone();
    tokio::task::spawn_blocking(move || left.end()).await.unwrap_or_default()
}
