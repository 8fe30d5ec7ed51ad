//! Serves `AlertService`: lists, shows and acknowledges alerts that the caller may see.

use std::pin::Pin;
use std::sync::Arc;

use anomaly::Alerts;
use anomaly::alert::{Alert, DeliveryState, ImposedState, Measure, Whom};
use audit_service::AuditLog;
use futures_util::{Stream, StreamExt as _, stream};
use identity::{AlertId, Principal, Role, RunId};
use policy::{AnomalyRule, Severity};
use refusal::Refusal;
use runs::Runs;
use timestamp::UnixMillis;
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::alert::State;
use wire::v1::alert_delivery::State as DeliveryWire;
use wire::v1::alert_measure::State as MeasureWire;
use wire::v1::alert_service_server::AlertService;

use super::{behind, check_home, portion, principal};

/// Maximum number of alerts on a page.
const MAX_PAGE: u32 = 500;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) alerts: Arc<Alerts>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) audit: Arc<AuditLog>,
    /// Ends the streams.
    pub(crate) stop: CancellationToken,
}

impl Service {
    /// Returns true if `principal` may see the calls of the principal that caused the alert, or the run.
    fn sees(&self, principal: &Principal, alert: &Alert) -> bool {
        let of_own_run = || {
            let run = RunId::parse(&alert.run_id).and_then(|id| self.runs.get(id));
            run.is_ok_and(|run| run.is_seen_by(principal))
        };
        principal.may_see(&alert.principal) || of_own_run()
    }

    fn get(&self, principal: &Principal, id: &str) -> Result<v1::Alert, Refusal> {
        let alert = self.alerts.get(AlertId::parse(id)?).filter(|alert| self.sees(principal, alert));
        let none = || Refusal::absent("alert", id, "there is no such alert");
        alert.map(|alert| to_wire(&alert, principal)).ok_or_else(none)
    }

    fn list(
        &self,
        principal: &Principal,
        request: &v1::ListAlertsRequest,
    ) -> Result<v1::ListAlertsResponse, Refusal> {
        let token = |token: &str| AlertId::parse(token).ok();
        let (size, after) = portion::page(request.page_size, MAX_PAGE, &request.page_token, token)?;
        let severity = severity_from_wire(request.min_severity());
        if !request.rule.is_empty() && AnomalyRule::parse(&request.rule).is_none() {
            let ids = AnomalyRule::ALL.map(AnomalyRule::as_str).join(", ");
            return Err(Refusal::invalid("rule", format!("is not one of {ids}")));
        }
        let is = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
        let alerts = self.alerts.list(after, size + 1, |alert| {
            (request.state() == State::Unspecified || request.state() == state(alert))
                && alert.severity >= severity
                && is(&request.rule, &alert.rule)
                && is(&request.run_id, &alert.run_id)
                && is(&request.agent_id, &alert.agent_id)
                && self.sees(principal, alert)
        });
        if alerts.is_empty() {
            check_home(&self.runs, principal, &request.run_id)?;
        }
        let mut alerts = alerts.iter().map(|alert| to_wire(alert, principal)).collect();
        let more = portion::cut(&mut alerts, size);
        let last = alerts.last().filter(|_| more).map(|alert| alert.alert_id.clone());
        Ok(v1::ListAlertsResponse { alerts, next_page_token: last.unwrap_or_default() })
    }

    /// Returns the open alerts, and then each change.
    fn watch(
        &self,
        principal: Arc<Principal>,
        request: v1::WatchAlertsRequest,
    ) -> impl Stream<Item = Result<v1::WatchAlertsResponse, Status>> + Send + 'static {
        let severity = severity_from_wire(request.min_severity());
        let service = self.clone();
        let response = move |alert: &Alert| {
            let shown = alert.severity >= severity
                && (request.run_id.is_empty() || request.run_id == alert.run_id)
                && service.sees(&principal, alert);
            shown.then(|| Ok(v1::WatchAlertsResponse { alert: Some(to_wire(alert, &principal)) }))
        };
        // Subscribes before it lists, so that no change is missed between the two.
        let changes = self.alerts.changes();
        let mut open = self.alerts.list(None, usize::MAX, |alert| alert.acknowledged.is_none());
        open.reverse();
        let open: Vec<_> = open.iter().filter_map(&response).collect();
        let later = BroadcastStream::new(changes).filter_map(move |change| {
            std::future::ready(change.map_or_else(|_| Some(Err(behind())), |alert| response(&alert)))
        });
        stream::iter(open).chain(later).take_until(self.stop.clone().cancelled_owned())
    }
}

#[tonic::async_trait]
impl AlertService for Service {
    async fn list_alerts(
        &self,
        request: Request<v1::ListAlertsRequest>,
    ) -> Result<Response<v1::ListAlertsResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.list(&principal, request.get_ref())?))
    }

    async fn get_alert(
        &self,
        request: Request<v1::GetAlertRequest>,
    ) -> Result<Response<v1::GetAlertResponse>, Status> {
        let principal = principal(&request)?;
        let alert = self.get(&principal, &request.get_ref().alert_id)?;
        Ok(Response::new(v1::GetAlertResponse { alert: Some(alert) }))
    }

    type WatchAlertsStream = Pin<Box<dyn Stream<Item = Result<v1::WatchAlertsResponse, Status>> + Send>>;

    async fn watch_alerts(
        &self,
        request: Request<v1::WatchAlertsRequest>,
    ) -> Result<Response<Self::WatchAlertsStream>, Status> {
        let principal = principal(&request)?;
        check_home(&self.runs, &principal, &request.get_ref().run_id)?;
        Ok(Response::new(Box::pin(self.watch(principal, request.into_inner()))))
    }

    async fn acknowledge_alert(
        &self,
        request: Request<v1::AcknowledgeAlertRequest>,
    ) -> Result<Response<v1::AcknowledgeAlertResponse>, Status> {
        let (service, principal) = (self.clone(), principal(&request)?);
        let v1::AcknowledgeAlertRequest { alert_id, comment } = request.into_inner();
        let id = AlertId::parse(&alert_id)?;
        // In a separate task, so that the acknowledgement is completed even if the client leaves.
        let acknowledged = tokio::spawn(async move {
            let (comment, _) = service.audit.redactor().whole(&comment);
            let alert = service.alerts.acknowledge(id, &principal, &comment).await?;
            Ok::<_, Refusal>(to_wire(&alert, &principal))
        });
        let alert = acknowledged.await.map_err(|error| Refusal::internal("acknowledging", &error))??;
        Ok(Response::new(v1::AcknowledgeAlertResponse { alert: Some(alert) }))
    }
}

fn severity_from_wire(severity: v1::alert::Severity) -> Severity {
    match severity {
        v1::alert::Severity::Unspecified | v1::alert::Severity::Low => Severity::Low,
        v1::alert::Severity::Medium => Severity::Medium,
        v1::alert::Severity::High => Severity::High,
        v1::alert::Severity::Critical => Severity::Critical,
    }
}

fn state(alert: &Alert) -> State {
    if alert.acknowledged.is_some() { State::Acknowledged } else { State::Open }
}

fn to_wire(alert: &Alert, principal: &Principal) -> v1::Alert {
    let time = |millis: u64| Some(UnixMillis(millis).to_wire());
    let severity = match alert.severity {
        Severity::Low => v1::alert::Severity::Low,
        Severity::Medium => v1::alert::Severity::Medium,
        Severity::High => v1::alert::Severity::High,
        Severity::Critical => v1::alert::Severity::Critical,
    };
    let measure = match alert.imposed.state {
        ImposedState::None => MeasureWire::None,
        ImposedState::Due => MeasureWire::Due,
        ImposedState::InForce => MeasureWire::InForce,
        ImposedState::Lifted => MeasureWire::Lifted,
        ImposedState::Over => MeasureWire::Over,
        ImposedState::Failed => MeasureWire::Failed,
    };
    let per_minute = match alert.imposed.measure {
        Measure::Throttle { per_minute, .. } => per_minute,
        _ => 0,
    };
    let sees_deliveries = principal.roles.has(Role::Operator) || principal.roles.has(Role::Auditor);
    let deliveries = alert.deliveries.iter().filter(|_| sees_deliveries).map(|delivery| {
        let state = match delivery.state {
            DeliveryState::Due => DeliveryWire::Due,
            DeliveryState::Delivered => DeliveryWire::Delivered,
            DeliveryState::GaveUp => DeliveryWire::GaveUp,
        };
        v1::AlertDelivery {
            webhook: delivery.webhook.clone(),
            state: state.into(),
            attempts: delivery.attempts,
            next_at: time(delivery.next_at).filter(|_| state == DeliveryWire::Due && delivery.next_at > 0),
            failure: delivery.failure.clone(),
        }
    });
    let word = alert.acknowledged.as_ref();
    v1::Alert {
        alert_id: alert.id.to_string(),
        rule: alert.rule.clone(),
        severity: severity.into(),
        state: state(alert).into(),
        summary: alert.summary(),
        principal: alert.principal.clone(),
        agent_id: alert.agent_id.clone(),
        run_id: alert.run_id.clone(),
        counted_by_run: matches!(alert.subject, Whom::Run { .. }),
        threshold: alert.threshold,
        window_s: alert.window_s,
        count: alert.count,
        sequences: alert.sequences.clone(),
        raised_at: time(alert.raised_at),
        occurrences: alert.occurrences,
        last_at: time(alert.last_at),
        last_sequence: alert.last_sequence,
        measure: Some(v1::AlertMeasure {
            action: alert.imposed.measure.name().to_owned(),
            state: measure.into(),
            until: alert.imposed.until.and_then(time),
            per_minute,
            failure: alert.imposed.failure.clone(),
        }),
        acknowledged_by: word.map(|word| word.by.clone()).unwrap_or_default(),
        acknowledged_at: word.and_then(|word| time(word.at)),
        comment: word.map(|word| word.comment.clone()).unwrap_or_default(),
        deliveries: deliveries.collect(),
    }
}
