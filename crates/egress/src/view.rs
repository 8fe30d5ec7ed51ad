//! The connections of a run and of its companions, for people.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use timestamp::Timestamp;
use tokio::sync::broadcast;

use crate::bytes::Moved;

/// Connections that have ended and are still listed.
const ENDED: usize = 512;
/// Refused hosts that are listed, of the run and of each companion.
const REFUSED: usize = 512;
/// Updates that wait for a slow follower.
const BEHIND: usize = 1024;

/// One connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    pub id: String,
    /// Companion whose program opened it; empty for the run itself.
    pub companion: String,
    /// Name, or address if the program named no name.
    pub host: String,
    pub port: u16,
    /// Scheme of the rule: `HTTPS`, `HTTP`, `TCP` or `git`; empty for a connection that was refused.
    pub scheme: String,
    pub rule: String,
    pub phase: Phase,
    /// Server name of the ClientHello; empty if there was none.
    pub server_name: String,
    /// Address that it goes to.
    pub address: Option<IpAddr>,
    /// Bytes that the program sent. While it is open, those of about a second ago.
    pub bytes_out: u64,
    /// Bytes that the server sent, like those that the program sent.
    pub bytes_in: u64,
    /// First requests over HTTP.
    pub requests: Vec<Request>,
    pub opened_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Calls whose commands were running when it was opened, or when a request of it was decided about.
    pub calls: Vec<String>,
    /// True if its TLS ends in the process, which looks at each request.
    pub opened: bool,
    /// Server that its requests go to in place of the host; empty for none.
    pub upstream: String,
    /// Names of the secrets that its requests had.
    pub injected: Vec<String>,
    /// Tokens that its responses said, by model.
    pub usage: Vec<ModelTokens>,
}

/// Phase of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It is looked at, or its bytes pass.
    Open,
    /// It waits for a reviewer.
    Waiting,
    /// It has ended, in this way.
    Ended(&'static str),
}

/// A request over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Number on its connection, from 1.
    pub number: u64,
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Status of the response; 0 if there was none.
    pub status: u32,
}

/// Tokens of requests to one model, as its server counted them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelTokens {
    /// Name of the model; empty if responses had none.
    pub model: String,
    pub requests: u64,
    /// Requests whose responses said no tokens that could be read.
    pub unreported: u64,
    /// Tokens of requests that were not read from a cache.
    pub input: u64,
    /// Tokens of answers.
    pub output: u64,
    /// Tokens of requests that were read from a cache.
    pub cached_input: u64,
    /// Tokens of requests that were written to a cache.
    pub cache_write: u64,
}

impl ModelTokens {
    /// Adds the numbers of others. The largest number is not exceeded.
    pub(crate) fn add(&mut self, more: &Self) {
        let numbers = [
            (&mut self.requests, more.requests),
            (&mut self.unreported, more.unreported),
            (&mut self.input, more.input),
            (&mut self.output, more.output),
            (&mut self.cached_input, more.cached_input),
            (&mut self.cache_write, more.cache_write),
        ];
        for (sum, more) in numbers {
            *sum = sum.saturating_add(more);
        }
    }
}

/// A host that was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Companion that was refused; empty for the run itself.
    pub companion: String,
    pub host: String,
    /// Port; 0 for a name that was not found.
    pub port: u16,
    pub rule: String,
    pub why: String,
    /// Number of times.
    pub count: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub(crate) last: Instant,
}

impl Refused {
    /// Returns the refusal in a sentence, for an agent.
    pub fn for_agent(&self) -> String {
        let Self { companion, host, port, why, .. } = self;
        match (companion.as_str(), *port) {
            ("", 0) => {
                format!("the name {host} does not exist in this run ({why}): no other way to it will help")
            }
            ("", port) => format!("the connection to {host}:{port} was refused ({why})"),
            (companion, 0) => format!("the name {host} does not exist for the companion {companion} ({why})"),
            (companion, port) => {
                format!("the connection of the companion {companion} to {host}:{port} was refused ({why})")
            }
        }
    }
}

/// Numbers of a run's connections since this daemon created or adopted the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub open: u64,
    pub ended: u64,
    /// Lookups of names that do not exist in the run.
    pub refused_names: u64,
    pub refused_connections: u64,
    /// Bytes that programs sent out of the host.
    pub bytes_out: u64,
    /// Bytes that servers sent.
    pub bytes_in: u64,
}

/// A change.
#[derive(Debug, Clone)]
pub enum Update {
    Connection(Box<Connection>),
    Refused(Refused),
}

/// The connections and refused hosts of a run. The same lists have those of its companions.
#[derive(Debug, Clone)]
pub struct View {
    listed: Arc<Mutex<Listed>>,
    updates: broadcast::Sender<Update>,
    /// Companion whose connections are shown here; empty for the run itself.
    companion: String,
}

#[derive(Debug, Default)]
struct Listed {
    live: BTreeMap<String, Connection>,
    ended: VecDeque<Connection>,
    refused: BTreeMap<(String, String, u16), Refused>,
    /// All but the number of those that are open.
    counts: Counts,
    /// Bytes of all connections by companion, also under earlier daemons. The key of the run itself is empty.
    moved: BTreeMap<String, u64>,
}

impl Default for View {
    fn default() -> Self {
        Self { listed: Arc::default(), updates: broadcast::channel(BEHIND).0, companion: String::new() }
    }
}

impl View {
    /// Returns the view in which connections of a companion are shown, with its name.
    #[must_use]
    pub fn of_companion(&self, name: &str) -> Self {
        Self { companion: name.to_owned(), ..self.clone() }
    }

    /// Returns the companion whose connections are shown here; empty for the run itself.
    pub(crate) fn companion(&self) -> &str {
        &self.companion
    }

    pub(crate) fn is_of_companion(&self) -> bool {
        !self.companion.is_empty()
    }

    /// Returns the bytes of all connections of the run and of its companions.
    pub(crate) fn moved(&self) -> u64 {
        self.listed.lock().moved.values().copied().fold(0, u64::saturating_add)
    }

    pub(crate) fn add_moved(&self, bytes: u64) {
        let mut listed = self.listed.lock();
        let moved = listed.moved.entry(self.companion.clone()).or_default();
        *moved = moved.saturating_add(bytes);
    }

    /// Takes bytes that were stored. Bytes that are counted already do not count again.
    pub(crate) fn restore_moved(&self, stored: u64) {
        let mut listed = self.listed.lock();
        let moved = listed.moved.entry(self.companion.clone()).or_default();
        *moved = stored.max(*moved);
    }

    /// Returns the connections in the order of their ids, and the refused hosts.
    pub fn list(&self) -> (Vec<Connection>, Vec<Refused>) {
        let listed = self.listed.lock();
        let mut all: Vec<_> = listed.ended.iter().chain(listed.live.values()).cloned().collect();
        all.sort_by(|one, two| one.id.cmp(&two.id));
        (all, listed.refused.values().cloned().collect())
    }

    pub fn counts(&self) -> Counts {
        let listed = self.listed.lock();
        Counts { open: listed.live.len() as u64, ..listed.counts }
    }

    /// Returns the state like [`Self::list`], and all changes after it.
    pub fn follow(&self) -> (Vec<Connection>, Vec<Refused>, broadcast::Receiver<Update>) {
        let updates = self.updates.subscribe();
        let (connections, refused) = self.list();
        (connections, refused, updates)
    }

    /// Returns the hosts that were refused since a moment.
    pub fn refused_since(&self, at: Instant) -> Vec<Refused> {
        let listed = self.listed.lock();
        let recent = listed.refused.values().filter(|refused| refused.last >= at);
        recent.cloned().collect()
    }

    /// Shows a connection as it is now.
    pub(crate) fn show(&self, connection: Connection) {
        let connection = Connection { companion: self.companion.clone(), ..connection };
        {
            let mut listed = self.listed.lock();
            if matches!(connection.phase, Phase::Ended(_)) {
                listed.live.remove(&connection.id);
                if listed.ended.len() >= ENDED {
                    listed.ended.pop_front();
                }
                listed.counts.ended += 1;
                listed.ended.push_back(connection.clone());
            } else {
                listed.live.insert(connection.id.clone(), connection.clone());
            }
        }
        // An error means that there is no follower.
        let _ = self.updates.send(Update::Connection(Box::new(connection)));
    }

    /// Shows the bytes of connections that are open, and counts `more` for the run. Followers see them with the next change.
    pub(crate) fn show_moved(&self, open: &[(String, Moved)], more: Moved) {
        let mut listed = self.listed.lock();
        for (id, moved) in open {
            if let Some(connection) = listed.live.get_mut(id) {
                (connection.bytes_out, connection.bytes_in) = (moved.out, moved.into);
            }
        }
        let counts = &mut listed.counts;
        counts.bytes_out = counts.bytes_out.saturating_add(more.out);
        counts.bytes_in = counts.bytes_in.saturating_add(more.into);
    }

    /// Shows that a host was refused once more.
    pub(crate) fn refuse(&self, host: &str, port: u16, rule: &str, why: &str) {
        let now = Timestamp::now();
        let refused = {
            let mut listed = self.listed.lock();
            match port {
                0 => listed.counts.refused_names += 1,
                _ => listed.counts.refused_connections += 1,
            }
            let key = (self.companion.clone(), host.to_owned(), port);
            // An agent reads the refusals of its own programs, however many a companion has.
            let is_full = || {
                let own = listed.refused.range((self.companion.clone(), String::new(), 0)..);
                own.take_while(|((companion, ..), _)| *companion == self.companion).count() >= REFUSED
            };
            if !listed.refused.contains_key(&key) && is_full() {
                return;
            }
            let refused = listed.refused.entry(key).or_insert_with(|| Refused {
                companion: self.companion.clone(),
                host: host.to_owned(),
                port,
                rule: String::new(),
                why: String::new(),
                count: 0,
                first_at: now,
                last_at: now,
                last: Instant::now(),
            });
            refused.count += 1;
            refused.last_at = now;
            refused.last = Instant::now();
            rule.clone_into(&mut refused.rule);
            why.clone_into(&mut refused.why);
            refused.clone()
        };
        let _ = self.updates.send(Update::Refused(refused));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(id: &str, phase: Phase, address: Option<IpAddr>) -> Connection {
        Connection {
            id: id.to_owned(),
            companion: String::new(),
            host: "files.example.org".to_owned(),
            port: 443,
            scheme: "HTTPS".to_owned(),
            rule: String::new(),
            phase,
            server_name: String::new(),
            address,
            bytes_out: 3,
            bytes_in: 50,
            requests: Vec::new(),
            opened_at: Timestamp::now(),
            ended_at: None,
            calls: Vec::new(),
            opened: false,
            upstream: String::new(),
            injected: Vec::new(),
            usage: Vec::new(),
        }
    }

    #[test]
    fn counts_go_on_where_lists_are_full() {
        let view = View::default();
        let address = Some(IpAddr::from([203, 0, 113, 7]));
        view.show(connection("open", Phase::Open, None));
        for number in 0..600 {
            view.show(connection(&number.to_string(), Phase::Open, None));
            view.show(connection(&number.to_string(), Phase::Ended("closed"), address));
            view.show_moved(&[], Moved { out: 3, into: 50 });
            view.refuse(&format!("h{number}.example.org"), 0, "", "");
            view.refuse("203.0.113.8", 22, "", "");
        }
        view.show(connection("refused", Phase::Ended("ended"), None));
        let counts = Counts {
            open: 1,
            ended: 601,
            refused_names: 600,
            refused_connections: 600,
            bytes_out: 1_800,
            bytes_in: 30_000,
        };
        assert_eq!(view.counts(), counts);
        let (connections, refused) = view.list();
        assert_eq!((connections.len(), refused.len()), (ENDED + 1, REFUSED));
    }

    #[test]
    fn a_companion_is_shown_beside_its_run_with_its_name() {
        let run = View::default();
        let db = run.of_companion("db");
        let mut updates = run.follow().2;
        db.show(connection("one", Phase::Open, None));
        for view in [&run, &db, &db] {
            view.refuse("files.example.org", 443, "rule", "why");
        }
        run.refuse("files.example.org", 0, "rule", "why");
        db.refuse("files.example.org", 0, "rule", "why");
        let (connections, refused) = run.list();
        assert_eq!(connections[0].companion, "db");
        assert!(matches!(updates.try_recv(), Ok(Update::Connection(shown)) if shown.companion == "db"));
        let found: Vec<_> = refused.iter().map(|one| (one.companion.as_str(), one.port, one.count)).collect();
        assert_eq!(found, [("", 0, 1), ("", 443, 1), ("db", 0, 1), ("db", 443, 2)]);
        let words: Vec<String> = refused.iter().map(Refused::for_agent).collect();
        assert!(words[0].contains("in this run") && words[1].starts_with("the connection to"), "{words:?}");
        assert!(words[2..].iter().all(|words| words.contains("the companion db")), "{words:?}");
        db.add_moved(3);
        run.add_moved(4);
        assert_eq!((run.moved(), db.moved()), (7, 7));
    }

    #[test]
    fn stored_bytes_count_once_for_the_run_and_for_each_companion() {
        let run = View::default();
        let (db, cache) = (run.of_companion("db"), run.of_companion("cache"));
        run.add_moved(4);
        db.add_moved(3);
        for _ in 0..2 {
            run.restore_moved(1);
            db.restore_moved(9);
            cache.restore_moved(2);
        }
        assert_eq!(run.moved(), 4 + 9 + 2);
        db.add_moved(1);
        assert_eq!(cache.moved(), 4 + 10 + 2);
        db.restore_moved(u64::MAX);
        assert_eq!(run.moved(), u64::MAX);
    }

    #[test]
    fn refusals_of_a_companion_leave_space_for_those_of_its_run() {
        let view = View::default();
        let companion = view.of_companion("db");
        for number in 0..600 {
            companion.refuse(&format!("h{number}.example.org"), 0, "", "");
        }
        view.refuse("files.example.org", 443, "", "");
        let (_, refused) = view.list();
        assert_eq!(refused.iter().filter(|one| one.companion == "db").count(), REFUSED);
        assert_eq!(refused.len(), REFUSED + 1);
    }
}
