//! Web push: tells the browsers of reviewers that an approval waits.

mod encrypt;
mod endpoint;
mod subscription;
mod table;
mod tell;
mod vapid;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use operations::Reason;
use parking_lot::Mutex;
use refusal::{Refusal, chain};
use store::{Store, StoreError};
use timestamp::UnixMillis;
use tokio::sync::watch;
use uuid::Uuid;

pub use endpoint::Hosts;
pub use subscription::{Subscription, Wanted};

use endpoint::Endpoint;
use subscription::Keys;
use table::Table;
use vapid::Vapid;

/// Most subscriptions of one principal, and of all.
const MAX_OF_PRINCIPAL: usize = 8;
const MAX: usize = 256;
/// Life of a subscription that is not renewed, milliseconds.
const LIFE: u64 = 30 * 86_400 * 1_000;
/// Longest name of a subscription.
const MAX_NAME: usize = 64;

/// Settings of web push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSettings {
    /// Hosts of push services that browsers may name.
    pub hosts: Hosts,
    /// Address of the operator for push services, such as `mailto:security@example.org`.
    pub contact: String,
}

/// Tells which principals may still review, with a credential that they had at a moment.
pub type Reviewers = Box<dyn Fn(&str, UnixMillis) -> bool + Send + Sync>;
/// Makes the link in a notice, for a principal and an approval with its run.
pub type MakeLink = Box<dyn Fn(&str, (&str, &str)) -> String + Send + Sync>;

/// Error of the start of web push.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the push subscriptions in the store cannot be read")]
    Store(#[from] StoreError),
    #[error("the store holds a push subscription of another form")]
    Record(#[from] serde_json::Error),
    #[error("the key for push services cannot be made or read")]
    Key,
}

/// The subscriptions of this daemon.
pub struct Push {
    store: Store,
    settings: PushSettings,
    vapid: Vapid,
    /// Never held over a write: the task that sends notices needs it.
    table: Mutex<Table>,
    changed: watch::Sender<()>,
}

impl Push {
    /// Opens the subscriptions in the store, and the key by which push services know this daemon. Makes it if there is none.
    pub fn open(store: Store, settings: PushSettings) -> Result<Arc<Self>, OpenError> {
        let mut records = store.push_subscriptions()?;
        let vapid = if let Some(at) = records.iter().position(|record| Vapid::is_record(record)) {
            Vapid::read(&records.swap_remove(at))
        } else {
            let (vapid, record) = Vapid::generate().ok_or(OpenError::Key)?;
            store.put_push_subscription(vapid::ROW, &record)?;
            Some(vapid)
        };
        let vapid = vapid.ok_or(OpenError::Key)?;
        let now = UnixMillis::now();
        let mut known = BTreeMap::new();
        for record in &records {
            let subscription: Subscription = serde_json::from_slice(record)?;
            if subscription.expires_at > now {
                known.insert(subscription.id.clone(), subscription);
            } else {
                store.delete_push_subscription(&subscription.id)?;
            }
        }
        Ok(Arc::new(Self {
            store,
            settings,
            vapid,
            table: Mutex::new(Table::new(known)),
            changed: watch::Sender::new(()),
        }))
    }

    /// Returns the key by which push services know this daemon: an uncompressed point of P-256.
    pub fn key(&self) -> Vec<u8> {
        self.vapid.public_key().to_vec()
    }

    /// Subscribes a browser of a principal, or renews its subscription, after `record` has put that on record.
    ///
    /// No notice goes to a browser that is not on record: the links in notices open approvals as the principal. The caller runs the
    /// future to its end.
    pub async fn subscribe<R: Future<Output = Result<(), Refusal>> + Send>(
        &self,
        principal: &str,
        wanted: Wanted,
        record: impl FnOnce(Subscription) -> R + Send,
    ) -> Result<Subscription, Refusal> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._- ".contains(c);
        if wanted.name.is_empty() || wanted.name.len() > MAX_NAME || !wanted.name.chars().all(plain) {
            return Err(Refusal::invalid(
                "name",
                format!("must be 1 to {MAX_NAME} characters of [A-Za-z0-9._ -]"),
            ));
        }
        let endpoint = Endpoint::parse(&wanted.endpoint, &self.settings.hosts)
            .map_err(|why| Refusal::invalid("endpoint", why))?;
        let keys =
            Keys::parse(&wanted.p256dh, &wanted.auth).map_err(|(field, why)| Refusal::invalid(field, why))?;
        let now = UnixMillis::now();
        let host = endpoint.host().to_owned();
        let reserved = self.table.lock().reserve(principal, &wanted.endpoint, |same| Subscription {
            id: same.map_or_else(|| Uuid::now_v7().to_string(), |same| same.id.clone()),
            principal: principal.to_owned(),
            name: wanted.name.clone(),
            host,
            endpoint: wanted.endpoint.clone(),
            keys,
            created_at: same.map_or(now, |same| same.created_at),
            expires_at: UnixMillis(now.0.saturating_add(LIFE)),
        });
        let subscription = reserved?;
        let mut place = Place { push: self, id: &subscription.id, is_written: false };
        record(subscription.clone()).await?;
        let kept = subscription.clone();
        let kept = self
            .store
            .with(move |store| store.put_push_subscription(&kept.id, &serde_json::to_string(&kept)?));
        kept.await.map_err(|error| Refusal::internal("storing the subscription", &chain(&error)))?;
        place.is_written = true;
        drop(place);
        Ok(subscription)
    }

    /// Returns the subscriptions of a principal, oldest first.
    pub fn list(&self, principal: &str) -> Vec<Subscription> {
        let table = self.table.lock();
        table.known().filter(|it| it.principal == principal).cloned().collect()
    }

    /// Ends a subscription of a principal, also if the store fails. A renewal that is under way comes first, so that no later write
    /// brings the subscription back.
    pub async fn unsubscribe(&self, principal: &str, id: &str) -> Result<(), Refusal> {
        let is_own = self.table.lock().known().any(|it| it.id == id && it.principal == principal);
        if !is_own {
            return Err(Refusal::new(Reason::NotFound, "there is no such subscription")
                .with("resource", "subscription"));
        }
        let mut changes = self.changed.subscribe();
        loop {
            let is_ended = self.table.lock().end(id);
            // The sender of the changes is in `self`, so there is always a next one.
            if is_ended || changes.changed().await.is_err() {
                break;
            }
        }
        self.delete(id).await.map_err(|error| Refusal::internal("ending the subscription", &chain(&error)))
    }

    /// Ends a subscription that was read from the table, also if the store fails. Does nothing if it has been renewed since, or is being
    /// renewed: the next round reads it again.
    async fn end(&self, read: &Subscription) {
        let is_ended = self.table.lock().end_unchanged(read);
        if is_ended && let Err(error) = self.delete(&read.id).await {
            tracing::warn!(error = %chain(&error), "a push subscription that has ended is still stored");
        }
    }

    async fn delete(&self, id: &str) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.store.with(move |store| store.delete_push_subscription(&id)).await
    }
}

/// The place of a subscription that is being written.
struct Place<'p> {
    push: &'p Push,
    id: &'p str,
    is_written: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.push.table.lock().settle(self.id, self.is_written);
        self.push.changed.send_replace(());
    }
}
