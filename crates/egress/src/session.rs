//! The life of one process: answers its questions until it is lost or the run ends.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use egress_rules::{Decision, Verdict};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::worker::v1::from_egress::Body as From;
use wire::worker::v1::to_egress::Body as To;
use wire::worker::v1::{
    AddressLookedUp, AwaitReview, ConnectionEnded, ConnectionOpened, ConnectionReady, FromEgress,
    NameResolved, ToEgress,
};
use worker_protocol::frame::FrameBuffer;

use crate::broken::Broken;
use crate::cause::{cause_name, refusal};
use crate::decide::State;
use crate::events;
use crate::handles::Handles;
use crate::live::{Begun, Live, Opener, Step, cut};
use crate::messages::{address, end, inspect_to_refuse, message, octets, speaks_http, words};
use crate::outgoing::{Outgoing, write};
use crate::streams::Expected;
use crate::waiting::Question;

/// Messages that wait to be written.
const WAITING: usize = 256;
/// Questions about requests that are not answered yet. Each of them is a task.
const QUESTIONS: usize = 1_024;
/// Messages of a run that are handled in a second. The program waits for the others.
const PER_SECOND: u32 = 2_000;
const SECOND: Duration = Duration::from_secs(1);

/// The conversation with one process.
pub(crate) struct Session {
    pub(crate) state: Arc<State>,
    pub(crate) out: mpsc::Sender<Outgoing>,
    pub(crate) live: Mutex<HashMap<u64, Live>>,
    pub(crate) tasks: TaskTracker,
    /// Places for questions about requests. A question keeps its place until its answer waits to be written.
    pub(crate) questions: Arc<Semaphore>,
    pub(crate) most: usize,
    /// True if the process has the authorities that servers have to be signed by.
    pub(crate) has_roots: AtomicBool,
    pub(crate) handles: Handles,
    /// True if bytes have moved since the bound of the tenant was checked.
    pub(crate) has_moved: AtomicBool,
    /// Connections of calls that the process has not begun, by their handles.
    pub(crate) expected: Mutex<HashMap<u64, Expected>>,
}

/// A process that has greeted.
pub(crate) struct Greeted {
    pub(crate) channel: UnixStream,
    pub(crate) buffer: FrameBuffer,
    /// Connections that it may have.
    pub(crate) most: u32,
    /// True if it has the authorities that servers have to be signed by.
    pub(crate) has_roots: bool,
    pub(crate) handles: Handles,
}

impl Session {
    /// Talks to the process until it is lost, or until all is over.
    pub(crate) async fn run(state: &Arc<State>, greeted: Greeted, stop: &CancellationToken) -> Broken {
        let Greeted { channel, mut buffer, most, has_roots, handles } = greeted;
        let (mut input, output) = channel.into_split();
        let (out, messages) = mpsc::channel(WAITING);
        let session = Arc::new(Self {
            state: Arc::clone(state),
            out,
            live: Mutex::default(),
            tasks: TaskTracker::new(),
            questions: Arc::new(Semaphore::new(QUESTIONS)),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            has_roots: AtomicBool::new(has_roots),
            handles,
            has_moved: AtomicBool::new(false),
            expected: Mutex::default(),
        });
        let wishes = state.streams.offer();
        let mut talking = pin!(async {
            tokio::select! {
                why = session.read(&mut input, &mut buffer) => why,
                why = write(output, messages) => why,
            }
        });
        let why = tokio::select! {
            why = &mut talking => why,
            why = session.watch() => why,
            never = session.give_streams(wishes) => match never {},
            () = stop.cancelled() => {
                let last = session.end_all();
                tokio::select! {
                    why = talking => why,
                    _ = timeout(SECOND, last) => Broken::new("the run has ended"),
                }
            }
        };
        session.tasks.close();
        for (_, live) in session.live.lock().drain() {
            let live = state.count_unreported(live);
            if matches!(live.step, Step::Out) {
                state.record(events::lost(&state.run, &live));
            }
            state.view.show(live.shown(Some(("process_lost", None))));
        }
        state.table.lock().store();
        why
    }

    /// Ends all connections, and waits until they have ended.
    async fn end_all(&self) {
        let all: Vec<u64> = self.live.lock().keys().copied().collect();
        let why = if self.state.view.is_of_companion() {
            "the companion has ended, or its run"
        } else {
            "the run has ended"
        };
        for id in all {
            self.end_for(id, why.to_owned()).await;
        }
        while !self.live.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn read(self: &Arc<Self>, input: &mut OwnedReadHalf, buffer: &mut FrameBuffer) -> Broken {
        match self.reading(input, buffer).await {
            Ok(never) => match never {},
            Err(why) => why,
        }
    }

    async fn reading(
        self: &Arc<Self>,
        input: &mut OwnedReadHalf,
        buffer: &mut FrameBuffer,
    ) -> Result<Infallible, Broken> {
        let (mut since, mut count) = (Instant::now(), 0);
        loop {
            while let Some(message) =
                buffer.pop::<FromEgress>().map_err(|error| Broken::new(error.to_string()))?
            {
                count += 1;
                if count > PER_SECOND {
                    tokio::time::sleep(SECOND.saturating_sub(since.elapsed())).await;
                }
                if since.elapsed() >= SECOND {
                    (since, count) = (Instant::now(), 0);
                }
                self.take(message).await?;
            }
            buffer.rest();
            match input.read_buf(buffer.read_buffer()).await {
                Ok(0) => return Err(Broken::new("it has ended")),
                Ok(_) => {}
                Err(error) => return Err(Broken::new(error.to_string())),
            }
        }
    }

    async fn take(self: &Arc<Self>, received: FromEgress) -> Result<(), Broken> {
        let id = received.id;
        match received.body.ok_or_else(|| Broken::sent("an empty message"))? {
            From::Ready(_) => return Err(Broken::sent("a second greeting")),
            From::Resolve(query) => {
                let address = self.state.resolve(&query.name).map(octets).unwrap_or_default();
                self.send(message(id, To::Resolved(NameResolved { address }))).await;
            }
            From::LookUp(query) => {
                let name = address(&query.address).and_then(|address| self.state.name_of(address));
                let name = name.map(|name| name.to_string()).unwrap_or_default();
                self.send(message(id, To::LookedUp(AddressLookedUp { name }))).await;
            }
            From::Opened(opened) => self.opened(id, &opened).await?,
            From::Connection(ready) => self.ready(id, ready).await?,
            From::Request(request) => {
                let (shown, consent) = {
                    let mut live = self.live.lock();
                    let live = live.get_mut(&id).ok_or_else(|| Broken::sent("a request of no connection"))?;
                    let is_answered = request.status > 0;
                    let consent = is_answered.then(|| live.consented.remove(&request.number)).flatten();
                    live.request(request);
                    (live.shown(None), consent)
                };
                self.state.view.show(shown);
                if let Some(approval) = consent {
                    self.state.consents.lock().used(&approval);
                }
            }
            From::Ended(ended) => self.ended(id, ended),
            From::Moved(report) => self.moved(&report)?,
            From::Asked(asked) => self.asked(id, asked).await?,
            From::Usage(usage) => self.used(id, usage)?,
            From::Placeholder(seen) => self.placeholder_seen(id, &seen)?,
        }
        Ok(())
    }

    async fn opened(self: &Arc<Self>, id: u64, opened: &ConnectionOpened) -> Result<(), Broken> {
        let broken = || Broken::sent("a connection that cannot be");
        let begun = self.begun(opened).ok_or_else(broken)?;
        let verdict = self.state.decide(&begun);
        let mut live = Live::new(begun, verdict.clone());
        let next = match (verdict.decision, live.inspect()) {
            (Decision::Deny, _) => Next::TurnAway,
            (Decision::Ask | Decision::Allow, Some(order)) => Next::Look(order),
            (Decision::Ask, None) => Next::Wait(live.begin_wait()),
            (Decision::Allow, None) => {
                live.step = Step::Out;
                Next::GoOut
            }
        };
        let shown = live.shown(None);
        {
            let mut all = self.live.lock();
            if all.len() >= self.most || all.insert(id, live).is_some() {
                return Err(broken());
            }
        }
        if !matches!(next, Next::TurnAway) {
            self.state.view.show(shown);
        }
        match next {
            Next::TurnAway => self.turn_away(id, &verdict).await,
            Next::Wait(waits) => {
                self.send(message(id, To::AwaitReview(AwaitReview {}))).await;
                self.wait(id, waits);
            }
            Next::Look(order) => self.send(message(id, order)).await,
            Next::GoOut => drop(self.tasks.spawn(Arc::clone(self).go_out(id))),
        }
        Ok(())
    }

    /// Returns the connection that the process has begun: one of a call, or one of a program.
    fn begun(&self, opened: &ConnectionOpened) -> Option<Begun> {
        if opened.handle > 0 {
            let Expected { destination, port, call, .. } = self.expected.lock().remove(&opened.handle)?;
            return Some(Begun { destination, port, calls: vec![call], by: Opener::HostLane });
        }
        let address = address(&opened.address).filter(|_| self.state.own.is_steered)?;
        let port = u16::try_from(opened.port).ok()?;
        let destination = self.state.destination(address);
        Some(Begun { destination, port, calls: self.state.control.calls(), by: Opener::Program })
    }

    /// Refuses a connection: over HTTP with a response, otherwise with a reset.
    pub(crate) async fn turn_away(&self, id: u64, verdict: &Verdict) {
        let order = {
            let mut all = self.live.lock();
            let Some(live) = all.get_mut(&id) else { return };
            let (host, port) = (live.host(), live.port);
            self.state.refuse(&host, port, &verdict.rule, &verdict.words);
            live.ended_for = Some(verdict.words.clone());
            if live.by == Opener::HostLane || speaks_http(&live.destination, port, verdict) {
                live.step = Step::Turned(words(&host, port, verdict));
                inspect_to_refuse(&live.destination)
            } else {
                live.step = Step::Refused;
                end("")
            }
        };
        self.send(message(id, order)).await;
    }

    async fn ready(self: &Arc<Self>, id: u64, ready: ConnectionReady) -> Result<(), Broken> {
        let looked = {
            let mut all = self.live.lock();
            let Some(live) = all.get_mut(&id) else { return Ok(()) };
            live.server_name = cut(ready.server_name);
            live.has_encrypted_hello = ready.encrypted_client_hello;
            if let Some(request) = ready.request {
                live.request(request);
            }
            match &live.step {
                Step::LookedAt if live.verdict.decision == Decision::Ask => {
                    let waits = live.begin_wait();
                    self.state.view.show(live.shown(None));
                    Looked::Waits(Box::new(waits))
                }
                Step::LookedAt => {
                    live.step = Step::Out;
                    Looked::GoesOut
                }
                Step::Turned(text) => Looked::Ends(text.clone()),
                Step::Refused => Looked::Ends(String::new()),
                Step::Out | Step::Waits { .. } => {
                    return Err(Broken::sent("a connection out of turn"));
                }
            }
        };
        match looked {
            Looked::GoesOut => drop(self.tasks.spawn(Arc::clone(self).go_out(id))),
            Looked::Waits(waits) => self.wait(id, *waits),
            Looked::Ends(text) => self.send(message(id, end(text))).await,
        }
        Ok(())
    }

    fn ended(&self, id: u64, mut ended: ConnectionEnded) {
        let Some(live) = self.live.lock().remove(&id) else { return };
        let state = &self.state;
        let mut live = state.count_unreported(live);
        let address = address(&ended.address);
        let why = refusal(ended.cause());
        let was_out = matches!(live.step, Step::Out);
        if was_out {
            self.moved_last(&mut live, &mut ended);
            state.record(events::receipt(&state.run, &live, &ended, address));
        } else {
            // Shown, and not counted: they left the run, and not the host.
            live.moved.raise(ended.bytes_out, ended.bytes_in);
        }
        if !was_out && live.ended_for.is_none() {
            // It never went out.
            let why = why.unwrap_or(if live.is_waiting() {
                "it was closed while it waited for a reviewer"
            } else {
                "it was closed before anything was sent"
            });
            state.refuse(&live.host(), live.port, &live.verdict.rule, why);
        }
        if was_out && let Some(why) = why {
            state.refuse(&live.host(), live.port, &live.verdict.rule, why);
        }
        state.view.show(live.shown(Some((cause_name(ended.cause()), address))));
    }

    /// Ends a connection, for this reason.
    pub(crate) async fn end_for(&self, number: u64, why: String) {
        let text = {
            let mut live = self.live.lock();
            let Some(live) = live.get_mut(&number) else { return };
            live.ended_for = Some(why.clone());
            if live.requests.is_empty() {
                String::new()
            } else {
                format!("Cofferdam ended the connection to {}:{}: {why}\n", live.host(), live.port)
            }
        };
        self.send(message(number, end(text))).await;
    }

    /// Sends a message. The process may be gone.
    pub(crate) async fn send(&self, message: ToEgress) {
        let _ = self.out.send(Outgoing(message)).await;
    }

    /// Ends connections that changed rules no longer allow, and puts refusals on record.
    ///
    /// Ends itself when the rules need a process that was started in another way.
    async fn watch(self: &Arc<Self>) -> Broken {
        let mut rules = self.state.control.rules();
        loop {
            tokio::time::sleep(SECOND).await;
            self.state.record_refusals(false);
            self.end_exceeded().await;
            let now = self.state.control.rules();
            if !Arc::ptr_eq(&rules, &now) {
                if self.state.needs_roots(&now) && !self.has_roots.load(Ordering::Relaxed) {
                    return Broken::new(
                        "the rules have changed, and it lacks the authorities that they need",
                    );
                }
                self.apply(&now).await;
                rules = now;
            }
        }
    }
}

/// The step that follows the decision about a connection.
enum Next {
    Look(To),
    Wait((Question, CancellationToken)),
    GoOut,
    TurnAway,
}

/// The step that follows the look at a connection.
enum Looked {
    GoesOut,
    Waits(Box<(Question, CancellationToken)>),
    Ends(String),
}
