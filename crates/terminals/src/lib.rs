#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod input_queue;
mod leftovers;
mod pause;
mod playback;
mod record;
mod session;
mod slots;
mod start;

use std::sync::Arc;
use std::time::Duration;

use audit_service::AuditLog;
use executor::{Metered, Opening, failure};
use futures_util::{Stream, StreamExt as _};
use gateway::{Gateway, SessionPermit, SessionRequest};
use identity::{Principal, Role, SessionId};
use operations::Reason;
use refusal::{Refusal, chain, stream_start};
use runs::{Busy, Run, Runs};
use store::recording::{Header, Recorder, Recording, RecordingError, Size};
use timestamp::UnixMillis;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use wire::v1::{self, open_terminal_response::Event as Shown};
use worker_protocol::client::{Finished, LaneError, TerminalSize};
use worker_protocol::convert::Reply;

use pause::Pause;
use record::Chapter;
use session::{Cause, End, GOODBYE, Response, Session, Sink};
use slots::SessionSlot;
use start::Start;

pub use leftovers::{interrupted, remove_leftovers, session_of};
pub use playback::Readings;
pub use slots::{Limits, Sessions};

/// Time that a client has to send its first message.
const FIRST: Duration = Duration::from_secs(10);
/// Number of messages that may wait for the operator's client.
const SCREEN: usize = 4;
/// Time after the longest length of a session, after which the worker ends it by itself.
const SLACK: Duration = Duration::from_secs(10);

/// Parts of the daemon that connect operators to runs.
/// Opens a session. The receiver gets its output and its end.
pub struct Terminals {
    pub sessions: Sessions,
    pub readings: Readings,
    pub gateway: Arc<Gateway>,
    pub runs: Arc<Runs>,
    pub audit: Arc<AuditLog>,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl Terminals {
    pub async fn open<R>(
        self: &Arc<Self>,
        principal: Arc<Principal>,
        mut requests: R,
    ) -> Result<mpsc::Receiver<Response>, Refusal>
    where
        R: Stream<Item = Result<v1::OpenTerminalRequest, Status>> + Send + Unpin + 'static,
    {
        let first = tokio::select! {
            first = timeout(FIRST, requests.next()) => first,
            () = self.stop.cancelled() => return Err(stopping()),
        };
        let start = Start::parse(stream_start(first, FIRST)?)?;
        if self.stop.is_cancelled() {
            return Err(stopping());
        }
        let (answer, answered) = oneshot::channel();
        self.tasks.spawn(run_session(self.clone(), principal, start, requests, answer));
        answered.await.map_err(|broken| Refusal::internal("opening the session", &broken))?
    }
}

fn stopping() -> Refusal {
    Refusal::new(
        Reason::DaemonStopping,
        "the daemon is stopping and opens no further sessions; try again after its start",
    )
}

/// Runs a session from its beginning to its end.
async fn run_session<R>(
    terminals: Arc<Terminals>,
    principal: Arc<Principal>,
    start: Start,
    requests: R,
    answer: oneshot::Sender<Result<mpsc::Receiver<Response>, Refusal>>,
) where
    R: Stream<Item = Result<v1::OpenTerminalRequest, Status>> + Send + Unpin + 'static,
{
    let begun = match begin(&terminals, &principal, &start).await {
        Ok(begun) => begun,
        // The refusal is dropped if the client has gone.
        Err(refusal) => return drop(answer.send(Err(refusal))),
    };
    // The slot and the run's busy mark are kept until everything in the session has ended.
    let Begun { run, permit, pause, recording, mut chapter, slot: _slot, busy: _busy } = begun;
    let (screen, shown) = mpsc::channel(SCREEN);
    let opened = v1::TerminalOpened { session_id: chapter.session.to_string(), paused: pause.is_some() };
    let _ = screen.try_send(Ok(v1::OpenTerminalResponse { event: Some(Shown::Opened(opened)) }));
    let _ = answer.send(Ok(shown));

    let mut session = Session {
        requests,
        screen,
        recorder: Recorder::new(recording),
        run_ended: run.ended.clone(),
        cancel: CancellationToken::new(),
        limits: terminals.sessions.limits.clone(),
        typed: 0,
        shown: 0,
    };
    let end = attend(&mut session, &run, permit, &start).await;
    if let Ok(Finished { outcome: Ok(Reply::Command(report)), .. }) = &end.finished
        && report.kill.left > 0
    {
        // As with any command: nothing may run on unseen.
        run.fail_for_processes(report.kill.left, "of a session").await;
    }
    if let Some(pause) = pause {
        chapter.paused_until = Some(pause.end().await);
    }
    // The stream of requests stays open until the last message is sent.
    let Session { recorder, screen, typed, shown, requests: _requests, .. } = session;
    match recorder.finish().await {
        Ok(digest) => chapter.recording = Some(digest),
        Err(error) => tracing::error!(error = %chain(&error), "a session's recording is incomplete"),
    }
    let closing = record::Closing::of(end, run.ended.is_cancelled(), typed, shown);
    if terminals.audit.record(chapter.closed(&closing)).await.is_err() {
        tracing::error!(session = %chapter.session, "a session's end waits for the audit log");
    }
    let _ = timeout(GOODBYE, screen.send(closing.message())).await;
}

/// A session that may begin, and that is recorded.
struct Begun {
    run: Arc<Run>,
    permit: SessionPermit,
    /// Pause of the run, if it is paused for the session, until everything in the session has ended.
    pause: Option<Pause>,
    recording: Recording,
    chapter: Chapter,
    slot: SessionSlot,
    busy: Busy,
}

/// Checks, permits and records a session. Only this part of a session can be refused.
async fn begin(terminals: &Terminals, principal: &Principal, start: &Start) -> Result<Begun, Refusal> {
    terminals.audit.check()?;
    terminals.runs.check_use(start.run, principal)?;
    let run = terminals.runs.living_run(start.run)?;
    // An idle run must not end between this moment and the opening of its terminal.
    let busy = run.busy();
    let does_not_wait = |refused: Refusal| match refused.reason {
        Reason::AwaitingApproval => {
            terminals.gateway.awaiting(&run.awaited_approvals(), "a terminal does not wait for that")
        }
        _ => refused,
    };
    run.lanes_resumed().await.map_err(does_not_wait)?;
    let slot = terminals.sessions.enter(start.run)?;
    let session = SessionId::new();
    let request = SessionRequest {
        session_id: session.to_string(),
        run_id: start.run.to_string(),
        principal: principal.name.clone(),
        is_operator: principal.roles.has(Role::Operator),
        command: start.command.clone(),
    };
    let scope = run.scope();
    let permit = terminals.gateway.admit_session(&scope, request)?;
    let pause = if start.paused {
        Some(Pause::begin(terminals, start.run, session, principal).await.map_err(does_not_wait)?)
    } else {
        None
    };
    let recording = record_at(terminals, &run, start, session).await?;
    let mut chapter = Chapter::new(start.run, session, &principal.name, &scope.image_id);
    if let Some(pause) = &pause {
        chapter = chapter.paused(pause.since);
    }
    if let Err(unavailable) = terminals.audit.record(chapter.opened(start, permit.decision())).await {
        if let Some(pause) = pause {
            chapter.paused_until = Some(pause.end().await);
        }
        let _ = tokio::task::spawn_blocking(move || recording.discard()).await;
        // The log writes the opening when it can write again. This end then follows it.
        let _ = terminals.audit.enqueue(chapter.closed(&record::Closing::refused(unavailable.into()))).await;
        return Err(unavailable.into());
    }
    Ok(Begun { run, permit, pause, recording, chapter, slot, busy })
}

/// Begins the recording of a session.
async fn record_at(
    terminals: &Terminals,
    of: &Run,
    start: &Start,
    session: SessionId,
) -> Result<Recording, Refusal> {
    let run = start.run.to_string();
    let allowance = of.allowance.clone();
    let path = leftovers::path(&terminals.runs.launcher.directories, &run, session);
    let (size, term) = (start.size, start.term.clone());
    let limit = terminals.sessions.limits.max_recording;
    let begun = tokio::task::spawn_blocking(move || {
        let timestamp = UnixMillis::now().seconds();
        let title = format!("session {session} in run {run}");
        let header = Header { size: recorded(size), term: &term, timestamp, title: &title };
        Recording::begin(&path, &header, limit, &allowance)
    });
    let begun = begun.await.map_err(|error| Refusal::internal("beginning the recording", &error))?;
    begun.map_err(|error| match error {
        RecordingError::NoRoom => of.no_room(
            "no terminal can be opened, because its recording would have no space: end a process to free \
             space; recordings are kept until the run is deleted",
        ),
        error => Refusal::internal("beginning the recording", &chain(&error)),
    })
}

/// Opens the terminal and serves it until it is gone.
async fn attend<R>(session: &mut Session<R>, run: &Run, permit: SessionPermit, start: &Start) -> End
where
    R: Stream<Item = Result<v1::OpenTerminalRequest, Status>> + Send + Unpin + 'static,
{
    let (sink, output) = Sink::pair();
    let limit = session.limits.max_length + SLACK;
    let opening = Opening { size: start.size, limit, paused: start.paused };
    // A run that is paused for this terminal takes no call.
    let lanes = if start.paused { run.lanes_for_review() } else { run.lanes_resumed().await };
    let opened = match lanes {
        Ok(lanes) => {
            let terminal = lanes.terminal(permit, opening, &sink, &session.cancel).await;
            terminal.map_err(|error| failure(&error).into())
        }
        Err(refusal) => Err(refusal),
    };
    drop(sink);
    match opened {
        Ok((terminal, meter)) => {
            let (cause, finished) = session.attend(terminal, output).await;
            End { cause, finished, metered: meter.metered() }
        }
        Err(refusal) => {
            let cause = Some(Cause::Refused(refusal));
            End { cause, finished: Err(LaneError::Cancelled), metered: Metered::default() }
        }
    }
}

/// Returns the size in the form of a recording.
fn recorded(size: TerminalSize) -> Size {
    Size { rows: size.rows(), columns: size.columns() }
}
