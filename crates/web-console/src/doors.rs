//! The ways in that need no page: one-time links, and the sessions that they open.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use timestamp::UnixMillis;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::access::Identity;
use crate::codes::{Bounds, Codes};
use crate::kept::Kept;
use crate::origin::Origin;
use crate::readings::Readings;
use crate::session::Sessions;

/// Links that sign in. Each principal with a role can make some, and a thousand of them leave links for others.
const SIGN_IN: Bounds = Bounds { life: 60 * 1_000, most: 4_096, most_of_one: 4 };
/// Links in notices. Their number is enough for as many principals as browsers can subscribe, 256.
const NOTICES: Bounds = Bounds { life: 10 * 60 * 1_000, most: 16_384, most_of_one: 64 };
/// Time between two writes of the sessions.
const BETWEEN: Duration = Duration::from_secs(1);

/// The state of a console.
pub struct Doors {
    pub(crate) origin: Origin,
    pub(crate) sessions: Sessions,
    pub(crate) readings: Readings,
    links: Codes<Identity>,
    pub(crate) notices: Codes<OneApproval>,
    kept: Option<Arc<Kept>>,
    /// Held from the look at the sessions until they are written, so that no older state replaces a newer one.
    writing: Mutex<()>,
}

/// The approval that a link in a notice opens, and its run.
pub(crate) struct OneApproval {
    pub(crate) approval: String,
    pub(crate) run: String,
}

/// A link that signs in once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub url: String,
    pub ends_at: UnixMillis,
}

impl Doors {
    /// Returns the origin at which browsers reach the console.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Opens the console's state, with the sessions that are kept in the daemon's state directory.
    pub fn open(origin: Origin, state_dir: &Path) -> io::Result<Self> {
        let kept = Kept::open(state_dir)?;
        let doors = Self::new(origin);
        doors.sessions.restore(kept.read());
        Ok(Self { kept: Some(Arc::new(kept)), ..doors })
    }

    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            origin,
            sessions: Sessions::default(),
            readings: Readings::default(),
            links: Codes::new(SIGN_IN),
            notices: Codes::new(NOTICES),
            kept: None,
            writing: Mutex::default(),
        }
    }

    /// Keeps the sessions for the next start, until `stop`.
    pub(crate) async fn keep_sessions(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = self.sessions.changes.subscribe();
        // The sender is in `self`, so only the stop ends the loop.
        while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
            self.write_sessions().await;
            let _ = stop.run_until_cancelled(sleep(BETWEEN)).await;
        }
        self.write_sessions().await;
    }

    /// Writes the sessions as they are.
    pub(crate) async fn write_sessions(&self) {
        let Some(kept) = self.kept.clone() else { return };
        let _writing = self.writing.lock().await;
        let sessions = self.sessions.kept();
        let written = spawn_blocking(move || kept.write(&sessions)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "the sessions of the console cannot be kept: after a restart people sign in again");
        }
    }

    /// Makes a link for a principal that has shown `identity`. The oldest link of the principal ends if it has too many.
    ///
    /// Returns none if too many links of others wait.
    pub fn make_link(&self, identity: Identity, name: &str, now: UnixMillis) -> Option<Link> {
        let (code, ends_at) = self.links.make(name, identity, now)?;
        Some(Link { url: format!("{}/sign-in/link?code={code}", self.origin), ends_at })
    }

    /// Makes a link that opens one approval for a principal, once. The pair is its id and that of its run.
    ///
    /// Returns none if too many such links wait.
    pub fn make_notice_link(
        &self,
        principal: &str,
        (approval, run): (&str, &str),
        now: UnixMillis,
    ) -> Option<String> {
        let opens = OneApproval { approval: approval.to_owned(), run: run.to_owned() };
        let (code, _) = self.notices.make(principal, opens, now)?;
        Some(format!("{}/notice?code={code}", self.origin))
    }

    /// Returns the name of the principal that a link signs in. The link stays.
    pub(crate) fn name_of_link(&self, code: &str, now: UnixMillis) -> Option<String> {
        self.links.principal(code, now)
    }

    /// Takes the identity of a link, which opens nothing from then on.
    pub(crate) fn take_link(&self, code: &str, now: UnixMillis) -> Option<Identity> {
        self.links.take(code, now).map(|link| link.opens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMillis = UnixMillis(5);

    fn doors() -> Doors {
        Doors::new(Origin::of_loopback("127.0.0.1:7465".parse().unwrap()))
    }

    fn link(doors: &Doors, uid: u32) -> String {
        let made = doors.make_link(Identity::User { uid, gid: 0 }, &format!("uid:{uid}"), START).unwrap();
        let code = made.url.strip_prefix("http://console.localhost:7465/sign-in/link?code=").unwrap();
        assert_eq!(code.len(), 64);
        code.to_owned()
    }

    #[test]
    fn a_link_signs_in_once_and_for_its_minute() {
        let doors = doors();
        let code = link(&doors, 7);
        assert_eq!(doors.name_of_link(&code, START).as_deref(), Some("uid:7"));
        assert!(matches!(doors.take_link(&code, START), Some(Identity::User { uid: 7, .. })));
        assert!(doors.take_link(&code, START).is_none() && doors.name_of_link(&code, START).is_none());

        let late = UnixMillis(START.0 + SIGN_IN.life);
        let code = link(&doors, 7);
        assert!(doors.name_of_link(&code, late).is_none() && doors.take_link(&code, late).is_none());
        assert!(doors.take_link("", START).is_none());
    }

    #[test]
    fn a_thousand_principals_leave_links_for_another() {
        let doors = doors();
        let other = link(&doors, 2_000);
        for uid in 0..1_000 {
            for _ in 0..SIGN_IN.most_of_one {
                link(&doors, uid);
            }
        }
        assert_eq!(doors.name_of_link(&other, START).as_deref(), Some("uid:2000"));
        assert_eq!(doors.name_of_link(&link(&doors, 2_001), START).as_deref(), Some("uid:2001"));
    }
}
