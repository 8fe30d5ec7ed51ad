//! The state of a run's egress, and the decisions that need no waiting.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use audit::Event;
use egress_rules::{Budget, Decision, Destination, HostName, Narrowed, Scheme, SecretName, Source, Verdict};
use model_usage::Who;
use parking_lot::Mutex;
use tenants::Exceeded;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::consents::Consents;
use crate::git::Pushes;
use crate::limits::PerMinute;
use crate::live::{Begun, Opener};
use crate::outside::Outside;
use crate::refused::{Key, Placeholder, Refusals};
use crate::streams::Streams;
use crate::table::Table;
use crate::trust::Trust;
use crate::view::View;
use crate::waiting::Waiting;
use crate::{Control, events};

/// The parts of a run that its rules refer to.
pub(crate) struct Own {
    pub(crate) who: Who,
    /// Files of the authorities that its programs trust; `None` if they do not trust that of its process.
    pub(crate) trust: Option<Trust>,
    /// Variables, the names of their secrets, and their placeholders.
    pub(crate) placeholders: Vec<(String, SecretName, String)>,
    /// True if its process hears the connections of programs.
    pub(crate) is_steered: bool,
}

/// State of a run's egress. It outlives the process.
pub(crate) struct State {
    pub(crate) run: String,
    pub(crate) own: Own,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) outside: Arc<Outside>,
    pub(crate) view: View,
    began: Instant,
    pub(crate) table: Mutex<Table>,
    rate: Mutex<PerMinute>,
    refusals: Mutex<Refusals>,
    /// Events that are being recorded.
    recording: TaskTracker,
    /// Connections that wait for a reviewer.
    pub(crate) waiting: Mutex<Waiting>,
    /// Consents to pushes that no server has answered.
    pub(crate) consents: Mutex<Consents>,
    /// True once a process of the run got a secret.
    has_secrets: AtomicBool,
    /// Places for pushes of git that are decided about.
    pub(crate) pushes: Pushes,
    /// Questions that are being asked.
    pub(crate) asking: TaskTracker,
    /// Withdraws all questions.
    pub(crate) over: CancellationToken,
    /// Streams that calls want.
    pub(crate) streams: Streams,
}

impl State {
    pub(crate) fn new(
        run: String,
        own: Own,
        control: Arc<dyn Control>,
        outside: Arc<Outside>,
        table: Table,
        view: View,
    ) -> Self {
        view.restore_moved(table.bytes());
        Self {
            run,
            own,
            control,
            outside,
            view,
            began: Instant::now(),
            table: Mutex::new(table),
            rate: Mutex::default(),
            refusals: Mutex::default(),
            recording: TaskTracker::new(),
            waiting: Mutex::default(),
            consents: Mutex::default(),
            has_secrets: AtomicBool::new(false),
            pushes: Pushes::new(),
            asking: TaskTracker::new(),
            over: CancellationToken::new(),
            streams: Streams::new(),
        }
    }

    /// Returns the address that a name has within the run. `None` if it does not exist there.
    pub(crate) fn resolve(&self, text: &str) -> Option<IpAddr> {
        // The process sends canonical names.
        let name = HostName::parse(text).ok()?;
        let rules = self.control.rules();
        let is_companion = self.control.companion(&name, 0).is_some();
        let source = if is_companion { Some(Source::Named) } else { rules.resolves(&name) };
        let Some(source) = source else {
            self.refuse(text, 0, "egress: unknown name", "no rule has this name");
            return None;
        };
        let mut table = self.table.lock();
        let address = table.assign(&name, source, rules.names_per_minute(), self.began.elapsed());
        drop(table);
        match address {
            Ok(address) => Some(address.into()),
            Err(error) => {
                self.refuse(text, 0, "egress: names", &error.to_string());
                None
            }
        }
    }

    /// Returns the name that has an address within the run.
    pub(crate) fn name_of(&self, address: IpAddr) -> Option<HostName> {
        let IpAddr::V4(address) = address else { return None };
        self.table.lock().pool().name_of(address).cloned()
    }

    /// Returns the destination that a program means with an address.
    pub(crate) fn destination(&self, address: IpAddr) -> Destination {
        self.name_of(address).map_or_else(|| Destination::address(address), Destination::Name)
    }

    /// Decides about a new connection.
    pub(crate) fn decide(&self, begun: &Begun) -> Verdict {
        let rules = self.control.rules();
        let companion = || self.of_companion(&begun.destination, begun.port);
        let companion = (begun.by == Opener::Program).then(companion).flatten();
        let is_companion = companion.is_some();
        let verdict = companion.unwrap_or_else(|| rules.decide(&begun.destination, begun.port));
        if verdict.decision == Decision::Deny {
            return verdict;
        }
        match self.obstacle(begun, &verdict, is_companion, &rules) {
            None => verdict,
            Some((rule, words)) => {
                Verdict { decision: Decision::Deny, rule: format!("egress: {rule}"), words, ..verdict }
            }
        }
    }

    /// Returns the first bound or need that refuses a connection to which the rules are open: its name, and a sentence for the agent.
    fn obstacle(
        &self,
        begun: &Begun,
        verdict: &Verdict,
        is_companion: bool,
        rules: &Narrowed,
    ) -> Option<(&'static str, String)> {
        if self.are_bytes_used_up() {
            let words = "The run and its companions have moved all bytes that `max_bytes` allows.";
            return Some(("max_bytes", words.to_owned()));
        }
        if !is_companion && let Some(exceeded) = self.exceeded() {
            return Some(("tenant", sentence(&exceeded)));
        }
        if begun.by == Opener::HostLane && verdict.scheme == Scheme::Http {
            let words = "The rule for this host is for plain HTTP, and this operation goes over https. It needs a rule with the \
                         scheme `https` or `git`.";
            return Some(("scheme", words.to_owned()));
        }
        if begun.by == Opener::Program && verdict.opens_tls() && self.own.trust.is_none() {
            let words = "A rule looks at each request of this connection, and the run began before the policy had such a \
                         rule, so its programs do not trust the certificate. Create a new run.";
            return Some(("authority", words.to_owned()));
        }
        if !self.rate.lock().take(rules.connections_per_minute(), Instant::now()) {
            let words = "The run has opened too many connections in a minute. Try again in a minute.";
            return Some(("connections_per_minute", words.to_owned()));
        }
        None
    }

    /// Returns the bound of the run's tenant that refuses a further connection out of the host.
    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        self.outside.shared().tenancy.connection(&self.own.who.principal).err()
    }

    /// Notes that the process gets a secret.
    pub(crate) fn note_secret(&self) {
        self.has_secrets.store(true, Ordering::Relaxed);
    }

    /// Returns true if a process of the run got a secret.
    pub(crate) fn has_secrets(&self) -> bool {
        self.has_secrets.load(Ordering::Relaxed)
    }

    /// Returns true if the process has to check the certificates of servers.
    pub(crate) fn needs_roots(&self, rules: &Narrowed) -> bool {
        self.own.trust.is_some() || rules.has_tls_upstream()
    }

    /// Returns the bytes that may still be moved, within the bound of the rules and that of the run, in which the bytes of companions
    /// count; `None` without a bound.
    pub(crate) fn bytes_left(&self) -> Option<u64> {
        let (used, of_all) = (self.table.lock().bytes(), self.view.moved());
        let own = self.control.rules().max_bytes().map(|most| most.saturating_sub(used));
        let all = self.control.rules_of_run().max_bytes().map(|most| most.saturating_sub(of_all));
        own.into_iter().chain(all).min()
    }

    /// Returns true if no byte may be moved any longer. The process would end a connection at its first byte, after it has reached the server.
    fn are_bytes_used_up(&self) -> bool {
        self.bytes_left() == Some(0)
    }

    /// Returns true if the run or its tenant has moved all the bytes that it may.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.are_bytes_used_up() || self.exceeded().is_some()
    }

    /// Returns the budget for requests to models: that of the run.
    pub(crate) fn budget(&self) -> Budget {
        self.control.rules_of_run().budget()
    }

    /// Counts a refusal, and puts it on record if it is the first of its minute.
    pub(crate) fn refuse(&self, host: &str, port: u16, rule: &str, why: &str) {
        self.note_refusal(Key { host: host.to_owned(), port, rule: rule.to_owned(), placeholder: None }, why);
    }

    /// Counts a refusal for a placeholder like any other.
    pub(crate) fn refuse_placeholder(&self, host: &str, port: u16, placeholder: Placeholder, why: &str) {
        let (host, rule) = (host.to_owned(), "egress: placeholder".to_owned());
        self.note_refusal(Key { host, port, rule, placeholder: Some(placeholder) }, why);
    }

    fn note_refusal(&self, key: Key, why: &str) {
        self.view.refuse(&key.host, key.port, &key.rule, why);
        let due = self.refusals.lock().note(key, why, Instant::now());
        if let Some(due) = due {
            self.record(events::refused(&self.run, &due, &self.control.calls()));
        }
    }

    /// Puts the refusals of the last minute on record, with `all` also those whose minute is not over.
    pub(crate) fn record_refusals(&self, all: bool) {
        let due = self.refusals.lock().due(Instant::now(), all);
        for due in due {
            self.record(events::refused(&self.run, &due, &[]));
        }
    }

    /// Puts an event on record in the background.
    pub(crate) fn record(&self, event: Event) {
        let control = Arc::clone(&self.control);
        self.recording.spawn(async move {
            if !control.record(event).await {
                tracing::error!("an event of a run's connections is not in the audit log");
            }
        });
    }

    /// Waits until the log has all events. No further ones may follow.
    pub(crate) async fn recorded(&self) {
        self.recording.close();
        self.recording.wait().await;
    }
}

/// Returns the refusal as a sentence, for an agent.
pub(crate) fn sentence(exceeded: &Exceeded) -> String {
    let text = exceeded.to_string();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use audit::Kind;
    use wire::worker::v1::from_egress::Body as From;
    use wire::worker::v1::to_egress::Body as To;
    use wire::worker::v1::{ConnectionOpened, ConnectionReady, ResolveName};

    use crate::Answer;
    use crate::bytes::Moved;
    use crate::testing::Played;

    const RULES: &str = r#"{"rules":[{"host":"api.example.org","ports":[443],"decision":"allow"}]}"#;

    /// Opens a connection to a name, and returns the first order about it.
    async fn open(played: &mut Played, id: u64, name: &str, port: u32) -> To {
        played.say(1, From::Resolve(ResolveName { name: name.to_owned() })).await;
        let To::Resolved(resolved) = played.hear().await else { panic!("no address") };
        let opened = ConnectionOpened { address: resolved.address, port, handle: 0 };
        played.say(id, From::Opened(opened)).await;
        played.hear().await
    }

    #[tokio::test]
    async fn a_tenant_without_bytes_has_no_connection_but_those_to_companions() {
        let mut played = Played::new(RULES);
        played.state.moved(Moved { out: 9 << 20, into: 0 }, true);
        assert!(
            matches!(open(&mut played, 2, "api.example.org", 443).await, To::Inspect(_)),
            "none of its traffic"
        );
        played.state.moved(Moved { out: 0, into: 1 << 20 }, false);
        assert!(matches!(open(&mut played, 3, "api.example.org", 443).await, To::End(_)));
        let refused = played.recorded(Kind::EgressRefused).await;
        assert_eq!(refused["rule"], "egress: tenant");
        let why = refused["why"].as_str().unwrap();
        assert!(
            why.starts_with("The connections of the tenant uid:1 have moved 1 of at most 1 MiB"),
            "{why}"
        );
        assert!(matches!(open(&mut played, 4, "db", 5432).await, To::Dial(_)));
    }

    #[tokio::test]
    async fn bytes_of_companions_count_for_the_bound_of_their_run() {
        let mut played = Played::new(&RULES.replacen('{', "{\"max_bytes\": 1000, ", 1));
        played.state.moved(Moved { out: 400, into: 0 }, false);
        let db = played.state.view.of_companion("db");
        assert_eq!(played.state.bytes_left(), Some(600));
        db.add_moved(500);
        assert_eq!(played.state.bytes_left(), Some(100));
        assert!(matches!(open(&mut played, 2, "api.example.org", 443).await, To::Inspect(_)));
        db.add_moved(100);
        assert!(matches!(open(&mut played, 3, "api.example.org", 443).await, To::End(_)));
        assert_eq!(played.recorded(Kind::EgressRefused).await["rule"], "egress: max_bytes");
    }

    #[tokio::test]
    async fn a_run_that_has_moved_its_own_bytes_reaches_no_server_and_no_companion() {
        let mut played = Played::new(&RULES.replacen('{', "{\"max_bytes\": 1000, ", 1));
        played.state.moved(Moved { out: 999, into: 0 }, false);
        assert!(matches!(open(&mut played, 2, "api.example.org", 443).await, To::Inspect(_)));
        played.state.moved(Moved { out: 0, into: 1 }, false);
        assert_eq!(played.state.bytes_left(), Some(0));
        assert!(matches!(open(&mut played, 3, "api.example.org", 443).await, To::End(_)));
        assert_eq!(played.recorded(Kind::EgressRefused).await["rule"], "egress: max_bytes");
        assert!(matches!(open(&mut played, 4, "db", 5432).await, To::End(_)));
    }

    #[tokio::test]
    async fn consent_that_comes_after_the_bytes_of_the_run_opens_no_connection() {
        let asks = RULES.replace("\"allow\"", "\"ask\"").replacen('{', "{\"max_bytes\": 1000, ", 1);
        let mut played = Played::new(&asks);
        let approved = Answer::Approved { approval_id: "a".to_owned() };
        played.daemon.reviewers.lock().1 = Some(approved);
        assert!(matches!(open(&mut played, 2, "api.example.org", 443).await, To::Inspect(_)));
        // Another connection of the run ends while this one waits.
        played.state.moved(Moved { out: 1000, into: 0 }, false);
        played.say(2, From::Connection(ConnectionReady::default())).await;
        assert!(matches!(played.hear().await, To::End(_)));
    }

    #[tokio::test]
    async fn consent_that_comes_after_the_bytes_of_the_day_opens_no_connection() {
        let mut played = Played::new(&RULES.replace("\"allow\"", "\"ask\""));
        let approved = Answer::Approved { approval_id: "a".to_owned() };
        played.daemon.reviewers.lock().1 = Some(approved);
        assert!(matches!(open(&mut played, 2, "api.example.org", 443).await, To::Inspect(_)));
        // Another connection of the tenant ends while this one waits.
        played.state.moved(Moved { out: 1 << 20, into: 0 }, false);
        played.say(2, From::Connection(ConnectionReady::default())).await;
        assert!(matches!(played.hear().await, To::End(_)));
    }
}
