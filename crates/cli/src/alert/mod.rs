//! `coffer alert`: what looked wrong, and what followed.

mod acknowledge;
mod list;
mod select;
mod show;
mod watch;

use clap::{Subcommand, ValueEnum};
use wire::v1::Alert;
use wire::v1::alert::Severity;
use wire::v1::alert_measure::State as MeasureState;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::page::Ink;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(list::List),
    Show(show::Show),
    Watch(watch::Watch),
    Ack(acknowledge::Acknowledge),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(context).await,
            Self::Show(show) => show.run(context).await,
            Self::Watch(watch) => watch.run(context).await,
            Self::Ack(acknowledge) => acknowledge.run(context).await,
        }
    }
}

/// A severity on a command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SeverityName {
    Low,
    Medium,
    High,
    Critical,
}

impl From<SeverityName> for Severity {
    fn from(name: SeverityName) -> Self {
        match name {
            SeverityName::Low => Self::Low,
            SeverityName::Medium => Self::Medium,
            SeverityName::High => Self::High,
            SeverityName::Critical => Self::Critical,
        }
    }
}

/// What followed, in short.
fn measure(alert: &Alert) -> String {
    let Some(measure) = &alert.measure else { return "-".to_owned() };
    match measure.state() {
        MeasureState::None | MeasureState::Unspecified => "-".to_owned(),
        state => format!("{} {}", measure.action, state.as_str_name()),
    }
}

fn ink(severity: Severity) -> Ink {
    match severity {
        Severity::Critical | Severity::High => Ink::Red,
        Severity::Medium => Ink::Yellow,
        Severity::Low | Severity::Unspecified => Ink::Dim,
    }
}
