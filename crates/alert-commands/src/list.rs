//! `coffer alert list`.

use clap::Args;
use command_context::arguments::one_of;
use command_context::client::{Client, Context, MORE, pages, quick};
use command_context::run_ref::RunRef;
use fleet_view::{Fleet, Listed, is_of_one_node, moment};
use presentation::failure::{Ended, Failure};
use presentation::output::Output;
use presentation::{ids, time};
use wire::v1::alert::{Severity, State};
use wire::v1::{Alert, ListAlertsRequest, ListAlertsResponse};

use crate::{SEVERITIES, measure};

const PAGE: u32 = 500;

/// List alerts, newest first. Default: only the open ones.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer alert list --state all --severity high")]
pub struct List {
    /// Only alerts in this state.
    #[arg(long, value_name = "STATE", default_value = "open", value_parser = one_of(STATES, State::from_str_name))]
    state: State,
    /// Only alerts of this severity or a higher one.
    #[arg(long, value_name = "SEVERITY", default_value = "low", value_parser = one_of(SEVERITIES, Severity::from_str_name))]
    severity: Severity,
    /// Only alerts of this rule, such as `loop`.
    #[arg(long, value_name = "RULE", default_value = "", hide_default_value = true)]
    rule: String,
    /// Only alerts of this run.
    #[arg(long, value_name = "RUN")]
    run: Option<RunRef>,
    /// Only alerts of this agent.
    #[arg(long, value_name = "AGENT", default_value = "", hide_default_value = true)]
    agent: String,
    /// Maximum number of alerts.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

const STATES: &[&str] = &["open", "acknowledged", "all"];

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        let (alerts, next_page_token) = self.ask(&client, run_id).await?;
        context.ui.answer_and_talk(ListAlertsResponse { alerts, next_page_token }, |all, page, talk| {
            if all.alerts.is_empty() {
                talk.own(self.none());
            } else {
                render(&all.alerts, None, page);
            }
        })
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        if self.run.is_some() {
            return Err(is_of_one_node("a run is"));
        }
        let answers = fleet.ask(async |node| {
            let (alerts, next) = self.ask(&node.client, String::new()).await?;
            Ok((fleet.checked(alerts)?, !next.is_empty()))
        });
        let raised = |alert: &Alert| moment(alert.raised_at.as_ref());
        let listed = Listed::newest_first(answers.await?, self.limit as usize, raised);
        let has_more = listed.has_more;
        let (alerts, nodes) = listed.parts();
        let all = ListAlertsResponse { alerts, next_page_token: String::new() };
        fleet.ui.answer_and_talk(all, |all, page, talk| {
            if all.alerts.is_empty() {
                talk.own(self.none());
            } else {
                render(&all.alerts, Some(&nodes), page);
            }
            if has_more {
                talk.own(MORE);
            }
        })
    }

    /// Returns the alerts of a daemon, and the token of the page after them.
    async fn ask(&self, client: &Client, run_id: String) -> Result<(Vec<Alert>, String), Failure> {
        let request = ListAlertsRequest {
            state: self.state.into(),
            min_severity: self.severity.into(),
            rule: self.rule.clone(),
            run_id,
            agent_id: self.agent.clone(),
            ..Default::default()
        };
        pages(self.limit as usize, PAGE, async |page_size, page_token| {
            let request = ListAlertsRequest { page_size, page_token, ..request.clone() };
            let page = client.alerts().list_alerts(quick(request)).await?.into_inner();
            Ok((page.alerts, page.next_page_token))
        })
        .await
    }

    fn none(&self) -> &'static str {
        if self.state == State::Open { "no open alerts\n" } else { "no alerts\n" }
    }
}

/// Prints a line for each alert. `nodes` has the node of each, if they are of several.
fn render(alerts: &[Alert], nodes: Option<&[String]>, page: &mut Output) {
    let end = ids::ends(alerts.iter().map(|alert| alert.alert_id.as_str()));
    let rows = alerts.iter().map(|alert| {
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
    });
    page.table_of(nodes, &["ALERT", "RAISED", "SEVERITY", "RULE", "AGENT", "RUN", "TIMES", "MEASURE"], rows);
}

#[cfg(test)]
mod tests {
    use wire::v1::AlertMeasure;
    use wire::v1::alert::Severity;
    use wire::v1::alert_measure::State as MeasureState;

    use super::*;
    use presentation::output::Look;

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
        let mut page = Output::new(Look::PIPE);
        render(std::slice::from_ref(&alert), None, &mut page);
        assert_eq!(
            page.as_str(),
            "ALERT     RAISED                    SEVERITY  RULE  AGENT  RUN       TIMES  MEASURE\n\
             0000aaaa  1970-01-01T00:00:00.000Z  MEDIUM    loop  alice  0000bbbb  7      throttle IN_FORCE\n"
        );
    }
}
