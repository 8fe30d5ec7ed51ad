//! Waits for states that follow an answer without an event.

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until it holds, which is asked for again and again. When half a minute is over the test fails with these words.
pub async fn until(otherwise: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "{otherwise}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
