//! Asks the daemon again and again, and connects again to one that was gone.

use std::time::Duration;

use cofferdam_client::Connect;
use command_context::client::Client;
use presentation::exit::Exit;
use presentation::failure::Failure;
use tokio::sync::{Notify, mpsc};

use crate::board::{Board, collect};

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// News of the daemon.
pub(crate) enum News {
    /// The lists of a round, and the connection that they came by.
    Round(Client, Box<Board>),
    /// The daemon cannot be reached.
    Gone(Failure),
}

/// Sends news until the receiver is gone. `hurry` begins the next round at once.
///
/// Ends with a failure if this caller may not use the daemon, which no repetition changes.
pub(crate) async fn keep(daemon: &Connect, first: Client, to: mpsc::Sender<News>, hurry: &Notify) -> Failure {
    let mut client = Some(first);
    loop {
        let round = match &client {
            Some(client) => collect(client).await.map(|board| News::Round(client.clone(), Box::new(board))),
            None => Err(Failure::unreachable("the daemon is gone")),
        };
        let news = match round {
            Ok(news) => news,
            Err(failure) => {
                client = match daemon.connect().await.map_err(Failure::from) {
                    Ok(client) => Some(client),
                    Err(refused) if refused.exit() != Exit::Unreachable => return refused,
                    Err(_) => None,
                };
                News::Gone(failure)
            }
        };
        if to.send(news).await.is_err() {
            return Failure::failed("the screen is gone");
        }
        let _ = tokio::time::timeout(ROUND, hurry.notified()).await;
    }
}
