//! The buckets of all latencies.

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Makes a histogram of latencies.
pub fn latency() -> Histogram {
    Histogram::new(buckets())
}

/// Returns 16 buckets from 50 µs to 54 s.
pub(crate) fn buckets() -> impl Iterator<Item = f64> {
    exponential_buckets(50e-6, 2.52, 16)
}
