//! When what opened a stream ends: a token by its time or before it, a certificate by its time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The longest that a timer is set for.
const MAX_TIMER: Duration = Duration::from_secs(366 * 86_400);

/// Comes once.
pub struct End(Pin<Box<dyn Future<Output = ()> + Send>>);

impl End {
    pub fn when(ended: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(ended))
    }

    pub fn after(left: Duration) -> Self {
        Self(Box::pin(tokio::time::sleep(left.min(MAX_TIMER))))
    }

    /// After a time, or before it when this comes.
    pub fn first(left: Duration, other: impl Future<Output = ()> + Send + 'static) -> Self {
        let timer = tokio::time::sleep(left.min(MAX_TIMER));
        Self(Box::pin(async move {
            tokio::select! {
                () = timer => {}
                () = other => {}
            }
        }))
    }

    /// After a time, or before it when somebody ends it.
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
