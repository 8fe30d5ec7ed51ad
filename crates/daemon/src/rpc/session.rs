//! Serves `SessionService`.

use std::sync::Arc;
use std::time::Duration;

use calls::{Calls, Metadata};
use identity::{Principal, RunId};
use operations::Reason;
use processes::{Process, Processes};
use refusal::Refusal;
use runs::Runs;
use timestamp::duration_from_wire;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wire::v1::result::Kind as OpResult;
use wire::v1::session_service_server::SessionService;
use wire::v1::signal_process_request::Signal;
use wire::v1::{self, operation::Kind};

use super::metadata::traced;
use super::operation::{self, Terms};
use super::{portion, principal};

const ATTEMPTS: u32 = 3;
const MOST_ATTEMPTS: u32 = 10;
const BETWEEN: Duration = Duration::from_secs(1);
const LONGEST_BETWEEN: Duration = Duration::from_secs(60);
/// Time that all processes of a closed session have to end.
const CLOSING: Duration = Duration::from_secs(60);

pub(crate) struct Service {
    pub(crate) calls: Arc<Calls>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) processes: Processes,
    pub(crate) stop: CancellationToken,
}

impl Service {
    /// Returns a session of a run that the principal may use.
    fn session(&self, principal: &Principal, run: &str, id: &str) -> Result<Arc<Process>, Refusal> {
        let run = RunId::parse(run)?;
        self.runs.check_use(run, principal)?;
        let found = self.processes.get(run, id).ok().filter(|process| process.session_now().is_some());
        found.ok_or_else(|| {
            Refusal::new(Reason::NotFound, "session_id: the run has no such session")
                .with("resource", "session")
        })
    }

    async fn open(
        &self,
        principal: &Arc<Principal>,
        request: v1::OpenSessionRequest,
        metadata: Metadata,
    ) -> Result<v1::OpenSessionResponse, Refusal> {
        let v1::OpenSessionRequest {
            run_id,
            request_id,
            cwd,
            env,
            terminal,
            tag,
            timeout,
            wait_for_approval,
        } = request;
        let run = RunId::parse(&run_id)?;
        let milliseconds = |timeout| {
            let timeout = duration_from_wire(&timeout)
                .ok_or_else(|| Refusal::invalid("timeout", "must be more than zero"))?;
            Ok::<_, Refusal>(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
        };
        let timeout_ms = timeout.map(milliseconds).transpose()?;
        let process =
            v1::ProcessRequest { cwd, env, terminal, tag, timeout_ms, session: true, ..Default::default() };
        let terms = Terms { run_id, request_id, wait_for_approval, metadata };
        let made = operation::make(&self.calls, principal, Kind::Process(process), terms).await?;
        let session = match made.result {
            Some(_) => self.processes.get(run, &made.call_id)?.session_now(),
            None => None,
        };
        Ok(v1::OpenSessionResponse { session, call_id: made.call_id, approval_id: made.approval_id })
    }

    async fn run(
        &self,
        principal: &Arc<Principal>,
        request: v1::RunInSessionRequest,
        metadata: Metadata,
    ) -> Result<v1::RunInSessionResponse, Refusal> {
        let v1::RunInSessionRequest { run_id, request_id, session, wait_for_approval } = request;
        let session = session.ok_or_else(|| Refusal::invalid("session", "is missing"))?;
        let terms = Terms { run_id, request_id, wait_for_approval, metadata };
        let made = operation::make(&self.calls, principal, Kind::Session(session), terms).await?;
        let result = match made.result {
            Some(OpResult::Session(result)) => Some(result),
            _ => None,
        };
        Ok(v1::RunInSessionResponse { result, call_id: made.call_id, approval_id: made.approval_id })
    }

    async fn interrupt(
        &self,
        principal: &Principal,
        request: v1::InterruptSessionRequest,
    ) -> Result<v1::InterruptSessionResponse, Refusal> {
        let session = self.session(principal, &request.run_id, &request.session_id)?;
        let attempts = request.attempts.unwrap_or(ATTEMPTS);
        if attempts > MOST_ATTEMPTS {
            return Err(Refusal::invalid("attempts", format!("is more than {MOST_ATTEMPTS}")));
        }
        let between = match &request.timeout {
            None => BETWEEN,
            Some(timeout) => duration_from_wire(timeout)
                .filter(|timeout| *timeout <= LONGEST_BETWEEN)
                .ok_or_else(|| Refusal::invalid("timeout", "must be more than zero and at most a minute"))?,
        };
        let result = session.interrupt(attempts, between, &request.expect).await?;
        Ok(v1::InterruptSessionResponse { result: Some(result) })
    }

    async fn close(
        &self,
        principal: &Principal,
        request: v1::CloseSessionRequest,
    ) -> Result<v1::CloseSessionResponse, Refusal> {
        let session = self.session(principal, &request.run_id, &request.session_id)?;
        // An error means that the session has ended already.
        let _ = session.signal(Signal::Kill).await;
        self.stop.run_until_cancelled(session.wait(CLOSING)).await;
        Ok(v1::CloseSessionResponse { session: session.session_now() })
    }
}

#[tonic::async_trait]
impl SessionService for Service {
    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let principal = principal(&request)?;
        let metadata = traced(request.metadata());
        Ok(Response::new(self.open(&principal, request.into_inner(), metadata).await?))
    }

    async fn run_in_session(
        &self,
        request: Request<v1::RunInSessionRequest>,
    ) -> Result<Response<v1::RunInSessionResponse>, Status> {
        let principal = principal(&request)?;
        let metadata = traced(request.metadata());
        portion::answer(self.run(&principal, request.into_inner(), metadata).await?)
    }

    async fn interrupt_session(
        &self,
        request: Request<v1::InterruptSessionRequest>,
    ) -> Result<Response<v1::InterruptSessionResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.interrupt(&principal, request.into_inner()).await?))
    }

    async fn close_session(
        &self,
        request: Request<v1::CloseSessionRequest>,
    ) -> Result<Response<v1::CloseSessionResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.close(&principal, request.into_inner()).await?))
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let run = RunId::parse(&request.run_id)?;
        self.runs.check_use(run, &principal)?;
        let sessions = self.processes.sessions(run, &request.tag);
        portion::answer(v1::ListSessionsResponse { sessions })
    }
}
