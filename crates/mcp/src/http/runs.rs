//! The runs that have an endpoint.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::door::Door;
use super::endpoint::Endpoint;
use super::settings::Settings;
use crate::token::RunToken;

/// Between two looks for those that have ended.
const PACE: Duration = Duration::from_secs(5);
/// An endpoint that nobody has used for so long is forgotten; the next request makes another.
const IDLE: Duration = Duration::from_secs(600);

/// An endpoint for each run whose token has been shown: no more than there are runs with a token that live.
pub(super) struct Runs<D> {
    door: Arc<D>,
    settings: Settings,
    stop: CancellationToken,
    by_run: Mutex<HashMap<String, Arc<Endpoint>>>,
}

impl<D: Door> Runs<D> {
    pub(super) fn new(door: Arc<D>, settings: Settings, stop: CancellationToken) -> Self {
        Self { door, settings, stop, by_run: Mutex::default() }
    }

    /// The endpoint of the run whose token this is; the door has opened for it.
    pub(super) fn of(&self, token: RunToken) -> Arc<Endpoint> {
        let mut by_run = self.by_run.lock();
        if let Some(endpoint) = by_run.get(token.run()) {
            return endpoint.clone();
        }
        let run = token.run().to_owned();
        let endpoint = Arc::new(Endpoint::new(self.door.api(), token, &self.settings, &self.stop));
        by_run.insert(run, endpoint.clone());
        endpoint
    }

    /// Forgets, until it is told to stop, those whose token opens nothing any more, and what nobody uses.
    pub(super) async fn sweep(&self) {
        let mut ticks = interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stop.cancelled() => return self.by_run.lock().clear(),
            }
            let all: Vec<Arc<Endpoint>> = self.by_run.lock().values().cloned().collect();
            for endpoint in all {
                let ended = !self.door.opens(endpoint.token());
                if ended {
                    endpoint.end();
                }
                if ended || endpoint.is_idle(IDLE).await {
                    self.by_run.lock().remove(endpoint.token().run());
                }
            }
        }
    }
}
