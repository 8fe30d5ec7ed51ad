//! Prints streams of changes as they arrive: a line for each change for people, and a JSON object for each for programs.

use presentation::failure::Failure;
use presentation::output::Output;
use presentation::ui::Ui;
use serde::Serialize;
use tonic::Streaming;

/// Prints the item of each message, until the stream ends or `is_last` returns true. Returns true if it was the last.
pub async fn print<M, T: Serialize>(
    ui: Ui,
    mut changes: Streaming<M>,
    item: impl Fn(M) -> Option<T>,
    render: impl Fn(&T, &mut Output),
    is_last: impl Fn(&T) -> bool,
) -> Result<bool, Failure> {
    while let Some(change) = changes.message().await? {
        let Some(item) = item(change) else { continue };
        ui.answer_line(&item, &render)?;
        if is_last(&item) {
            return Ok(true);
        }
    }
    Ok(false)
}
