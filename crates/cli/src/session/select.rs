//! Which session the command line means.

use std::str::FromStr;

use wire::v1::{ListSessionsRequest, Session};

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids;

/// A session's id, a unique beginning or end of it, or the tag of the newest that has it.
#[derive(Debug, Clone)]
pub(super) struct SessionRef(String);

impl FromStr for SessionRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("is empty".to_owned()) } else { Ok(Self(text.to_owned())) }
    }
}

impl SessionRef {
    pub(super) async fn resolve(&self, client: &Client, run_id: &str) -> Result<String, Failure> {
        if ids::is_whole(&self.0) {
            return Ok(self.0.to_ascii_lowercase());
        }
        let request = ListSessionsRequest { run_id: run_id.to_owned(), tag: String::new() };
        let listed = client.sessions().list_sessions(quick(request)).await?.into_inner().sessions;
        if let Some(tagged) = listed.iter().rev().find(|session| tag(session) == self.0) {
            return Ok(tagged.session_id.clone());
        }
        let known = listed.iter().map(|session| session.session_id.as_str());
        ids::pick(known, &self.0, "session", "coffer session list RUN").map(str::to_owned)
    }
}

/// The name that a client gave it.
pub(super) fn tag(session: &Session) -> &str {
    let request = session.process.as_ref().and_then(|process| process.request.as_ref());
    request.map_or("", |request| request.tag.as_str())
}
