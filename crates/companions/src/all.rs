//! The companions of one run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use containers::{ContainerCgroup, EngineError};
use futures_util::future::{join_all, select_all};

use crate::companion::Companion;

/// The companions of one run, in the order of their start.
#[derive(Default)]
pub struct Companions(Vec<Arc<Companion>>);

impl Companions {
    pub fn new(all: Vec<Arc<Companion>>) -> Self {
        Self(all)
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Companion>> {
        self.0.iter().find(|companion| companion.name() == name)
    }

    /// Returns the companions and their ports, for the agent. Empty if there are none.
    pub fn words(&self) -> String {
        let ports = |companion: &Companion| {
            let ports: Vec<String> = companion.ports().iter().map(u16::to_string).collect();
            if ports.is_empty() { "no port".to_owned() } else { ports.join(", ") }
        };
        let all = self.0.iter().map(|companion| format!("{} ({})", companion.name(), ports(companion)));
        let all = all.collect::<Vec<_>>().join(", ");
        if all.is_empty() { all } else { format!("Companions of the run, with their TCP ports: {all}.") }
    }

    /// Returns true if one of them has not ended.
    pub fn are_running(&self) -> bool {
        self.0.iter().any(|companion| companion.exit().is_none())
    }

    /// Returns the cgroups of those that have not ended. Blocks on `/proc`.
    pub fn cgroups(&self) -> Vec<ContainerCgroup> {
        self.0.iter().filter_map(|companion| companion.cgroup()).collect()
    }

    /// Waits for the next companion to end. Waits for ever if none is left.
    pub async fn next_exit(&self) -> (Arc<Companion>, i64) {
        loop {
            let left = self.0.iter().filter(|companion| !companion.is_reported.load(Ordering::Relaxed));
            let ends: Vec<_> = left
                .map(|companion| Box::pin(async move { (Arc::clone(companion), companion.ended().await) }))
                .collect();
            if ends.is_empty() {
                return std::future::pending().await;
            }
            let ((companion, code), ..) = select_all(ends).await;
            if companion.report() {
                return (companion, code);
            }
        }
    }

    /// Pauses or resumes all of them. Returns those for which that has failed, or may have, with the errors.
    pub async fn set_paused(&self, paused: bool) -> Vec<(Arc<Companion>, EngineError)> {
        let each = |companion: &Arc<Companion>| {
            let companion = Arc::clone(companion);
            async move {
                let failed = companion.set_paused(paused).await.err();
                failed.map(|error| (companion, error))
            }
        };
        join_all(self.0.iter().map(each)).await.into_iter().flatten().collect()
    }

    /// Ends all processes of all of them. Returns false if one is left.
    pub async fn kill(&self, why: Option<&'static str>) -> bool {
        join_all(self.0.iter().map(|companion| companion.kill(why))).await.into_iter().all(|is_over| is_over)
    }
}
