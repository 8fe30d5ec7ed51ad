//! Runs work to its end, even if its caller leaves.
//!
//! A separate task would do this as well, but costs two turns of the scheduler, on another processor if one is idle. So the caller drives
//! the work, and only if the caller leaves does the work get a task.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that continues in a task when it is dropped, in the runtime in which it was made.
///
/// It must not panic, because its caller would get the panic.
pub struct DetachOnDrop<T: Send + 'static> {
    /// `None` once it is over or has a task.
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    runtime: Handle,
}

impl<T: Send + 'static> DetachOnDrop<T> {
    /// Makes the future. It does no work before it is polled or dropped.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), runtime: Handle::current() }
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::{Notify, oneshot};

    use super::*;

    #[tokio::test]
    async fn detached_work_finishes() {
        let done = Arc::new(AtomicUsize::new(0));
        let count = |done: &Arc<AtomicUsize>| {
            let done = Arc::clone(done);
            move || done.fetch_add(1, Ordering::Relaxed)
        };
        let stayed = count(&done);
        assert_eq!(DetachOnDrop::new(async move { stayed() }).await, 0);

        // Dropped before its first step, and in the middle.
        for started in [false, true] {
            let (go, over) = (Arc::new(Notify::new()), oneshot::channel());
            let (wait, tell) = (Arc::clone(&go), count(&done));
            let mut work = DetachOnDrop::new(async move {
                wait.notified().await;
                tell();
                let _ = over.0.send(());
            });
            if started {
                tokio::select! {
                    biased;
                    () = &mut work => unreachable!("it waits"),
                    () = tokio::task::yield_now() => {}
                }
            }
            drop(work);
            go.notify_one();
            over.1.await.unwrap();
        }
        assert_eq!(done.load(Ordering::Relaxed), 3);
    }
}
