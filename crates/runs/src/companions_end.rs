//! The end of a run's companions, by themselves or with the run.

use std::sync::Arc;

use crate::record::CompanionState;
use audit::{Event, WorkerChange};
use companions::Companion;
use refusal::{Refusal, chain};

use crate::shared::Shared;
use crate::stored;
use run_directories::resources::RunResources;

impl Shared {
    /// Notes that a companion has ended by itself, or was ended for the disk. The run goes on without it.
    pub(crate) async fn companion_ended(&self, companion: &Arc<Companion>, code: i64) {
        let name = companion.name();
        let egress = self.run.beside.write().remove(name);
        if let Some(egress) = egress {
            egress.end().await;
        }
        self.record.send_modify(|record| {
            let known = record.companions.iter_mut().find(|known| known.name == name);
            if let Some(known) = known {
                known.state = CompanionState::Exited(code);
            }
        });
        let record = self.record.borrow().clone();
        let killed_for = companion.killed_for();
        tracing::warn!(run = %record.id, companion = name, code, killed_for, "a companion has ended");
        if let Err(error) = stored::update(&self.runs.store, &record).await {
            tracing::error!(run = %record.id, error = %chain(&error), "a run's state was not kept");
        }
        let mut event = Event::of_worker(&format!("companion:{name}"), WorkerChange::Ended, killed_for);
        if let Some(details) = &mut event.details {
            details["exit_code"] = code.into();
        }
        self.put_on_record(event.run(record.id.to_string())).await;
        self.runs.changed(record);
    }

    /// Ends all companions with their run. Their containers are removed after that.
    pub(crate) async fn end_companions(&self, all: Vec<RunResources>) {
        if all.is_empty() {
            return;
        }
        let are_over = self.run.companions().kill(None).await;
        for mut resources in all {
            if are_over {
                let layer = resources.unmount();
                self.remove_later(resources.container.take(), layer);
            } else {
                resources.take_away(&self.runs.launcher.engine).await;
            }
        }
    }

    /// Hides the secrets of a run in the reason for which it was not launched. It may have output of a companion.
    pub(crate) fn without_secrets(&self, refusal: Refusal) -> Refusal {
        if self.record.borrow().companions.is_empty() {
            return refusal;
        }
        let redactor = self.runs.audit.redactor();
        let message = redactor.of(&self.record.borrow().id.to_string()).whole(&refusal.message).0;
        Refusal { message, ..refusal }
    }
}
