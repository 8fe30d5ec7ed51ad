//! Another token for a run that lives.
//!
//! The run's task answers, which also ends the run: so either the token opens a living run, over restarts of the daemon and on record,
//! or the answer says that the run has ended.

use identity::{RunId, issue_token};
use refusal::{Refusal, chain};
use serde_json::json;
use store::run::Record;

use crate::registry::Runs;
use crate::run::{Command, NewToken};
use crate::shared::Shared;

impl Runs {
    /// Makes a token for a living run. The one that it had opens nothing any longer.
    pub async fn issue_token(&self, id: RunId, by: &str) -> Result<(Record, String), Refusal> {
        let (token, hash) = issue_token(id);
        let record = self.ask(id, |done| Command::Token(NewToken { hash, by: by.to_owned(), done })).await?;
        Ok((record, token))
    }
}

impl Shared {
    /// Does what was asked, and answers.
    pub(crate) async fn take_token(&self, new: NewToken) {
        let NewToken { hash, by, done } = new;
        let mut record = self.record.borrow().clone();
        let before = record.token().cloned();
        record.issued = Some(hash.clone());
        let kept = record.clone();
        let stored = self.runs.store.with(move |store| store.update_run(&kept)).await;
        if let Err(error) = stored {
            let _ = done.send(Err(Refusal::internal("keeping the run's token", &chain(&error))));
            return;
        }
        self.record.send_modify(|record| record.issued = Some(hash));
        self.runs.deleted_tokens.keep(before);
        self.tell(&record, json!({ "state": record.state.as_str(), "token_issued": true, "by": by })).await;
        // The client may be gone; the run is as it is.
        let _ = done.send(Ok(record));
    }
}
