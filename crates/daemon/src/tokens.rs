//! API tokens of this daemon: made, kept, shown, ended.
//!
//! A change is on record before it counts. A token that cannot be kept is never told, so that it opens nothing. An end is in force
//! at once, also where it cannot be kept; then the answer says so, and asking again tries again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use audit::{Event, Kind};
use audit_service::AuditLog;
use calls::Attempt;
use identity::{ApiToken, ApiTokenEnded, ApiTokenRefused, TokenId, id_of_api_token};
use ops::Reason;
use parking_lot::RwLock;
use refusal::{Refusal, chain};
use serde_json::json;
use store::{Store, StoreError};
use timestamp::UnixMillis;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::ending::End;

/// Tokens that may be in force at the same time.
const MAX_IN_FORCE: usize = 1_000;
/// Tokens that are known, with those that are over.
const MAX_KNOWN: usize = 10_000;

/// A token, and the end of what it has opened.
pub(crate) struct Held {
    pub(crate) token: ApiToken,
    ended: CancellationToken,
}

impl Held {
    fn new(token: ApiToken) -> Arc<Self> {
        Arc::new(Self { token, ended: CancellationToken::new() })
    }

    /// Comes when the token is revoked or expires.
    pub(crate) fn end(&self) -> End {
        let left = self.token.expires_at.0.saturating_sub(UnixMillis::now().0);
        End::after_or(Duration::from_millis(left), self.ended.clone())
    }
}

/// The API tokens of this daemon.
pub(crate) struct Tokens {
    store: Store,
    audit: Arc<AuditLog>,
    max_lifetime: Duration,
    held: RwLock<BTreeMap<TokenId, Arc<Held>>>,
    /// One change at a time.
    changing: Mutex<()>,
}

impl Tokens {
    /// With those that the store has. None made from now on lasts longer than `max_lifetime`.
    pub(crate) fn open_store(
        store: Store,
        audit: Arc<AuditLog>,
        max_lifetime: Duration,
    ) -> Result<Self, StoreError> {
        let held = store.api_tokens()?.into_iter().map(|token| (token.id, Held::new(token))).collect();
        Ok(Self { store, audit, max_lifetime, held: RwLock::new(held), changing: Mutex::default() })
    }

    pub(crate) fn max_lifetime(&self) -> Duration {
        self.max_lifetime
    }

    /// The token that was shown at an address, or by the Unix socket; or what that is an attempt at, and what its caller is told.
    pub(crate) fn open(
        &self,
        shown: &str,
        from: Option<IpAddr>,
    ) -> Result<Arc<Held>, (Attempt, &'static str)> {
        let wrong = (Attempt::BadToken, "there is no such API token");
        let held = id_of_api_token(shown).and_then(|id| self.get(id)).ok_or(wrong)?;
        held.token.check(shown, from, UnixMillis::now()).map_err(|refused| match refused {
            ApiTokenRefused::Wrong => wrong,
            ApiTokenRefused::Expired => (Attempt::ExpiredToken, "the token has expired"),
            ApiTokenRefused::Revoked => (Attempt::RevokedToken, "the token was revoked"),
            ApiTokenRefused::Network => {
                (Attempt::TokenElsewhere, "the token is for clients at other addresses")
            }
        })?;
        Ok(held)
    }

    /// From then on the token counts.
    pub(crate) async fn create(&self, token: ApiToken) -> Result<ApiToken, Refusal> {
        let _changing = self.changing.lock().await;
        let in_force = self.all().iter().filter(|held| held.token.is_in_force(UnixMillis::now())).count();
        if in_force >= MAX_IN_FORCE {
            let message = format!("{MAX_IN_FORCE} tokens are in force, which is the limit: revoke one first");
            return Err(Refusal::new(Reason::Overloaded, message));
        }
        self.record(Kind::TokenCreated, &token, &token.created_by).await?;
        self.keep(&token).await?;
        self.put(Held::new(token.clone()));
        Ok(token)
    }

    /// Ends a token, and with it the streams that it has opened. One that has ended already is no error.
    pub(crate) async fn revoke(&self, id: TokenId, by: &str) -> Result<ApiToken, Refusal> {
        let _changing = self.changing.lock().await;
        let held = self.get(id).ok_or_else(|| {
            Refusal::new(Reason::NotFound, "there is no such token").with("resource", "token")
        })?;
        let mut token = held.token.clone();
        if token.ended.is_none() {
            token.ended = Some(ApiTokenEnded { by: by.to_owned(), at: UnixMillis::now() });
            self.record(Kind::TokenRevoked, &token, by).await?;
            self.put(Held::new(token.clone()));
            held.ended.cancel();
        }
        self.keep(&token).await?;
        Ok(token)
    }

    /// All of them, newest first; those that are over only if that is wanted.
    pub(crate) fn list(&self, include_ended: bool) -> Vec<ApiToken> {
        let now = UnixMillis::now();
        let shown = |held: &Arc<Held>| include_ended || held.token.is_in_force(now);
        self.all().into_iter().rev().filter(shown).map(|held| held.token.clone()).collect()
    }

    async fn record(&self, kind: Kind, token: &ApiToken, by: &str) -> Result<(), Refusal> {
        let networks: Vec<_> = token.networks.iter().map(ToString::to_string).collect();
        let event = Event::new(kind).principal(by).details(json!({
            "id": token.id,
            "name": token.name,
            "roles": token.roles,
            "profiles": token.profiles,
            "run_ids": token.runs,
            "source_networks": networks,
            "expires_at": token.expires_at.0,
        }));
        self.audit.record(event).await?;
        Ok(())
    }

    async fn keep(&self, token: &ApiToken) -> Result<(), Refusal> {
        let token = token.clone();
        let kept = self.store.with(move |store| store.put_api_token(&token, UnixMillis::now())).await;
        kept.map_err(|error| Refusal::internal("keeping the token", &chain(&error)))
    }

    fn get(&self, id: TokenId) -> Option<Arc<Held>> {
        self.held.read().get(&id).cloned()
    }

    fn all(&self) -> Vec<Arc<Held>> {
        self.held.read().values().cloned().collect()
    }

    fn put(&self, held: Arc<Held>) {
        let mut known = self.held.write();
        known.insert(held.token.id, held);
        if known.len() > MAX_KNOWN {
            let now = UnixMillis::now();
            let oldest = known.iter().find(|(_, held)| !held.token.is_in_force(now)).map(|(id, _)| *id);
            oldest.and_then(|id| known.remove(&id));
        }
    }
}
