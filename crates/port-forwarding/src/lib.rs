#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod dial;
mod record;
mod slots;
mod start;
mod transfer;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use audit_service::{Attempt, AuditLog, Escalations};
use futures_util::{Stream, StreamExt as _};
use identity::Principal;
use operations::Reason;
use policy::{Forward, InForce, Policy};
use refusal::{Refusal, stream_start};
use runs::{Run, Runs};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use wire::v1::{self, forward_port_response::Event};

use record::Chapter;
use slots::{Slot, Slots};
use start::Start;
use transfer::{End, Transfer, over};

pub use record::interrupted;

/// Time that a client has to send its first message.
const FIRST: Duration = Duration::from_secs(10);
/// Time that a client has to read the last message.
const GOODBYE: Duration = Duration::from_secs(10);
/// Number of messages that may wait for the client.
const WAITING: usize = 4;

/// Message or status for the client.
type Response = Result<v1::ForwardPortResponse, Status>;

/// Parts of the daemon that connect clients to servers in runs.
pub struct PortForwarding {
    policy: InForce,
    runs: Arc<Runs>,
    audit: Arc<AuditLog>,
    escalations: Arc<Escalations>,
    slots: Slots,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl PortForwarding {
    pub fn new(
        policy: InForce,
        runs: Arc<Runs>,
        (audit, escalations): (Arc<AuditLog>, Arc<Escalations>),
        (tasks, stop): (TaskTracker, CancellationToken),
    ) -> Self {
        Self { policy, runs, audit, escalations, slots: Slots::default(), tasks, stop }
    }

    /// Opens a connection. The receiver gets the server's bytes and the end.
    pub async fn open<R>(
        self: &Arc<Self>,
        principal: Arc<Principal>,
        mut requests: R,
    ) -> Result<mpsc::Receiver<Response>, Refusal>
    where
        R: Stream<Item = Result<v1::ForwardPortRequest, Status>> + Send + Unpin + 'static,
    {
        let stopping =
            || Refusal::new(Reason::DaemonStopping, "the daemon is stopping: try again after its start");
        let first = tokio::select! {
            first = timeout(FIRST, requests.next()) => first,
            () = self.stop.cancelled() => return Err(stopping()),
        };
        let start = Start::parse(stream_start(first, FIRST)?)?;
        if self.stop.is_cancelled() {
            return Err(stopping());
        }
        let (answer, answered) = oneshot::channel();
        // A separate task, so that a client that leaves interrupts no step.
        self.tasks.spawn(self.clone().serve(principal, start, requests, answer));
        answered.await.map_err(|broken| Refusal::internal("opening the connection", &broken))?
    }

    /// Serves a connection from its beginning to its end.
    async fn serve<R>(
        self: Arc<Self>,
        principal: Arc<Principal>,
        start: Start,
        requests: R,
        answer: oneshot::Sender<Result<mpsc::Receiver<Response>, Refusal>>,
    ) where
        R: Stream<Item = Result<v1::ForwardPortRequest, Status>> + Send + Unpin + 'static,
    {
        let begun = match self.begin(&principal, start).await {
            Ok(begun) => begun,
            // The refusal is dropped if the client has gone.
            Err(refusal) => return drop(answer.send(Err(refusal))),
        };
        let Begun { run, server, chapter, slot } = begun;
        let (out, answers) = mpsc::channel(WAITING);
        let opened = v1::ForwardOpened { connection_id: chapter.connection.to_string() };
        let _ = out.try_send(Ok(transfer::message(Event::Opened(opened))));
        let _ = answer.send(Ok(answers));

        let transfer = Transfer::new(out.clone());
        let bytes = transfer.pass(server, requests);
        let end = tokio::select! {
            end = bytes => self.settled(&run, &out, end).await,
            () = run.ended.cancelled() => self.with_run(&run),
            () = run.paused() => End::RUN_PAUSED,
            () = out.closed() => End::DISCONNECTED,
            () = self.stop.cancelled() => End::STOPPING,
            () = self.watch(&run, &transfer) => End::NOT_ALLOWED,
        };
        let (bytes_in, bytes_out) = transfer.counts();
        if self.audit.record(chapter.receipt(&end, bytes_in, bytes_out)).await.is_err() {
            tracing::error!(connection = %chapter.connection, "the end of a connection waits for the audit log");
        }
        drop(slot);
        let goodbye = async {
            for last in end.last(bytes_in, bytes_out) {
                let _ = out.send(last).await;
            }
        };
        let _ = timeout(GOODBYE, goodbye).await;
    }

    /// Returns the end of a connection that its two sides have ended: that of the run, if the run ends as well.
    async fn settled(&self, run: &Run, out: &mpsc::Sender<Response>, end: End) -> End {
        let Some(patience) = end.patience() else { return end };
        let ends_with_run = tokio::select! {
            ends = run.ends_within(patience) => ends,
            () = out.closed() => false,
            () = self.stop.cancelled() => false,
        };
        if ends_with_run { self.with_run(run) } else { end }
    }

    /// Returns the end of a connection whose run has ended. A daemon that stops ends runs, or leaves them to the next one.
    fn with_run(&self, run: &Run) -> End {
        let record = run.record();
        let is_of_stop = self.stop.is_cancelled() && record.fault().is_none();
        if is_of_stop { End::STOPPING } else { End::WithRun(over(&record)) }
    }

    /// Checks and records a connection, and connects to the server. Only this part of a connection can be refused.
    async fn begin(&self, principal: &Principal, start: Start) -> Result<Begun, Refusal> {
        self.audit.check()?;
        self.runs.check_use(start.run, principal).inspect_err(|_| {
            // A run's token names its run, so this is no mistake of an id.
            if principal.run.is_some() {
                self.escalations.report(principal, Some(start.run), Attempt::OtherRun, "ForwardPort");
            }
        })?;
        let run = self.runs.living_run(start.run)?;
        let policy = self.policy.policy();
        allowed(&policy, &run).inspect_err(|_| {
            self.escalations.report(principal, Some(start.run), Attempt::Forward, &start.port.to_string());
        })?;
        let network = run.network().await?;
        let slot = self.slots.enter(start.run)?;
        let chapter = Chapter::new(start, principal, &run);
        if let Err(unavailable) = self.audit.record(chapter.intent(&policy)).await {
            // The log writes the intent when it can write again. This end then follows it.
            let _ = self.audit.enqueue(chapter.receipt(&End::Refused(unavailable.into()), 0, 0)).await;
            return Err(unavailable.into());
        }
        match self.dial(&run, network, start.port).await {
            Ok(server) => Ok(Begun { run, server, chapter, slot }),
            Err(refusal) => {
                let receipt = chapter.receipt(&End::Refused(refusal.clone()), 0, 0);
                if self.audit.record(receipt).await.is_err() {
                    tracing::error!(connection = %chapter.connection, "the end of a connection waits for the audit log");
                }
                Err(refusal)
            }
        }
    }

    /// Connects to the server, unless the run or the daemon ends first.
    async fn dial(&self, run: &Run, network: OwnedFd, port: u16) -> Result<TcpStream, Refusal> {
        tokio::select! {
            // A daemon that stops gives up its runs, which is no end of them.
            biased;
            () = self.stop.cancelled() => Err(Refusal::new(Reason::DaemonStopping, "the daemon is stopping")),
            () = run.ended.cancelled() => Err(over(&run.record()).retry_safe(true)),
            server = dial::dial(network, port) => server,
        }
    }

    /// Keeps the run from being idle while bytes pass. Returns when the policy no longer allows the connection.
    async fn watch(&self, run: &Arc<Run>, transfer: &Transfer) {
        let mut before = transfer.counts();
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if allowed(&self.policy.policy(), run).is_err() {
                return;
            }
            let now = transfer.counts();
            if now != before {
                before = now;
                drop(run.busy());
            }
        }
    }
}

/// A connection to a server that is on record.
struct Begun {
    run: Arc<Run>,
    server: TcpStream,
    chapter: Chapter,
    slot: Slot,
}

/// Checks that the policy lets clients connect to servers in the run.
fn allowed(policy: &Policy, run: &Run) -> Result<(), Refusal> {
    let name = &run.spec().profile;
    let refused = |message: String, rule: String| {
        Err(Refusal::new(Reason::PermissionDenied, message).with("rule", rule))
    };
    match policy.profile(name) {
        Some(profile) if profile.forward == Forward::Allow => Ok(()),
        Some(_) => refused(
            format!(
                "the profile `{name}` of the run does not forward ports: an operator can set `forward: allow` in it"
            ),
            record::rule(name),
        ),
        None => refused("the policy no longer has the profile of this run".to_owned(), "profile".to_owned()),
    }
}
