//! One webhook: compares the board with what its receiver was told, and sends the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use timestamp::UnixMillis;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use webhook::{Endpoint, Failed, Sender, backoff};

use crate::board::Board;
use crate::form::{Form, News, body};

/// A webhook that learns of approvals.
#[derive(Debug, Clone)]
pub struct Hook {
    pub endpoint: Endpoint,
    pub form: Form,
    /// Sends previews, which have arguments and contents, off the host.
    pub details: bool,
    /// Time to wait for more approvals before a message.
    pub batch: Duration,
    /// Most messages a minute.
    pub per_minute: u32,
}

/// Makes links to the console.
#[derive(Debug, Clone, Default)]
pub struct Links {
    /// Origin of the console; `None` if it has none that receivers could open.
    pub console: Option<String>,
}

impl Links {
    /// Returns the link to an approval; empty without a console.
    pub fn approval(&self, approval_id: &str) -> String {
        self.console.as_ref().map_or_else(String::new, |origin| format!("{origin}/approvals/{approval_id}"))
    }
}

impl Hook {
    /// Tells of approvals until `stop`, or until the receiver refuses further messages.
    pub async fn run(self, board: Arc<Board>, links: Links, sender: Sender, stop: CancellationToken) {
        let name = self.endpoint.name.clone();
        let telling = Telling { hook: self, board, links, sender, told: BTreeMap::new() };
        if stop.run_until_cancelled(telling.run()).await.is_some() {
            tracing::error!(
                webhook = name,
                "the receiver wants no notices of approvals, and gets none until a restart"
            );
        }
    }
}

struct Telling {
    hook: Hook,
    board: Arc<Board>,
    links: Links,
    sender: Sender,
    /// Approvals that the receiver was told of, with their runs.
    told: BTreeMap<String, String>,
}

impl Telling {
    /// Returns when the receiver refuses further messages.
    async fn run(mut self) {
        let mut changes = self.board.changes();
        let pause = Duration::from_secs(60) / self.hook.per_minute.max(1);
        let mut next = Instant::now();
        loop {
            changes.mark_unchanged();
            if self.news().is_none() {
                // The board holds the other end, and lives as long as this task.
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                continue;
            }
            sleep(self.hook.batch).await;
            sleep_until(next).await;
            next = Instant::now() + pause;
            if !self.tell().await {
                return;
            }
        }
    }

    /// Sends one message, with retries. Returns false if the receiver refuses further ones.
    async fn tell(&mut self) -> bool {
        let endpoint = &self.hook.endpoint;
        let (mut id, mut last) = (String::new(), None);
        for attempt in 1..=endpoint.attempts.max(1) {
            // Compared again for each attempt: an approval that was decided meanwhile is not announced.
            let Some(news) = self.news() else { return true };
            if last.as_ref() != Some(&news) {
                id = Uuid::now_v7().to_string();
                last = Some(news.clone());
            }
            let now = UnixMillis::now();
            let link = |approval: &str| self.links.approval(approval);
            let body = body(self.hook.form, &news, self.hook.details, &link, now).to_string();
            match self.sender.post(endpoint, &id, now.0 / 1_000, body.as_bytes()).await {
                Ok(()) => {
                    self.note(news);
                    return true;
                }
                Err(Failed { for_good: true, .. }) => return false,
                Err(Failed { message, .. }) if attempt >= endpoint.attempts => {
                    let run = &news.run_id;
                    tracing::error!(
                        webhook = endpoint.name,
                        run,
                        "notices of approvals are not delivered: {message}"
                    );
                    self.note(news);
                    return true;
                }
                Err(Failed { message, .. }) => {
                    tracing::warn!(
                        webhook = endpoint.name,
                        attempt,
                        "a notice of approvals was not delivered: {message}"
                    );
                    sleep(backoff(endpoint.first_retry, attempt, Uuid::new_v4().as_u128())).await;
                }
            }
        }
        true
    }

    fn note(&mut self, news: News) {
        for (approval, _) in news.ended {
            self.told.remove(&approval);
        }
        let run = news.run_id;
        self.told.extend(news.new.into_iter().map(|notice| (notice.approval_id, run.clone())));
    }

    /// Returns the news of the run that has waited longest, or of one whose approvals ended.
    fn news(&self) -> Option<News> {
        let waiting = self.board.waiting();
        let known: BTreeSet<&str> = waiting.iter().map(|notice| notice.approval_id.as_str()).collect();
        let ended: Vec<(&String, &String)> =
            self.told.iter().filter(|(approval, _)| !known.contains(approval.as_str())).collect();
        let first = waiting.iter().find(|notice| !self.told.contains_key(&notice.approval_id));
        let run_id = match (first, ended.first()) {
            (Some(notice), _) => notice.run_id.clone(),
            (None, Some((_, run))) => (*run).clone(),
            (None, None) => return None,
        };
        let new = waiting
            .iter()
            .filter(|notice| notice.run_id == run_id && !self.told.contains_key(&notice.approval_id));
        let over = ended.iter().filter(|(_, run)| **run == run_id);
        Some(News {
            new: new.cloned().collect(),
            ended: over.map(|(approval, _)| ((*approval).clone(), self.board.end_of(approval))).collect(),
            waiting: waiting.len(),
            run_id,
        })
    }
}

#[cfg(test)]
#[path = "hook_tests.rs"]
mod tests;
