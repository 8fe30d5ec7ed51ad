//! Limits the number of launches that take the same step at the same time.

use std::num::NonZero;
use std::time::Duration;

use operations::Reason;
use refusal::Refusal;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Time for which a launch waits for its turn.
const TURN: Duration = Duration::from_secs(120);
/// Time for the engine to start a container, before the launch continues without its turn.
const ANSWER: Duration = Duration::from_secs(8);

/// Turns for launches that take the same step.
pub struct Turns(Semaphore);

impl Default for Turns {
    /// Allows twice the number of processors, and at least eight.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self(Semaphore::new((2 * processors).max(8)))
    }
}

impl Turns {
    pub(crate) async fn wait(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let turn = tokio::time::timeout(TURN, self.0.acquire()).await;
        turn.ok()
            .and_then(Result::ok)
            .ok_or_else(|| Refusal::new(Reason::Overloaded, "too many runs are starting; try again later"))
    }
}

/// Runs a launch in its turn, and returns the turn early if the engine does not answer. The cause may be this container alone.
pub(super) async fn in_turn<T>(turn: SemaphorePermit<'_>, launch: impl Future<Output = T>) -> T {
    let mut launch = std::pin::pin!(launch);
    if let Ok(done) = tokio::time::timeout(ANSWER, &mut launch).await {
        return done;
    }
    drop(turn);
    launch.await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;
    use tokio::time::Instant;

    use super::{Reason, TURN, Turns};

    #[tokio::test]
    async fn turns_are_first_come_first_served() {
        let turns = Turns(Semaphore::new(1));
        let now = turns.wait().await.unwrap();
        let (mut first, mut second) = (Box::pin(turns.wait()), Box::pin(turns.wait()));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(now);
        assert!((&mut second).now_or_never().is_none(), "it came later");
        drop(first.await.unwrap());
        drop(second.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn late_turn_is_refused_and_does_not_block_others() {
        let turns = Turns(Semaphore::new(1));
        let now = turns.wait().await.unwrap();
        let began = Instant::now();
        assert_eq!(turns.wait().await.unwrap_err().reason, Reason::Overloaded);
        assert_eq!(began.elapsed(), TURN);
        drop(now);
        drop(turns.wait().await.unwrap());
        assert_eq!(began.elapsed(), TURN, "the next one need not wait");
    }
}
