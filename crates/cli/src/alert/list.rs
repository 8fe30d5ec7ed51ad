//! `coffer alert list`.

use clap::{Args, ValueEnum};
use wire::v1::alert::State;
use wire::v1::{Alert, ListAlertsRequest, ListAlertsResponse};

use super::{SeverityName, measure};
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::page::Page;
use crate::run::{RunRef, one_or_all};
use crate::{ids, time};

/// List alerts, newest first; those that nobody has acknowledged, unless told otherwise.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer alert list --state all --severity high")]
pub(crate) struct List {
    /// Only in this state.
    #[arg(long, value_name = "STATE", default_value = "open")]
    state: StateName,
    /// Only as severe as this, or more.
    #[arg(long, value_name = "SEVERITY", default_value = "low")]
    severity: SeverityName,
    /// Only of this rule, such as `loop`.
    #[arg(long, value_name = "RULE", default_value = "", hide_default_value = true)]
    rule: String,
    /// Only of this run.
    #[arg(long, value_name = "RUN")]
    run: Option<RunRef>,
    /// Only of this agent.
    #[arg(long, value_name = "AGENT", default_value = "", hide_default_value = true)]
    agent: String,
    /// At most so many.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateName {
    Open,
    Acknowledged,
    All,
}

impl From<StateName> for State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Open => Self::Open,
            StateName::Acknowledged => Self::Acknowledged,
            StateName::All => Self::Unspecified,
        }
    }
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let ui = context.ui;
        let client = context.connect().await?;
        let run_id = one_or_all(self.run.as_ref(), &client).await?;
        let mut request = ListAlertsRequest {
            state: State::from(self.state).into(),
            min_severity: wire::v1::alert::Severity::from(self.severity).into(),
            rule: self.rule,
            run_id,
            agent_id: self.agent,
            ..Default::default()
        };
        let mut alerts = Vec::new();
        while alerts.len() < self.limit as usize {
            request.page_size = (self.limit - u32::try_from(alerts.len()).unwrap_or(self.limit)).min(500);
            let page = client.policy().list_alerts(quick(request.clone())).await?.into_inner();
            alerts.extend(page.alerts);
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        if ui.is_json() {
            ui.json(&ListAlertsResponse { alerts, next_page_token: request.page_token })?;
            return Ok(Exit::Ok);
        }
        if alerts.is_empty() {
            ui.note(if matches!(self.state, StateName::Open) { "no open alerts" } else { "no alerts" });
            return Ok(Exit::Ok);
        }
        let mut page = ui.page();
        render(&alerts, &mut page);
        ui.show(&page)?;
        Ok(Exit::Ok)
    }
}

fn render(alerts: &[Alert], page: &mut Page) {
    let end = ids::ends(alerts.iter().map(|alert| alert.alert_id.as_str()));
    let rows: Vec<_> = alerts
        .iter()
        .map(|alert| {
            vec![
                end(&alert.alert_id),
                time::moment(alert.raised_at.as_ref()),
                alert.severity().as_str_name().into(),
                alert.rule.clone(),
                alert.agent_id.clone(),
                ids::short(&alert.run_id).into(),
                alert.occurrences.to_string(),
                measure(alert),
            ]
        })
        .collect();
    page.table(&["ALERT", "RAISED", "SEVERITY", "RULE", "AGENT", "RUN", "TIMES", "MEASURE"], &rows);
}

#[cfg(test)]
mod tests {
    use wire::v1::AlertMeasure;
    use wire::v1::alert::Severity;
    use wire::v1::alert_measure::State as MeasureState;

    use super::*;
    use crate::page::Look;

    #[test]
    fn a_line_an_alert() {
        let alert = Alert {
            alert_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            rule: "loop".into(),
            severity: Severity::Medium.into(),
            agent_id: "alice".into(),
            run_id: "0198a1b2-0000-7000-8000-00000000bbbb".into(),
            raised_at: Some(wire::Timestamp { seconds: 0, nanos: 0 }),
            occurrences: 7,
            measure: Some(AlertMeasure {
                action: "throttle".into(),
                state: MeasureState::InForce.into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut page = Page::new(Look::PIPE);
        render(std::slice::from_ref(&alert), &mut page);
        assert_eq!(
            page.as_str(),
            "ALERT     RAISED                    SEVERITY  RULE  AGENT  RUN       TIMES  MEASURE\n\
             0000aaaa  1970-01-01T00:00:00.000Z  MEDIUM    loop  alice  0000bbbb  7      throttle IN_FORCE\n"
        );
    }
}
