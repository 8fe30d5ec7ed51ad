//! Consents that are remembered, as the daemon keeps them: on record and in the store before they let anything through,
//! and on record when they end, whatever ends them.

use gateway::Consent;
use ops::Reason;
use refusal::{Refusal, chain};
use runs::Runs;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::{Approvals, events};

impl Approvals {
    /// From now on the consent lets calls through. Where that cannot be kept, reviewers are asked again, as ever.
    pub(super) async fn remember(&self, consent: Consent) {
        if self.audit.record(events::remembered(&consent)).await.is_err() {
            return;
        }
        let (id, run) = (consent.consent_id.clone(), consent.run_id.clone());
        let stored = match serde_json::to_vec(&consent) {
            Ok(json) => self.store.with(move |store| store.insert_consent(&id, &run, &json)).await,
            Err(error) => Err(error.into()),
        };
        match stored {
            Ok(()) => self.gateway.remember(consent),
            Err(error) => tracing::error!(error = %chain(&error), "a consent is not remembered"),
        }
    }

    /// Ends one, at a person's wish. It lets nothing through from the moment on at which this is called.
    pub async fn revoke(&self, consent_id: &str, principal: &str) -> Result<Consent, Refusal> {
        let consent = self.gateway.forget(consent_id).ok_or_else(|| {
            Refusal::new(Reason::NotFound, "there is no such consent").with("resource", "consent")
        })?;
        self.ended(&consent, Some(principal), "revoked").await?;
        Ok(consent)
    }

    /// Another policy is in force: what was remembered under the former one has ended.
    pub async fn policy_changed(&self) {
        for consent in self.gateway.forget_outdated() {
            let _ = self.ended(&consent, None, "policy_changed").await;
        }
    }

    /// The run has ended, and what was remembered for it.
    async fn run_ended(&self, run_id: &str) {
        for consent in self.gateway.forget_run(run_id) {
            let _ = self.ended(&consent, None, "run_ended").await;
        }
    }

    /// Ends what is remembered for runs that end, until `stop`.
    pub async fn follow_runs(&self, runs: &Runs, stop: CancellationToken) {
        let mut changes = runs.changes();
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.recv() => change,
            };
            match change {
                Ok(record) if record.state.has_ended() => self.run_ended(&record.id.to_string()).await,
                Ok(_) => {}
                // Too much at once: all of them are looked at.
                Err(RecvError::Lagged(_)) => {
                    for record in runs.list().into_iter().filter(|record| record.state.has_ended()) {
                        self.run_ended(&record.id.to_string()).await;
                    }
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    async fn ended(&self, consent: &Consent, principal: Option<&str>, why: &str) -> Result<(), Refusal> {
        let id = consent.consent_id.clone();
        // First of all from the store: one that ended must not come back with the next daemon.
        let deleted = self.store.with(move |store| store.delete_consent(&id)).await;
        let recorded = self.audit.record(events::forgotten(consent, principal, why)).await;
        deleted.map_err(|error| Refusal::internal("forgetting the consent", &chain(&error)))?;
        recorded?;
        Ok(())
    }
}
