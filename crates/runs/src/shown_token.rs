//! A token that a client has shown, while it is valid for its run.

use crate::record::Record;
use identity::{RunId, TokenHash};
use tokio::sync::watch;

use crate::run::Run;

/// A token that is valid for a live run.
pub struct ShownToken {
    pub run: RunId,
    /// Principal for whom the token acts.
    pub principal: String,
    hash: TokenHash,
    record: watch::Receiver<Record>,
}

impl ShownToken {
    pub(crate) fn of(id: RunId, run: &Run, token: &str) -> Option<Self> {
        let hash = run.record.borrow().token().filter(|hash| hash.is_of(token)).cloned()?;
        Some(Self { run: id, principal: run.spec().principal.clone(), hash, record: run.record.clone() })
    }

    /// Waits until the run has another token. If the run ends instead, this waits forever.
    ///
    /// Calls and streams of a run end with it without this, and report how it ended.
    pub async fn replaced(self) {
        let Self { hash, mut record, .. } = self;
        if record.wait_for(|record| record.token() != Some(&hash)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
