//! The API's clients on one connection.

use std::path::Path;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tonic::transport::{Channel, Endpoint, Error};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use wire::v1::alert_service_client::AlertServiceClient;
use wire::v1::approval_service_client::ApprovalServiceClient;
use wire::v1::audit_service_client::AuditServiceClient;
use wire::v1::base_service_client::BaseServiceClient;
use wire::v1::checkpoint_service_client::CheckpointServiceClient;
use wire::v1::console_service_client::ConsoleServiceClient;
use wire::v1::file_service_client::FileServiceClient;
use wire::v1::image_service_client::ImageServiceClient;
use wire::v1::limit_service_client::LimitServiceClient;
use wire::v1::permission_service_client::PermissionServiceClient;
use wire::v1::policy_service_client::PolicyServiceClient;
use wire::v1::process_service_client::ProcessServiceClient;
use wire::v1::run_service_client::RunServiceClient;
use wire::v1::session_service_client::SessionServiceClient;
use wire::v1::tool_service_client::ToolServiceClient;
use wire::v1::{self, AuditEvent};

/// One client for each service.
#[derive(Clone)]
pub struct Clients {
    /// The connection itself.
    pub channel: Channel,
    /// `RunService`.
    pub runs: RunServiceClient<Channel>,
    /// `BaseService`.
    pub bases: BaseServiceClient<Channel>,
    /// `CheckpointService`.
    pub checkpoints: CheckpointServiceClient<Channel>,
    /// `ToolService`.
    pub tools: ToolServiceClient<Channel>,
    /// `ProcessService`.
    pub processes: ProcessServiceClient<Channel>,
    /// `SessionService`.
    pub sessions: SessionServiceClient<Channel>,
    /// `FileService`.
    pub files: FileServiceClient<Channel>,
    /// `ApprovalService`.
    pub approvals: ApprovalServiceClient<Channel>,
    /// `AuditService`.
    pub audit: AuditServiceClient<Channel>,
    /// `PolicyService`.
    pub policy: PolicyServiceClient<Channel>,
    /// `AlertService`.
    pub alerts: AlertServiceClient<Channel>,
    /// `PermissionService`.
    pub permissions: PermissionServiceClient<Channel>,
    /// `LimitService`.
    pub limits: LimitServiceClient<Channel>,
    /// `ConsoleService`.
    pub console: ConsoleServiceClient<Channel>,
    /// `ImageService`.
    pub images: ImageServiceClient<Channel>,
}

impl Clients {
    pub(crate) async fn connect(socket: &Path) -> Result<Self, Error> {
        let channel = Endpoint::try_from(format!("unix:{}", socket.display()))?.connect().await?;
        Ok(Self::on(channel))
    }

    /// On a connection of any kind.
    pub fn on(channel: Channel) -> Self {
        Self {
            runs: RunServiceClient::new(channel.clone()),
            bases: BaseServiceClient::new(channel.clone()),
            checkpoints: CheckpointServiceClient::new(channel.clone()),
            tools: ToolServiceClient::new(channel.clone()).max_decoding_message_size(16 << 20),
            processes: ProcessServiceClient::new(channel.clone()).max_decoding_message_size(16 << 20),
            sessions: SessionServiceClient::new(channel.clone()).max_decoding_message_size(16 << 20),
            files: FileServiceClient::new(channel.clone()),
            approvals: ApprovalServiceClient::new(channel.clone()),
            audit: AuditServiceClient::new(channel.clone()),
            policy: PolicyServiceClient::new(channel.clone()),
            alerts: AlertServiceClient::new(channel.clone()),
            permissions: PermissionServiceClient::new(channel.clone()),
            limits: LimitServiceClient::new(channel.clone()),
            console: ConsoleServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel.clone()),
            channel,
        }
    }

    /// All events so far of a kind, of one run or of all.
    pub async fn events(&mut self, run: &str, kind: &str) -> Vec<AuditEvent> {
        let filter = v1::EventFilter {
            run_id: run.to_owned(),
            kinds: if kind.is_empty() { Vec::new() } else { vec![kind.to_owned()] },
            ..Default::default()
        };
        let request = v1::StreamEventsRequest { filter: Some(filter), ..Default::default() };
        let mut stream = self.audit.stream_events(request).await.unwrap().into_inner();
        let mut events = Vec::new();
        while let Some(response) = stream.message().await.unwrap() {
            events.push(response.event.unwrap());
        }
        events
    }

    /// All that the log holds for one call, in order.
    pub async fn of_call(&mut self, call_id: &str) -> Vec<AuditEvent> {
        let events = self.events("", "").await;
        events.into_iter().filter(|event| event.call_id == call_id).collect()
    }

    /// One approval.
    pub async fn approval(&mut self, approval_id: &str) -> v1::Approval {
        let request = v1::GetApprovalRequest { approval_id: approval_id.to_owned() };
        self.approvals.get_approval(request).await.unwrap().into_inner().approval.unwrap()
    }

    /// Gives consent.
    pub async fn approve(&mut self, approval_id: &str) -> Result<v1::Approval, Status> {
        self.decide(approval_id, v1::decide_approval_request::Decision::Approve).await
    }

    /// Whether an approval still waits. One that is settled and forgotten does not.
    pub async fn approvals_pending(&mut self, approval_id: &str) -> bool {
        let request = v1::GetApprovalRequest { approval_id: approval_id.to_owned() };
        let found = self.approvals.get_approval(request).await;
        let state = found.ok().and_then(|found| found.into_inner().approval).map(|found| found.state());
        state == Some(v1::approval::State::Pending)
    }

    /// Gives consent that is remembered, as asked.
    pub async fn approve_and_remember(
        &mut self,
        approval_id: &str,
        remember: v1::approval::Remember,
        prefix: &[&str],
    ) -> Result<v1::Approval, Status> {
        let request = v1::DecideApprovalRequest {
            approval_id: approval_id.to_owned(),
            decision: v1::decide_approval_request::Decision::Approve.into(),
            remember: remember.into(),
            prefix: prefix.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        self.approvals.decide_approval(request).await.map(|response| response.into_inner().approval.unwrap())
    }

    /// Verifies the log.
    pub async fn verify(&mut self) -> v1::VerifyLogResponse {
        self.audit.verify_log(v1::VerifyLogRequest {}).await.unwrap().into_inner()
    }

    /// The one pending approval of a run; waits for it.
    pub async fn pending_approval(&mut self, run: &str) -> v1::Approval {
        let request = v1::WatchApprovalsRequest { run_id: run.to_owned() };
        let mut stream = self.approvals.watch_approvals(request).await.unwrap().into_inner();
        loop {
            let approval = stream.message().await.unwrap().expect("the watch ended").approval.unwrap();
            if approval.state() == v1::approval::State::Pending {
                return approval;
            }
        }
    }

    /// Decides on an approval.
    pub async fn decide(
        &mut self,
        approval_id: &str,
        decision: v1::decide_approval_request::Decision,
    ) -> Result<v1::Approval, Status> {
        let request = v1::DecideApprovalRequest {
            approval_id: approval_id.to_owned(),
            decision: decision.into(),
            comment: "decided by a test".to_owned(),
            ..Default::default()
        };
        self.approvals.decide_approval(request).await.map(|response| response.into_inner().approval.unwrap())
    }
}

/// Talks to the daemon as another user of this host, on a thread of its own: the kernel names a peer by who connected.
pub async fn as_user<T: Send + 'static>(
    uid: u32,
    socket: &Path,
    talk: impl AsyncFnOnce(Clients) -> T + Send + 'static,
) -> T {
    let socket = socket.to_owned();
    let (answer, answered) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let said = runtime.block_on(async { talk(Clients::connect(&socket).await.unwrap()).await });
        let _ = answer.send(said);
    });
    answered.await.expect("the other user's thread ended early")
}

/// An event's record as it stands in the log.
pub fn record(event: &AuditEvent) -> serde_json::Value {
    serde_json::from_str(&event.record_json).unwrap()
}

/// Returns true if the connection is gone. The client's library says `Unknown` or `Cancelled` of an answer that was cut.
pub fn broke(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled)
}

/// The stable reason of a refusal; empty when there is none.
pub fn reason(status: &Status) -> String {
    let info = status.get_details_error_info();
    if let Some(info) = &info {
        assert_eq!(info.domain, "cofferdam");
    }
    info.map(|info| info.reason).unwrap_or_default()
}
