//! Sources of an issuer's keys, and the keys in force.
//!
//! ```text
//!  file (every 5 s) ─┐            ┌─► in force ─► too old (of a URL, after `max_age`)
//!  URL (`refresh`) ──┴─► parsed ──┤
//!        ▲                        └─► wrong: those before stay, with a warning
//!        └── a token with an unknown key asks, once in 10 s
//! ```

#![expect(clippy::disallowed_methods, reason = "the keys that the configuration names")]

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use webhook::{Target, Tls, fetch};

use crate::condition::{Condition, Held};
use crate::keys::Keys;

/// Largest set of keys in bytes.
const MAX_SET: usize = 256 << 10;
/// Time limit for a whole fetch.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between two reads of a file.
const LOOK: Duration = Duration::from_secs(5);
/// Shortest interval between two refreshes that were requested, for example because of unknown keys.
const ASK: Duration = Duration::from_secs(10);
/// Shortest and longest wait after a failed fetch.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Source of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Url {
        /// URL that begins with `https`.
        url: String,
        /// Interval between fetches.
        refresh: Duration,
        /// Time after the last successful fetch until the keys expire. Then every token is refused.
        max_age: Duration,
    },
}

/// The keys of an issuer.
#[derive(Debug)]
pub(crate) struct KeySource {
    /// Name of the issuer, for the log.
    name: String,
    origin: Origin,
    state: Mutex<State>,
    asked: Notify,
    /// Changes after each refresh.
    looks: watch::Sender<()>,
}

#[derive(Debug)]
enum Origin {
    File(PathBuf),
    Url { target: Target, refresh: Duration, max_age: Duration },
}

#[derive(Debug, Default)]
struct State {
    /// Keys in force, and the time since when.
    keys: Option<(Arc<Keys>, Instant)>,
    /// Time of the last refresh.
    looked: Option<Instant>,
    /// Error of the last refresh.
    wrong: Option<String>,
    /// True if a refresh was requested and has not ended yet.
    is_asked: bool,
}

impl KeySource {
    /// Opens the source. A file is read at once.
    ///
    /// A URL is not fetched before the first refresh, so that an unavailable issuer does not prevent the daemon's start.
    pub(crate) fn open(name: String, source: Source) -> Result<Self, String> {
        let (origin, keys) = match source {
            Source::File(path) => {
                let keys = Keys::parse(&read(&path)?).map_err(|why| format!("{} {why}", path.display()))?;
                (Origin::File(path), Some((Arc::new(keys), Instant::now())))
            }
            Source::Url { url, refresh, max_age } => {
                (Origin::Url { target: target(&url)?, refresh, max_age }, None)
            }
        };
        let state = Mutex::new(State { keys, ..State::default() });
        Ok(Self { name, origin, state, asked: Notify::new(), looks: watch::Sender::default() })
    }

    /// Returns the keys in force.
    pub(crate) fn current(&self) -> Option<Arc<Keys>> {
        self.held(&self.state.lock()).map(|(keys, _)| keys)
    }

    /// Returns the keys in force, and their remaining time. Keys from a file do not expire.
    fn held(&self, state: &State) -> Option<(Arc<Keys>, Option<Duration>)> {
        let (keys, since) = state.keys.as_ref()?;
        let left = match &self.origin {
            Origin::File(_) => None,
            Origin::Url { max_age, .. } => Some(max_age.checked_sub(since.elapsed())?),
        };
        Some((keys.clone(), left))
    }

    /// Returns the condition of the keys.
    pub(crate) fn condition(&self) -> Condition {
        let state = self.state.lock();
        let held = self.held(&state).map(|(keys, left)| Held { keys: keys.count(), left });
        let unanswered = || state.is_asked.then(|| "no answer yet".to_owned());
        Condition { issuer: self.name.clone(), held, wrong: state.wrong.clone().or_else(unanswered) }
    }

    /// Requests a refresh like [`Self::ask_again`]. The receiver changes after the next refresh. `None` if none is due.
    pub(crate) fn ask(&self) -> Option<watch::Receiver<()>> {
        let looks = self.looks.subscribe();
        self.ask_again().then_some(looks)
    }

    /// Requests a refresh, unless there was one recently. Returns true if a refresh is due.
    pub(crate) fn ask_again(&self) -> bool {
        let mut state = self.state.lock();
        if !state.is_asked && state.looked.is_none_or(|looked| looked.elapsed() >= ASK) {
            state.is_asked = true;
            self.asked.notify_one();
        }
        state.is_asked
    }

    /// Refreshes the keys repeatedly.
    pub(crate) async fn keep_fresh(&self, tls: &Tls) {
        let (mut said, mut failures) = (None, 0);
        loop {
            let wrong = self.look(tls).await.err();
            match &wrong {
                Some(why) if wrong != said => {
                    tracing::warn!(
                        issuer = self.name,
                        "its keys: {why}; the previous keys stay in force until they are too old"
                    );
                }
                None if said.is_some() => tracing::info!(issuer = self.name, "its keys are available again"),
                _ => {}
            }
            failures = if wrong.is_some() { failures + 1 } else { 0 };
            said = wrong;
            let wait = match &self.origin {
                Origin::File(_) => LOOK,
                Origin::Url { refresh, .. } if failures == 0 => *refresh,
                Origin::Url { refresh, .. } => {
                    let longer = RETRY.0.saturating_mul(2_u32.saturating_pow(failures - 1));
                    longer.min(RETRY.1).min(*refresh)
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.asked.notified() => {}
            }
        }
    }

    /// Refreshes the keys. An error leaves the keys in force unchanged.
    pub(crate) async fn look(&self, tls: &Tls) -> Result<(), String> {
        let found = match &self.origin {
            Origin::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read(&path)).await;
                read.unwrap_or_else(|_| Err("the file cannot be read".to_owned()))
            }
            Origin::Url { target, .. } => {
                fetch(tls, target, MAX_SET, PATIENCE).await.map(|bytes| bytes.to_vec())
            }
        };
        let taken = self.take(found.and_then(|bytes| Keys::parse(&bytes)));
        self.looks.send_replace(());
        taken
    }

    fn take(&self, keys: Result<Keys, String>) -> Result<(), String> {
        let mut state = self.state.lock();
        let now = Instant::now();
        (state.looked, state.is_asked) = (Some(now), false);
        state.wrong = keys.as_ref().err().cloned();
        state.keys = Some((Arc::new(keys?), now));
        Ok(())
    }
}

/// Parses the URL. It must be https, because over plain http any machine on the way could supply the keys.
fn target(url: &str) -> Result<Target, String> {
    if !url.starts_with("https://") {
        return Err("must begin with https://".to_owned());
    }
    Target::parse(url, false)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{shown} cannot be read: {error}");
    // Before it is opened, which waits for the other end of a FIFO.
    let found = std::fs::metadata(path).map_err(failed)?;
    if !found.is_file() || found.len() > MAX_SET as u64 {
        return Err(format!("{shown} is not a file of at most {MAX_SET} bytes"));
    }
    if found.permissions().mode() & 0o022 != 0 {
        return Err(format!(
            "others can write to {shown} and could impersonate any user: chmod go-w {shown}"
        ));
    }
    let file = File::open(path).map_err(failed)?;
    let mut contents = Vec::new();
    file.take(MAX_SET as u64).read_to_end(&mut contents).map_err(failed)?;
    Ok(contents)
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
