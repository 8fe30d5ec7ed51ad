//! Keeps the consents that are remembered. A consent is recorded and stored before it lets a call through. Every end of a consent
//! is recorded, too.

use gateway::Consent;
use refusal::{Refusal, chain};
use runs::Runs;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::{Approvals, events};

impl Approvals {
    /// Remembers a consent, which then lets calls through. If it cannot be stored, reviewers are asked again.
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

    /// Ends a consent because a person revokes it. It lets no call through from this moment on.
    pub async fn revoke(&self, consent_id: &str, principal: &str) -> Result<Consent, Refusal> {
        let none = || Refusal::absent("consent", consent_id, "there is no such consent");
        let consent = self.gateway.forget(consent_id).ok_or_else(none)?;
        self.ended(&consent, Some(principal), "revoked").await?;
        Ok(consent)
    }

    /// Ends the consents of the previous policy, and withdraws its questions about connections.
    pub async fn policy_changed(&self) {
        self.cancel_outdated_connections().await;
        for consent in self.gateway.forget_outdated() {
            let _ = self.ended(&consent, None, "policy_changed").await;
        }
    }

    /// Ends the consents of a run that has ended.
    async fn run_ended(&self, run_id: &str) {
        for consent in self.gateway.forget_run(run_id) {
            let _ = self.ended(&consent, None, "run_ended").await;
        }
    }

    /// Ends the consents of runs that end, until `stop`.
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
                // Changes were missed: check all runs.
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
        // From the store first: an ended consent must not come back with the next daemon.
        let deleted = self.store.with(move |store| store.delete_consent(&id)).await;
        let recorded = self.audit.record(events::forgotten(consent, principal, why)).await;
        deleted.map_err(|error| Refusal::internal("forgetting the consent", &chain(&error)))?;
        recorded?;
        Ok(())
    }
}
