//! Permissions that operators give and take: recorded, kept, in force, in this order.
//!
//! A change is on record before it counts, and it counts before it is answered. One that cannot be kept is taken back when it
//! gives, and stays in force when it takes: the stricter way, until the daemon ends.

use std::sync::Arc;

use audit::{Event, Kind};
use gateway::{Clock as _, Effect, Ended, Gateway, Permission, Permissions, SystemClock, UnixMillis};
use ops::Reason;
use serde_json::json;
use tokio::sync::Mutex;

use crate::audit::AuditLog;
use crate::ids::PermissionId;
use crate::status::{Refusal, chain};
use crate::store::{Store, StoreError};

/// Characters of a reason.
const MAX_REASON: usize = 1_000;

/// The permissions of this daemon.
pub(crate) struct Grants {
    store: Store,
    audit: Arc<AuditLog>,
    gateway: Arc<Gateway>,
    /// One change at a time: the last one on record is the one in force.
    changing: Mutex<()>,
}

impl Grants {
    /// With those that the store has, which are in force from here on.
    pub(crate) fn open(
        store: Store,
        audit: Arc<AuditLog>,
        gateway: Arc<Gateway>,
    ) -> Result<Self, StoreError> {
        gateway.set_permissions(Permissions::of(store.permissions_in_force(now())?));
        Ok(Self { store, audit, gateway, changing: Mutex::default() })
    }

    /// Gives or takes. The permission has everything but its id and its time.
    pub(crate) async fn add(&self, permission: Permission) -> Result<Permission, Refusal> {
        let _one = self.changing.lock().await;
        let now = now();
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
                self.keep(&permission).await?;
                self.gateway.set_permissions(after);
            }
            Effect::Revocation => {
                self.gateway.set_permissions(after);
                self.keep(&permission).await?;
            }
        }
        Ok(permission)
    }

    /// Ends a permission of this effect before its time.
    pub(crate) async fn end(
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
        let _one = self.changing.lock().await;
        let now = now();
        let before = self.gateway.permissions();
        let permission = before.get(&id, now).filter(|permission| permission.effect == effect);
        let Some(permission) = permission.cloned() else {
            let what = match effect {
                Effect::Grant => "no grant with this id is in force",
                Effect::Revocation => "no revocation with this id is in force",
            };
            return Err(Refusal::new(Reason::NotFound, what).with("resource", "permission"));
        };
        let ended = Ended { by: principal.to_owned(), at: now, reason: reason.to_owned() };
        let permission = Permission { ended: Some(ended), ..permission };
        match effect {
            // What ends a grant takes.
            Effect::Grant => {
                self.record(&permission, Effect::Revocation, principal, reason).await?;
                self.gateway.set_permissions(before.without(&id));
                self.keep(&permission).await?;
            }
            Effect::Revocation => {
                self.record(&permission, Effect::Grant, principal, reason).await?;
                self.keep(&permission).await?;
                self.gateway.set_permissions(before.without(&id));
            }
        }
        Ok(permission)
    }

    /// So many permissions, newest first, behind the one named.
    pub(crate) async fn list(
        &self,
        before: Option<String>,
        include_ended: bool,
        most: usize,
    ) -> Result<Vec<Permission>, Refusal> {
        let since = (!include_ended).then(now);
        let listed = self.store.with(move |store| store.permissions(before.as_deref(), since, most)).await;
        listed.map_err(|error| Refusal::internal("listing the permissions", &chain(&error)))
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

    async fn keep(&self, permission: &Permission) -> Result<(), Refusal> {
        let (kept, now) = (permission.clone(), now());
        let kept = self.store.with(move |store| store.put_permission(&kept, now)).await;
        kept.map_err(|error| {
            tracing::error!(permission = permission.id, error = %chain(&error), "a permission was recorded and not kept");
            Refusal::new(
                Reason::Internal,
                "the change is on record but cannot be kept: what it gives is not in force, what it takes is until the daemon ends",
            )
        })
    }
}

/// The gateway's clock is the system's.
pub(crate) fn now() -> UnixMillis {
    SystemClock.now()
}
