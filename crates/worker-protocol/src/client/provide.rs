//! Gives the variables of a run to a guest that was greeted before its run was known.

use std::time::Duration;

use operations::Environment;
use tokio::time::timeout;
use wire::worker::v1::{Variables, to_worker::Body};

use crate::client::table::Table;
use crate::client::{Client, LaneError};

/// Time that the guest has to take them.
const TAKING: Duration = Duration::from_secs(5);

impl Client {
    /// Sends the variables of the run, and waits until the guest has taken them.
    ///
    /// It takes them once, and before its first call. After an error they may or may not be there, and the guest must get no call.
    pub async fn provide(&self, environment: &Environment) -> Result<(), LaneError> {
        let shared = &self.inner.shared;
        shared.table(Table::provide);
        let variables = Variables { environment: environment.variables().clone() };
        let provided = async {
            shared.say(0, Body::Variables(variables)).await?;
            tokio::select! {
                biased;
                () = shared.taken.notified() => Ok(()),
                () = shared.stop.cancelled() => Err(shared.lost()),
            }
        };
        timeout(TAKING, provided).await.unwrap_or(Err(LaneError::TimedOut))
    }
}
