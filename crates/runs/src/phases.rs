//! Narrows and widens the rules for a run's connections.
//!
//! An owner only ever makes them stricter, so a run that installs what it needs can be closed after that. An operator, or a reviewer with a
//! consent that is remembered, opens more. Both are stored with the run before they apply. A widening is on record before that.

use std::sync::Arc;

use audit::Event;
use egress_rules::{Narrowed, Rules, Widened};
use identity::RunId;
use refusal::{Refusal, chain};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::held::is_over;
use crate::record::Record;
use crate::registry::Runs;
use crate::run::{Command, Phase, RuleChange, Run};
use crate::shared::Shared;
use crate::stored;
use crate::way_out::{no_way_out, parse};

/// Longest text of rules that widen a run, bytes.
const WIDENING: usize = 16 * 1024;

impl Runs {
    /// Adds rules that the connections of a run have to pass.
    pub async fn narrow_egress(&self, id: RunId, text: &str, by: &str) -> Result<Record, Refusal> {
        self.living_run(id)?.change_rules(RuleChange::Narrow, rules(text)?, by).await
    }

    /// Adds rules that open more than the profile of a run.
    pub async fn widen_egress(&self, id: RunId, text: &str, by: &str) -> Result<Record, Refusal> {
        if text.len() > WIDENING {
            return Err(Refusal::invalid("egress_json", format!("is longer than {WIDENING} bytes")));
        }
        self.living_run(id)?.change_rules(RuleChange::Widen { approval_id: None }, rules(text)?, by).await
    }
}

fn rules(text: &str) -> Result<Rules, Refusal> {
    parse(text)?.ok_or_else(|| Refusal::invalid("egress_json", "is missing"))
}

impl Run {
    /// Remembers a reviewer's consent to a connection: from now on these rules allow it.
    pub async fn remember_connection(
        &self,
        rules: Rules,
        by: &str,
        approval_id: &str,
    ) -> Result<Record, Refusal> {
        let change = RuleChange::Widen { approval_id: Some(approval_id.to_owned()) };
        tokio::select! {
            changed = self.change_rules(change, rules, by) => changed,
            // The run's task may wait for the one that asks.
            () = self.ended.cancelled() => Err(is_over(&self.record.borrow())),
        }
    }

    async fn change_rules(&self, change: RuleChange, rules: Rules, by: &str) -> Result<Record, Refusal> {
        let (done, answer) = oneshot::channel();
        let phase = Phase { change, rules, by: by.to_owned(), done };
        // A command that was not accepted comes back with `done`, and is dropped here.
        let is_told = self.commands.send(Command::Phase(Box::new(phase))).await.is_ok();
        match if is_told { answer.await.ok() } else { None } {
            Some(outcome) => outcome,
            None => Err(is_over(&self.record.borrow())),
        }
    }
}

impl Shared {
    /// Executes the command and answers it.
    pub(crate) async fn begin_phase(&self, phase: Phase) {
        let Phase { change, rules, by, done } = phase;
        let outcome = match change {
            RuleChange::Narrow => self.narrow_to(rules, &by).await,
            RuleChange::Widen { approval_id } => self.widen_to(rules, &by, approval_id.as_deref()).await,
        };
        // The client may be gone. The rules apply nevertheless.
        let _ = done.send(outcome);
    }

    async fn narrow_to(&self, rules: Rules, by: &str) -> Result<Record, Refusal> {
        let now = self.rules_now()?;
        let next = now.narrow(&rules).map_err(|widening| invalid(&widening))?;
        let mut record = self.record.borrow().clone();
        if next == *now {
            return Ok(record);
        }
        let details = json!({ "egress": rules, "egress_digest": digest(&next)?, "by": by });
        record.narrowed.push(rules);
        self.apply_rules(&record).await?;
        self.end_phase(&record, event_of(&record, details)).await;
        Ok(record)
    }

    async fn widen_to(&self, rules: Rules, by: &str, approval_id: Option<&str>) -> Result<Record, Refusal> {
        let now = self.rules_now()?;
        let next = now.widen(&rules).map_err(|not| invalid(&not))?;
        let mut record = self.record.borrow().clone();
        if next == *now {
            return Ok(record);
        }
        let digest = digest(&next)?;
        let event = |is: &str| {
            let details = json!({ "widening": rules, "by": by, "is": is, "egress_digest": digest });
            let event = event_of(&record, details);
            match approval_id {
                Some(approval_id) => event.approval(approval_id),
                None => event,
            }
        };
        let (intent, done, failed) = (event("intent"), event("receipt"), event("failed"));
        self.runs.audit.record(intent).await?;
        record.widened.push(Widened { rules, after: record.narrowed.len() });
        if let Err(refusal) = self.apply_rules(&record).await {
            self.put_on_record(failed).await;
            return Err(refusal);
        }
        self.end_phase(&record, done).await;
        Ok(record)
    }

    fn rules_now(&self) -> Result<Arc<Narrowed>, Refusal> {
        Ok(self.run.egress().ok_or_else(no_way_out)?.rules())
    }

    /// Stores the run's rules, and puts them in force.
    async fn apply_rules(&self, record: &Record) -> Result<(), Refusal> {
        let stored = stored::update(&self.runs.store, record).await;
        stored.map_err(|error| Refusal::internal("keeping the run's rules", &chain(&error)))?;
        self.record.send_modify(|now| {
            now.narrowed.clone_from(&record.narrowed);
            now.widened.clone_from(&record.widened);
        });
        Ok(())
    }

    async fn end_phase(&self, record: &Record, event: Event) {
        self.put_on_record(event).await;
        self.runs.changed(record.clone());
    }
}

fn event_of(record: &Record, mut details: Value) -> Event {
    details["state"] = record.state.as_str().into();
    record.event(details)
}

fn invalid(why: &impl ToString) -> Refusal {
    Refusal::invalid("egress_json", why.to_string())
}

fn digest(rules: &Narrowed) -> Result<String, Refusal> {
    rules.digest().map_err(|error| Refusal::internal("the digest of the rules", &error))
}
