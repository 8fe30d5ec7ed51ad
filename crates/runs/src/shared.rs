//! The state that a run's task works with. The task changes the run in memory, in the store and on record.

use std::sync::Arc;

use crate::record::{Held, Record, State};
use audit::Event;
use executor::Lanes;
use operations::ToolFailure;
use parking_lot::RwLock;
use refusal::chain;
use serde_json::json;
use timestamp::{Timestamp, micros};
use tokio::sync::{mpsc, watch};

use crate::registry::Runs;
use crate::run::{Command, Run};
use crate::stored;

/// State that a run's task works with.
pub(crate) struct Shared {
    pub(crate) runs: Arc<Runs>,
    pub(crate) run: Arc<Run>,
    pub(crate) record: watch::Sender<Record>,
    pub(crate) lanes: Arc<RwLock<Option<Arc<Lanes>>>>,
    pub(crate) commands: mpsc::Receiver<Command>,
}

impl Shared {
    pub(crate) async fn enter(&self, state: State, failure: Option<ToolFailure>) {
        self.record.send_modify(|record| record.enter(state, failure));
        let record = self.record.borrow().clone();
        let mut details = json!({ "state": state.as_str() });
        // A run that is being ended has its failure on record once, with its end.
        if let Some(failure) = record.failure.as_ref().filter(|_| state != State::Stopping) {
            tracing::warn!(run = %record.id, state = state.as_str(), failure, "run");
            record.explain_failure(&mut details);
        } else {
            tracing::info!(run = %record.id, state = state.as_str(), "run");
        }
        if state == State::Ready {
            details["start_kind"] = record.start_kind().as_str_name().into();
            if let Some(because) = record.cold_because() {
                details["cold_because"] = because.to_wire().as_str_name().into();
            }
            let images: serde_json::Map<String, serde_json::Value> = record
                .companions
                .iter()
                .filter_map(|one| Some((one.name.clone(), json!(one.launched.as_ref()?.image_id))))
                .collect();
            if !images.is_empty() {
                details["companion_images"] = images.into();
            }
            if let Some(waited) = record.waited_for_companions() {
                details["waited_for_companions_us"] = micros(waited).into();
            }
        }
        if let Some(cause) = record.end_cause {
            details["cause"] = cause.as_str().into();
        }
        if !record.holds.is_empty() {
            details["holds"] = record.holds.iter().map(Held::to_json).collect();
        }
        self.keep(&record, details).await;
        if state.has_ended() {
            self.runs.has_ended(&record);
        }
        self.runs.changed(record);
    }

    /// Records that the run takes calls again. `ended` describes the processes of the previous daemon's calls that were ended.
    pub(crate) async fn adopted(&self, ended: serde_json::Value) {
        self.record.send_modify(|record| {
            record.restarts = record.restarts.saturating_add(1);
            record.adopted_at = Some(Timestamp::now());
        });
        let record = self.record.borrow().clone();
        tracing::info!(run = %record.id, restarts = record.restarts, "run taken over after a restart");
        self.keep(
            &record,
            json!({
                "state": record.state.as_str(),
                "adopted": true,
                "restarts": record.restarts,
                "ended": ended,
            }),
        )
        .await;
        self.runs.changed(record);
    }

    async fn keep(&self, record: &Record, details: serde_json::Value) {
        if let Err(error) = stored::update(&self.runs.store, record).await {
            tracing::error!(run = %record.id, error = %chain(&error), "a run's state was not kept");
        }
        self.tell(record, details).await;
    }

    pub(crate) async fn tell(&self, record: &Record, details: serde_json::Value) {
        self.put_on_record(record.event(details)).await;
    }

    pub(crate) async fn put_on_record(&self, event: Event) {
        // The record need not be durable before the new state is visible: the state itself is the event.
        if self.runs.audit.enqueue(event).await.is_err() {
            tracing::error!(run = %self.record.borrow().id, "a run's state is not in the audit log");
        }
    }
}
