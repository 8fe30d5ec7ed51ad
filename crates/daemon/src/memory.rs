//! Gives memory back to the kernel after runs have ended.

use std::sync::Arc;
use std::time::Duration;

use process_memory::{before_waiting, begin_round};
use runs::Runs;
use tokio_util::sync::CancellationToken;

/// Time from the end of a run until its memory is given back. Other runs end meanwhile, and threads that blocked
/// finish.
const SETTLED: Duration = Duration::from_secs(3);

/// Gives memory back to the kernel after runs have ended, until the daemon stops.
///
/// A daemon whose runs do not end is never woken.
pub(crate) async fn give_back(runs: Arc<Runs>, workers: usize, stop: CancellationToken) {
    loop {
        for next in [true, false] {
            let waited = async { if next { runs.gone().await } else { tokio::time::sleep(SETTLED).await } };
            tokio::select! {
                () = stop.cancelled() => return,
                () = waited => {}
            }
        }
        begin_round();
        // Each thread has pages that only it can give back. A task wakes a thread that waits.
        for _ in 0..workers {
            tokio::spawn(async { before_waiting() });
        }
        let of_store = runs.store.with(|_| {
            before_waiting();
            Ok::<_, store::StoreError>(())
        });
        let _ = of_store.await;
    }
}
