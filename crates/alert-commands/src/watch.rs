//! `coffer alert watch`.

use clap::Args;
use command_context::arguments::one_of;
use command_context::client::{Client, Context};
use command_context::follow;
use command_context::run_ref::RunRef;
use fleet_view::{Fleet, is_of_one_node};
use presentation::exit::Exit;
use presentation::failure::Ended;
use presentation::ids;
use presentation::output::{Output, Style};
use wire::v1::alert::{Severity, State};
use wire::v1::{Alert, WatchAlertsRequest, WatchAlertsResponse};

use crate::{SEVERITIES, measure, style};

/// Print the open alerts, then each new or changed alert.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer alert watch --severity high")]
pub struct Watch {
    /// Only alerts of this severity or a higher one.
    #[arg(long, value_name = "SEVERITY", default_value = "low", value_parser = one_of(SEVERITIES, Severity::from_str_name))]
    severity: Severity,
    /// Only alerts of this run.
    #[arg(long, value_name = "RUN")]
    run: Option<RunRef>,
}

impl Watch {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let (client, run_id) = context.connect_to(self.run.as_ref()).await?;
        let request = WatchAlertsRequest { min_severity: self.severity.into(), run_id };
        let changes = client.alerts().watch_alerts(request).await?.into_inner();
        follow::print(ui, changes, |change| change.alert, render, |_| false).await?;
        Ok(Exit::Ok)
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        if self.run.is_some() {
            return Err(is_of_one_node("a run is"));
        }
        let request = WatchAlertsRequest { min_severity: self.severity.into(), run_id: String::new() };
        let open =
            async |client: &Client| Ok(client.alerts().watch_alerts(request.clone()).await?.into_inner());
        let print = |node: &str, alert: &Alert| fleet.ui.answer_line_of(node, alert, render);
        fleet_view::watch(fleet, open, |change: WatchAlertsResponse| change.alert, print).await?;
        Ok(Exit::Ok)
    }
}

fn render(alert: &Alert, page: &mut Output) {
    page.word(&alert.alert_id)
        .own(" ")
        .styled(style(alert.severity()), alert.severity().as_str_name())
        .own(" ");
    page.word(&alert.rule).own(" by ").word(&alert.agent_id);
    page.own(" in run ").word(ids::short(&alert.run_id));
    page.own(": ").word(&alert.summary);
    match alert.state() {
        State::Acknowledged => {
            page.own(" ").styled(Style::Dim, "acknowledged").own(" by ").word(&alert.acknowledged_by);
        }
        _ => {
            page.own(" (").word(&measure(alert)).own(")");
        }
    }
    page.own("\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use presentation::output::Look;

    #[test]
    fn a_line_a_change() {
        let alert = Alert {
            alert_id: "a".into(),
            rule: "loop".into(),
            severity: Severity::Low.into(),
            agent_id: "alice".into(),
            run_id: "0198a1b2-0000-7000-8000-00000000bbbb".into(),
            summary: "20 times the same call within 600 s".into(),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&alert, &mut page);
        assert_eq!(
            page.as_str(),
            "a LOW loop by alice in run 0000bbbb: 20 times the same call within 600 s (-)\n"
        );
    }
}
