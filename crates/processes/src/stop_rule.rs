//! The fate of runs at a stop, which a hand-over to another daemon changes.

use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runs::OnStop;
use tokio_util::sync::CancellationToken;

/// Treatment of the runs when the daemon stops: as configured, unless another daemon takes over.
#[derive(Debug, Clone)]
pub struct StopRule {
    configured: OnStop,
    is_handed_over: Arc<AtomicBool>,
}

impl StopRule {
    pub fn new(configured: OnStop) -> Self {
        Self { configured, is_handed_over: Arc::default() }
    }

    /// Leaves all runs to another daemon. Has to be called before the stop begins.
    pub fn hand_over(&self) {
        self.is_handed_over.store(true, Ordering::Release);
    }

    /// Returns the treatment that a stop would have now.
    pub fn now(&self) -> OnStop {
        if self.is_handed_over.load(Ordering::Acquire) { OnStop::Leave } else { self.configured }
    }

    /// Completes when the daemon stops and leaves its runs. A stop that ends them does not complete it.
    pub(crate) async fn leaves(&self, stop: &CancellationToken) {
        stop.cancelled().await;
        if self.now() != OnStop::Leave {
            future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn leaves(rule: &StopRule, stop: &CancellationToken) -> bool {
        pin!(rule.leaves(stop)).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_hand_over_leaves_runs_that_a_stop_would_end() {
        for (configured, is_handed_over, expected) in [
            (OnStop::End, false, OnStop::End),
            (OnStop::End, true, OnStop::Leave),
            (OnStop::Leave, false, OnStop::Leave),
            (OnStop::Leave, true, OnStop::Leave),
        ] {
            let (rule, stop) = (StopRule::new(configured), CancellationToken::new());
            let seen = rule.clone();
            if is_handed_over {
                rule.hand_over();
            }
            assert_eq!(seen.now(), expected);
            assert!(!leaves(&seen, &stop));
            stop.cancel();
            assert_eq!(leaves(&seen, &stop), expected == OnStop::Leave);
        }
    }
}
