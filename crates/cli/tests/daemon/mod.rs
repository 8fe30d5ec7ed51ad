//! A daemon with canned answers on a Unix socket of its own: enough of the API to see how `coffer` takes each answer.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};
use wire::v1::approval_service_server::{ApprovalService, ApprovalServiceServer};
use wire::v1::audit_service_server::{AuditService, AuditServiceServer};
use wire::v1::host_service_server::{HostService, HostServiceServer};
use wire::v1::operation::Kind as Operation;
use wire::v1::run_service_server::{RunService, RunServiceServer};
use wire::v1::tool_service_server::{ToolService, ToolServiceServer};
use wire::v1::*;

pub(crate) const RUN_A: &str = "0198a1b2-0000-7000-8000-00000000aaaa";
pub(crate) const RUN_B: &str = "0198a1b2-0000-7000-8000-00000000bbbb";
pub(crate) const CALL: &str = "0198a1b2-0000-7000-8000-0000000000ca";
/// What a command wrote: no text, and what a terminal would obey.
pub(crate) const OUTPUT: &[u8] = b"one\n\xff\x1b[2Jtwo\n";
pub(crate) const APPROVAL: &str = "0198a1b2-0000-7000-8000-000000000a99";

type Answer<T> = std::result::Result<Response<T>, Status>;
type Events<T> = Pin<Box<dyn Stream<Item = std::result::Result<T, Status>> + Send>>;

/// A served daemon; ends when dropped.
pub(crate) struct Daemon {
    dir: TempDir,
    seen: Seen,
    _runtime: Runtime,
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<CallRequest>>>);

impl Daemon {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let seen = Seen::default();
        let canned = Canned { seen: seen.clone() };
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(dir.path().join("cofferd.sock")).unwrap()
        };
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(RunServiceServer::new(canned.clone()))
                .add_service(ToolServiceServer::new(canned.clone()))
                .add_service(ApprovalServiceServer::new(canned.clone()))
                .add_service(HostServiceServer::new(canned.clone()))
                .add_service(AuditServiceServer::new(canned))
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Self { dir, seen, _runtime: runtime }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("cofferd.sock")
    }

    pub(crate) fn last_call(&self) -> CallRequest {
        self.seen.0.lock().last().cloned().unwrap()
    }
}

#[derive(Clone)]
struct Canned {
    seen: Seen,
}

fn refusal(code: Code, reason: &str, message: &str) -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info(reason, "cofferdam", HashMap::new());
    Status::with_error_details(code, message, details)
}

fn run(run_id: &str) -> Run {
    Run {
        run_id: run_id.into(),
        profile: "review".into(),
        agent_id: "alice".into(),
        role: "worker".into(),
        state: run::State::Ready.into(),
        start_kind: run::StartKind::Cold.into(),
        ..Default::default()
    }
}

fn approval() -> Approval {
    Approval {
        approval_id: APPROVAL.into(),
        state: approval::State::Pending.into(),
        run_id: RUN_A.into(),
        call_id: CALL.into(),
        operation: "write".into(),
        preview: "+\x1b[2Jhidden\n".into(),
        ..Default::default()
    }
}

#[tonic::async_trait]
impl RunService for Canned {
    async fn create_run(&self, request: Request<CreateRunRequest>) -> Answer<CreateRunResponse> {
        match request.into_inner().profile.as_str() {
            "review" => Ok(Response::new(CreateRunResponse { run: Some(run(RUN_A)), token: String::new() })),
            _ => Err(refusal(Code::NotFound, "NOT_FOUND", "no profile of that name; there are: review")),
        }
    }

    async fn get_run(&self, request: Request<GetRunRequest>) -> Answer<GetRunResponse> {
        Ok(Response::new(GetRunResponse { run: Some(run(&request.into_inner().run_id)) }))
    }

    /// One run a page.
    async fn list_runs(&self, request: Request<ListRunsRequest>) -> Answer<ListRunsResponse> {
        Ok(Response::new(match request.into_inner().page_token.as_str() {
            "" => {
                ListRunsResponse { runs: vec![run(RUN_A)], next_page_token: "2".into(), ..Default::default() }
            }
            _ => ListRunsResponse { runs: vec![run(RUN_B)], ..Default::default() },
        }))
    }

    async fn stop_run(&self, request: Request<StopRunRequest>) -> Answer<StopRunResponse> {
        match request.into_inner().run_id.as_str() {
            RUN_A => Ok(Response::new(StopRunResponse { run: Some(run(RUN_A)) })),
            _ => Err(refusal(Code::NotFound, "NOT_FOUND", "no such run")),
        }
    }

    async fn pause_run(&self, _: Request<PauseRunRequest>) -> Answer<PauseRunResponse> {
        Err(refusal(Code::NotFound, "NOT_FOUND", "no such run"))
    }

    async fn resume_run(&self, _: Request<ResumeRunRequest>) -> Answer<ResumeRunResponse> {
        Err(refusal(Code::NotFound, "NOT_FOUND", "no such run"))
    }

    async fn keep_alive_run(&self, _: Request<KeepAliveRunRequest>) -> Answer<KeepAliveRunResponse> {
        Err(refusal(Code::FailedPrecondition, "PRECONDITION_FAILED", "the run has no lease"))
    }

    async fn extend_run(&self, request: Request<ExtendRunRequest>) -> Answer<ExtendRunResponse> {
        let ttl = request.into_inner().ttl;
        Ok(Response::new(ExtendRunResponse { run: Some(Run { ttl, ..run(RUN_A) }) }))
    }

    async fn issue_run_token(&self, _: Request<IssueRunTokenRequest>) -> Answer<IssueRunTokenResponse> {
        Ok(Response::new(IssueRunTokenResponse { run: Some(run(RUN_A)), token: "cft_secret".to_owned() }))
    }

    async fn delete_run(&self, _: Request<DeleteRunRequest>) -> Answer<DeleteRunResponse> {
        Err(refusal(Code::FailedPrecondition, "PRECONDITION_FAILED", "the run has not ended"))
    }

    async fn diff_run(&self, _: Request<DiffRunRequest>) -> Answer<DiffRunResponse> {
        Err(refusal(Code::NotFound, "NOT_FOUND", "no such run"))
    }

    async fn accept_run(&self, _: Request<AcceptRunRequest>) -> Answer<AcceptRunResponse> {
        Err(refusal(Code::NotFound, "NOT_FOUND", "no such run"))
    }

    async fn discard_run(&self, _: Request<DiscardRunRequest>) -> Answer<DiscardRunResponse> {
        Err(refusal(Code::NotFound, "NOT_FOUND", "no such run"))
    }

    async fn list_workspaces(&self, _: Request<ListWorkspacesRequest>) -> Answer<ListWorkspacesResponse> {
        Err(refusal(Code::NotFound, "NOT_FOUND", "no such run"))
    }

    async fn delete_workspace(&self, _: Request<DeleteWorkspaceRequest>) -> Answer<DeleteWorkspaceResponse> {
        Err(refusal(Code::NotFound, "NOT_FOUND", "no such run"))
    }

    type WatchRunsStream = Events<WatchRunsResponse>;

    async fn watch_runs(&self, _: Request<WatchRunsRequest>) -> Answer<Self::WatchRunsStream> {
        let stopped = Run { state: run::State::Stopped.into(), ..run(RUN_A) };
        let changes = [run(RUN_A), stopped].map(|run| Ok(WatchRunsResponse { run: Some(run) }));
        // Never ends by itself.
        Ok(Response::new(Box::pin(tokio_stream::StreamExt::chain(
            tokio_stream::iter(changes),
            tokio_stream::pending(),
        ))))
    }

    type ReadCompanionLogsStream = Events<ReadCompanionLogsResponse>;

    /// Its name comes back, with bytes that are no text.
    async fn read_companion_logs(
        &self,
        request: Request<ReadCompanionLogsRequest>,
    ) -> Answer<Self::ReadCompanionLogsStream> {
        let data = [request.into_inner().companion.as_bytes(), b": started\n\xff\x1b[2J\n"].concat();
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(ReadCompanionLogsResponse { data })]))))
    }
}

#[tonic::async_trait]
impl ToolService for Canned {
    type CallStreamStream = Events<CallStreamResponse>;

    /// What the call itself would answer, with its output before; bytes that are no text follow it.
    async fn call_stream(&self, request: Request<CallRequest>) -> Answer<Self::CallStreamStream> {
        use call_stream_response::Event;
        let result = self.call(request).await?.into_inner();
        let mut events = vec![Event::Accepted(CallAccepted { call_id: result.call_id.clone() })];
        let output = |stream: call_output::Stream, offset, data: &[u8]| {
            Event::Output(CallOutput { stream: stream.into(), offset, data: data.to_vec() })
        };
        if let Some(result::Kind::Exec(exec)) = result.kind() {
            let (first, rest) = exec.stdout.as_bytes().split_at(1);
            events.push(output(call_output::Stream::Stdout, 0, first));
            events.push(output(call_output::Stream::Stderr, 0, exec.stderr.as_bytes()));
            events.push(output(call_output::Stream::Stdout, 1, rest));
        }
        events.push(Event::Result(result));
        let events = events.into_iter().map(|event| Ok(CallStreamResponse { event: Some(event) }));
        Ok(Response::new(Box::pin(tokio_stream::iter(events.collect::<Vec<_>>()))))
    }

    async fn list_tools(&self, _: Request<ListToolsRequest>) -> Answer<ListToolsResponse> {
        Ok(Response::new(ListToolsResponse {
            tools_json: r#"[{"name":"read"}]"#.into(),
            prompt: "TOOLS\n".into(),
            mcp_servers: vec![],
            network: String::new(),
        }))
    }

    /// The text comes back as the message, with how its call would have ended before the first space.
    async fn step_transcript(
        &self,
        request: Request<StepTranscriptRequest>,
    ) -> Answer<StepTranscriptResponse> {
        let text = request.into_inner().text;
        let call_status = text.split(' ').next().unwrap_or_default().to_owned();
        Ok(Response::new(StepTranscriptResponse {
            status: step_transcript_response::Status::ToolResult.into(),
            message: text,
            tool: "bash".into(),
            call_status,
            turn: 1,
            max_turns: 10,
            ..Default::default()
        }))
    }

    async fn call(&self, request: Request<CallRequest>) -> Answer<CallResponse> {
        let request = request.into_inner();
        self.seen.0.lock().push(request.clone());
        let mut call = CallResponse {
            call_id: CALL.into(),
            status: call_response::Status::Succeeded.into(),
            rendered: r#"{"ok":true}"#.into(),
            ..Default::default()
        };
        match request.request.and_then(operation) {
            Some(Operation::Read(_)) => {
                let read =
                    ReadResult { content: "hi \x1b[31mred\n".into(), size_bytes: 12, ..Default::default() };
                call.result = Some(result::Kind::Read(read).into());
            }
            Some(Operation::Exec(exec)) => {
                let code = exec.args.first().and_then(|code| code.parse().ok()).unwrap_or(0);
                call.result = Some(
                    result::Kind::Exec(ExecResult {
                        stdout: "out\n".into(),
                        stderr: "err\n".into(),
                        exit_code: Some(code),
                        ..Default::default()
                    })
                    .into(),
                );
            }
            Some(Operation::Write(_)) => {
                call.status = call_response::Status::PendingApproval.into();
                call.approval_id = APPROVAL.into();
            }
            Some(Operation::Edit(_)) => {
                call.status = call_response::Status::Failed.into();
                call.error = Some(ToolFailure {
                    reason: "NOT_FOUND".into(),
                    message: "there is no @project/a".into(),
                    ..Default::default()
                });
            }
            Some(Operation::Git(_)) => {
                call.status = call_response::Status::Denied.into();
                call.error = Some(ToolFailure {
                    reason: "PERMISSION_DENIED".into(),
                    message: "role worker may not commit".into(),
                    ..Default::default()
                });
            }
            Some(Operation::List(_)) => {
                return Err(refusal(Code::ResourceExhausted, "RATE_LIMITED", "too many calls"));
            }
            _ => {}
        }
        Ok(Response::new(call))
    }

    /// A call that is over, and wrote `OUTPUT` and a little more that was not kept.
    async fn get_call(&self, request: Request<GetCallRequest>) -> Answer<GetCallResponse> {
        let request = request.into_inner();
        let exec =
            ExecResult { stdout_bytes: OUTPUT.len() as u64 + 7, exit_code: Some(0), ..Default::default() };
        let call = CallResponse {
            call_id: request.call_id,
            status: call_response::Status::Succeeded.into(),
            result: Some(result::Kind::Exec(exec).into()),
            ..Default::default()
        };
        let kept = |text: &[u8], offset: u64| OutputChunk {
            offset,
            // A few bytes an answer.
            data: text.iter().skip(offset.try_into().unwrap()).take(4).copied().collect(),
            kept_bytes: text.len() as u64,
            complete: true,
        };
        Ok(Response::new(GetCallResponse {
            call: Some(call),
            stdout: request.stdout_offset.map(|offset| kept(OUTPUT, offset)),
            stderr: request.stderr_offset.map(|offset| kept(b"", offset)),
        }))
    }

    async fn cancel_call(&self, _: Request<CancelCallRequest>) -> Answer<CancelCallResponse> {
        Ok(Response::new(CancelCallResponse { cancelled: true }))
    }
}

#[tonic::async_trait]
impl ApprovalService for Canned {
    async fn list_approvals(&self, _: Request<ListApprovalsRequest>) -> Answer<ListApprovalsResponse> {
        Ok(Response::new(ListApprovalsResponse { approvals: vec![approval()] }))
    }

    async fn get_approval(&self, _: Request<GetApprovalRequest>) -> Answer<GetApprovalResponse> {
        Ok(Response::new(GetApprovalResponse { approval: Some(approval()) }))
    }

    async fn decide_approval(
        &self,
        request: Request<DecideApprovalRequest>,
    ) -> Answer<DecideApprovalResponse> {
        let request = request.into_inner();
        let state = match request.decision() {
            decide_approval_request::Decision::Approve => approval::State::Approved,
            _ => approval::State::Denied,
        };
        let approval = Approval {
            approval_id: request.approval_id,
            state: state.into(),
            comment: request.comment,
            ..approval()
        };
        Ok(Response::new(DecideApprovalResponse { approval: Some(approval) }))
    }

    async fn list_consents(&self, _: Request<ListConsentsRequest>) -> Answer<ListConsentsResponse> {
        Ok(Response::new(ListConsentsResponse { consents: Vec::new() }))
    }

    async fn revoke_consent(&self, request: Request<RevokeConsentRequest>) -> Answer<RevokeConsentResponse> {
        let consent = Consent { consent_id: request.into_inner().consent_id, ..Default::default() };
        Ok(Response::new(RevokeConsentResponse { consent: Some(consent) }))
    }

    type WatchApprovalsStream = Events<WatchApprovalsResponse>;

    async fn watch_approvals(&self, _: Request<WatchApprovalsRequest>) -> Answer<Self::WatchApprovalsStream> {
        let change = WatchApprovalsResponse { approval: Some(approval()) };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(change)))))
    }
}

#[tonic::async_trait]
impl HostService for Canned {
    async fn examine_host(&self, _: Request<ExamineHostRequest>) -> Answer<ExamineHostResponse> {
        let finding = HostFinding {
            topic: "idmapped mounts".into(),
            verdict: host_finding::Verdict::Missing.into(),
            found: "kernel 4.9-elsewhere is older than 5.12".into(),
            follows: "a newer kernel is needed".into(),
        };
        Ok(Response::new(ExamineHostResponse { findings: vec![finding] }))
    }

    async fn get_pool(&self, _: Request<GetPoolRequest>) -> Answer<GetPoolResponse> {
        Ok(Response::new(GetPoolResponse { kinds: Vec::new() }))
    }
}

#[tonic::async_trait]
impl AuditService for Canned {
    type StreamEventsStream = Events<StreamEventsResponse>;

    async fn stream_events(&self, request: Request<StreamEventsRequest>) -> Answer<Self::StreamEventsStream> {
        let events = (request.into_inner().after_sequence + 1..=5).map(|sequence| {
            let event = AuditEvent {
                sequence,
                kind: "call_intent".into(),
                record_json: format!(r#"{{"sequence":{sequence},"kind":"call_intent"}}"#),
                ..Default::default()
            };
            Ok(StreamEventsResponse { event: Some(event) })
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(events.collect::<Vec<_>>()))))
    }

    type RebuildIndexStream = Events<RebuildIndexResponse>;

    async fn rebuild_index(
        &self,
        _request: Request<RebuildIndexRequest>,
    ) -> Answer<Self::RebuildIndexStream> {
        Err(Status::unimplemented(""))
    }

    async fn query_events(&self, _request: Request<QueryEventsRequest>) -> Answer<QueryEventsResponse> {
        Err(Status::unimplemented(""))
    }

    async fn verify_log(&self, _: Request<VerifyLogRequest>) -> Answer<VerifyLogResponse> {
        Ok(Response::new(VerifyLogResponse {
            intact: false,
            valid_records: 4,
            last_sequence: 4,
            head_hash: "c0ffee".into(),
            damage: "record 5 was edited".into(),
            ..Default::default()
        }))
    }

    type CreateBundleStream = Events<CreateBundleResponse>;

    /// A part of a bundle, and the end.
    async fn create_bundle(&self, _: Request<CreateBundleRequest>) -> Answer<Self::CreateBundleStream> {
        use create_bundle_response::Event;
        let progress = BundleProgress { records_read: 3, head_sequence: 5 };
        let events = [Event::Progress(progress), Event::Data(b"a part".to_vec())]
            .map(|event| Ok(CreateBundleResponse { event: Some(event) }));
        Ok(Response::new(Box::pin(tokio_stream::iter(events))))
    }

    async fn get_checkpoint(&self, _: Request<GetCheckpointRequest>) -> Answer<GetCheckpointResponse> {
        Ok(Response::new(GetCheckpointResponse { checkpoint: Some(checkpoint("one")) }))
    }

    async fn rotate_key(&self, _: Request<RotateKeyRequest>) -> Answer<RotateKeyResponse> {
        Ok(Response::new(RotateKeyResponse { checkpoint: Some(checkpoint("two")) }))
    }
}

fn checkpoint(key: &str) -> Checkpoint {
    let (note, verifier_key) = (format!("log\n3\nroot\n\n— log {key}\n"), format!("log+01+{key}"));
    Checkpoint { size: 3, root: "c0ffee".into(), note, verifier_key }
}

pub(crate) fn operation(request: call_request::Request) -> Option<Operation> {
    match request {
        call_request::Request::Operation(operation) => operation.kind,
        call_request::Request::Dialect(_) => None,
    }
}
