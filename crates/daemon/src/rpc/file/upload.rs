//! Uploads a file or an archive: receives the client's stream into a file of the daemon, then makes the call that
//! writes it.
//!
//! ```text
//! begin ─► was it made before? ─yes─► the answer of its call
//!            │ no
//!            ├─► would the call be refused? ─yes─► it is made without a content, and refused, on record
//!            │ no
//!            └─► stream ─► queue ─► thread: hash, file ─► all there, as the client says ─► call ─► removed
//! ```
//!
//! The stream is hostile: it may stop, be slow, send too much, or name a wrong hash.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use calls::Metadata;
use identity::{Principal, RunId, check_client_name};
use operations::{Operation, Reason, UploadId};
use policy::{Caller, Verdict};
use refusal::Refusal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Request, Streaming};
use uploads::{Broken, Content, Owner, Piece};
use wire::v1::call_response::Status as CallStatus;
use wire::v1::{self, call_request, operation::Kind};

use super::Service;
use super::traced;

/// Time that a client has to send the next message.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of messages between the stream and the disk.
const WAITING: usize = 4;
/// Maximum size of one message's data, bytes.
const MOST: usize = 3 * 1024 * 1024;
/// Placeholder for a hash that is not known yet.
const UNKNOWN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A message of an upload.
pub(super) enum Said {
    Begin(v1::BeginUpload),
    Data(Bytes),
}

/// Form of the uploaded content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    File,
    Archive,
}

/// Outcome of an upload.
pub(super) struct Done {
    pub(super) call_id: String,
    pub(super) approval_id: String,
    pub(super) result: Option<v1::WriteResult>,
}

impl Service {
    pub(super) async fn upload<M: Into<Said>>(
        &self,
        principal: &Arc<Principal>,
        request: Request<Streaming<M>>,
        form: Form,
    ) -> Result<Done, Refusal> {
        let asker = (principal, traced(request.metadata()));
        let mut stream = request.into_inner();
        let begin = match next(&mut stream).await? {
            Some(Said::Begin(begin)) => begin,
            Some(Said::Data(_)) | None => {
                return Err(Refusal::invalid("begin", "is missing: it is the first message of an upload"));
            }
        };
        // An archive marks its own end.
        if form == Form::File && begin.size_bytes.is_none() && begin.sha256.is_empty() {
            let message =
                "is missing: give it or sha256, because the stream of a killed client can look complete";
            return Err(Refusal::invalid("size_bytes", message));
        }
        let run = RunId::parse(&begin.run_id)?;
        self.runs.check_use(run, principal)?;
        let id = Some(begin.upload_id.as_str()).filter(|id| !id.is_empty());
        let id = id.map(|id| UploadId::parse("upload_id", id)).transpose()?;
        check_client_name("request_id", &begin.request_id)?;
        let (size, sha256) = (begin.size_bytes.unwrap_or(0), begin.sha256.as_str());
        let sha256 = Some(sha256).filter(|sha256| !sha256.is_empty()).unwrap_or(UNKNOWN);
        let outline = write(&begin, form, sha256.to_owned(), size, UNKNOWN_ID.to_owned());
        let is_described = begin.size_bytes.is_some() && !begin.sha256.is_empty();
        if is_described && self.was_made(run, &begin).await? {
            // The call that was made has the content of the first upload.
            return self.call(asker, &begin, outline, None).await;
        }
        let Some((most, owner)) = self.admits(principal, run, &outline) else {
            // Records the refusal, like that of every call.
            return self.call(asker, &begin, outline, None).await;
        };
        let most = begin.size_bytes.map_or(most, |size| size.min(most));
        let content = self.receive(&mut stream, (run, owner), id, &begin, most).await?;
        if begin.size_bytes.is_some_and(|size| size != content.size) {
            return Err(not_as_said("size_bytes", &content));
        }
        if !begin.sha256.is_empty() && begin.sha256 != content.sha256 {
            return Err(not_as_said("sha256", &content));
        }
        let written =
            write(&begin, form, content.sha256.clone(), content.size, content.id().as_str().to_owned());
        self.call(asker, &begin, written, Some(content)).await
    }

    /// Returns true if a call was made under the request id of this upload.
    ///
    /// When the call is made again, the calls module checks that it was the same upload.
    async fn was_made(&self, run: RunId, begin: &v1::BeginUpload) -> Result<bool, Refusal> {
        if begin.request_id.is_empty() {
            return Ok(false);
        }
        self.table.has_request(run, &begin.request_id).await
    }

    /// Returns the maximum size of the upload and the owner that it counts for; `None` if its call would be refused.
    fn admits(&self, principal: &Principal, run: RunId, outline: &v1::WriteRequest) -> Option<(u64, Owner)> {
        let living = self.runs.living_run(run).ok()?;
        let (spec, policy) = (living.spec(), self.gateway.policy());
        let profile = policy.profile(&spec.profile)?;
        let outline = v1::Operation { kind: Some(Kind::Write(outline.clone())) };
        let operation = Operation::parse_within(outline, calls::limits(profile).command).ok()?;
        let caller = Caller {
            principal: principal.name.clone(),
            agent_id: spec.agent_id.clone(),
            role: spec.role.clone(),
            run_id: run.to_string(),
        };
        let explanation = self.gateway.explain(&policy, &living.scope(), &caller, &operation);
        let owner = Owner {
            account: living.disk.clone(),
            ended: living.ended.clone(),
            writes_count: living.disk.adds(&operation),
        };
        (explanation.verdict() != Verdict::Deny).then_some((profile.bounds.max_transfer_bytes, owner))
    }

    /// Receives the stream to its end.
    async fn receive<M: Into<Said>>(
        &self,
        stream: &mut Streaming<M>,
        (run, owner): (RunId, Owner),
        id: Option<UploadId>,
        begin: &v1::BeginUpload,
        most: u64,
    ) -> Result<Content, Refusal> {
        let (pieces, taken) = mpsc::channel(WAITING);
        let (uploads, offset, size) = (self.uploads.clone(), begin.offset, begin.size_bytes.unwrap_or(0));
        // An upload that can be resumed is not over before all of it has arrived: a client that dies can end its stream
        // in order.
        let due = begin.size_bytes.filter(|_| id.is_some()).map_or(0, |size| size.saturating_sub(offset));
        let ended = owner.ended.clone();
        let (came, content) = oneshot::channel();
        // On a thread that outlives a client that leaves, because it decides what is kept of the upload.
        let work = tokio::task::spawn_blocking(move || {
            let received = match uploads.begin(run, owner, id, offset, size) {
                Ok(upload) => upload.receive(taken, most),
                Err(refusal) => Err(Broken::Refused(refusal)),
            };
            // If the receiver is gone, the content is dropped, which removes it.
            let _ = came.send(received);
        });
        let sent = tokio::select! {
            sent = forward(stream, pieces, due) => sent,
            () = ended.cancelled() => {
                Err(Refusal::new(Reason::Cancelled, "the run ended, and the upload with it"))
            }
        };
        let received = content.await;
        work.await.map_err(|error| Refusal::internal("receiving an upload", &error))?;
        match (received, sent) {
            (Ok(Err(Broken::Refused(refusal))), _) | (_, Err(refusal)) => Err(refusal),
            (Ok(Ok(content)), Ok(())) => Ok(content),
            (Ok(Err(Broken::Gone)) | Err(_), Ok(())) => {
                Err(Refusal::new(Reason::Cancelled, "the upload was interrupted"))
            }
        }
    }

    /// Makes the call. It goes on without its client, and its content is kept until it is over.
    async fn call(
        &self,
        (principal, metadata): (&Arc<Principal>, Metadata),
        begin: &v1::BeginUpload,
        write: v1::WriteRequest,
        content: Option<Content>,
    ) -> Result<Done, Refusal> {
        let operation = v1::Operation { kind: Some(Kind::Write(write)) };
        let request = v1::CallRequest {
            run_id: begin.run_id.clone(),
            request_id: begin.request_id.clone(),
            wait_for_approval: begin.wait_for_approval,
            refuse_awaiting_approval: begin.refuse_awaiting_approval,
            request: Some(call_request::Request::Operation(operation)),
            ..Default::default()
        };
        let (calls, table, principal) = (self.calls.clone(), self.table.clone(), principal.clone());
        let (answer, answered) = oneshot::channel();
        self.tasks.spawn(async move {
            let response = calls::call(&calls, &principal, request, metadata).await;
            let call =
                response.as_ref().ok().and_then(|response| identity::CallId::parse(&response.call_id).ok());
            let call = call.and_then(|id| table.known(id));
            let _ = answer.send(response);
            // The call may have been made by another stream with a file of the same name. So the content is kept in
            // that case, too.
            if let (Some(content), Some(call)) = (content, call)
                && !call.over().await
            {
                content.leave();
            }
        });
        let response = answered.await.map_err(|error| Refusal::internal("writing an upload", &error))??;
        let (call_id, approval_id) = (response.call_id.clone(), response.approval_id.clone());
        match (response.status(), response.result.and_then(|result| result.kind)) {
            (CallStatus::Succeeded, Some(v1::result::Kind::Write(result))) => {
                Ok(Done { call_id, approval_id: String::new(), result: Some(result) })
            }
            (CallStatus::PendingApproval | CallStatus::Running, _) => {
                Ok(Done { call_id, approval_id, result: None })
            }
            _ => Err(Refusal::from(response.error.unwrap_or_default()).with("call_id", call_id)),
        }
    }
}

/// Id that no upload has.
const UNKNOWN_ID: &str = "00000000-0000-0000-0000-000000000000";

fn write(
    begin: &v1::BeginUpload,
    form: Form,
    sha256: String,
    size_bytes: u64,
    upload_id: String,
) -> v1::WriteRequest {
    let archive = form == Form::Archive;
    v1::WriteRequest {
        path: begin.path.clone(),
        if_match_sha256: begin.if_match_sha256.clone(),
        create_only: begin.create_only,
        mode: begin.mode,
        uploaded: Some(v1::UploadedContent { upload_id, size_bytes, sha256, archive }),
        ..Default::default()
    }
}

/// Forwards the stream to the thread until its end. An end before `due` bytes is an error.
async fn forward<M: Into<Said>>(
    stream: &mut Streaming<M>,
    pieces: mpsc::Sender<Piece>,
    due: u64,
) -> Result<(), Refusal> {
    let mut came = 0_u64;
    loop {
        let piece = match next(stream).await? {
            Some(Said::Data(data)) if data.len() > MOST => {
                return Err(Refusal::invalid("data", format!("has more than {MOST} bytes")));
            }
            Some(Said::Data(data)) => {
                came = came.saturating_add(data.len() as u64);
                Piece::Data(data)
            }
            Some(Said::Begin(_)) => {
                return Err(Refusal::invalid("begin", "must be sent once, in the first message"));
            }
            None if came < due => {
                let message =
                    format!("the stream ended {} bytes before size_bytes; resume the upload", due - came);
                return Err(Refusal::new(Reason::Cancelled, message));
            }
            None => {
                let _ = pieces.send(Piece::End).await;
                return Ok(());
            }
        };
        // The thread itself reports why it takes no further pieces.
        if pieces.send(piece).await.is_err() {
            return Ok(());
        }
    }
}

async fn next<M: Into<Said>>(stream: &mut Streaming<M>) -> Result<Option<Said>, Refusal> {
    match timeout(PATIENCE, stream.message()).await {
        Ok(Ok(message)) => Ok(message.map(Into::into)),
        Ok(Err(_)) => Err(Refusal::new(Reason::Cancelled, "the stream of the upload was interrupted")),
        Err(_) => {
            let message = format!(
                "no data came for {} s; the upload can be resumed if it has an id",
                PATIENCE.as_secs()
            );
            Err(Refusal::new(Reason::TimedOut, message))
        }
    }
}

fn not_as_said(field: &str, content: &Content) -> Refusal {
    let message = format!(
        "{field}: the content that arrived has {} bytes and the SHA-256 {}",
        content.size, content.sha256
    );
    Refusal::new(Reason::PreconditionFailed, message)
        .with("size_bytes", content.size.to_string())
        .with("sha256", content.sha256.clone())
}
