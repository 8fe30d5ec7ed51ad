//! `coffer alert watch`.

use clap::Args;
use wire::v1::alert::{Severity, State};
use wire::v1::{Alert, WatchAlertsRequest};

use super::{SEVERITIES, measure, style};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Ended;
use crate::output::{Output, Style};
use crate::run_ref::RunRef;
use crate::verbs::one_of;
use crate::{follow, ids};

/// Print the open alerts, then each new or changed alert.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer alert watch --severity high")]
pub(crate) struct Watch {
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
    use crate::output::Look;

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
