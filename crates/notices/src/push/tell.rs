//! Sends notices to subscriptions: the oldest approval that each was not told of, one at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use timestamp::UnixMillis;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use webhook::Sender;

use super::endpoint::Endpoint;
use super::subscription::Subscription;
use super::{MakeLink, Push, Reviewers, encrypt};
use crate::board::{Board, Notice};

/// Time between two rounds, in which each subscription gets one notice at most.
const PAUSE: Duration = Duration::from_secs(5);
/// Time for one request to a push service.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests at the same time.
const AT_ONCE: usize = 8;
/// Attempts for one notice.
const ATTEMPTS: u32 = 3;
/// Longest time that a push service keeps a notice for a browser that is off, seconds.
const MAX_TTL: u64 = 3_600;

/// Result of a request to a push service.
enum Sent {
    Delivered,
    /// The browser has ended its subscription.
    Gone,
    Failed(String),
}

/// State of one subscription: the approvals it was told of, and the failures with the next one.
#[derive(Default)]
struct Told {
    approvals: BTreeSet<String>,
    failures: u32,
}

impl Push {
    /// Tells subscribed browsers of approvals until `stop`.
    pub async fn run(
        self: Arc<Self>,
        board: Arc<Board>,
        (link, may_review): (MakeLink, Reviewers),
        sender: Sender,
        stop: CancellationToken,
    ) {
        let told = self.tell(board, link, may_review, sender);
        stop.run_until_cancelled(told).await;
    }

    async fn tell(self: Arc<Self>, board: Arc<Board>, link: MakeLink, may_review: Reviewers, sender: Sender) {
        let (mut changes, mut subscribed) = (board.changes(), self.changed.subscribe());
        let mut told: BTreeMap<String, Told> = BTreeMap::new();
        let mut next = Instant::now();
        loop {
            changes.mark_unchanged();
            subscribed.mark_unchanged();
            let shown = board.waiting();
            if self.due(&shown, &mut told, &may_review).await.is_empty() {
                tokio::select! {
                    seen = changes.changed() => if seen.is_err() { return },
                    seen = subscribed.changed() => if seen.is_err() { return },
                }
                continue;
            }
            sleep_until(next).await;
            next = Instant::now() + PAUSE;
            // Chosen after the pause: what was decided meanwhile is not announced.
            let shown = board.waiting();
            let due = self.due(&shown, &mut told, &may_review).await;
            self.round(due, &mut told, &link, &sender).await;
        }
    }

    /// Returns the notice that each subscription gets next. Ends subscriptions that are over.
    async fn due(
        &self,
        waiting: &[Notice],
        told: &mut BTreeMap<String, Told>,
        may_review: &Reviewers,
    ) -> Vec<(Subscription, Notice)> {
        let (now, mut due) = (UnixMillis::now(), Vec::new());
        let known: Vec<Subscription> = self.table.lock().known().cloned().collect();
        told.retain(|id, _| known.iter().any(|it| it.id == *id));
        // Thousands may wait, and have been told of, for each of hundreds of browsers.
        let ids: BTreeSet<&str> = waiting.iter().map(|notice| notice.approval_id.as_str()).collect();
        for subscription in known {
            let (principal, since) = (subscription.principal.as_str(), subscription.renewed_at());
            if subscription.expires_at <= now || !may_review(principal, since) {
                self.end(&subscription).await;
                continue;
            }
            let state = told.entry(subscription.id.clone()).or_default();
            state.approvals.retain(|id| ids.contains(id.as_str()));
            let next = waiting.iter().find(|notice| {
                notice.requested_by != subscription.principal
                    && notice.expires_at > now
                    && !state.approvals.contains(&notice.approval_id)
            });
            due.extend(next.map(|notice| (subscription, notice.clone())));
        }
        due
    }

    /// Sends one notice to each of these subscriptions.
    async fn round(
        self: &Arc<Self>,
        due: Vec<(Subscription, Notice)>,
        told: &mut BTreeMap<String, Told>,
        link: &MakeLink,
        sender: &Sender,
    ) {
        let (mut sending, mut due) = (JoinSet::new(), due.into_iter());
        loop {
            while sending.len() < AT_ONCE
                && let Some((subscription, notice)) = due.next()
            {
                let link = link(&subscription.principal, (&notice.approval_id, &notice.run_id));
                let (push, sender) = (self.clone(), sender.clone());
                sending.spawn(async move {
                    let sent = push.send(&subscription, &notice, &link, &sender).await;
                    (subscription, notice, sent)
                });
            }
            let Some(sent) = sending.join_next().await else { return };
            let Ok((subscription, notice, sent)) = sent else { continue };
            let Subscription { id, name, principal, host, .. } = &subscription;
            let state = told.entry(id.clone()).or_default();
            match sent {
                Sent::Delivered => {
                    state.failures = 0;
                    state.approvals.insert(notice.approval_id);
                }
                Sent::Gone => {
                    tracing::info!(principal, name, host, "a browser has ended its push subscription");
                    self.end(&subscription).await;
                }
                Sent::Failed(why) => {
                    state.failures += 1;
                    tracing::warn!(
                        principal,
                        name,
                        host,
                        attempt = state.failures,
                        "a notice was not pushed: {why}"
                    );
                    if state.failures >= ATTEMPTS {
                        state.failures = 0;
                        state.approvals.insert(notice.approval_id);
                    }
                }
            }
        }
    }

    async fn send(&self, to: &Subscription, notice: &Notice, link: &str, sender: &Sender) -> Sent {
        // The list may have become shorter since the browser subscribed.
        let Ok(Endpoint(target)) = Endpoint::parse(&to.endpoint, &self.settings.hosts) else {
            return Sent::Gone;
        };
        let now = UnixMillis::now();
        let (Ok(point), Ok(auth)) = (hex::decode(&to.keys.p256dh), hex::decode(&to.keys.auth)) else {
            return Sent::Gone;
        };
        let text = serde_json::json!({ "link": link }).to_string();
        let body = match encrypt::encrypt(text.as_bytes(), &point, &auth) {
            Ok(body) => body,
            Err(failed) => return Sent::Failed(failed.to_string()),
        };
        let Some(authorization) = self.vapid.authorization(&target, &self.settings.contact, now.0 / 1_000)
        else {
            return Sent::Failed("the authorization cannot be signed".to_owned());
        };
        let ttl = notice.expires_at.since(now).as_secs().min(MAX_TTL);
        let headers = [
            ("content-type", "application/octet-stream".to_owned()),
            ("content-encoding", "aes128gcm".to_owned()),
            ("ttl", ttl.to_string()),
            ("urgency", "high".to_owned()),
            ("authorization", authorization),
        ];
        match sender.send(&target, &headers, &body, PATIENCE).await {
            Ok(200..=299) => Sent::Delivered,
            Ok(404 | 410) => Sent::Gone,
            Ok(status) => Sent::Failed(format!("the push service answered {status}")),
            Err(why) => Sent::Failed(why),
        }
    }
}
