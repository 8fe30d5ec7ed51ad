//! The end of a command that does the same to several things.

use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ui::Ui;

/// Tells of each of several things that it has ended, and keeps the last failure for the end.
pub(crate) struct Ending {
    ui: Ui,
    /// The id's name in JSON.
    id: &'static str,
    done: &'static str,
    failure: Option<Failure>,
}

impl Ending {
    pub(crate) fn new(ui: Ui, id: &'static str, done: &'static str) -> Self {
        Self { ui, id, done, failure: None }
    }

    /// Says which one has ended, by its id, or why it has not.
    pub(crate) fn tell(&mut self, ended: Result<String, Failure>) -> Result<(), Failure> {
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

    pub(crate) fn exit(self) -> Ended {
        self.failure.map_or(Ok(Exit::Ok), Err)
    }
}
