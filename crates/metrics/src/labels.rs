//! The label sets. A value is one of a closed list, or a name that an operator gave.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;

use crate::latency::buckets;

/// Labels of `cofferdam_calls`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Call {
    /// Name of the operation, or `other` for one that no release knows.
    pub(crate) operation: &'static str,
    pub(crate) outcome: &'static str,
    /// Stable reason of a refusal or failure; empty for a success.
    pub(crate) reason: &'static str,
}

/// Labels of `cofferdam_profile_calls`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProfileCall {
    pub(crate) profile: String,
    pub(crate) outcome: &'static str,
}

/// One label of a closed list, named `state`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct State {
    pub(crate) state: &'static str,
}

/// One label of a closed list, named `result`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Result {
    pub(crate) result: &'static str,
}

/// The anomaly rule of an alert.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Rule {
    pub(crate) rule: String,
}

/// Labels of `cofferdam_run_ready_seconds`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Start {
    pub(crate) start_kind: &'static str,
    pub(crate) profile: String,
}

/// Labels of `cofferdam_run_start_part_seconds`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StartPart {
    pub(crate) start_kind: &'static str,
    pub(crate) part: &'static str,
}

/// The reason that a run got a new container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Cold {
    pub(crate) cold_because: &'static str,
}

/// The direction of bytes, as the run sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Direction {
    pub(crate) direction: &'static str,
}

/// A kind of container that waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Kind {
    /// Profile of the pool's entry.
    pub(crate) profile: String,
}

/// Labels of `cofferdam_tenant_used_ratio`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TenantBound {
    /// Name of a tenant of the policy.
    pub(crate) tenant: String,
    /// Key of its bound.
    pub(crate) bound: &'static str,
}

/// One resource of the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct NodeResource {
    pub(crate) resource: &'static str,
}

/// Version of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Build {
    pub(crate) version: String,
}

/// Trace of an exemplar. It is no label of a series: a bucket keeps the last one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Trace {
    pub(crate) trace_id: String,
}

/// A histogram whose buckets name a trace.
pub(crate) type Traced = HistogramWithExemplars<Trace>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Stage {
    pub(crate) stage: &'static str,
}

fn traced_latency() -> Traced {
    Traced::new(buckets())
}

/// Names of the stages, in the order in which [`StageTimes::observe`] takes their times.
const STAGES: [&str; 4] = ["queue", "policy", "audit", "lane"];

/// Histograms of the parts of a call's way through the daemon. Clones share them.
#[derive(Debug, Clone)]
pub struct StageTimes {
    pub(crate) family: Family<Stage, Traced, fn() -> Traced>,
    /// All of them, so that an observation looks up nothing.
    known: [Traced; 4],
}

impl StageTimes {
    /// Adds the times of one call: the wait for a slot, the decision, the waits for the audit log, and the execution.
    ///
    /// `trace_id` is that of a trace that is exported. The buckets keep it as their exemplar.
    pub fn observe(&self, times: [Duration; 4], trace_id: Option<&str>) {
        for (histogram, time) in self.known.iter().zip(times) {
            let trace = trace_id.map(|trace_id| Trace { trace_id: trace_id.to_owned() });
            histogram.observe(time.as_secs_f64(), trace, None);
        }
    }
}

impl Default for StageTimes {
    fn default() -> Self {
        let family = Family::new_with_constructor(traced_latency as fn() -> Traced);
        let known = STAGES.map(|stage| family.get_or_create_owned(&Stage { stage }));
        Self { family, known }
    }
}
