//! Creates, stores, lists and revokes the API tokens of this daemon.
//!
//! A change is recorded before it takes effect. A token that cannot be stored is never returned to its client, so it
//! opens nothing. A revocation takes effect at once, even if it cannot be stored. The answer then reports the error,
//! and another request tries again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use audit::{Event, Kind};
use audit_service::{Attempt, AuditLog};
use identity::{ApiToken, ApiTokenEnded, ApiTokenRefused, TokenId, id_of_api_token};
use operations::Reason;
use parking_lot::RwLock;
use refusal::{Refusal, chain};
use serde_json::json;
use store::{Ending, Store, StoreError};
use timestamp::UnixMillis;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::ending::End;

/// Maximum number of tokens in force.
const MAX_IN_FORCE: usize = 1_000;
/// Maximum number of known tokens, ended ones included.
const MAX_KNOWN: usize = 10_000;

/// A token, and the signal that ends the streams that it opened.
pub struct Held {
    pub token: ApiToken,
    ended: CancellationToken,
}

impl Held {
    fn new(token: ApiToken) -> Arc<Self> {
        Arc::new(Self { token, ended: CancellationToken::new() })
    }

    /// Returns a future that completes when the token is revoked or expires.
    pub fn end(&self) -> End {
        let left = self.token.expires_at.0.saturating_sub(UnixMillis::now().0);
        End::after_or(Duration::from_millis(left), self.ended.clone())
    }
}

/// The API tokens of this daemon.
pub struct Tokens {
    store: Store,
    audit: Arc<AuditLog>,
    max_lifetime: Duration,
    held: RwLock<BTreeMap<TokenId, Arc<Held>>>,
    /// Allows one change at a time.
    changing: Mutex<()>,
}

impl Tokens {
    /// Opens the tokens in the store. A new token lasts at most `max_lifetime`.
    pub fn open_store(
        store: Store,
        audit: Arc<AuditLog>,
        max_lifetime: Duration,
    ) -> Result<Self, StoreError> {
        let held = |record: &String| {
            let token: ApiToken = serde_json::from_str(record)?;
            Ok((token.id, Held::new(token)))
        };
        let held = store.api_tokens()?.iter().map(held).collect::<Result<_, StoreError>>()?;
        Ok(Self { store, audit, max_lifetime, held: RwLock::new(held), changing: Mutex::default() })
    }

    pub fn max_lifetime(&self) -> Duration {
        self.max_lifetime
    }

    /// Returns the token that a client has presented, from an address or over the Unix socket.
    ///
    /// If it is not valid, returns the kind of the attempt and a message for the client.
    pub fn open(&self, shown: &str, from: Option<IpAddr>) -> Result<Arc<Held>, (Attempt, &'static str)> {
        let wrong = (Attempt::BadToken, "there is no such API token");
        let held = id_of_api_token(shown).and_then(|id| self.get(id)).ok_or(wrong)?;
        held.token.check(shown, from, UnixMillis::now()).map_err(|refused| match refused {
            ApiTokenRefused::Wrong => wrong,
            ApiTokenRefused::Expired => (Attempt::ExpiredToken, "the token has expired"),
            ApiTokenRefused::Revoked => (Attempt::RevokedToken, "the token was revoked"),
            ApiTokenRefused::Network => {
                (Attempt::TokenElsewhere, "the token cannot be used from this address")
            }
        })?;
        Ok(held)
    }

    /// Records and stores a new token. It is valid from then on.
    pub async fn create(&self, token: ApiToken) -> Result<ApiToken, Refusal> {
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

    /// Ends a token and the streams that it opened. It is no error if the token has ended already.
    ///
    /// The tokens that the daemon made for its holder, for sessions that links in notices opened, end with it.
    pub async fn revoke(&self, id: TokenId, by: &str) -> Result<ApiToken, Refusal> {
        let _changing = self.changing.lock().await;
        let none = || Refusal::absent("token", id, "there is no such token");
        let held = self.get(id).ok_or_else(none)?;
        let revoked = self.end(&held, by).await;
        for made in self.made_with(&held.token) {
            self.end(&made, by).await?;
        }
        revoked
    }

    async fn end(&self, held: &Held, by: &str) -> Result<ApiToken, Refusal> {
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

    /// Returns the tokens in force that the daemon made for the holder of a token. No client can make one with a token.
    fn made_with(&self, token: &ApiToken) -> Vec<Arc<Held>> {
        let (holder, now) = (token.principal(None).name, UnixMillis::now());
        let is_made = |held: &Arc<Held>| {
            held.token.id != token.id && held.token.created_by == holder && held.token.is_in_force(now)
        };
        self.all().into_iter().filter(is_made).collect()
    }

    /// Returns all tokens, newest first. Ended ones are included only on request.
    pub fn list(&self, include_ended: bool) -> Vec<ApiToken> {
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
        let kept =
            self.store.with(move |store| store.put_api_token(&stored(&token)?, UnixMillis::now())).await;
        kept.map_err(|error| Refusal::internal("storing the token", &chain(&error)))
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

/// Returns the form of a token in the store.
fn stored(token: &ApiToken) -> Result<Ending, StoreError> {
    let end = token.ended.as_ref().map_or(token.expires_at, |ended| ended.at.min(token.expires_at));
    Ok(Ending { id: token.id.to_string(), ends_at: Some(end), record: serde_json::to_string(token)? })
}
