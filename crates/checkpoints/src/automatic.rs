//! Checkpoints that the daemon makes by itself, and those of agents: their number is bounded by their run, and they give place
//! to those that the owner asks for.

use std::collections::BTreeSet;

use audit::{Event, Kind};
use identity::{CheckpointId, Principal, RunId};
use operations::{AgentCheckpoint, Reason};
use refusal::Refusal;
use runs::record::{Automatic, Record};
use serde_json::json;

use crate::record::{self, Checkpoint};
use crate::{Busy, Cause, Checkpoints, limits};

impl Checkpoints {
    /// Makes a checkpoint that counts among the automatic ones of the run. The caller has judged the request, and lets it run to
    /// its end.
    pub async fn create_automatic(
        &self,
        run: RunId,
        label: String,
        by: &Principal,
    ) -> Result<AgentCheckpoint, Refusal> {
        let label = record::label(label, self.audit.redactor())?;
        let run = self.runs.get(run)?;
        let made = self.create_of(&run, (label, true), by, None).await?;
        self.keep_newest(&run).await;
        Ok(made.for_agent())
    }

    /// Makes an automatic checkpoint without a caller. A failure goes on record, once for each cause.
    pub async fn create_unasked(&self, run: RunId, label: String, by: &Principal) {
        // A label that cannot be shown is no reason to have no checkpoint.
        let label = record::label(label, self.audit.redactor()).unwrap_or_else(|_| "auto".to_owned());
        match self.create_automatic(run, label, by).await {
            Ok(_) => {
                self.failing.lock().remove(&run);
            }
            // The run has ended.
            Err(refusal)
                if matches!(refusal.reason, Reason::RunNotReady | Reason::RunLost | Reason::NotFound) =>
            {
                self.failing.lock().remove(&run);
            }
            Err(refusal) => self.tell_failure(run, &refusal).await,
        }
    }

    async fn tell_failure(&self, run: RunId, refusal: &Refusal) {
        let known = self.failing.lock().insert(run, refusal.message.clone());
        if known.as_ref() == Some(&refusal.message) {
            return;
        }
        self.forget_ended();
        tracing::warn!(%run, why = refusal.message, "no automatic checkpoint was made");
        let details = json!({
            "action": "checkpoint", "phase": "skipped", "reason": refusal.reason.as_str(), "failure": refusal.message,
        });
        let event = Event::new(Kind::WorkspaceChange).run(run.to_string()).details(details);
        if self.audit.enqueue(event).await.is_err() {
            tracing::error!(%run, "a missing checkpoint is not on record: the audit log cannot be written");
        }
    }

    /// Forgets the failures of runs that have ended.
    pub(crate) fn forget_ended(&self) {
        self.failing.lock().retain(|run, _| self.runs.living_run(*run).is_ok());
    }

    /// Returns at most `most` checkpoints of the run, newest first, and whether there are more.
    pub fn of_run(&self, run: RunId, most: usize) -> (Vec<AgentCheckpoint>, bool) {
        let table = self.table.lock();
        let mut of_run = table.values().rev().filter(|checkpoint| checkpoint.run == run);
        let found = of_run.by_ref().take(most).map(Checkpoint::for_agent).collect();
        (found, of_run.next().is_some())
    }

    /// Deletes the oldest automatic checkpoints of the run beyond the number that is kept.
    pub(crate) async fn keep_newest(&self, run: &Record) {
        let keep = run.spec.checkpoints.map_or(Automatic::USUAL, |automatic| automatic.keep);
        let beyond: Vec<CheckpointId> = {
            let table = self.table.lock();
            beyond(table.values().rev(), run.id, keep as usize).collect()
        };
        for id in beyond {
            if let Err(refusal) = self.remove(id, Cause::Newer).await {
                // The next one deletes it.
                tracing::warn!(checkpoint = %id, why = refusal.message, "an old automatic checkpoint was not deleted");
            }
        }
    }

    /// Returns the length of all files that one more checkpoint of the run may have, or refuses it with less than `least`.
    ///
    /// For a checkpoint that the owner asked for, automatic ones of the same owner are deleted, oldest first. `gone` gets them, and the
    /// caller deletes their trees.
    pub(crate) async fn room<'c>(
        &'c self,
        run: &Record,
        automatic: bool,
        least: u64,
        gone: &mut Vec<Busy<'c>>,
    ) -> Result<u64, Refusal> {
        let mut needed = BTreeSet::new();
        loop {
            let (left, oldest) = {
                let table = self.table.lock();
                let of = (run.id, run.spec.principal.as_str());
                let left = limits::left(&table, of, automatic, least, &self.bounds);
                let mut displaced = displaced(table.values(), &run.spec.principal, automatic);
                (left, displaced.find(|id| !needed.contains(id)))
            };
            let refused = match left {
                Ok(left) => return Ok(left),
                // The limit of the run counts no automatic ones, so their end makes no room.
                Err(refused) if !limits::is_no_room(&refused) => return Err(refused),
                Err(refused) => refused,
            };
            let Some(oldest) = oldest else { return Err(refused) };
            match self.take_out(oldest, Cause::Newer).await {
                Ok(taken) => gone.push(taken),
                // A run or another checkpoint needs it, or another request has deleted it.
                Err(why) if matches!(why.reason, Reason::PreconditionFailed | Reason::NotFound) => {
                    needed.insert(oldest);
                }
                Err(_) => return Err(refused),
            }
        }
    }
}

/// Returns the checkpoints that may be deleted for a new one of `owner`, in the order of `all`: none for an automatic one.
fn displaced<'c>(
    all: impl Iterator<Item = &'c Checkpoint>,
    owner: &str,
    automatic: bool,
) -> impl Iterator<Item = CheckpointId> {
    all.filter(move |found| !automatic && found.automatic && found.principal == owner).map(|found| found.id)
}

/// Returns the ids of the automatic checkpoints of a run beyond the newest `keep`. `all` begins with the newest.
fn beyond<'c>(
    all: impl Iterator<Item = &'c Checkpoint>,
    run: RunId,
    keep: usize,
) -> impl Iterator<Item = CheckpointId> {
    all.filter(move |found| found.run == run && found.automatic).skip(keep).map(|found| found.id)
}

#[cfg(test)]
mod tests {
    use timestamp::Timestamp;

    use super::*;
    use crate::table::tests::checkpoint;

    #[test]
    fn the_newest_automatic_ones_of_a_run_are_kept_and_those_of_its_owner_do_not_count() {
        let (run, other) = (RunId::new(), RunId::new());
        let of = |run, automatic| Checkpoint { automatic, ..checkpoint(run, Timestamp::now(), 1) };
        let newest_first =
            [of(run, true), of(run, false), of(other, true), of(run, true), of(run, false), of(run, true)];
        let ids: Vec<_> = beyond(newest_first.iter(), run, 2).collect();
        assert_eq!(ids, [newest_first[5].id]);
        assert_eq!(beyond(newest_first.iter(), run, 3).count(), 0);
        assert_eq!(beyond(newest_first.iter(), other, 0).count(), 1);
    }

    #[test]
    fn one_of_the_owner_displaces_automatic_ones_of_the_same_owner_alone() {
        let of = |automatic, principal: &str| Checkpoint {
            automatic,
            principal: principal.to_owned(),
            ..checkpoint(RunId::new(), Timestamp::now(), 1)
        };
        let all = [of(true, "uid:1"), of(false, "uid:1"), of(true, "uid:2"), of(true, "uid:1")];
        let ids: Vec<_> = displaced(all.iter(), "uid:1", false).collect();
        assert_eq!(ids, [all[0].id, all[3].id]);
        assert_eq!(displaced(all.iter(), "uid:1", true).count(), 0, "an automatic one displaces none");
        assert_eq!(displaced(all.iter(), "uid:3", false).count(), 0);
    }

    #[test]
    fn an_agent_sees_neither_principals_nor_digests() {
        let made = checkpoint(RunId::new(), Timestamp::now(), 7);
        let shown = format!("{:?}", made.for_agent());
        assert!(shown.contains(&made.id.to_string()));
        assert!(!shown.contains("uid:") && !shown.contains(&made.digest()), "{shown}");
    }
}
