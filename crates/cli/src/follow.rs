//! Prints streams of changes as they arrive: a line for each change for people, and a JSON object for each for programs.

use serde::Serialize;
use tonic::Streaming;

use crate::failure::Failure;
use crate::output::Output;
use crate::ui::Ui;

/// Prints the item of each message, until the stream ends or `is_last` returns true.
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
