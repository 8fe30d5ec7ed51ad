//! Changes the permissions that operators give and take: records a change, stores it, puts it into force, in this order.
//!
//! A change is recorded before it counts, and it counts before the operator gets the answer. If a change cannot be stored, the
//! stricter state holds. A grant is withdrawn, and that is recorded as well, so that the log says which permissions hold. A
//! revocation is in force, and the daemon retries until it is stored.

use std::sync::Arc;
use std::time::Duration;

use audit::{Event, Kind};
use audit_service::AuditLog;
use gateway::{Effect, Ended, Gateway, Permission, Permissions};
use identity::PermissionId;
use operations::Reason;
use refusal::{Refusal, chain};
use serde_json::json;
use store::{Ending, Store, StoreError};
use timestamp::UnixMillis;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Most characters of a reason.
const MAX_REASON: usize = 1_000;
/// Time between attempts to keep a change.
const AGAIN: Duration = Duration::from_secs(5);
/// Principal of changes that the daemon makes itself.
const DAEMON: &str = "cofferd";

/// The permissions of this daemon.
pub struct Grants {
    store: Store,
    audit: Arc<AuditLog>,
    gateway: Arc<Gateway>,
    /// Allows one change at a time, so that the last one on record is the one in force. Holds revocations that are in force and
    /// could not be stored yet.
    changing: Mutex<Vec<Permission>>,
}

impl Grants {
    /// Opens the permissions of the store and puts them into force.
    pub fn open(store: Store, audit: Arc<AuditLog>, gateway: Arc<Gateway>) -> Result<Arc<Self>, StoreError> {
        gateway.set_permissions(Permissions::of(parsed(&store.permissions_in_force(UnixMillis::now())?)?));
        Ok(Arc::new(Self { store, audit, gateway, changing: Mutex::default() }))
    }

    /// Grants or revokes. The permission has all fields but its id and its time.
    pub async fn add(&self, permission: Permission) -> Result<Permission, Refusal> {
        let mut owed = self.changing.lock().await;
        let now = UnixMillis::now();
        let permission = Permission { id: PermissionId::new().to_string(), at: now, ..permission };
        permission
            .check(&self.gateway.policy(), now)
            .map_err(|bad| Refusal::invalid(bad.field, bad.message))?;
        let before = self.gateway.permissions();
        let after = before
            .with(permission.clone(), now)
            .map_err(|full| Refusal::new(Reason::Overloaded, full.to_string()))?;
        self.record(&permission, permission.effect, &permission.by, &permission.reason).await?;
        match permission.effect {
            Effect::Grant => {
                self.keep_gift(&permission, &mut owed).await?;
                self.gateway.set_permissions(after);
            }
            Effect::Revocation => {
                self.gateway.set_permissions(after);
                self.keep_taken(&permission, &mut owed).await?;
            }
        }
        Ok(permission)
    }

    /// Ends a permission of this effect before its time.
    pub async fn end(
        &self,
        id: &str,
        effect: Effect,
        principal: &str,
        reason: &str,
    ) -> Result<Permission, Refusal> {
        let id = PermissionId::parse(id)?.to_string();
        if reason.trim().is_empty() || reason.chars().count() > MAX_REASON {
            let message = format!("must say why, in at most {MAX_REASON} characters");
            return Err(Refusal::invalid("reason", message));
        }
        let mut owed = self.changing.lock().await;
        let now = UnixMillis::now();
        let before = self.gateway.permissions();
        let permission = before.get(&id, now).filter(|permission| permission.effect == effect);
        let Some(permission) = permission.cloned() else {
            let what = match effect {
                Effect::Grant => "no grant with this id is in force",
                Effect::Revocation => "no revocation with this id is in force",
            };
            return Err(Refusal::absent("permission", &id, what));
        };
        let ended = Ended { by: principal.to_owned(), at: now, reason: reason.to_owned() };
        let permission = Permission { ended: Some(ended), ..permission };
        match effect {
            // The end of a grant is in force even if it cannot be kept, like a revocation.
            Effect::Grant => {
                self.record(&permission, Effect::Revocation, principal, reason).await?;
                self.gateway.set_permissions(before.without(&id));
                self.keep_taken(&permission, &mut owed).await?;
            }
            Effect::Revocation => {
                self.record(&permission, Effect::Grant, principal, reason).await?;
                self.keep_gift(&permission, &mut owed).await?;
                self.gateway.set_permissions(before.without(&id));
            }
        }
        Ok(permission)
    }

    /// Returns the `most` newest permissions, newest first; with `before`, those older than the named one.
    pub async fn list(
        &self,
        before: Option<String>,
        include_ended: bool,
        most: usize,
    ) -> Result<Vec<Permission>, Refusal> {
        let since = (!include_ended).then(UnixMillis::now);
        let listed =
            self.store.with(move |store| parsed(&store.permissions(before.as_deref(), since, most)?));
        listed.await.map_err(|error| Refusal::internal("listing the permissions", &chain(&error)))
    }

    async fn record(
        &self,
        permission: &Permission,
        effect: Effect,
        principal: &str,
        reason: &str,
    ) -> Result<(), Refusal> {
        let kind = match effect {
            Effect::Grant => Kind::PermissionGranted,
            Effect::Revocation => Kind::PermissionRevoked,
        };
        let event = Event::new(kind).principal(principal).details(json!({
            "permission_id": permission.id,
            "ends": permission.ended.is_some(),
            "effect": permission.effect,
            "subject": permission.subject,
            "scope": permission.scope,
            "preapproved": permission.preapproved,
            "expires_at": permission.expires_at,
            "reason": reason,
            "policy_digest": self.gateway.policy().digest(),
        }));
        self.audit.record(event).await.map(drop).map_err(Refusal::from)
    }

    /// Keeps a grant, or the end of a revocation. If that fails, the log says that it never held.
    async fn keep_gift(&self, permission: &Permission, owed: &mut Vec<Permission>) -> Result<(), Refusal> {
        if self.keep(permission, owed).await {
            return Ok(());
        }
        let taken_back = "it could not be stored and never took effect";
        if self.record(permission, Effect::Revocation, DAEMON, taken_back).await.is_err() {
            tracing::error!(
                permission = permission.id,
                "the audit log lacks the record that a permission never took effect"
            );
        }
        Err(Refusal::new(
            Reason::Internal,
            "the change could not be stored and did not take effect; the audit log says so. Try again when \
             the daemon's store works",
        ))
    }

    /// Keeps a revocation, or the end of a grant, which is in force already.
    async fn keep_taken(&self, permission: &Permission, owed: &mut Vec<Permission>) -> Result<(), Refusal> {
        if self.keep(permission, owed).await {
            return Ok(());
        }
        owed.push(permission.clone());
        Err(Refusal::new(
            Reason::Internal,
            "the change is recorded and in force, but not stored yet. The daemon keeps trying; until it \
             succeeds, a restart would undo the change",
        ))
    }

    /// Stores the permission, in place of an owed change of the same permission. Returns true if it is stored.
    async fn keep(&self, permission: &Permission, owed: &mut Vec<Permission>) -> bool {
        let (copy, now) = (permission.clone(), UnixMillis::now());
        let kept = self.store.with(move |store| store.put_permission(&stored(&copy)?, now)).await;
        if let Err(error) = &kept {
            tracing::error!(permission = permission.id, error = %chain(error), "a permission was recorded but not stored");
        }
        if kept.is_ok() {
            owed.retain(|other| other.id != permission.id);
        }
        kept.is_ok()
    }

    /// Retries to keep owed changes, until `stop` and once more then.
    pub async fn keep_owed(&self, stop: CancellationToken) {
        let mut stopping = false;
        while !stopping {
            tokio::select! {
                () = stop.cancelled() => stopping = true,
                () = tokio::time::sleep(AGAIN) => {}
            }
            self.pay().await;
        }
    }

    async fn pay(&self) {
        let mut owed = self.changing.lock().await;
        for permission in owed.clone() {
            if !self.keep(&permission, &mut owed).await {
                return;
            }
        }
    }
}

/// Returns the form of a permission in the store.
fn stored(permission: &Permission) -> Result<Ending, StoreError> {
    let end = permission.ended.as_ref().map(|ended| ended.at);
    Ok(Ending {
        id: permission.id.clone(),
        ends_at: end.into_iter().chain(permission.expires_at).min(),
        record: serde_json::to_string(permission)?,
    })
}

fn parsed(records: &[String]) -> Result<Vec<Permission>, StoreError> {
    records.iter().map(|record| Ok(serde_json::from_str(record)?)).collect()
}

#[cfg(test)]
mod tests {
    use audit::Kind;
    use gateway::{Scope, Subject};
    use policy::Policy;
    use rusqlite::Connection;
    use timestamp::SystemClock;

    use super::*;

    struct Scene {
        grants: Arc<Grants>,
        gateway: Arc<Gateway>,
        log: Arc<AuditLog>,
        place: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let store = Store::open(&place.path().join("store.db"), store::OutcomeBounds::WIDE).unwrap();
            let (log, _, _) =
                AuditLog::open(&place.path().join("audit"), audit_service::Settings::default()).unwrap();
            let log = Arc::new(log);
            let gateway = Arc::new(Gateway::new(Policy::builtin().unwrap(), Arc::new(SystemClock)));
            let grants = Grants::open(store, log.clone(), gateway.clone()).unwrap();
            Self { grants, gateway, log, place }
        }

        /// The store's table is there, or is not.
        fn works(&self, works: bool) {
            let (from, to) = if works { ("away", "permissions") } else { ("permissions", "away") };
            let store = Connection::open(self.place.path().join("store.db")).unwrap();
            store.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).unwrap();
        }

        async fn add(&self, effect: Effect) -> Result<Permission, Refusal> {
            let permission = Permission {
                id: String::new(),
                effect,
                subject: Subject::Agent("alice".to_owned()),
                scope: Scope { operation: Some("write".to_owned()), ..Scope::default() },
                preapproved: false,
                reason: "a test".to_owned(),
                by: "uid:0".to_owned(),
                at: UnixMillis(0),
                expires_at: None,
                ended: None,
            };
            self.grants.add(permission).await
        }

        fn in_force(&self) -> usize {
            self.gateway.permissions().in_force(UnixMillis::now()).count()
        }

        /// What a daemon that starts now has in force.
        fn stored(&self) -> usize {
            self.grants.store.permissions_in_force(UnixMillis::now()).unwrap().len()
        }

        async fn recorded(&self) -> Vec<(Kind, String)> {
            let mut records = Vec::new();
            let mut follow = self.log.read_after(0, false);
            while let Some(lines) = follow.next().await.unwrap() {
                records.extend(lines.iter().map(|line| {
                    let event = &line.record.event;
                    (event.kind, event.principal.clone().unwrap_or_default())
                }));
            }
            records
        }
    }

    #[tokio::test]
    async fn a_grant_that_cannot_be_stored_is_not_in_force_and_the_record_says_so() {
        let scene = Scene::new();
        scene.works(false);
        assert_eq!(scene.add(Effect::Grant).await.unwrap_err().reason, Reason::Internal);
        scene.works(true);
        assert_eq!((scene.in_force(), scene.stored()), (0, 0));
        let granted = (Kind::PermissionGranted, "uid:0".to_owned());
        let taken_back = (Kind::PermissionRevoked, DAEMON.to_owned());
        assert_eq!(scene.recorded().await, [granted.clone(), taken_back]);
        scene.grants.pay().await;
        assert_eq!(scene.stored(), 0, "what gives is not tried again behind anybody's back");
        scene.add(Effect::Grant).await.unwrap();
        assert_eq!((scene.in_force(), scene.stored()), (1, 1));
        assert_eq!(scene.recorded().await.last(), Some(&granted));
    }

    #[tokio::test]
    async fn a_revocation_that_cannot_be_stored_is_in_force_and_stored_later() {
        let scene = Scene::new();
        let grant = scene.add(Effect::Grant).await.unwrap();
        scene.works(false);
        let refused = scene.add(Effect::Revocation).await.unwrap_err();
        assert!(refused.message.contains("in force"), "{}", refused.message);
        let ended = scene.grants.end(&grant.id, Effect::Grant, "uid:0", "no more").await.unwrap_err();
        assert_eq!(ended.reason, Reason::Internal);
        assert_eq!(scene.in_force(), 1, "the revocation");
        scene.grants.pay().await;
        scene.works(true);
        assert_eq!(scene.stored(), 1, "the grant, which a restart would bring back");
        scene.grants.pay().await;
        let kept = parsed(&scene.grants.store.permissions_in_force(UnixMillis::now()).unwrap()).unwrap();
        assert_eq!(kept.iter().map(|kept| kept.effect).collect::<Vec<_>>(), [Effect::Revocation]);
        assert!(scene.grants.changing.lock().await.is_empty());
    }
}
