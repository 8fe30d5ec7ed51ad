//! Times of one thing, measured again and again.

use std::time::Duration;

/// Times in no order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample(Vec<Duration>);

impl Sample {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    pub(crate) fn p95(&self) -> Duration {
        self.quantile(0.95)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    pub(crate) fn least(&self) -> Duration {
        self.quantile(0.0)
    }

    /// The smallest time that at least this part of the sample does not exceed.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)] // small counts
    fn quantile(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}
