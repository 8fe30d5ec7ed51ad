//! A live terminal in a browser: the output is the answer to the form that opens it, and the input comes as forms.
//!
//! A terminal ends with its page, its console session, its run or the daemon. `TerminalService` requires the role, records the whole
//! session, and bounds it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State as Extracted};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::stream;
use timestamp::UnixMillis;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::codegen::http::StatusCode;
use tonic::codegen::http::header::{CONTENT_TYPE, HeaderName};
use tonic::{Status, Streaming};
use wire::v1::open_terminal_request::Event as Typed;
use wire::v1::open_terminal_response::Event as Shown;
use wire::v1::{OpenTerminalRequest, OpenTerminalResponse, TerminalSize, TerminalStart};

use super::super::request::{id, is_operator};
use super::super::vendored::has_xterm;
use super::table::{Entry, Table};
use super::{TITLE, show};
use crate::State;
use crate::error::Problem;
use crate::form::{Checked, Fields};
use crate::layout::{csrf, page};
use crate::nonce::StyleNonce;
use crate::session::{Session, StreamSlot};
use crate::viewer::Viewer;

/// Messages that may wait for the daemon.
const AHEAD: usize = 16;
/// Bytes of input in one message, which is the daemon's bound.
const PIECE: usize = 16 * 1024;
/// Time that input may wait.
const INPUT: Duration = Duration::from_secs(10);
/// Time between two checks of the session.
const ALIVE: Duration = Duration::from_secs(15);
/// Header with the secret of a terminal.
const KEY: HeaderName = HeaderName::from_static("cofferdam-terminal");

pub(super) fn routes() -> Router<State> {
    Router::new()
        .route("/runs/{run}/terminal", get(shown).post(open))
        .route("/terminals/{key}", post(input))
        .layer(Extension(Table::default()))
}

async fn shown(viewer: Viewer, Path(run): Path<String>) -> Result<Response, Problem> {
    let run = id(run)?;
    let nonce = StyleNonce::new();
    let may = if !is_operator(&viewer) {
        Err("Terminals are for operators.")
    } else if !has_xterm() {
        Err("This build has no terminal, because xterm.js was not fetched before it. Use `coffer run shell`.")
    } else {
        Ok((csrf(&viewer), nonce.as_str()))
    };
    let mut answer = page(TITLE, Some(&viewer), show::terminal(&run, &may));
    answer.extensions_mut().insert(nonce);
    Ok(answer)
}

/// Opens a terminal. Its output is the body of the answer.
async fn open(
    Extracted(state): Extracted<State>,
    Extension(table): Extension<Table>,
    Path(run): Path<String>,
    Checked { viewer, fields }: Checked,
) -> Result<Response, Problem> {
    let start = TerminalStart {
        run_id: id(run)?,
        size: size(&fields),
        paused: !fields.get("paused").is_empty(),
        ..Default::default()
    };
    let slot = viewer.session.stream().ok_or(Problem::Bad(
        StatusCode::TOO_MANY_REQUESTS,
        "This session has too many open pages and terminals: close one.",
    ))?;
    let (input, requests) = mpsc::channel(AHEAD);
    let _ = input.try_send(OpenTerminalRequest { event: Some(Typed::Start(start)) });
    let requests = stream::unfold(requests, async |mut requests: mpsc::Receiver<OpenTerminalRequest>| {
        requests.recv().await.map(|request| (request, requests))
    });
    let mut output = viewer.services.terminals().open_terminal(requests).await?.into_inner();
    match output.message().await?.and_then(|first| first.event) {
        Some(Shown::Opened(_)) => {}
        _ => return Err(Status::internal("the terminal did not open").into()),
    }
    let entry = table.add(viewer.session.clone(), input);
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (KEY, entry.key().to_owned())];
    let live = Live {
        output: Some(output),
        alive: Instant::now() + ALIVE,
        session_ended: Box::pin(viewer.session.ended.clone().cancelled_owned()),
        stopped: Box::pin(state.0.stop.clone().cancelled_owned()),
        session: viewer.session.clone(),
        state,
        _entry: entry,
        _slot: slot,
    };
    Ok((headers, Body::from_stream(stream::unfold(live, Live::next))).into_response())
}

/// Takes input, or a new size.
async fn input(
    Extension(table): Extension<Table>,
    Path(key): Path<String>,
    Checked { viewer, fields }: Checked,
) -> Result<Response, Problem> {
    let ended = Problem::Bad(StatusCode::NOT_FOUND, "The terminal has ended.");
    let Some(input) = table.input(&key, &viewer.session) else { return Err(ended) };
    let typed = fields.get("input").as_bytes().chunks(PIECE).map(|piece| Typed::Input(piece.to_vec()));
    for event in size(&fields).map(Typed::Resize).into_iter().chain(typed) {
        match timeout(INPUT, input.send(OpenTerminalRequest { event: Some(event) })).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(ended),
            Err(_) => {
                return Err(Problem::Bad(StatusCode::SERVICE_UNAVAILABLE, "The terminal takes no input."));
            }
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the size that a form names. The daemon checks it.
fn size(fields: &Fields) -> Option<TerminalSize> {
    let number = |name| fields.get(name).parse().ok();
    Some(TerminalSize { rows: number("rows")?, columns: number("columns")? })
}

type End = Pin<Box<WaitForCancellationFutureOwned>>;

/// Output of a terminal that a browser shows.
struct Live {
    /// None after the last message.
    output: Option<Streaming<OpenTerminalResponse>>,
    /// Moment of the next check of the session.
    alive: Instant,
    session_ended: End,
    stopped: End,
    session: Arc<Session>,
    state: State,
    _entry: Entry,
    _slot: StreamSlot,
}

impl Live {
    /// Waits for the next output. Returns none at the end.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            let output = self.output.as_mut()?;
            let message = tokio::select! {
                message = output.message() => message,
                () = &mut self.session_ended => return None,
                () = &mut self.stopped => return None,
                () = sleep_until(self.alive) => {
                    if !self.state.0.doors.sessions.holds(&self.session, UnixMillis::now()) {
                        return None;
                    }
                    self.alive = Instant::now() + ALIVE;
                    continue;
                }
            };
            let last = match message {
                Ok(Some(OpenTerminalResponse { event: Some(Shown::Output(bytes)) })) => {
                    return Some((Ok(bytes.into()), self));
                }
                Ok(Some(OpenTerminalResponse { event: Some(Shown::Closed(closed)) })) => {
                    show::goodbye(&closed)
                }
                Ok(Some(_)) => continue,
                Ok(None) => return None,
                Err(status) => show::lost(status.message()),
            };
            self.output = None;
            return Some((Ok(last.into()), self));
        }
    }
}
