//! Gives a live run another token.
//!
//! The run's task answers, and the same task ends the run. So either the new token is valid for a live run, stored and recorded, or the
//! answer says that the run has ended.

use crate::record::Record;
use identity::{RunId, issue_token};
use refusal::{Refusal, chain};
use serde_json::json;

use crate::registry::Runs;
use crate::run::{Command, NewToken};
use crate::shared::Shared;
use crate::stored;

impl Runs {
    /// Makes a token for a live run. Its previous token is no longer valid.
    pub async fn issue_token(&self, id: RunId, by: &str) -> Result<(Record, String), Refusal> {
        let (token, hash) = issue_token(id);
        let record = self.ask(id, |done| Command::Token(NewToken { hash, by: by.to_owned(), done })).await?;
        Ok((record, token))
    }
}

impl Shared {
    /// Executes the command and answers it.
    pub(crate) async fn take_token(&self, new: NewToken) {
        let NewToken { hash, by, done } = new;
        let mut record = self.record.borrow().clone();
        let before = record.token().cloned();
        record.issued = Some(hash.clone());
        if let Err(error) = stored::update(&self.runs.store, &record).await {
            let _ = done.send(Err(Refusal::internal("keeping the run's token", &chain(&error))));
            return;
        }
        self.record.send_modify(|record| record.issued = Some(hash));
        self.runs.deleted_tokens.keep(before);
        self.tell(&record, json!({ "state": record.state.as_str(), "token_issued": true, "by": by })).await;
        // The client may be gone. That changes nothing for the run.
        let _ = done.send(Ok(record));
    }
}
