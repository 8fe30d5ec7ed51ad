//! Counts records of the audit log. Agents fill parts of them, so nothing of a record becomes a label before it is found in a closed list.

use audit::{Event, Kind, Status, WorkerChange};
use operations::{Operation, Reason};
use serde_json::Value;

use crate::families::Metrics;
use crate::labels::{Call, ProfileCall, Result, Rule, State};

/// Name of anything that is in no list.
const OTHER: &str = "other";
/// States of approvals. The log has them in capitals.
const STATES: [&str; 4] = ["approved", "denied", "expired", "cancelled"];

impl Metrics {
    /// Counts a record that became durable. `profile_of` finds the profile of a run.
    pub fn record(&self, event: &Event, profile_of: impl FnOnce(&str) -> Option<String>) {
        self.records.inc();
        match event.kind {
            Kind::CallReceipt => self.call(event, profile_of),
            Kind::ApprovalRequested => self.approval("asked"),
            Kind::ApprovalDecided => {
                let state = text(event, "state").map(str::to_ascii_lowercase);
                self.approval(closed(state.as_deref(), &STATES));
            }
            Kind::Alert if text(event, "state") == Some("raised") => self.alert(event),
            Kind::EscalationAttempt => {
                self.escalations.inc();
            }
            Kind::RunRefused => {
                self.refused_runs.inc_by(number(event, "count").max(1));
            }
            Kind::WorkerEvent => {
                let change = text(event, "event").and_then(WorkerChange::parse);
                let state = change.map_or(OTHER, WorkerChange::as_str);
                self.workers.get_or_create(&State { state }).inc();
            }
            Kind::EgressIntent => self.connections("opened", 1),
            Kind::EgressRefused => self.connections("refused", number(event, "count").max(1)),
            Kind::GitPush => {
                self.pushes.inc();
            }
            Kind::SessionOpened => {
                self.sessions.inc();
            }
            _ => {}
        }
    }

    fn call(&self, event: &Event, profile_of: impl FnOnce(&str) -> Option<String>) {
        let Some(outcome) = &event.outcome else { return };
        let status = match outcome.status {
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::Denied => "denied",
            Status::Interrupted => "interrupted",
            // Another receipt follows.
            Status::PendingApproval => return,
            Status::Unknown => OTHER,
        };
        let reason = outcome.reason.as_deref().unwrap_or_default();
        let reason = if reason.is_empty() { "" } else { Reason::parse(reason).map_or(OTHER, Reason::as_str) };
        let operation = Operation::closed_name(event.operation.as_deref().unwrap_or_default());
        self.calls.get_or_create(&Call { operation, outcome: status, reason }).inc();
        let profile = event.run_id.as_deref().and_then(profile_of);
        let profile = self.profile(profile.as_deref().unwrap_or(OTHER));
        self.profile_calls.get_or_create(&ProfileCall { profile, outcome: status }).inc();
        if let Some(micros) = event.duration_us {
            self.call_time.observe(std::time::Duration::from_micros(micros).as_secs_f64());
        }
    }

    fn approval(&self, state: &'static str) {
        self.approvals.get_or_create(&State { state }).inc();
    }

    fn connections(&self, result: &'static str, count: u64) {
        self.connections.get_or_create(&Result { result }).inc_by(count);
    }

    /// Counts an alert. The daemon alone names rules.
    fn alert(&self, event: &Event) {
        if let Some(rule) = text(event, "rule") {
            self.alerts.get_or_create(&Rule { rule: rule.to_owned() }).inc();
        }
    }
}

fn detail<'e>(event: &'e Event, key: &str) -> Option<&'e Value> {
    event.details.as_ref()?.get(key)
}

fn text<'e>(event: &'e Event, key: &str) -> Option<&'e str> {
    detail(event, key)?.as_str()
}

fn number(event: &Event, key: &str) -> u64 {
    detail(event, key).and_then(Value::as_u64).unwrap_or_default()
}

/// Returns the entry of `list` that equals `value`, or `other`.
fn closed(value: Option<&str>, list: &[&'static str]) -> &'static str {
    list.iter().find(|known| Some(**known) == value).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use audit::Outcome;
    use prometheus_client::metrics::histogram::Histogram;
    use serde_json::json;

    use super::*;
    use crate::{NodeSample, Own, Ready, Sample, StageTimes, TenantSample, latency};

    fn metrics() -> Metrics {
        let audit_writes: Histogram = latency();
        Metrics::new("1.2.3", Own { stages: StageTimes::default(), audit_writes })
    }

    fn receipt(operation: &str, outcome: Outcome) -> Event {
        let mut event = Event::new(Kind::CallReceipt).run("r").operation(operation);
        event.outcome = Some(outcome);
        event.duration_us = Some(1_500);
        event
    }

    /// Returns the lines that are no comments.
    fn series(metrics: &Metrics) -> Vec<String> {
        let text = metrics.encode(&Sample::default());
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn a_receipt_counts_by_operation_outcome_reason_and_profile() {
        let metrics = metrics();
        let profile = |_: &str| Some("review".to_owned());
        metrics.record(&receipt("read", Outcome::new(Status::Succeeded)), profile);
        metrics.record(&receipt("read", Outcome::new(Status::Denied).reason("PERMISSION_DENIED")), profile);
        metrics.record(&receipt("read", Outcome::new(Status::PendingApproval)), profile);
        let series = series(&metrics);
        for expected in [
            "cofferdam_calls_total{operation=\"read\",outcome=\"succeeded\",reason=\"\"} 1",
            "cofferdam_calls_total{operation=\"read\",outcome=\"denied\",reason=\"PERMISSION_DENIED\"} 1",
            "cofferdam_profile_calls_total{profile=\"review\",outcome=\"denied\"} 1",
            "cofferdam_call_seconds_count 2",
            "cofferdam_audit_records_total 3",
        ] {
            assert!(series.iter().any(|line| line == expected), "{expected} is not in {series:#?}");
        }
    }

    #[test]
    fn the_start_of_a_run_is_told_from_the_wait_for_its_companions() {
        use std::time::Duration;
        let metrics = metrics();
        let at_rest = series(&metrics).len();
        let warm = |waited_for_companions| Ready {
            profile: "build",
            took: Duration::from_millis(1_508),
            cold_because: None,
            waited_for_companions,
        };
        metrics.ready(warm(None));
        let alone = series(&metrics);
        assert!(!alone.iter().any(|line| line.starts_with("cofferdam_run_start_part")), "{alone:#?}");
        metrics.ready(warm(Some(Duration::from_millis(1_500))));
        let beside = series(&metrics);
        let sum = |part: &str| {
            let begin =
                format!("cofferdam_run_start_part_seconds_sum{{start_kind=\"warm\",part=\"{part}\"}} ");
            let found = beside.iter().find_map(|line| line.strip_prefix(&begin));
            found.unwrap_or_else(|| panic!("{part}: {beside:#?}")).parse::<f64>().unwrap()
        };
        for (part, expected) in [("itself", 0.008), ("companions", 1.5)] {
            assert!((sum(part) - expected).abs() < 1e-9, "{part}: {}", sum(part));
        }
        let whole = "cofferdam_run_ready_seconds_count{start_kind=\"warm\",profile=\"build\"} 2";
        assert!(beside.iter().any(|line| line == whole), "{beside:#?}");
        // Neither a companion nor a profile is a label of the parts.
        assert!(beside.len() < at_rest + 3 * 20, "{} series, of which {at_rest} at rest", beside.len());
    }

    #[test]
    fn connections_approvals_and_alerts_are_counted() {
        let metrics = metrics();
        let details = |kind: Kind, details: Value| Event::new(kind).run("r").details(details);
        for event in [
            details(Kind::EgressIntent, json!({})),
            details(Kind::EgressRefused, json!({ "count": 3 })),
            details(Kind::RunRefused, json!({ "count": 4 })),
            details(Kind::ApprovalRequested, json!({})),
            details(Kind::ApprovalDecided, json!({ "state": "EXPIRED" })),
            details(Kind::Alert, json!({ "rule": "spike", "state": "raised" })),
            details(Kind::Alert, json!({ "rule": "spike", "state": "acknowledged" })),
        ] {
            metrics.record(&event, |_| None);
        }
        let series = series(&metrics);
        for expected in [
            "cofferdam_egress_connections_total{result=\"opened\"} 1",
            "cofferdam_egress_connections_total{result=\"refused\"} 3",
            "cofferdam_refused_runs_total 4",
            "cofferdam_approvals_total{state=\"asked\"} 1",
            "cofferdam_approvals_total{state=\"expired\"} 1",
            "cofferdam_alerts_total{rule=\"spike\"} 1",
        ] {
            assert!(series.iter().any(|line| line == expected), "{expected} is not in {series:#?}");
        }
    }

    #[test]
    fn each_change_of_a_worker_counts_under_its_name() {
        let metrics = metrics();
        for change in WorkerChange::ALL {
            metrics.record(&Event::of_worker("coffer-guest", *change, None), |_| None);
        }
        let series = series(&metrics);
        for change in WorkerChange::ALL {
            let expected = format!("cofferdam_worker_events_total{{state=\"{}\"}} 1", change.as_str());
            assert!(series.contains(&expected), "{expected} is not in {series:#?}");
        }
        assert!(!series.iter().any(|line| line.contains("cofferdam_worker_events_total{state=\"other\"}")));
    }

    #[test]
    fn an_exemplar_names_the_trace_and_makes_no_series() {
        let stages = StageTimes::default();
        let own = Own { stages: stages.clone(), audit_writes: latency() };
        let metrics = Metrics::new("1.2.3", own);
        let before = series(&metrics).len();
        let millis = std::time::Duration::from_millis;
        stages.observe([millis(1); 4], None);
        assert!(!series(&metrics).iter().any(|line| line.contains("trace_id")));
        for trace in 0..1_000 {
            stages.observe([millis(1), millis(2), millis(3), millis(4)], Some(&format!("{trace:032x}")));
        }
        let series = series(&metrics);
        let with: Vec<_> = series.iter().filter(|line| line.contains("trace_id")).collect();
        assert_eq!((series.len(), with.len()), (before, 4), "{with:?}");
        assert!(
            with.iter().all(|line| line.contains(&format!(" # {{trace_id=\"{:032x}\"}} ", 999))),
            "{with:?}"
        );
    }

    #[test]
    fn bytes_of_connections_are_those_of_the_sample() {
        let text = metrics().encode(&Sample { egress_bytes: [5, 7], ..Sample::default() });
        for expected in [
            "cofferdam_egress_bytes_total{direction=\"out\"} 5",
            "cofferdam_egress_bytes_total{direction=\"in\"} 7",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected} is not in {text}");
        }
    }

    #[test]
    fn bounds_of_tenants_are_shown_up_to_the_most_and_end_with_their_tenant() {
        let metrics = metrics();
        let at_rest = series(&metrics).len();
        let one = |number: usize| TenantSample { tenant: format!("t{number}"), bound: "runs", used: 0.5 };
        let text = |tenants| metrics.encode(&Sample { tenants, ..Sample::default() });
        let shown = text(vec![one(7)]);
        assert!(shown.contains("cofferdam_tenant_used_ratio{tenant=\"t7\",bound=\"runs\"} 0.5"), "{shown}");
        let many = text((0..2_000).map(one).collect());
        assert_eq!(many.lines().filter(|line| line.starts_with("cofferdam_tenant_used_ratio{")).count(), 384);
        assert_eq!(series(&metrics).len(), at_rest);
    }

    #[test]
    fn scrapes_at_once_do_not_mix_their_values() {
        let metrics = metrics();
        let pool = crate::PoolSample { waiting: 3, wanted: 4 };
        let sample = Sample { pool: [("review".to_owned(), pool)].into(), ..Sample::default() };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let text = metrics.encode(&sample);
                        let found = text.lines().find(|line| line.starts_with("cofferdam_pool_waiting{"));
                        assert_eq!(found, Some("cofferdam_pool_waiting{profile=\"review\"} 3"));
                    }
                });
            }
        });
    }

    #[test]
    fn names_of_agents_and_clients_make_no_series() {
        let metrics = metrics();
        let at_rest = series(&metrics).len();
        assert!(at_rest <= 200, "{at_rest} series at rest");
        for number in 0..10_000 {
            let name = format!("invented-{number}");
            let outcome = Outcome::new(Status::Failed).reason(format!("REASON_{number}"));
            metrics.record(&receipt(&name, outcome), |_| Some(name.clone()));
            metrics.record(&receipt(&format!("mcp.{name}.x"), Outcome::new(Status::Succeeded)), |_| None);
            let state = json!({ "state": name, "event": name });
            metrics.record(&Event::new(Kind::ApprovalDecided).details(state.clone()), |_| None);
            metrics.record(&Event::new(Kind::WorkerEvent).details(state), |_| None);
        }
        let series = series(&metrics);
        assert!(series.len() < at_rest + 140, "{} series, of which {at_rest} at rest", series.len());
        assert!(series.iter().any(|line| line.contains("operation=\"other\"")), "{series:#?}");
    }
    #[test]
    fn the_state_and_the_amounts_of_the_node_are_shown() {
        let amounts = [
            ("runs", 256, 2),
            ("memory_mib", u64::MAX, 300),
            ("cpu_millis", 8_000, 1_000),
            ("disk_mib", 100, 64),
        ];
        let node = Some(NodeSample { state: "draining", amounts });
        let text = metrics().encode(&Sample { node, ..Sample::default() });
        for expected in [
            "cofferdam_node_state{state=\"serving\"} 0",
            "cofferdam_node_state{state=\"draining\"} 1",
            "cofferdam_node_state{state=\"drained\"} 0",
            "cofferdam_node_capacity{resource=\"runs\"} 256",
            "cofferdam_node_used{resource=\"memory_mib\"} 300",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected}:\n{text}");
        }
        assert!(!text.contains("cofferdam_node_capacity{resource=\"memory_mib\"}"), "{text}");
    }
}
