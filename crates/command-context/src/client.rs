//! The connection to the daemon, and the context of every command.

use std::time::Duration;

use cofferdam_client::{Connect, NODE_METADATA, NodeId};
use presentation::exit::Exit;
use presentation::failure::Failure;
use presentation::ui::Ui;
use tonic::Request;

pub use cofferdam_client::Client;

const DOCTOR: &str = "`coffer doctor` says what this host lacks";
/// Time limit of requests that need no work from the daemon.
const QUICK: Duration = Duration::from_secs(30);

/// Context of every command.
pub struct Context {
    pub ui: Ui,
    pub daemon: Connect,
    /// True if calls are explained instead of made.
    pub explains: bool,
}

impl Context {
    pub async fn connect(&self) -> Result<Client, Failure> {
        self.daemon.connect().await.map_err(|error| match Failure::from(error) {
            // `coffer doctor` would give the same message.
            failure if failure.exit() == Exit::Denied => failure,
            failure => failure.and_hint(DOCTOR),
        })
    }
}

/// Message that a list is incomplete.
pub const MORE: &str = "there are more; use a higher --limit\n";

/// Requests pages of at most `most` items, until there are `limit` items or the last page was reached.
///
/// Returns the items and the token of the next page, which is empty after the last. `ask` takes a page's size and token, and returns its
/// items and the next token.
pub async fn pages<T>(
    limit: usize,
    most: u32,
    mut ask: impl AsyncFnMut(u32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<(Vec<T>, String), Failure> {
    let (mut items, mut token) = (Vec::new(), String::new());
    while items.len() < limit {
        let size = u32::try_from(limit - items.len()).unwrap_or(most).min(most);
        let (page, next) = ask(size, token).await?;
        // Otherwise a daemon that sends only such pages would never be left.
        if page.is_empty() && !next.is_empty() {
            return Err(Failure::failed("the daemon sent an empty page, and says that another one follows"));
        }
        items.extend(page);
        token = next;
        if token.is_empty() {
            break;
        }
    }
    items.truncate(limit);
    Ok((items, token))
}

/// Creates a request that a healthy daemon answers at once.
pub fn quick<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(QUICK);
    request
}

/// Creates a request for the node of this number, which another node refuses. With zero it names no node.
pub fn to_node<T>(message: T, number: u32) -> Request<T> {
    let mut request = Request::new(message);
    let node = u16::try_from(number).ok().and_then(|number| NodeId::try_from(number).ok());
    if let Some(node) = node {
        request.metadata_mut().insert(NODE_METADATA, node.get().into());
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_node() {
        let named = |number| {
            let request = to_node((), number);
            request.metadata().get(NODE_METADATA).map(|node| node.to_str().unwrap().to_owned())
        };
        assert_eq!(named(7).as_deref(), Some("7"));
        assert_eq!([named(0), named(65_536)], [None, None]);
    }
}
