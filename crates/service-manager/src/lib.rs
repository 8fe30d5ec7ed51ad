#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use sd_notify::NotifyState;
use text::excerpt;

/// Messages within the time of the watchdog.
const WITHIN: u32 = 3;
/// Longest and shortest interval between two messages of the watchdog.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Messages that may wait while the service manager takes none.
const WAITING: usize = 64;

/// The service manager of this process, or none.
#[derive(Debug)]
pub struct ServiceManager {
    /// Messages for the thread that sends them: a service manager that takes none must not hold up the daemon.
    outbox: Option<SyncSender<String>>,
    /// The status that was sent last, and the number of reloads under way.
    sent: Mutex<(String, usize)>,
}

/// The service manager that the environment names, if it does.
impl Default for ServiceManager {
    fn default() -> Self {
        let outbox = std::env::var_os("NOTIFY_SOCKET").and_then(|_| {
            let (outbox, messages) = sync_channel(WAITING);
            let thread = std::thread::Builder::new().name("service-manager".to_owned());
            match thread.spawn(move || send(&messages)) {
                Ok(_) => Some(outbox),
                Err(error) => {
                    tracing::warn!(%error, "the service manager is not told about the daemon");
                    None
                }
            }
        });
        Self { outbox, sent: Mutex::default() }
    }
}

impl ServiceManager {
    /// Says that clients can connect.
    pub fn ready(&self, status: &str) {
        let mut sent = self.sent.lock();
        self.tell(&[NotifyState::Ready, NotifyState::Status(&line(status))]);
        status.clone_into(&mut sent.0);
    }

    /// Says that a reload begins. The end of the last one that is under way makes the daemon ready again.
    pub fn reloading(&self) -> Reloading<'_> {
        let mut sent = self.sent.lock();
        sent.1 += 1;
        if sent.1 == 1 {
            match NotifyState::monotonic_usec_now() {
                Ok(now) => self.tell(&[NotifyState::Reloading, now, NotifyState::Status("reloading")]),
                // Without the time, systemd would take the reload for one that failed.
                Err(error) => tracing::warn!(%error, "the monotonic clock cannot be read"),
            }
        }
        Reloading(self)
    }

    /// Says that an orderly stop begins.
    pub fn stopping(&self, status: &str) {
        let mut sent = self.sent.lock();
        self.tell(&[NotifyState::Stopping, NotifyState::Status(&line(status))]);
        status.clone_into(&mut sent.0);
    }

    /// Shows a status. Returns true if it is not the one that was shown.
    pub fn status(&self, status: &str) -> bool {
        let mut sent = self.sent.lock();
        if sent.0 == status {
            return false;
        }
        // A reload under way shows it at its end.
        if sent.1 == 0 {
            self.tell(&[NotifyState::Status(&line(status))]);
        }
        status.clone_into(&mut sent.0);
        true
    }

    /// Says again and again that the daemon is alive, if the service manager wants to hear it. Ends with its task.
    pub async fn keep_alive(&self) {
        let Some(within) = sd_notify::watchdog_enabled().filter(|_| self.outbox.is_some()) else { return };
        let interval = (within / WITHIN).clamp(INTERVALS.0, INTERVALS.1);
        loop {
            self.tell(&[NotifyState::Watchdog]);
            tokio::time::sleep(interval).await;
        }
    }

    /// Has a message sent, after the earlier ones.
    fn tell(&self, states: &[NotifyState<'_>]) {
        let Some(outbox) = &self.outbox else { return };
        let message: Vec<String> = states.iter().map(ToString::to_string).collect();
        if outbox.try_send(message.join("\n")).is_err() {
            tracing::warn!("the service manager takes no messages, so one about the daemon is lost");
        }
    }
}

/// A reload under way. Its end is the end of this value.
#[must_use = "the reload is over when this is dropped"]
pub struct Reloading<'m>(&'m ServiceManager);

impl Drop for Reloading<'_> {
    fn drop(&mut self) {
        let mut sent = self.0.sent.lock();
        sent.1 -= 1;
        if sent.1 == 0 {
            self.0.tell(&[NotifyState::Ready, NotifyState::Status(&line(&sent.0))]);
        }
    }
}

/// Makes a status one short line. A line end would begin another message.
fn line(status: &str) -> String {
    excerpt(status)
}

/// Sends messages until there are no more senders. A thread does this, because it may block.
fn send(messages: &Receiver<String>) {
    for message in messages {
        if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&message)]) {
            tracing::warn!(%error, "the service manager cannot be told about the daemon");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_short_line() {
        assert_eq!(line("ready\nMAINPID=1"), "ready\\nMAINPID=1");
        assert!(line(&"x".repeat(1_000)).chars().count() <= 201);
    }

    #[test]
    fn reloads_that_overlap_end_once_and_a_status_waits_for_their_end() {
        let manager = ServiceManager::default();
        manager.ready("ready");
        let (first, second) = (manager.reloading(), manager.reloading());
        assert_eq!(manager.sent.lock().1, 2);
        assert!(manager.status("not ready") && !manager.status("not ready"));
        drop(first);
        assert_eq!(*manager.sent.lock(), ("not ready".to_owned(), 1));
        drop(second);
        assert_eq!(*manager.sent.lock(), ("not ready".to_owned(), 0));
    }

    #[test]
    fn a_service_manager_that_takes_no_messages_holds_up_nothing() {
        let (outbox, messages) = sync_channel(2);
        let manager = ServiceManager { outbox: Some(outbox), sent: Mutex::default() };
        manager.ready("ready");
        drop(manager.reloading());
        manager.stopping("stopping");
        drop(manager);
        let sent: Vec<String> = messages.iter().collect();
        assert_eq!((sent.len(), sent[0].as_str()), (2, "READY=1\nSTATUS=ready"));
        assert!(sent[1].starts_with("RELOADING=1\nMONOTONIC_USEC="), "{sent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_service_manager_nobody_is_told() {
        // The tests have no such variables.
        if sd_notify::watchdog_enabled().is_none() {
            ServiceManager::default().keep_alive().await;
        }
    }
}
