//! Holds the endpoints of the runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::endpoint::Endpoint;
use super::settings::Settings;
use crate::token::RunToken;

/// Time between two scans for ended runs.
const PACE: Duration = Duration::from_secs(5);
/// Time after which an unused endpoint is dropped; the next request creates another.
const IDLE: Duration = Duration::from_secs(600);

/// An endpoint for each run whose token has been sent: at most as many as there are living runs with a token.
pub(super) struct Runs {
    access: Arc<Access>,
    settings: Settings,
    stop: CancellationToken,
    by_run: Mutex<HashMap<String, Arc<Endpoint>>>,
}

impl Runs {
    pub(super) fn new(access: Arc<Access>, settings: Settings, stop: CancellationToken) -> Self {
        Self { access, settings, stop, by_run: Mutex::default() }
    }

    /// Returns the endpoint of this token's run, which ends with the token. `None` if the token is no longer valid.
    pub(super) fn of(&self, token: RunToken) -> Option<Arc<Endpoint>> {
        let mut by_run = self.by_run.lock();
        if let Some(endpoint) = by_run.get(token.run()).filter(|endpoint| *endpoint.token() == token) {
            return Some(endpoint.clone());
        }
        // Checked again: an old token must not end the endpoint of the one that replaced it since.
        let replaced = (self.access.opens)(&token)?.replaced;
        let run = token.run().to_owned();
        let endpoint = Arc::new(Endpoint::new(self.access.api.clone(), token, &self.settings, &self.stop));
        endpoint.end_after(replaced);
        if let Some(old) = by_run.insert(run, endpoint.clone()) {
            old.end();
        }
        Some(endpoint)
    }

    /// Drops endpoints that are unused, or whose token is no longer valid, until the stop.
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
                let ended = (self.access.opens)(endpoint.token()).is_none();
                if ended {
                    endpoint.end();
                }
                if ended || endpoint.is_idle(IDLE).await {
                    let mut by_run = self.by_run.lock();
                    let run = endpoint.token().run();
                    if by_run.get(run).is_some_and(|current| Arc::ptr_eq(current, &endpoint)) {
                        by_run.remove(run);
                    }
                }
            }
        }
    }
}
