//! Turns of launches that take the same step, shared out evenly among tenants.

use std::time::Duration;

use admission::{FairTurn, FairTurns};
use operations::Reason;
use refusal::Refusal;

/// Time for the engine to start a container, before the launch continues without its turn.
const ANSWER: Duration = Duration::from_secs(8);

/// Waits for a turn of a tenant.
pub(super) async fn turn_of(turns: &FairTurns, tenant: &str) -> Result<FairTurn, Refusal> {
    let turn = turns.wait(tenant).await;
    turn.ok_or_else(|| Refusal::new(Reason::Overloaded, "too many runs are starting; try again later"))
}

/// Runs a launch in its turn, and returns the turn early if the engine does not answer. The cause may be this container alone.
pub(super) async fn in_turn<T>(turn: FairTurn, launch: impl Future<Output = T>) -> T {
    let mut launch = std::pin::pin!(launch);
    if let Ok(done) = tokio::time::timeout(ANSWER, &mut launch).await {
        return done;
    }
    drop(turn);
    launch.await
}
