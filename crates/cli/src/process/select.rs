//! Finds the process that a command line names.

use wire::v1::ListProcessesRequest;

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids::Named;

/// Returns the id of the named process.
pub(super) async fn resolve(named: &Named, client: &Client, run_id: &str) -> Result<String, Failure> {
    let known = async || {
        let request = ListProcessesRequest { run_id: run_id.to_owned(), tag: String::new() };
        let listed = client.processes().list_processes(quick(request)).await?.into_inner().processes;
        let tag = |request: Option<wire::v1::ProcessRequest>| request.unwrap_or_default().tag;
        Ok(listed.into_iter().map(|process| (process.process_id, tag(process.request))).collect())
    };
    named.resolve("process", "coffer process list RUN", known).await
}
