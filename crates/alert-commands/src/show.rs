//! `coffer alert show`.

use clap::Args;
use command_context::client::{Context, quick};
use presentation::failure::Ended;
use presentation::output::Output;
use presentation::time;
use wire::v1::alert::State;
use wire::v1::{Alert, GetAlertRequest};

use crate::{measure, resolve};

/// Show one alert: its cause, the measure that followed, and its deliveries to webhooks.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer alert show 9c01d4e2")]
pub struct Show {
    /// The alert's id, or a unique beginning or end of it.
    #[arg(value_name = "ALERT")]
    alert: String,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = GetAlertRequest { alert_id: resolve(&client, &self.alert).await? };
        let response = client.alerts().get_alert(quick(request)).await?.into_inner();
        context.ui.answer(response, |response, page| render(&response.alert.unwrap_or_default(), page))
    }
}

fn render(alert: &Alert, page: &mut Output) {
    let followed = alert.measure.clone().unwrap_or_default();
    let records: Vec<String> = alert.sequences.iter().map(ToString::to_string).collect();
    page.facts(&[
        ("alert", alert.alert_id.clone()),
        ("state", alert.state().as_str_name().into()),
        ("severity", alert.severity().as_str_name().into()),
        ("rule", format!("{} (threshold {}, window {} s)", alert.rule, alert.threshold, alert.window_s)),
        ("what", alert.summary.clone()),
        ("agent", alert.agent_id.clone()),
        ("principal", alert.principal.clone()),
        ("run", alert.run_id.clone()),
        ("raised", time::known(alert.raised_at.as_ref())),
        ("times", alert.occurrences.to_string()),
        ("last", time::known(alert.last_at.as_ref())),
        ("records", records.join(" ")),
        ("measure", measure(alert)),
        ("until", time::known(followed.until.as_ref())),
        ("why not", followed.failure),
        ("seen by", alert.acknowledged_by.clone()),
        ("seen at", time::known(alert.acknowledged_at.as_ref())),
        ("comment", alert.comment.clone()),
    ]);
    for delivery in &alert.deliveries {
        page.own("webhook ").word(&delivery.webhook).own(": ").own(delivery.state().as_str_name());
        page.own(" after ").word(&delivery.attempts.to_string()).own(" attempts");
        if !delivery.failure.is_empty() {
            page.own(", ").word(&delivery.failure);
        }
        page.own("\n");
    }
    if alert.state() == State::Open {
        page.own("\n").own("acknowledge: coffer alert ack ").word(&alert.alert_id).own("\n");
    }
}

#[cfg(test)]
mod tests {
    use wire::v1::AlertDelivery;
    use wire::v1::alert::Severity;
    use wire::v1::alert_delivery::State as DeliveryState;

    use super::*;
    use presentation::output::Look;

    #[test]
    fn alert_details_are_shown() {
        let alert = Alert {
            alert_id: "a".into(),
            state: State::Open.into(),
            severity: Severity::High.into(),
            rule: "escape_attempts".into(),
            summary: "5 attempts to access files outside of the run within 600 s".into(),
            agent_id: "ali\nce".into(),
            threshold: 5,
            window_s: 600,
            occurrences: 6,
            sequences: vec![3, 5, 8],
            deliveries: vec![AlertDelivery {
                webhook: "pager".into(),
                state: DeliveryState::GaveUp.into(),
                attempts: 3,
                failure: "answered 500".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&alert, &mut page);
        assert_eq!(
            page.as_str(),
            "alert      a\n\
             state      OPEN\n\
             severity   HIGH\n\
             rule       escape_attempts (threshold 5, window 600 s)\n\
             what       5 attempts to access files outside of the run within 600 s\n\
             agent      ali␊ce\n\
             times      6\n\
             records    3 5 8\n\
             measure    -\n\
             webhook pager: GAVE_UP after 3 attempts, answered 500\n\
             \nacknowledge: coffer alert ack a\n"
        );
    }
}
