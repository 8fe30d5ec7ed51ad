//! Looks at the files of a run, and downloads them.
//!
//! Each look is a call of the run. It is made only if the policy allows it without consent, so that no reviewer is asked and no run is
//! frozen because a person looks at a file.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tonic::codegen::http::StatusCode;
use tonic::codegen::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use tonic::{Status, Streaming};
use wire::v1::call_response::Status as Ended;
use wire::v1::download_file_response::Piece;
use wire::v1::operation::Kind as Operation;
use wire::v1::result::Kind as Found;
use wire::v1::{
    CallRequest, CancelCallRequest, DownloadFileRequest, DownloadFileResponse, ExplainPolicyRequest,
    ListRequest, ReadRequest, Verdict,
};

use super::super::elements::Part;
use super::super::request::{Query, id, part_of};
use super::TITLE;
use super::files::{self, Seen};
use crate::State;
use crate::api::quick;
use crate::error::Problem;
use crate::layout::page;
use crate::session::StreamSlot;
use crate::viewer::Viewer;

pub(super) fn routes() -> Router<State> {
    Router::new().route("/runs/{run}/files", get(looked)).route("/runs/{run}/download", get(download))
}

async fn looked(viewer: Viewer, Path(run): Path<String>, Query(query): Query) -> Result<Response, Problem> {
    let run_id = id(run)?;
    let path = query.get("path");
    let line = query.get("line").parse().unwrap_or(1).clamp(1, u64::MAX - files::LINES);
    let is_text = query.get("kind") == "text";
    let seen = look(&viewer, &run_id, path, is_text.then_some(line)).await;
    let seen = seen.unwrap_or_else(Seen::Refused);
    Ok(page(TITLE, Some(&viewer), files::render(&run_id, path, &seen)))
}

/// Lists a directory, or reads a text from a line on. A path that is no directory is read.
async fn look(viewer: &Viewer, run: &str, path: &str, line: Option<u64>) -> Part<Seen> {
    if let Some(line) = line {
        return read(viewer, run, path, line).await;
    }
    let list = ListRequest {
        path: path.to_owned(),
        include_hidden: true,
        include_symlinks: true,
        max_entries: Some(files::ENTRIES),
        ..Default::default()
    };
    match call(viewer, run, Operation::List(list)).await? {
        Ok(Found::List(list)) => Ok(Seen::Directory(list)),
        Err(failure) if failure.is_wrong_kind && !path.is_empty() => read(viewer, run, path, 1).await,
        Err(failure) => Err(failure.message),
        Ok(_) => Err("The daemon answered with another operation.".to_owned()),
    }
}

async fn read(viewer: &Viewer, run: &str, path: &str, line: u64) -> Part<Seen> {
    let read = ReadRequest {
        path: path.to_owned(),
        start_line: Some(line),
        end_line: Some(line + files::LINES - 1),
        ..Default::default()
    };
    match call(viewer, run, Operation::Read(read)).await? {
        Ok(Found::Read(read)) => Ok(Seen::Text(read)),
        Err(failure) => Err(failure.message),
        Ok(_) => Err("The daemon answered with another operation.".to_owned()),
    }
}

/// Failure of a call that was made.
struct Failure {
    message: String,
    /// The path may be of another kind than the operation needs.
    is_wrong_kind: bool,
}

/// Makes a call that needs no consent.
async fn call(viewer: &Viewer, run: &str, operation: Operation) -> Part<Result<Found, Failure>> {
    let request = CallRequest {
        run_id: run.to_owned(),
        cancel_on_disconnect: true,
        refuse_awaiting_approval: true,
        request: Some(operation.into()),
        ..Default::default()
    };
    check(viewer, request.clone()).await?;
    let mut tools = viewer.services.tools();
    let answer = part_of(tools.call(quick(request)).await)?;
    // Another policy came into force meanwhile, or an alert asks for consent.
    if answer.status() == Ended::PendingApproval {
        let cancelled = CancelCallRequest { call_id: answer.call_id };
        part_of(tools.cancel_call(quick(cancelled)).await)?;
        return Err("It needs the consent of a reviewer.".to_owned());
    }
    let error = answer.error.clone().unwrap_or_default();
    Ok(answer.into_kind().ok_or_else(|| Failure {
        is_wrong_kind: error.reason == "INVALID_ARGUMENT",
        message: if error.message.is_empty() { error.reason } else { error.message },
    }))
}

/// Fails unless the policy in force allows the call without consent.
async fn check(viewer: &Viewer, call: CallRequest) -> Part<()> {
    let request = ExplainPolicyRequest { call: Some(call) };
    let explained = part_of(viewer.services.policy().explain_policy(quick(request)).await)?;
    match explained.verdict() {
        Verdict::Allow => Ok(()),
        Verdict::Ask => Err(format!("It needs the consent of a reviewer: {}", explained.justification)),
        Verdict::Deny | Verdict::Unspecified => Err(explained.justification),
    }
}

async fn download(viewer: Viewer, Path(run): Path<String>, Query(query): Query) -> Result<Response, Problem> {
    let run_id = id(run)?;
    let path = query.get("path").to_owned();
    let slot = viewer.session.stream().ok_or(Problem::Bad(
        StatusCode::TOO_MANY_REQUESTS,
        "This session has too many open pages and downloads: close one.",
    ))?;
    let read = Operation::Read(ReadRequest { path: path.clone(), ..Default::default() });
    let call = CallRequest { run_id: run_id.clone(), request: Some(read.into()), ..Default::default() };
    if let Err(reason) = check(&viewer, call).await {
        return Err(Status::failed_precondition(reason).into());
    }
    let name = files::disposition(&path);
    let request = DownloadFileRequest { run_id, path, ..Default::default() };
    let mut pieces = viewer.services.files().download_file(request).await?.into_inner();
    let Some(DownloadFileResponse { piece: Some(Piece::Begin(begin)) }) = pieces.message().await? else {
        return Err(Status::internal("the daemon sent no beginning of the file").into());
    };
    let ended = viewer.session.ended.clone();
    let body = stream::unfold(Some((pieces, slot)), next).take_until(ended.cancelled_owned());
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_DISPOSITION, name),
        // A download that ends early is shorter than that, which the browser reports.
        (CONTENT_LENGTH, begin.size_bytes.to_string()),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

/// Download that goes on.
type Download = (Streaming<DownloadFileResponse>, StreamSlot);

/// Returns the next bytes of a file. An error ends the response before its length, so that no file looks complete that is not.
async fn next(download: Option<Download>) -> Option<(Result<Bytes, Status>, Option<Download>)> {
    let (mut pieces, slot) = download?;
    match pieces.message().await {
        Ok(Some(DownloadFileResponse { piece: Some(Piece::Data(data)) })) => {
            Some((Ok(data), Some((pieces, slot))))
        }
        Ok(Some(DownloadFileResponse { piece: Some(Piece::End(_)) })) => None,
        Ok(_) => Some((Err(Status::data_loss("the download has no end")), None)),
        Err(status) => Some((Err(status), None)),
    }
}
