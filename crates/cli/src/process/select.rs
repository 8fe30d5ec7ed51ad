//! Which process the command line means.

use std::str::FromStr;

use wire::v1::ListProcessesRequest;

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids;

/// A process's id, a unique beginning or end of it, or the tag of exactly one.
#[derive(Debug, Clone)]
pub(super) struct ProcessRef(String);

impl FromStr for ProcessRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("is empty".to_owned()) } else { Ok(Self(text.to_owned())) }
    }
}

impl ProcessRef {
    pub(super) async fn resolve(&self, client: &Client, run_id: &str) -> Result<String, Failure> {
        if ids::is_whole(&self.0) {
            return Ok(self.0.to_ascii_lowercase());
        }
        let request = ListProcessesRequest { run_id: run_id.to_owned(), tag: String::new() };
        let listed = client.processes().list_processes(quick(request)).await?.into_inner().processes;
        let tagged = listed
            .iter()
            .rev()
            .filter(|process| process.request.as_ref().is_some_and(|request| request.tag == self.0));
        // The newest: a tag is used again when a server is started again.
        if let Some(process) = tagged.into_iter().next() {
            return Ok(process.process_id.clone());
        }
        let known = listed.iter().map(|process| process.process_id.as_str());
        ids::pick(known, &self.0, "process", "coffer process list RUN").map(str::to_owned)
    }
}
