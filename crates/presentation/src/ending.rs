//! Reports the results of a command that does the same to several objects.

use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ui::Ui;

/// Reports each object that was handled, and keeps the last failure for the end.
pub struct Ending {
    ui: Ui,
    /// Name of the id in JSON.
    id: &'static str,
    done: &'static str,
    failure: Option<Failure>,
}

impl Ending {
    pub fn new(ui: Ui, id: &'static str, done: &'static str) -> Self {
        Self { ui, id, done, failure: None }
    }

    /// Reports the id of an object that was handled, or keeps the failure.
    pub fn tell(&mut self, ended: Result<String, Failure>) -> Result<(), Failure> {
        match ended {
            Ok(id) => {
                self.ui.answer_line(&serde_json::json!({ self.id: id, "done": self.done }), |_, page| {
                    page.own(self.done).own(" ").word(&id).end_line();
                })
            }
            Err(failure) => {
                if let Some(earlier) = self.failure.replace(failure) {
                    self.ui.fail(&earlier);
                }
                Ok(())
            }
        }
    }

    pub fn exit(self) -> Ended {
        self.failure.map_or(Ok(Exit::Ok), Err)
    }
}
