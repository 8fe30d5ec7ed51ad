//! `coffer alert ack`.

use clap::Args;
use command_context::client::{Context, quick};
use presentation::failure::Ended;
use wire::v1::AcknowledgeAlertRequest;

use crate::{measure, resolve};

/// Acknowledge an alert. This lifts the measure that it imposed, unless the measure is a stop.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer alert ack 9c01d4e2 --comment 'a test that polls'")]
pub struct Acknowledge {
    /// The alert's id, or a unique beginning or end of it.
    #[arg(value_name = "ALERT")]
    alert: String,
    /// A comment for the audit log.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

impl Acknowledge {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let client = context.connect().await?;
        let request = AcknowledgeAlertRequest {
            alert_id: resolve(&client, &self.alert).await?,
            comment: self.comment.unwrap_or_default(),
        };
        let response = client.alerts().acknowledge_alert(quick(request)).await?.into_inner();
        ui.answer(response, |response, page| {
            let alert = response.alert.unwrap_or_default();
            page.word(&alert.alert_id).own(" ").own(alert.state().as_str_name());
            page.own(" (").word(&measure(&alert)).own(")\n");
        })
    }
}
