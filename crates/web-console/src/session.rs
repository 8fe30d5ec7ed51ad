//! Sessions: who has signed in, with which credential, and until when.
//!
//! A session is found by the SHA-256 of its cookie, so that no comparison of secrets takes a time that tells something. It has
//! no further right: each of its requests shows its credential to the guard of the API, and it ends with that credential.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use timestamp::UnixMillis;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::Identity;
use crate::kept::KeptSession;

/// Time without a use after which a session ends, milliseconds.
const IDLE: u64 = 30 * 60 * 1_000;
/// Longest life of a session, milliseconds.
const LONGEST: u64 = 12 * 60 * 60 * 1_000;
/// Longest life of a session of one approval, milliseconds.
const LONGEST_OF_ONE: u64 = 15 * 60 * 1_000;
/// Places that a session of one approval has, before the approval's id.
const OF_ONE: [&str; 2] = ["/approvals/", "/passkeys/consent/"];
/// Time after which a use is kept for the next start, milliseconds.
const NOTED: u64 = 60 * 1_000;
/// Most sessions of all principals.
const MOST: usize = 256;
/// Most sessions of one principal.
const MOST_OF_ONE: usize = 16;
/// Most streams of one session at the same time.
const STREAMS: usize = 16;
/// Most approvals of which a session remembers when they were first shown.
const SHOWN: usize = 4_096;

/// Key of a session in the table: the SHA-256 of its cookie.
type Key = [u8; 32];

/// A person who has signed in.
pub(crate) struct Session {
    key: Key,
    pub(crate) identity: Identity,
    /// Name of the principal, as the API has said it.
    pub(crate) name: String,
    /// The only approval that the session shows and decides on; `None` for all pages.
    only: Option<String>,
    /// Secret in each form, so that no other site can send one.
    csrf: String,
    opened_at: UnixMillis,
    used_at: AtomicU64,
    /// Cancelled when the session ends, which ends its streams.
    pub(crate) ended: CancellationToken,
    streams: AtomicUsize,
    shown: Mutex<HashMap<String, UnixMillis>>,
}

impl Session {
    /// Returns the secret for the forms of this session.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }

    pub(crate) fn is_csrf(&self, sent: &str) -> bool {
        self.csrf.as_bytes().ct_eq(sent.as_bytes()).into()
    }

    /// Returns true if the session has this page.
    pub(crate) fn opens(&self, path: &str) -> bool {
        let Some(only) = &self.only else { return true };
        // Events have no content: the page asks again for its own.
        matches!(path, "/sign-out" | "/events/approvals")
            || OF_ONE.iter().any(|place| path.strip_prefix(place) == Some(only))
    }

    fn is_over(&self, now: UnixMillis) -> bool {
        let longest = if self.only.is_some() { LONGEST_OF_ONE } else { LONGEST };
        now.0.saturating_sub(self.opened_at.0) >= longest
            || now.0.saturating_sub(self.used_at.load(Ordering::Relaxed)) >= IDLE
            || self.ended.is_cancelled()
    }

    /// Takes a place for a stream, if the session has one left.
    pub(crate) fn stream(self: &Arc<Self>) -> Option<StreamSlot> {
        let taken = self
            .streams
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open < STREAMS).then_some(open + 1));
        taken.is_ok().then(|| StreamSlot(self.clone()))
    }

    /// Remembers that an approval is shown in full, the first time.
    pub(crate) fn show(&self, approval: &str, now: UnixMillis) {
        let mut shown = self.shown.lock();
        if shown.len() >= SHOWN && !shown.contains_key(approval) {
            let oldest = shown.iter().min_by_key(|(_, at)| at.0).map(|(id, _)| id.clone());
            oldest.and_then(|id| shown.remove(&id));
        }
        shown.entry(approval.to_owned()).or_insert(now);
    }

    /// Returns the time at which an approval was first shown in full in this session.
    pub(crate) fn shown_at(&self, approval: &str) -> Option<UnixMillis> {
        self.shown.lock().get(approval).copied()
    }
}

/// Place of an open stream among those of its session.
pub(crate) struct StreamSlot(Arc<Session>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sessions of the daemon.
#[derive(Default)]
pub(crate) struct Sessions {
    table: Mutex<HashMap<Key, Arc<Session>>>,
    /// Signals each change that is kept.
    pub(crate) changes: watch::Sender<()>,
}

impl Sessions {
    /// Takes the sessions of an earlier start.
    pub(crate) fn restore(&self, kept: Vec<KeptSession>) {
        let sessions = kept.into_iter().take(MOST).map(|one| {
            let session = Session {
                key: one.key,
                identity: Identity::User { uid: one.uid, gid: one.gid },
                name: one.name,
                only: None,
                csrf: one.csrf,
                opened_at: one.opened_at,
                used_at: AtomicU64::new(one.used_at.0),
                ended: CancellationToken::new(),
                streams: AtomicUsize::new(0),
                shown: Mutex::default(),
            };
            (session.key, Arc::new(session))
        });
        self.table.lock().extend(sessions);
    }

    /// Returns the sessions that are kept over a restart.
    pub(crate) fn kept(&self) -> Vec<KeptSession> {
        let table = self.table.lock();
        let kept = |one: &Arc<Session>| {
            let Identity::User { uid, gid } = one.identity else { return None };
            Some(KeptSession {
                key: one.key,
                csrf: one.csrf.clone(),
                name: one.name.clone(),
                opened_at: one.opened_at,
                used_at: UnixMillis(one.used_at.load(Ordering::Relaxed)),
                uid,
                gid,
            })
        };
        // A session of one approval ends with the daemon.
        table.values().filter(|one| one.only.is_none()).filter_map(kept).collect()
    }

    /// Opens a session, and returns its cookie. The one that was idle longest ends if there are too many.
    pub(crate) fn open(&self, identity: Identity, name: String, now: UnixMillis) -> (String, Arc<Session>) {
        self.open_for(identity, name, None, now)
    }

    /// Opens a session of one approval.
    pub(crate) fn open_for(
        &self,
        identity: Identity,
        name: String,
        only: Option<String>,
        now: UnixMillis,
    ) -> (String, Arc<Session>) {
        let cookie = secret();
        let session = Arc::new(Session {
            key: key_of(&cookie),
            identity,
            name,
            only,
            csrf: secret(),
            opened_at: now,
            used_at: AtomicU64::new(now.0),
            ended: CancellationToken::new(),
            streams: AtomicUsize::new(0),
            shown: Mutex::default(),
        });
        let mut table = self.table.lock();
        table.retain(|_, one| !one.is_over(now) || end(one));
        let of_one = table.values().filter(|one| one.name == session.name).count();
        if of_one >= MOST_OF_ONE {
            evict(&mut table, |one| one.name == session.name);
        } else if table.len() >= MOST {
            evict(&mut table, |_| true);
        }
        table.insert(session.key, session.clone());
        self.changes.send_replace(());
        (cookie, session)
    }

    /// Returns the session of a cookie. `is_use` is false for a request that a page makes by itself.
    pub(crate) fn find(&self, cookie: &str, now: UnixMillis, is_use: bool) -> Option<Arc<Session>> {
        let mut table = self.table.lock();
        let session = table.get(&key_of(cookie))?.clone();
        if session.is_over(now) {
            end(&session);
            table.remove(&session.key);
            return None;
        }
        if is_use {
            let before = session.used_at.fetch_max(now.0, Ordering::Relaxed);
            if now.0.saturating_sub(before) >= NOTED {
                self.changes.send_replace(());
            }
        }
        Some(session)
    }

    /// Returns true if a session has not ended. Ends it if it is over.
    pub(crate) fn holds(&self, session: &Session, now: UnixMillis) -> bool {
        if session.is_over(now) {
            self.close(session);
        }
        !session.ended.is_cancelled()
    }

    /// Ends a session.
    pub(crate) fn close(&self, session: &Session) {
        end(session);
        self.table.lock().remove(&session.key);
        self.changes.send_replace(());
    }
}

/// Ends the streams of a session. Returns false, as the table does not keep it.
fn end(session: &Session) -> bool {
    session.ended.cancel();
    false
}

/// Ends the session that was idle longest among those that `is_meant`.
fn evict(table: &mut HashMap<Key, Arc<Session>>, is_meant: impl Fn(&Session) -> bool) {
    let idle =
        table.values().filter(|one| is_meant(one)).min_by_key(|one| one.used_at.load(Ordering::Relaxed));
    if let Some(idle) = idle.cloned() {
        end(&idle);
        table.remove(&idle.key);
    }
}

/// Returns 256 random bits as hexadecimal digits.
pub(crate) fn secret() -> String {
    hex::encode(seal::secret())
}

pub(crate) fn key_of(secret: &str) -> Key {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Token;

    const START: UnixMillis = UnixMillis(1_000_000);

    fn user(uid: u32) -> Identity {
        Identity::User { uid, gid: uid }
    }

    fn after(minutes: u64) -> UnixMillis {
        UnixMillis(START.0 + minutes * 60_000)
    }

    #[test]
    fn a_session_ends_when_it_is_idle_and_after_its_longest_life() {
        let sessions = Sessions::default();
        let (cookie, session) = sessions.open(user(1), "uid:1".into(), START);
        assert!(sessions.find(&cookie, after(29), false).is_some());
        assert!(sessions.find(&cookie, after(30), true).is_none(), "a page's own requests are no use");
        assert!(session.ended.is_cancelled());

        let (cookie, _) = sessions.open(user(1), "uid:1".into(), START);
        for minutes in (20..720).step_by(20) {
            assert!(sessions.find(&cookie, after(minutes), true).is_some(), "{minutes}");
        }
        assert!(sessions.find(&cookie, after(720), true).is_none());
    }

    #[test]
    fn a_session_of_one_approval_has_its_page_and_a_quarter_of_an_hour() {
        let sessions = Sessions::default();
        let (cookie, session) = sessions.open_for(user(1), "uid:1".into(), Some("a-1".into()), START);
        for path in ["/approvals/a-1", "/passkeys/consent/a-1", "/sign-out"] {
            assert!(session.opens(path), "{path}");
        }
        for path in [
            "/",
            "/approvals",
            "/approvals/",
            "/approvals/a-12",
            "/approvals/a-1/",
            "/approvals/group/a-1",
            "/passkeys",
            "/push",
        ] {
            assert!(!session.opens(path), "{path}");
        }
        assert!(sessions.kept().is_empty(), "it would be one of all pages after a restart");
        assert!(sessions.find(&cookie, after(14), true).is_some());
        assert!(sessions.find(&cookie, after(15), true).is_none());
        assert!(sessions.open(user(1), "uid:1".into(), START).1.opens("/approvals"));
    }

    #[test]
    fn a_closed_session_and_a_guess_open_nothing() {
        let sessions = Sessions::default();
        let (cookie, session) = sessions.open(user(1), "uid:1".into(), START);
        assert!(sessions.find("", START, true).is_none());
        assert!(sessions.holds(&session, START));
        assert!(sessions.find(&hex::encode(session.key), START, true).is_none(), "the key is no cookie");
        sessions.close(&session);
        assert!(sessions.find(&cookie, START, true).is_none() && session.ended.is_cancelled());
    }

    #[test]
    fn sessions_are_bounded_and_one_principal_evicts_only_its_own() {
        let sessions = Sessions::default();
        let (other, _) = sessions.open(user(2), "uid:2".into(), START);
        let (first, _) = sessions.open(user(1), "uid:1".into(), after(1));
        for _ in 0..MOST_OF_ONE {
            sessions.open(user(1), "uid:1".into(), after(2));
        }
        assert!(sessions.find(&first, after(2), true).is_none());
        assert!(sessions.find(&other, after(2), true).is_some());
        for uid in 0..2 * u32::try_from(MOST).unwrap() {
            sessions.open(user(uid), format!("uid:{uid}"), after(3));
        }
        assert_eq!(sessions.table.lock().len(), MOST);
    }

    #[test]
    fn kept_sessions_go_on_after_a_restart_and_closed_ones_do_not() {
        let sessions = Sessions::default();
        let (cookie, session) = sessions.open(user(1), "uid:1".into(), START);
        let (closed, over) = sessions.open(user(1), "uid:1".into(), START);
        let token = Identity::Token(Token::parse("abc").unwrap());
        let (by_token, _) = sessions.open(token, "token:a".into(), START);
        sessions.find(&cookie, after(10), true);
        sessions.close(&over);

        let again = Sessions::default();
        again.restore(sessions.kept());
        let found = again.find(&cookie, after(39), false).unwrap();
        assert_eq!((found.name.as_str(), found.csrf()), ("uid:1", session.csrf()));
        for gone in [closed, by_token] {
            assert!(again.find(&gone, after(11), true).is_none());
        }
        assert!(again.find(&cookie, after(40), true).is_none(), "its idle time goes on");
    }

    #[test]
    fn streams_and_shown_approvals_of_a_session_are_bounded() {
        let (_, session) = Sessions::default().open(user(1), "uid:1".into(), START);
        let mut open: Vec<_> = (0..STREAMS).map(|_| session.stream().unwrap()).collect();
        assert!(session.stream().is_none());
        open.pop();
        assert!(session.stream().is_some());

        for number in 0..2 * SHOWN as u64 {
            session.show(&number.to_string(), UnixMillis(number));
        }
        session.show("0", START);
        assert_eq!(session.shown.lock().len(), SHOWN);
        session.show("8000", START);
        assert_eq!(session.shown_at("8000"), Some(UnixMillis(8_000)), "the first time counts");
    }

    #[test]
    fn a_form_needs_the_secret_of_its_session() {
        let sessions = Sessions::default();
        let (_, one) = sessions.open(user(1), "uid:1".into(), START);
        let (_, other) = sessions.open(user(1), "uid:1".into(), START);
        assert!(one.is_csrf(one.csrf()));
        assert!(!one.is_csrf(other.csrf()) && !one.is_csrf("") && !one.is_csrf(&one.csrf()[..63]));
    }
}
