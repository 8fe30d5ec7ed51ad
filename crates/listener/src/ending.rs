//! Ends a stream when the credential that opened it expires, is revoked or is replaced.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Longest time that a timer is set for.
const MAX_TIMER: Duration = Duration::from_secs(366 * 86_400);

/// Future that completes when the credential ends.
pub struct End(Pin<Box<dyn Future<Output = ()> + Send>>);

impl End {
    pub fn when(ended: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(ended))
    }

    pub fn after(left: Duration) -> Self {
        Self(Box::pin(tokio::time::sleep(left.min(MAX_TIMER))))
    }

    /// Completes after `left`, or when `other` completes before that.
    pub fn first(left: Duration, other: impl Future<Output = ()> + Send + 'static) -> Self {
        let timer = tokio::time::sleep(left.min(MAX_TIMER));
        Self(Box::pin(async move {
            tokio::select! {
                () = timer => {}
                () = other => {}
            }
        }))
    }

    /// Completes after `left`, or when `ended` is cancelled before that.
    pub fn after_or(left: Duration, ended: CancellationToken) -> Self {
        let timer = tokio::time::sleep(left.min(MAX_TIMER));
        Self(Box::pin(async move {
            ended.run_until_cancelled(timer).await;
        }))
    }
}

impl Future for End {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}
