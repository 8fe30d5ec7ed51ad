//! Takes over the processes of an earlier daemon. Each goes on or is closed as interrupted.

use std::sync::Arc;

use executor::{Lanes, leave};
use operations::{EndedBy, KillEvidence};
use refusal::chain;
use runs::record::Spec;
use timestamp::{Timestamp, UnixMillis};
use wire::v1;
use wire::v1::process::State;
use wire::worker::v1::Attach;

use crate::disk::{Edition, Known, ProcessFiles};
use crate::ended::{RunEnd, ended_event, put_down, put_down_unreadable};
use crate::input::{Unrecorded, recording};
use crate::leftovers::{Leftovers, name};
use crate::output::Output;
use crate::owner::finish;
use crate::process::Process;
use crate::table::Processes;

impl Processes {
    /// Reattaches the processes of an earlier daemon. Each goes on or is closed as interrupted.
    pub async fn reattach(&self, leftovers: Leftovers) {
        let (known, unreadable) = leftovers.into_parts();
        for files in unreadable {
            let Ok(run) = self.shared().runs.get(files.run) else {
                remove(files).await;
                continue;
            };
            if let Err(error) = self.close_unreadable(&files, &run.spec).await {
                tracing::error!(run = %files.run, process = %files.id, error = %chain(&error), "a process from before the restart cannot be closed");
            }
        }
        for (files, edition, known) in known {
            if self.shared().runs.get(files.run).is_err() {
                remove(files).await;
                continue;
            }
            if let Err(error) = self.reattach_one(&files, edition, known).await {
                tracing::warn!(run = %files.run, process = %files.id, error = %chain(&error), "a process from before the restart cannot be read");
            }
        }
    }

    async fn reattach_one(
        &self,
        files: &ProcessFiles,
        edition: Edition,
        known: Known,
    ) -> std::io::Result<()> {
        let status = known.process()?;
        let ends = (edition == Edition::Ended).then_some([status.stdout_bytes, status.stderr_bytes]);
        let output = self.output(files, known.most, ends).await?;
        if edition == Edition::Ended {
            output.settle();
            self.insert(Process::new(files.run, files.id, status, output).0);
            return Ok(());
        }
        let [stdout, stderr] = output.ends();
        let living = self.shared().runs.living_run(files.run).ok();
        let lanes = living.as_ref().and_then(|run| run.lanes_for_review().ok());
        if status.left_behind > 0
            && let (Some(run), Some(lanes)) = (&living, &lanes)
            && let Some(left) = lanes.find_left(&name(files.id), status.left_behind)
        {
            output.settle();
            self.own_left(run.clone(), files.clone(), known, (status, output), left);
            return Ok(());
        }
        let found = match &lanes {
            Some(lanes) => {
                let found = lanes.keep_on(&name(files.id), Attach { stdout, stderr }).await;
                found.map_err(|(lost, kill)| (chain(&lost), kill))
            }
            None => Err(("its run ended with the daemon".to_owned(), KillEvidence::default())),
        };
        match (found, living) {
            (Ok(attached), Some(run)) => {
                let recorder = if status.stdin_open {
                    let segment = UnixMillis::now().0;
                    recording(self.shared(), &run, files, &status, segment).await.ok()
                } else {
                    None
                };
                tracing::info!(run = %files.run, process = %files.id, "process taken over after a restart");
                self.own(run, files, known, status, (output, recorder), attached);
            }
            (Ok(_), None) => {}
            (Err((why, kill)), _) => {
                let why = format!("the daemon was restarted, and the process could not be reattached: {why}");
                self.interrupted(files, &known, status, output, (why, kill), false).await;
            }
        }
        Ok(())
    }

    /// Ends a process whose record is unreadable: only its run is known.
    async fn close_unreadable(&self, files: &ProcessFiles, run: &Spec) -> std::io::Result<()> {
        let status = v1::Process {
            process_id: files.id.to_string(),
            run_id: files.run.to_string(),
            ..Default::default()
        };
        let known = Known::new(&status, &run.principal, &run.agent_id, None, 0);
        let output = self.output(files, known.most, None).await?;
        let living = self.shared().runs.living_run(files.run).ok();
        let kill = match living.as_ref().and_then(|run| run.lanes_for_review().ok()) {
            Some(lanes) => end_leftovers(&lanes, &name(files.id), output.ends()).await,
            None => KillEvidence::default(),
        };
        let left = kill.left;
        let why = "the daemon was restarted and cannot read its record of the process".to_owned();
        self.interrupted(files, &known, status, output, (why, kill), true).await;
        // Afterwards, because this failure of the run is a consequence of the end of the process.
        if let Some(run) = living.filter(|_| left > 0) {
            run.fail_for_processes(left, "of a process").await;
        }
        Ok(())
    }

    /// Closes a process that was lost with an earlier daemon, and has no processes left. `is_of_daemon`: for want of its record.
    async fn interrupted(
        &self,
        files: &ProcessFiles,
        known: &Known,
        mut status: v1::Process,
        output: Arc<Output>,
        (why, kill): (String, KillEvidence),
        is_of_daemon: bool,
    ) {
        status.set_state(State::Interrupted);
        status.set_ended_by(EndedBy::Interrupted);
        status.failure = why;
        // A program of a run that lives on can have ended the keeper. A run that is gone has an end.
        let of_run = self.shared().runs.get(files.run).map(RunEnd::of).unwrap_or_default();
        if is_of_daemon {
            put_down_unreadable(&mut status, &of_run);
        } else {
            put_down(&mut status, &of_run);
        }
        status.kill = Some(kill);
        status.stdin_open = false;
        [status.stdout_bytes, status.stderr_bytes] = output.ends();
        status.ended_at = Some(Timestamp::now().to_wire());
        output.settle();
        let event = ended_event(files, known, &status, None, Unrecorded::default());
        if self.shared().audit.enqueue(event).await.is_err() {
            tracing::error!(process = %files.id, "a process's end is not in the audit log");
        }
        finish(self.shared(), files, known, &status).await;
        self.insert(Process::new(files.run, files.id, status, output).0);
    }
}

/// Removes the files of a process whose run is gone.
async fn remove(files: ProcessFiles) {
    let removed = tokio::task::spawn_blocking(move || files.remove()).await;
    if let Ok(Err(error)) = removed {
        tracing::warn!(%error, "a process of a run that is gone was not removed");
    }
}

/// Ends the processes that an earlier daemon has started under this name.
async fn end_leftovers(lanes: &Lanes, name: &str, [stdout, stderr]: [u64; 2]) -> KillEvidence {
    let attached = match lanes.keep_on(name, Attach { stdout, stderr }).await {
        Ok(attached) => attached,
        Err((_, kill)) => return kill,
    };
    let (mut link, _, mut held) = attached.into_parts();
    let ended = tokio::task::spawn_blocking(move || {
        let (kill, _) = held.end(false);
        (kill, held)
    });
    let Ok((kill, held)) = ended.await else { return KillEvidence::default() };
    if let Err(error) = link.say(leave()).await {
        tracing::debug!(%error, "a keeper ended early");
    }
    let _ = tokio::task::spawn_blocking(move || held.close()).await;
    kill
}
