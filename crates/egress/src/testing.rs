//! A daemon and a process that tests play.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, LazyLock};

use audit::{Event, Kind};
use egress_rules::{HostName, Narrowed, Pool, Rules, SecretName};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use host_launch::numbered;
use model_usage::{Ledger, Prices, Who};
use parking_lot::Mutex;
use redact::Redactor;
use secrets::{Secrets, Source};
use serde_json::Value;
use tenants::{Bounds, Tenancy, Tenant, Tenants};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::git_asked::Kind as GitKind;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{
    ConnectionOpened, ConnectionReady, FromEgress, GitAsked, HttpRequest, Inspect, RequestAsked, ResolveName,
    ToEgress,
};
use worker_protocol::frame::{FrameBuffer, encode};

use crate::broken::Broken;
use crate::decide::{Own, State};
use crate::handles::Handles;
use crate::session::{Greeted, Session};
use crate::table::Table;
use crate::trust::Trust;
use crate::{Answer, Control, Outside, Question, Roots, Shared};

/// Address of every host.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// Value of the secret `model`.
pub(crate) const VALUE: &str = "hunter2-hunter2";

/// The log hides texts that look like secrets.
static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::default);

type Ancestry = (Vec<(String, String)>, Option<bool>);
/// Questions to the reviewers, and their answer to each. Without one they take their time.
type Reviewers = (Vec<Question>, Option<Answer>);

/// A daemon with rules and a log.
pub(crate) struct Daemon {
    pub(crate) rules: Mutex<Arc<Narrowed>>,
    events: Mutex<Vec<Event>>,
    /// Pairs of commits that were asked about, and the answer about each.
    pub(crate) ancestry: Mutex<Ancestry>,
    pub(crate) reviewers: Mutex<Reviewers>,
}

impl Control for Daemon {
    fn rules(&self) -> Arc<Narrowed> {
        Arc::clone(&self.rules.lock())
    }

    fn record(&self, mut event: Event) -> BoxFuture<'_, bool> {
        event.redact(&REDACTOR);
        self.events.lock().push(event);
        ready(true).boxed()
    }

    fn share_limits(&self, _: u32) {}

    fn calls(&self) -> Vec<String> {
        vec!["call".to_owned()]
    }

    fn ancestry(&self, pairs: Vec<(String, String)>) -> BoxFuture<'_, Vec<Option<bool>>> {
        let mut ancestry = self.ancestry.lock();
        let answers = vec![ancestry.1; pairs.len()];
        ancestry.0.extend(pairs);
        ready(answers).boxed()
    }

    fn companion(&self, name: &HostName, port: u16) -> Option<Result<(), String>> {
        let closed = || "The companion db is not open at this port.".to_owned();
        (name.as_str() == "db").then(|| if matches!(port, 5432 | 5433) { Ok(()) } else { Err(closed()) })
    }

    fn connect(&self, _: &HostName, port: u16) -> BoxFuture<'_, Result<OwnedFd, String>> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &ours, b"hello").unwrap();
        let absent = || "the companion db accepts no connection".to_owned();
        ready((port == 5432).then(|| theirs.into()).ok_or_else(absent)).boxed()
    }

    fn ask(&self, question: Question, given_up: CancellationToken) -> BoxFuture<'_, Answer> {
        let mut reviewers = self.reviewers.lock();
        reviewers.0.push(question);
        let answer = reviewers.1.clone();
        async move {
            if answer.is_none() {
                given_up.cancelled().await;
            }
            answer.unwrap_or(Answer::Cancelled)
        }
        .boxed()
    }
}

/// Returns tenants of which each principal may move one MiB a day.
fn tenants() -> Tenants {
    let bounds = Bounds { egress_mib_per_day: Some(1), ..Bounds::default() };
    Tenants::new([(Tenants::DEFAULT.to_owned(), Tenant { bounds, ..Tenant::default() })].into())
}

/// Returns shared parts with the secret `model`, and with `lost`, whose file is missing.
pub(crate) fn shared(directory: &tempfile::TempDir) -> Shared {
    let path = |name: &str| directory.path().join(name);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path("model")).unwrap();
    file.write_all(VALUE.as_bytes()).unwrap();
    let source = |name: &str| (SecretName::parse(name).unwrap(), Source::File(path(name)));
    std::fs::create_dir(path("usage")).unwrap();
    Shared {
        secrets: Arc::new(Secrets::new([source("model"), source("lost")].into())),
        roots: Arc::new(Roots::default()),
        ledger: Arc::new(Ledger::open(&path("usage"), Prices::default()).unwrap()),
        tenancy: Arc::new(Tenancy::open(directory.path(), || Arc::new(tenants()))),
        bytes: Arc::default(),
    }
}

/// Returns a run with one placeholder.
pub(crate) fn own(trust: Option<Trust>) -> Own {
    let placeholder = ("API_KEY".to_owned(), SecretName::parse("model").unwrap(), "key-x".to_owned());
    let who = Who { run: "run".to_owned(), principal: "uid:1".to_owned() };
    Own { who, trust, placeholders: vec![placeholder], is_steered: true }
}

pub(crate) fn rules(text: &str) -> Arc<Narrowed> {
    Arc::new(Narrowed::new(Rules::from_json(text).unwrap()))
}

/// A process that the test plays, and the session that it talks to.
pub(crate) struct Played {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) state: Arc<State>,
    channel: UnixStream,
    buffer: FrameBuffer,
    /// The end over which the process gets handles.
    pub(crate) handles: OwnedFd,
    session: JoinHandle<Broken>,
    _directory: tempfile::TempDir,
}

impl Played {
    pub(crate) fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let table = Table::open(&directory.path().join("names"), Pool::DEFAULT_BLOCK).unwrap();
        let daemon = Arc::new(Daemon {
            rules: Mutex::new(rules(text)),
            events: Mutex::default(),
            ancestry: Mutex::default(),
            reviewers: Mutex::default(),
        });
        let address: Vec<IpAddr> = vec![ADDRESS.into()];
        let hosts = ["api.example.org", "git.example.org", "model.internal", "real.example.org"];
        let hosts: BTreeMap<_, _> =
            hosts.map(|host| (HostName::parse(host).unwrap(), address.clone())).into();
        let outside = Arc::new(Outside::new(hosts, None, shared(&directory)));
        let file = |name: &str| directory.path().join(name);
        let trust = Some(Trust {
            bundle: file("bundle"),
            java: file("cacerts.p12"),
            chromium: file("chromium.json"),
        });
        let control: Arc<dyn Control> = daemon.clone();
        let state = Arc::new(State::new(
            "run".to_owned(),
            own(trust),
            control,
            outside,
            table,
            crate::View::default(),
        ));
        let (ours, channel) = UnixStream::pair().unwrap();
        let (sent, handles) = numbered::pair().unwrap();
        let session = tokio::spawn({
            let state = Arc::clone(&state);
            let greeted = Greeted {
                channel: ours,
                buffer: FrameBuffer::new(),
                most: 16,
                has_roots: true,
                handles: Handles::new(sent).unwrap(),
            };
            async move { Session::run(&state, greeted, &CancellationToken::new()).await }
        });
        Self { daemon, state, channel, buffer: FrameBuffer::new(), handles, session, _directory: directory }
    }

    pub(crate) async fn say(&mut self, id: u64, body: From) {
        let frame = encode(&FromEgress { id, body: Some(body) }).unwrap();
        self.channel.write_all(&frame).await.unwrap();
    }

    /// Returns the next message of the session.
    pub(crate) async fn hear(&mut self) -> To {
        loop {
            if let Some(ToEgress { body, .. }) = self.buffer.pop().unwrap() {
                return body.unwrap();
            }
            let read = self.channel.read_buf(self.buffer.read_buffer()).await.unwrap();
            assert!(read > 0, "the session has ended");
        }
    }

    /// Returns the reason for which the session has ended.
    pub(crate) async fn broken(self) -> String {
        self.session.await.unwrap().to_string()
    }

    /// Opens connection 2 to a host, and lets it go out. Returns the orders to look at it and to connect.
    pub(crate) async fn connect(&mut self, host: &str, port: u32) -> (Inspect, To) {
        let inspect = self.open(host, port).await;
        self.say(2, From::Connection(ConnectionReady::default())).await;
        (inspect, self.hear().await)
    }

    /// Opens connection 2 to a host. Returns the order to look at it.
    pub(crate) async fn open(&mut self, host: &str, port: u32) -> Inspect {
        self.say(1, From::Resolve(ResolveName { name: host.to_owned() })).await;
        let To::Resolved(resolved) = self.hear().await else { panic!("no address") };
        self.say(2, From::Opened(ConnectionOpened { address: resolved.address, port, handle: 0 })).await;
        let To::Inspect(inspect) = self.hear().await else { panic!("not looked at") };
        inspect
    }

    /// Asks about a request on connection 2, and returns the answer.
    pub(crate) async fn ask(&mut self, number: u64) -> To {
        self.say(2, asked(number)).await;
        self.hear().await
    }

    /// Returns the details of the records of a kind.
    pub(crate) fn records(&self, kind: Kind) -> Vec<Value> {
        let events = self.daemon.events.lock();
        let found = events.iter().filter(|event| event.kind == kind);
        found.filter_map(|event| event.details.clone()).collect()
    }

    /// Returns the last record of a kind.
    pub(crate) fn event(&self, kind: Kind) -> Event {
        let events = self.daemon.events.lock();
        events.iter().rev().find(|event| event.kind == kind).cloned().unwrap()
    }

    /// Returns the log as one text.
    pub(crate) fn log(&self) -> String {
        format!("{:?} {:?}", self.daemon.events.lock(), self.state.view.list())
    }

    /// Waits until the log has a record of a kind.
    pub(crate) async fn recorded(&self, kind: Kind) -> Value {
        loop {
            if let Some(details) = self.records(kind).pop() {
                return details;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
}

pub(crate) fn asked(number: u64) -> From {
    let request =
        HttpRequest { method: "POST".to_owned(), path: "/v1/messages".to_owned(), status: 0, number };
    From::Asked(RequestAsked { request: Some(request), git: None, model: None })
}

/// Returns the commands of a push.
pub(crate) fn commands(lines: &[&str]) -> Vec<u8> {
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let capabilities = if number == 0 { "\0 report-status side-band-64k" } else { "" };
        let length = line.len() + capabilities.len() + 4;
        write!(text, "{length:04x}{line}{capabilities}").unwrap();
    }
    (text + "0000").into_bytes()
}

pub(crate) fn of_git(number: u64, kind: GitKind, repository: &str, commands: Vec<u8>) -> From {
    let request = HttpRequest { method: "POST".to_owned(), path: "/x".to_owned(), status: 0, number };
    let git = GitAsked { kind: kind.into(), repository: repository.to_owned(), commands };
    From::Asked(RequestAsked { request: Some(request), git: Some(git), model: None })
}
