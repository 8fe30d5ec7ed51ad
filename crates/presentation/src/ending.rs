//! Reports the results of a command that does the same to several objects.

use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ui::Ui;

/// Handles each object and reports its id, also after one has failed. The last failure is kept for the end.
///
/// `id` is the name of the id in JSON. The words say what is being done and what was done. `handle` returns the id of the object.
pub async fn each<T>(
    ui: Ui,
    id: &'static str,
    (doing, done): (&'static str, &'static str),
    objects: impl IntoIterator<Item = T>,
    mut handle: impl AsyncFnMut(T) -> Result<String, Failure>,
) -> Ended {
    let mut last: Option<Failure> = None;
    for object in objects {
        let _spinner = ui.spinner(doing);
        match handle(object).await {
            Ok(handled) => {
                ui.answer_line(&serde_json::json!({ id: handled, "done": done }), |_, page| {
                    page.own(done).own(" ").word(&handled).end_line();
                })?;
            }
            Err(failure) => {
                if let Some(earlier) = last.replace(failure) {
                    ui.fail(&earlier);
                }
            }
        }
    }
    last.map_or(Ok(Exit::Ok), Err)
}
