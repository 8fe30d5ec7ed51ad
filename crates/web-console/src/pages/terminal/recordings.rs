//! Recordings of terminals: a list from the audit log, and each played or shown as text.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::stream;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::StatusCode;
use tonic::codegen::http::header::CONTENT_TYPE;
use tonic::{Status, Streaming};
use wire::v1::query_events_request::Order;
use wire::v1::read_recording_response::Event;
use wire::v1::{EventFilter, QueryEventsRequest, ReadRecordingRequest, ReadRecordingResponse};

use super::super::elements::Part;
use super::super::request::{Query, id, part_of};
use super::super::vendored::has_xterm;
use super::{TITLE, show};
use crate::State;
use crate::api::quick;
use crate::error::Problem;
use crate::layout::page;
use crate::nonce::StyleNonce;
use crate::session::StreamSlot;
use crate::viewer::Viewer;

/// Records of sessions that are read: the newest.
const RECORDS: u32 = 200;
/// Bytes of a recording that are shown as text.
const TEXT: usize = 128 * 1024;

pub(super) fn routes() -> Router<State> {
    Router::new()
        .route("/runs/{run}/recordings", get(listed))
        .route("/runs/{run}/recordings/{session}", get(shown))
        .route("/runs/{run}/recordings/{session}/events", get(events))
}

async fn listed(viewer: Viewer, Path(run): Path<String>) -> Result<Response, Problem> {
    let run_id = id(run)?;
    let kinds = ["session_opened", "session_closed"].map(str::to_owned).into();
    let request = QueryEventsRequest {
        filter: Some(EventFilter { run_id: run_id.clone(), kinds, ..Default::default() }),
        order: Order::NewestFirst.into(),
        page_size: RECORDS,
        ..Default::default()
    };
    let answer = part_of(viewer.services.audit().query_events(quick(request)).await);
    let found = answer.map(|answer| answer.events);
    Ok(page(TITLE, Some(&viewer), show::recordings(&run_id, &found)))
}

/// Shows a recording. As text, it is read for the page; otherwise the page's script reads it.
async fn shown(
    viewer: Viewer,
    Path((run, session)): Path<(String, String)>,
    Query(query): Query,
) -> Result<Response, Problem> {
    let (run, session) = (id(run)?, id(session)?);
    let nonce = StyleNonce::new();
    let main = if has_xterm() && query.get("as") != "text" {
        show::player(&run, &session, nonce.as_str())
    } else {
        show::as_text(&run, &session, &text(&viewer, &run, &session).await, has_xterm())
    };
    let mut answer = page(TITLE, Some(&viewer), main);
    answer.extensions_mut().insert(nonce);
    Ok(answer)
}

async fn read(viewer: &Viewer, run: &str, session: &str) -> Result<Streaming<ReadRecordingResponse>, Status> {
    let request = ReadRecordingRequest { run_id: run.to_owned(), session_id: session.to_owned() };
    Ok(viewer.services.terminals().read_recording(request).await?.into_inner())
}

/// Returns the beginning of the text of a recording, and true if it has more.
async fn text(viewer: &Viewer, run: &str, session: &str) -> Part<(String, bool)> {
    let failed = |status: Status| status.message().to_owned();
    let mut recording = read(viewer, run, session).await.map_err(failed)?;
    let mut text = String::new();
    while let Some(played) = recording.message().await.map_err(failed)? {
        if let Some(Event::Output(output)) = played.event {
            text.push_str(&output);
        }
        if text.len() > TEXT {
            text.truncate(text::floor(&text, TEXT));
            return Ok((text, true));
        }
    }
    Ok((text, false))
}

/// Sends the events of a recording as lines of JSON: microseconds, the kind, and the text or the size.
async fn events(viewer: Viewer, Path((run, session)): Path<(String, String)>) -> Result<Response, Problem> {
    let slot = viewer.session.stream().ok_or(Problem::Bad(
        StatusCode::TOO_MANY_REQUESTS,
        "This session has too many open pages: close one.",
    ))?;
    let recording = read(&viewer, &id(run)?, &id(session)?).await?;
    let lines = stream::unfold(Some((recording, slot, viewer.session.ended.clone())), next);
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Recording that is being sent, and the end of its session.
type Reading = (Streaming<ReadRecordingResponse>, StreamSlot, CancellationToken);

/// Returns the next line. An error breaks the response, so that the page does not take a part for the whole.
async fn next(reading: Option<Reading>) -> Option<(Result<String, Status>, Option<Reading>)> {
    let (mut recording, slot, ended) = reading?;
    let played = tokio::select! {
        played = recording.message() => played,
        () = ended.cancelled() => Err(Status::unauthenticated("the session of the console has ended")),
    };
    match played {
        Ok(Some(played)) => Some((Ok(line(played)), Some((recording, slot, ended)))),
        Ok(None) => None,
        Err(status) => Some((Err(status), None)),
    }
}

fn line(ReadRecordingResponse { at_us, event }: ReadRecordingResponse) -> String {
    let event = match event {
        Some(Event::Size(size)) => json!([at_us, "size", size.columns, size.rows]),
        Some(Event::Output(text)) => json!([at_us, "output", text]),
        Some(Event::Signal(number)) => json!([at_us, "signal", number]),
        None => json!([at_us, "other"]),
    };
    format!("{event}\n")
}

#[cfg(test)]
mod tests {
    use wire::v1::TerminalSize;

    use super::*;

    #[test]
    fn events_are_lines_of_json() {
        let of = |event| line(ReadRecordingResponse { at_us: 7, event: Some(event) });
        assert_eq!(of(Event::Size(TerminalSize { rows: 24, columns: 80 })), "[7,\"size\",80,24]\n");
        assert_eq!(of(Event::Output("a\n\u{1b}".to_owned())), "[7,\"output\",\"a\\n\\u001b\"]\n");
        assert_eq!(of(Event::Signal(2)), "[7,\"signal\",2]\n");
    }
}
