//! Gives a run a longer `ttl`.
//!
//! The run's task answers, and the same task ends the run. So either the run continues with its new `ttl`, which is stored and recorded, or
//! the answer says that the run has ended.

use std::time::Duration;

use crate::record::Record;
use identity::RunId;
use operations::Reason;
use refusal::{Refusal, chain};
use serde_json::json;

use crate::registry::Runs;
use crate::request::duration;
use crate::run::{Command, Extend};
use crate::shared::Shared;
use crate::stored;

impl Runs {
    /// Gives a run a longer `ttl`, counted from READY.
    pub async fn extend(&self, id: RunId, ttl: Option<&wire::Duration>, by: &str) -> Result<Record, Refusal> {
        let ttl = duration("ttl", ttl)?.ok_or_else(|| Refusal::invalid("ttl", "is missing"))?;
        self.check_ttl(ttl)?;
        self.ask(id, |done| Command::Extend(Extend { ttl, by: by.to_owned(), done })).await
    }

    /// Refuses a `ttl` above the limit of the configuration.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Refusal> {
        match self.max_ttl {
            Some(most) if ttl > most => {
                let most = most.as_secs();
                Err(Refusal::invalid(
                    "ttl",
                    format!("is above the daemon's limit of {most} seconds (runs.max_ttl)"),
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Shared {
    /// Executes the command and answers it.
    pub(crate) async fn extend(&self, extend: Extend) {
        let Extend { ttl, by, done } = extend;
        let outcome = self.live_until(ttl, &by).await;
        // The client may be gone. That changes nothing for the run.
        let _ = done.send(outcome);
    }

    async fn live_until(&self, ttl: Duration, by: &str) -> Result<Record, Refusal> {
        let mut record = self.record.borrow().clone();
        let refused = |message: String| Err(Refusal::new(Reason::PreconditionFailed, message));
        match record.ttl() {
            None => return refused("ttl: the run has no ttl, so there is none to extend".to_owned()),
            Some(has) if has > ttl => {
                let has = has.as_secs();
                return refused(format!("ttl: the run already has {has} seconds, which is longer"));
            }
            Some(has) if has == ttl => return Ok(record),
            Some(_) => record.extended = Some(ttl),
        }
        let stored = stored::update(&self.runs.store, &record).await;
        stored.map_err(|error| Refusal::internal("keeping the run's new ttl", &chain(&error)))?;
        self.record.send_modify(|record| record.extended = Some(ttl));
        let details = json!({ "state": record.state.as_str(), "ttl_s": ttl.as_secs(), "by": by });
        self.tell(&record, details).await;
        self.runs.changed(record.clone());
        Ok(record)
    }
}
