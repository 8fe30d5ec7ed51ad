//! Changes of runs, approvals or alerts of all nodes, as they come.

use std::time::Duration;

use cofferdam_client::Client;
use futures_util::StreamExt as _;
use presentation::failure::Failure;
use tonic::{Status, Streaming};

use crate::feed::{Feed, Following, Opened, Placed, run};
use crate::fleet::{Fleet, Reached};
use crate::position::{Mark, Position};

/// Prints the changes of all nodes, each with the name of its node. Ends only with a failure of `print`.
///
/// A stream of changes begins with the present state. So a node that is back sends that state again, and no change is missed that
/// is still in force.
pub async fn watch<M: 'static, T: 'static>(
    fleet: &Fleet,
    open: impl AsyncFn(&Client) -> Result<Streaming<M>, Status>,
    item: fn(M) -> Option<T>,
    mut print: impl FnMut(&str, &T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let following = Following { follows: true, patience: Some(Duration::ZERO) };
    let changes = Changes { open, item };
    run(fleet, &changes, &Position::default(), following, |arrived| print(&arrived.node, &arrived.item)).await
}

struct Changes<O, M, T> {
    open: O,
    item: fn(M) -> Option<T>,
}

impl<O, M: 'static, T: 'static> Feed for Changes<O, M, T>
where
    O: AsyncFn(&Client) -> Result<Streaming<M>, Status>,
{
    type Item = T;

    async fn open(&self, node: &Reached, _: Option<Mark>) -> Result<Opened<T>, Failure> {
        let item = self.item;
        let changes = (self.open)(&node.client).await?;
        let items = changes.filter_map(move |change| {
            let placed = match change {
                Ok(change) => item(change).map(|item| Ok(Placed { moment: (0, 0), mark: None, item })),
                Err(status) => Some(Err(status)),
            };
            std::future::ready(placed)
        });
        Ok(Opened { items: items.boxed_local(), warning: None })
    }
}
