//! Changes of runs, approvals or alerts of all nodes, as they come.

use std::time::Duration;

use cofferdam_client::Client;
use futures_util::StreamExt as _;
use presentation::failure::Failure;
use presentation::ui::Ui;
use serde::Serialize;
use tonic::{Status, Streaming};

use crate::feed::{Feed, Following, Opened, Placed, run};
use crate::fleet::{Fleet, Reached, checked};
use crate::position::{Mark, Position};

/// Prints the changes of all nodes, each with the name of its node. Ends only with a failure of `print`.
///
/// A stream of changes begins with the present state. So a node that is back sends that state again, and no change is missed that
/// is still in force.
pub async fn watch<M: 'static, T: Serialize + 'static>(
    fleet: &Fleet,
    open: impl AsyncFn(&Client) -> Result<Streaming<M>, Status>,
    item: fn(M) -> Option<T>,
    mut print: impl FnMut(&str, &T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let following = Following { follows: true, patience: Some(Duration::ZERO) };
    let changes = Changes { open, item, ui: fleet.ui };
    run(fleet, &changes, &Position::default(), following, |arrived| print(&arrived.node, &arrived.item)).await
}

struct Changes<O, M, T> {
    open: O,
    item: fn(M) -> Option<T>,
    ui: Ui,
}

impl<O, M: 'static, T: Serialize + 'static> Feed for Changes<O, M, T>
where
    O: AsyncFn(&Client) -> Result<Streaming<M>, Status>,
{
    type Item = T;

    async fn open(&self, node: &Reached, _: Option<Mark>) -> Result<Opened<T>, Failure> {
        let (item, ui) = (self.item, self.ui);
        let changes = (self.open)(&node.client).await?;
        let items = changes.filter_map(move |change| {
            let placed = match change {
                Ok(change) => item(change).map(|item| {
                    let placed = checked(ui, item).map(|item| Placed { moment: (0, 0), mark: None, item });
                    placed.map_err(|failure| Status::data_loss(failure.to_string()))
                }),
                Err(status) => Some(Err(status)),
            };
            std::future::ready(placed)
        });
        Ok(Opened { items: items.boxed_local(), warning: None })
    }
}
