//! Checkpoints as calls use them. Another crate makes, keeps and restores them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use identity::{Principal, RunId};
use operations::AgentCheckpoint;
use parking_lot::Mutex;
use refusal::Refusal;
use runs::Run;

/// Task ids that are remembered of a run. A call of an older task gets a checkpoint once more.
const TASKS: usize = 256;

/// The checkpoints of runs that their agents and the daemon itself make.
///
/// The caller has judged the request, so no method asks for a right. Each is let run to its end.
#[async_trait]
pub trait AgentCheckpoints: Send + Sync {
    /// Makes a checkpoint that counts among the automatic ones of the run. The oldest of them are deleted.
    async fn make(&self, run: RunId, label: String, by: &Principal) -> Result<AgentCheckpoint, Refusal>;

    /// Makes one without a request, before or after a call. A failure is put on record, once for each cause.
    async fn make_unasked(&self, run: RunId, label: String, by: &Principal);

    /// Returns at most `most` checkpoints of the run, newest first, and whether there are more.
    fn list(&self, run: RunId, most: usize) -> (Vec<AgentCheckpoint>, bool);

    /// Gives the run the files of one of its own checkpoints.
    ///
    /// The caller holds no slot, no lock and no hold of the run, so that the restore does not wait for its caller.
    async fn restore(&self, run: RunId, checkpoint: &str, by: &Principal) -> Result<Restored, Refusal>;
}

/// A run that was given the files of a checkpoint.
#[derive(Debug, Default)]
pub struct Restored {
    /// Checkpoint of the state before.
    pub before: AgentCheckpoint,
    /// Processes and sessions that were ended.
    pub ended_processes: u32,
}

/// What is known of the automatic checkpoints of the runs that live.
#[derive(Default)]
pub(crate) struct Moments(Arc<Mutex<HashMap<RunId, Arc<Moment>>>>);

/// Orders the automatic checkpoints of one run.
#[derive(Default)]
pub(crate) struct Moment {
    /// Requests so far.
    asked: AtomicU64,
    /// Held while a checkpoint is made.
    state: tokio::sync::Mutex<Made>,
}

#[derive(Default)]
struct Made {
    /// Requests that the checkpoints so far cover.
    covered: u64,
    /// The latest task ids, oldest first.
    tasks: VecDeque<String>,
}

impl Moments {
    /// Returns the state of a run. It is dropped when the run ends.
    pub(crate) fn of(&self, run: &Run) -> Arc<Moment> {
        let id = run.record().id;
        let mut runs = self.0.lock();
        if let Some(moment) = runs.get(&id) {
            return Arc::clone(moment);
        }
        let moment = Arc::<Moment>::default();
        runs.insert(id, Arc::clone(&moment));
        let (ended, runs) = (run.ended.clone(), Arc::clone(&self.0));
        tokio::spawn(async move {
            ended.cancelled().await;
            runs.lock().remove(&id);
        });
        moment
    }
}

impl Moment {
    /// Makes one before the first call of a task. Further calls wait for it.
    pub(crate) async fn before_task(&self, task: &str, make: impl Future<Output = ()>) {
        let mut state = self.state.lock().await;
        if state.tasks.iter().any(|known| known == task) {
            return;
        }
        make.await;
        if state.tasks.len() >= TASKS {
            state.tasks.pop_front();
        }
        state.tasks.push_back(task.to_owned());
    }

    /// Makes one after a call. All requests that arrive while one is made are met by one more.
    pub(crate) async fn after_call(&self, make: impl Future<Output = ()>) {
        let own = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut state = self.state.lock().await;
        if state.covered >= own {
            return;
        }
        let covers = self.asked.load(Ordering::SeqCst);
        make.await;
        state.covered = covers;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn each_task_gets_one_before_its_first_call() {
        let (moment, made) = (Moment::default(), AtomicUsize::new(0));
        for task in ["a", "a", "b", "a", "b"] {
            moment
                .before_task(task, async {
                    _ = made.fetch_add(1, Ordering::SeqCst);
                })
                .await;
        }
        assert_eq!(made.load(Ordering::SeqCst), 2);
        for task in 0..TASKS {
            moment.before_task(&task.to_string(), async {}).await;
        }
        moment
            .before_task("a", async {
                _ = made.fetch_add(1, Ordering::SeqCst);
            })
            .await;
        assert_eq!(made.load(Ordering::SeqCst), 3, "the list of tasks is bounded");
    }

    #[tokio::test]
    async fn requests_that_arrive_while_one_is_made_are_met_by_one_more() {
        let moment = Arc::new(Moment::default());
        let (made, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (moment, made, go) = (moment.clone(), made.clone(), go.clone());
            tokio::spawn(async move {
                let count = async {
                    made.fetch_add(1, Ordering::SeqCst);
                    go.acquire().await.unwrap().forget();
                };
                moment.after_call(count).await;
            })
        };
        let first = ask();
        while made.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let others: Vec<_> = (0..5).map(|_| ask()).collect();
        while moment.asked.load(Ordering::SeqCst) < 6 {
            tokio::task::yield_now().await;
        }
        go.add_permits(6);
        first.await.unwrap();
        for other in others {
            other.await.unwrap();
        }
        assert_eq!(made.load(Ordering::SeqCst), 2);
        moment
            .after_call(async {
                _ = made.fetch_add(1, Ordering::SeqCst);
            })
            .await;
        assert_eq!(made.load(Ordering::SeqCst), 3);
    }
}
