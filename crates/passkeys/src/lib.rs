#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // the daemon alone calls it

mod challenges;
mod consent;
mod passkey;
mod registration;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use audit::{Event, Kind};
use audit_service::AuditLog;
use consent_proof::RelyingParty;
use operations::Reason;
use parking_lot::RwLock;
use refusal::{Refusal, chain};
use serde_json::json;
use store::{Store, StoreError};
use tokio::sync::Mutex;

pub use consent::{Asked, Draft, Signed};
pub use passkey::Passkey;
pub use registration::{Answer, Options};

use challenges::Challenges;

/// The passkeys of this daemon.
pub struct Passkeys {
    store: Store,
    audit: Arc<AuditLog>,
    /// `None` without a console that is reached by a name.
    party: Option<RelyingParty>,
    /// By the id of the passkey.
    known: RwLock<BTreeMap<String, Passkey>>,
    challenges: Challenges,
    /// Allows one change at a time.
    changing: Mutex<()>,
}

impl Passkeys {
    /// Opens the passkeys in the store.
    pub fn open(store: Store, audit: Arc<AuditLog>, party: Option<RelyingParty>) -> Result<Self, StoreError> {
        // One that cannot be read signs nothing, and does not keep the daemon from its start.
        let read = |record: &String| match serde_json::from_str::<Passkey>(record) {
            Ok(passkey) => Some((passkey.credential_id.clone(), passkey)),
            Err(error) => {
                tracing::error!(%error, "a stored passkey cannot be read, or its key proves nothing: it counts for no decision");
                None
            }
        };
        let known = store.passkeys()?.iter().filter_map(read).collect();
        Ok(Self {
            store,
            audit,
            party,
            known: RwLock::new(known),
            challenges: Challenges::default(),
            changing: Mutex::default(),
        })
    }

    /// Returns the passkeys of a principal, or of all, oldest first.
    pub fn list(&self, of: Option<&str>) -> Vec<Passkey> {
        let mut found: Vec<Passkey> = self
            .known
            .read()
            .values()
            .filter(|passkey| of.is_none_or(|principal| passkey.principal == principal))
            .cloned()
            .collect();
        found.sort_by(|one, other| {
            (one.created_at, &one.credential_id).cmp(&(other.created_at, &other.credential_id))
        });
        found
    }

    /// Ends a passkey, after that is on record.
    pub async fn remove(&self, credential_id: &[u8], by: &str) -> Result<Passkey, Refusal> {
        let _changing = self.changing.lock().await;
        let id = hex::encode(credential_id);
        let passkey = self.known.read().get(&id).cloned().ok_or_else(no_such_passkey)?;
        // A daemon that is killed after the record must not take the passkey up again. A store that fails does not stop its end.
        let _ = self.keep(&Passkey { ended: true, ..passkey.clone() }).await;
        if let Err(refusal) = self.record(Kind::PasskeyRemoved, &passkey, by).await {
            let _ = self.keep(&passkey).await;
            return Err(refusal);
        }
        // It ends at once, also if the store fails. The answer then reports the error, and another request tries again.
        self.known.write().remove(&id);
        let removed = self.store.with(move |store| store.delete_passkey(&id)).await;
        if let Err(error) = removed {
            self.known.write().insert(passkey.credential_id.clone(), Passkey { ended: true, ..passkey });
            return Err(Refusal::internal("removing the passkey", &chain(&error)));
        }
        Ok(passkey)
    }

    fn party(&self) -> Result<&RelyingParty, Refusal> {
        self.party.as_ref().ok_or_else(|| {
            Refusal::new(
                Reason::PreconditionFailed,
                "this daemon takes no passkeys: they need the web console (`console` in the configuration), reached by a name \
                 and not by an address",
            )
            .with("setting", "console")
        })
    }

    async fn record(&self, kind: Kind, passkey: &Passkey, by: &str) -> Result<(), Refusal> {
        let event = Event::new(kind).principal(by).details(json!({
            "credential_id": passkey.credential_id,
            "principal": passkey.principal,
            "name": passkey.name,
            "public_key": passkey.public_key,
        }));
        self.audit.record(event).await?;
        Ok(())
    }

    async fn keep(&self, passkey: &Passkey) -> Result<(), Refusal> {
        let passkey = passkey.clone();
        let kept = self
            .store
            .with(move |store| store.put_passkey(&passkey.credential_id, &serde_json::to_string(&passkey)?));
        kept.await.map_err(|error| Refusal::internal("storing the passkey", &chain(&error)))
    }
}

fn no_such_passkey() -> Refusal {
    Refusal::new(Reason::NotFound, "there is no such passkey").with("resource", "passkey")
}
