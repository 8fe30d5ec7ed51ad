//! `coffer alert ack`.

use clap::Args;
use wire::v1::AcknowledgeAlertRequest;

use super::measure;
use super::select::resolve;
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Failure;

/// Say that an alert has been seen: what it imposed is lifted, but a stop.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer alert ack 9c01d4e2 --comment 'a test that polls'")]
pub(crate) struct Acknowledge {
    /// The alert's id, or a unique beginning or end of it.
    #[arg(value_name = "ALERT")]
    alert: String,
    /// For the record.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

impl Acknowledge {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let ui = context.ui;
        let client = context.connect().await?;
        let request = AcknowledgeAlertRequest {
            alert_id: resolve(&client, &self.alert).await?,
            comment: self.comment.unwrap_or_default(),
        };
        let response = client.policy().acknowledge_alert(quick(request)).await?.into_inner();
        if ui.is_json() {
            ui.json(&response)?;
            return Ok(Exit::Ok);
        }
        let alert = response.alert.unwrap_or_default();
        let mut page = ui.page();
        page.word(&alert.alert_id).own(" ").own(alert.state().as_str_name());
        page.own(" (").word(&measure(&alert)).own(")\n");
        ui.show(&page)?;
        Ok(Exit::Ok)
    }
}
