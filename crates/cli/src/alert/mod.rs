//! `coffer alert`: alerts, and the measures that followed.

mod acknowledge;
mod list;
mod show;
mod watch;

use wire::v1::alert::Severity;
use wire::v1::alert_measure::State as MeasureState;
use wire::v1::{Alert, ListAlertsRequest};

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids;
use crate::output::Style;

crate::verbs::verbs! {
    List(list::List),
    Show(show::Show),
    Watch(watch::Watch),
    Ack(acknowledge::Acknowledge),
}

/// Names of severities on a command line.
const SEVERITIES: &[&str] = &["low", "medium", "high", "critical"];

/// Returns the whole id of the alert that `text` names by its whole id, or by a unique beginning or end among the newest alerts.
async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    ids::resolve(text, "alert", "coffer alert list --state all", async || {
        let request = ListAlertsRequest { page_size: 500, ..Default::default() };
        let listed = client.alerts().list_alerts(quick(request)).await?.into_inner();
        Ok(listed.alerts.into_iter().map(|alert| alert.alert_id).collect())
    })
    .await
}

/// Describes in short the measure that followed.
fn measure(alert: &Alert) -> String {
    let Some(measure) = &alert.measure else { return "-".to_owned() };
    match measure.state() {
        MeasureState::None | MeasureState::Unspecified => "-".to_owned(),
        state => format!("{} {}", measure.action, state.as_str_name()),
    }
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Critical | Severity::High => Style::Red,
        Severity::Medium => Style::Yellow,
        Severity::Low | Severity::Unspecified => Style::Dim,
    }
}
