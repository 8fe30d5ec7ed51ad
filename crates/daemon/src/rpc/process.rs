//! Serves `ProcessService`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use calls::{Calls, Metadata};
use identity::{Principal, RunId};
use processes::{Process, Processes};
use refusal::Refusal;
use runs::Runs;
use timestamp::duration_from_wire;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wire::v1::process_service_server::ProcessService;
use wire::v1::{self, operation::Kind};

use super::metadata::traced;
use super::operation::{self, Terms};
use super::{portion, principal};

/// Longest time that a client may wait for a process.
const LONGEST: Duration = Duration::from_secs(3_600);

pub(crate) struct Service {
    pub(crate) calls: Arc<Calls>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) processes: Processes,
    pub(crate) stop: CancellationToken,
}

impl Service {
    /// Returns a process of a run that the principal may use.
    fn process(&self, principal: &Principal, run: &str, id: &str) -> Result<Arc<Process>, Refusal> {
        let run = RunId::parse(run)?;
        self.runs.check_use(run, principal)?;
        self.processes.get(run, id)
    }

    async fn start(
        &self,
        principal: &Arc<Principal>,
        request: v1::StartProcessRequest,
        metadata: Metadata,
    ) -> Result<v1::StartProcessResponse, Refusal> {
        let v1::StartProcessRequest { run_id, request_id, process, wait_for_approval } = request;
        let process = process.ok_or_else(|| Refusal::invalid("process", "is missing"))?;
        let run = RunId::parse(&run_id)?;
        let terms = Terms { run_id, request_id, wait_for_approval, metadata };
        let asked = v1::ProcessRequest { env: BTreeMap::new(), ..process.clone() };
        let made = operation::make(&self.calls, principal, Kind::Process(process), terms).await?;
        let process = match made.result {
            Some(_) => {
                let now = self.processes.get(run, &made.call_id)?.now();
                Some(v1::Process { request: Some(asked), request_cut: false, ..now })
            }
            None => None,
        };
        Ok(v1::StartProcessResponse { process, call_id: made.call_id, approval_id: made.approval_id })
    }
}

#[tonic::async_trait]
impl ProcessService for Service {
    async fn start_process(
        &self,
        request: Request<v1::StartProcessRequest>,
    ) -> Result<Response<v1::StartProcessResponse>, Status> {
        let principal = principal(&request)?;
        let metadata = traced(request.metadata());
        Ok(Response::new(self.start(&principal, request.into_inner(), metadata).await?))
    }

    type AttachProcessStream = ReceiverStream<Result<v1::AttachProcessResponse, Status>>;

    async fn attach_process(
        &self,
        request: Request<v1::AttachProcessRequest>,
    ) -> Result<Response<Self::AttachProcessStream>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let process = self.process(&principal, &request.run_id, &request.process_id)?;
        let offsets = [request.stdout_offset, request.stderr_offset];
        let events = process.attach(offsets, request.follow, self.stop.clone())?;
        Ok(Response::new(ReceiverStream::new(events)))
    }

    async fn write_stdin(
        &self,
        request: Request<v1::WriteStdinRequest>,
    ) -> Result<Response<v1::WriteStdinResponse>, Status> {
        let principal = principal(&request)?;
        let v1::WriteStdinRequest { run_id, process_id, offset, data, close } = request.into_inner();
        let process = self.process(&principal, &run_id, &process_id)?;
        Ok(Response::new(process.write(Some(offset), data, close).await?))
    }

    async fn resize_terminal(
        &self,
        request: Request<v1::ResizeTerminalRequest>,
    ) -> Result<Response<v1::ResizeTerminalResponse>, Status> {
        let principal = principal(&request)?;
        let v1::ResizeTerminalRequest { run_id, process_id, size } = request.into_inner();
        let process = self.process(&principal, &run_id, &process_id)?;
        process.resize(size.ok_or_else(|| Refusal::invalid("size", "is missing"))?).await?;
        Ok(Response::new(v1::ResizeTerminalResponse {}))
    }

    async fn signal_process(
        &self,
        request: Request<v1::SignalProcessRequest>,
    ) -> Result<Response<v1::SignalProcessResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let process = self.process(&principal, &request.run_id, &request.process_id)?;
        process.signal(request.signal()).await?;
        Ok(Response::new(v1::SignalProcessResponse {}))
    }

    async fn wait_process(
        &self,
        request: Request<v1::WaitProcessRequest>,
    ) -> Result<Response<v1::WaitProcessResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let process = self.process(&principal, &request.run_id, &request.process_id)?;
        let limit = match &request.timeout {
            None => LONGEST,
            Some(timeout) => duration_from_wire(timeout)
                .filter(|timeout| *timeout <= LONGEST)
                .ok_or_else(|| Refusal::invalid("timeout", "must be more than zero and at most an hour"))?,
        };
        let stop = &self.stop;
        let waited = stop.run_until_cancelled(process.wait(limit)).await;
        let process = waited.unwrap_or_else(|| process.now());
        Ok(Response::new(v1::WaitProcessResponse { process: Some(process) }))
    }

    async fn list_processes(
        &self,
        request: Request<v1::ListProcessesRequest>,
    ) -> Result<Response<v1::ListProcessesResponse>, Status> {
        let principal = principal(&request)?;
        let request = request.into_inner();
        let run = RunId::parse(&request.run_id)?;
        self.runs.check_use(run, &principal)?;
        let processes = self.processes.list(run, &request.tag);
        portion::answer(v1::ListProcessesResponse { processes })
    }
}
