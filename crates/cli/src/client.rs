//! The connection to the daemon, and what every command carries.

use std::time::Duration;

use cofferdam_client::Connect;
use tonic::Request;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::ui::Ui;

pub(crate) use cofferdam_client::Client;

const DOCTOR: &str = "`coffer doctor` says what this host lacks";
/// How long the daemon may think about a question that needs no work.
const QUICK: Duration = Duration::from_secs(30);

/// What every command needs.
pub(crate) struct Context {
    pub(crate) ui: Ui,
    pub(crate) daemon: Connect,
    /// Calls are explained instead of made.
    pub(crate) explains: bool,
}

impl Context {
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        self.daemon.connect().await.map_err(|error| match Failure::from(error) {
            // The doctor would say the same.
            failure if failure.exit() == Exit::Denied => failure,
            failure => failure.and_hint(DOCTOR),
        })
    }
}

/// What people are told of a list that is cut short.
pub(crate) const MORE: &str = "there are more; use a higher --limit\n";

/// Asks for one page after another, each of `most` items or fewer, until there are `limit` items or no more
/// pages. Gives the
/// items and the token of the next page, which is empty after the last.
///
/// `ask` takes a page's size and token, and gives its items and the next token.
pub(crate) async fn pages<T>(
    limit: usize,
    most: u32,
    mut ask: impl AsyncFnMut(u32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<(Vec<T>, String), Failure> {
    let (mut items, mut token) = (Vec::new(), String::new());
    while items.len() < limit {
        let size = u32::try_from(limit - items.len()).unwrap_or(most).min(most);
        let (page, next) = ask(size, token).await?;
        items.extend(page);
        token = next;
        if token.is_empty() {
            break;
        }
    }
    items.truncate(limit);
    Ok((items, token))
}

/// A request that a healthy daemon answers at once.
pub(crate) fn quick<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(QUICK);
    request
}
