//! Streams of changes, as they come: a line each for people, an object a line for programs.

use serde::Serialize;
use tonic::Streaming;

use crate::failure::Failure;
use crate::output::Output;
use crate::ui::Ui;

/// Prints what `item` finds in each message, until the stream ends or `is_last` says so.
pub(crate) async fn print<M, T: Serialize>(
    ui: Ui,
    mut changes: Streaming<M>,
    item: impl Fn(M) -> Option<T>,
    render: impl Fn(&T, &mut Output),
    is_last: impl Fn(&T) -> bool,
) -> Result<(), Failure> {
    while let Some(change) = changes.message().await? {
        let Some(item) = item(change) else { continue };
        ui.answer_line(&item, &render)?;
        if is_last(&item) {
            break;
        }
    }
    Ok(())
}
