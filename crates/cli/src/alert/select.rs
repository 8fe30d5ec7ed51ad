//! How a command line names an alert.

use wire::v1::ListAlertsRequest;

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids;

/// The whole id of the alert that `text` names: the whole, or a unique beginning or end among the newest.
pub(super) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    if ids::is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let request = ListAlertsRequest { page_size: 500, ..Default::default() };
    let response = client.policy().list_alerts(quick(request)).await?.into_inner();
    let ids = response.alerts.iter().map(|alert| alert.alert_id.as_str());
    ids::pick(ids, text, "alert", "coffer alert list --state all").map(str::to_owned)
}
