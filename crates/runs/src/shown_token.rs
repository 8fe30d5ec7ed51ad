//! A token that a client has shown, for as long as it opens its run.

use identity::{RunId, TokenHash};
use store::run::Record;
use tokio::sync::watch;

use crate::run::Run;

/// A token that opens a living run.
pub struct ShownToken {
    pub run: RunId,
    /// The principal whom it acts for.
    pub principal: String,
    hash: TokenHash,
    record: watch::Receiver<Record>,
}

impl ShownToken {
    pub(crate) fn of(id: RunId, run: &Run, token: &str) -> Option<Self> {
        let hash = run.record.borrow().token().filter(|hash| hash.is_of(token)).cloned()?;
        Some(Self { run: id, principal: run.spec().principal.clone(), hash, record: run.record.clone() })
    }

    /// Comes when the run has another token. With the run it never comes: calls and streams of a run end with it by themselves, and say
    /// how it ended.
    pub async fn replaced(self) {
        let Self { hash, mut record, .. } = self;
        if record.wait_for(|record| record.token() != Some(&hash)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
