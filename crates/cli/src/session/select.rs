//! Finds the session that a command line names.

use wire::v1::{ListSessionsRequest, Session};

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids::Named;

/// Returns the id of the named session.
pub(super) async fn resolve(named: &Named, client: &Client, run_id: &str) -> Result<String, Failure> {
    let known = async || {
        let request = ListSessionsRequest { run_id: run_id.to_owned(), tag: String::new() };
        let listed = client.sessions().list_sessions(quick(request)).await?.into_inner().sessions;
        Ok(listed.iter().map(|session| (session.session_id.clone(), tag(session).to_owned())).collect())
    };
    named.resolve("session", "coffer session list RUN", known).await
}

/// Returns the session's tag, which a client gave it.
pub(super) fn tag(session: &Session) -> &str {
    let request = session.process.as_ref().and_then(|process| process.request.as_ref());
    request.map_or("", |request| request.tag.as_str())
}
