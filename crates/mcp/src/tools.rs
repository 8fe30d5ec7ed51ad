//! The run's tools, as the API lists them.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::Tool;
use tokio::time::timeout;
use tonic::Status;

use crate::answer::error;
use crate::api::RunClient;

/// Time for the network in words. A list may take longer, because upstream servers are started for it.
const NETWORK: Duration = Duration::from_secs(2);

/// The form of a tool's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The tool is not offered.
    Unknown,
    /// Its results are text.
    Text,
    /// Its results match a schema.
    Structured,
}

/// The tools, and their shapes at the last listing.
pub(crate) struct Tools {
    client: RunClient,
    shapes: Mutex<HashMap<String, Shape>>,
}

impl Tools {
    pub(crate) fn new(client: RunClient) -> Self {
        Self { client, shapes: Mutex::default() }
    }

    /// Returns the tools that are offered now.
    pub(crate) async fn list(&self) -> Result<Vec<Tool>, ErrorData> {
        let listed = self.client.list_tools().await.map_err(|status| error(&status))?;
        self.read(&listed.tools_json)
    }

    /// Returns the hosts that the run can reach, in words. `None` if the daemon does not say so in time.
    pub(crate) async fn network(&self) -> Option<String> {
        let listed = timeout(NETWORK, self.client.list_tools()).await.ok()?.ok()?;
        Some(text::one_line(&listed.network).into_owned()).filter(|network| !network.is_empty())
    }

    fn read(&self, listed: &str) -> Result<Vec<Tool>, ErrorData> {
        let tools: Vec<Tool> = serde_json::from_str(listed)
            .map_err(|_| ErrorData::internal_error("the daemon's list of tools cannot be read", None))?;
        let shape = |tool: &Tool| if tool.output_schema.is_some() { Shape::Structured } else { Shape::Text };
        let shapes = tools.iter().map(|tool| (tool.name.to_string(), shape(tool))).collect();
        *self.shapes.lock() = shapes;
        Ok(tools)
    }

    /// Returns the shape of a tool's results. Lists the tools again if the tool is not known.
    pub(crate) async fn shape(&self, name: &str) -> Shape {
        let known = |tools: &Self| {
            let shapes = tools.shapes.lock();
            shapes.get(name).copied()
        };
        if let Some(shape) = known(self) {
            return shape;
        }
        // If the tools cannot be listed, the call itself reports it.
        let _ = self.list().await;
        known(self).unwrap_or(Shape::Unknown)
    }

    /// Returns true if the tools differ from those of the last call. `seen` is the caller's memory, empty at first.
    pub(crate) async fn changed(&self, seen: &mut String) -> Result<bool, Status> {
        let listed = self.client.list_tools().await?.tools_json;
        let changed = !seen.is_empty() && *seen != listed;
        if changed {
            // Shapes may differ, too. An unreadable list is reported when a client lists the tools.
            let _ = self.read(&listed);
        }
        *seen = listed;
        Ok(changed)
    }
}
