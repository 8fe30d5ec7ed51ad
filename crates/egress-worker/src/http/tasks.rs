//! The tasks of one connection over HTTP/2.

use std::cell::RefCell;
use std::rc::Rc;

use hyper::rt::Executor;
use tokio::task::JoinSet;

/// The tasks of one connection. They end together.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks(Rc<RefCell<JoinSet<()>>>);

impl Tasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.0.borrow_mut();
        // The ends of earlier tasks would add up.
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }

    /// Ends all tasks, and waits until what they had is gone.
    pub(super) async fn end(&self) {
        let mut tasks = self.0.take();
        tasks.shutdown().await;
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}
