#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod acknowledge;
mod list;
mod show;
mod watch;

use clap::Subcommand;
use command_context::client::{Client, Context, quick};
use fleet_view::{Fleet, is_of_one_node};
use presentation::failure::{Ended, Failure};
use presentation::ids;
use presentation::output::Style;
use wire::v1::alert::Severity;
use wire::v1::alert_measure::State as MeasureState;
use wire::v1::{Alert, ListAlertsRequest};

/// A command of `coffer alert`.
#[derive(Debug, Subcommand)]
pub enum Command {
    List(list::List),
    Show(show::Show),
    Watch(watch::Watch),
    Ack(acknowledge::Acknowledge),
}

impl Command {
    /// Executes the command.
    pub async fn run(self, context: &Context) -> Ended {
        match self {
            Self::List(list) => list.run(context).await,
            Self::Show(show) => show.run(context).await,
            Self::Watch(watch) => watch.run(context).await,
            Self::Ack(acknowledge) => acknowledge.run(context).await,
        }
    }

    /// Executes the command over all nodes of a fleet.
    pub async fn over(self, fleet: &Fleet) -> Ended {
        match self {
            Self::List(list) => list.over(fleet).await,
            Self::Watch(watch) => watch.over(fleet).await,
            Self::Show(_) | Self::Ack(_) => Err(is_of_one_node("an alert is")),
        }
    }
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
