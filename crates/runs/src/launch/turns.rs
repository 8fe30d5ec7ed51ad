//! Bounds the launches that do the same at the same time.

use std::num::NonZero;
use std::time::Duration;

use operations::Reason;
use refusal::Refusal;
use tokio::sync::{Semaphore, SemaphorePermit};

/// For a launch to have its turn.
const TURN: Duration = Duration::from_secs(120);
/// For the engine to start a container, before the launch goes on without its turn.
const ANSWER: Duration = Duration::from_secs(8);

/// Launches that do the same at the same time.
pub struct Turns(Semaphore);

impl Default for Turns {
    /// Twice as many as there are processors, and eight at least.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self(Semaphore::new((2 * processors).max(8)))
    }
}

impl Turns {
    pub(crate) async fn wait(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let turn = tokio::time::timeout(TURN, self.0.acquire()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            Refusal::new(Reason::Overloaded, "other runs have been starting all the time; try again later")
        })
    }
}

/// Runs a launch in its turn, which it gives back when the engine does not answer: the engine may do so for one container alone.
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
    async fn those_that_came_first_have_the_first_turns() {
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
    async fn a_turn_that_does_not_come_is_refused_and_holds_nobody_up() {
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
