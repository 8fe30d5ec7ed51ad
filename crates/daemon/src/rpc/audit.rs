//! Serves `AuditService`.

use std::pin::Pin;
use std::sync::Arc;

use audit::{Checkpoint, Integrity, Record};
use audit_service::{AuditLog, Bound, Filter, Index, IndexState, Line, Query};
use bundles::{Bundles, Wanted};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use prost::Message as _;
use refusal::Refusal;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::audit_service_server::AuditService;
use wire::v1::query_events_request::Order;

use super::{portion, principal, whole_or_stopped};

/// Maximum number of records on a page.
const MOST_EVENTS: u32 = 1_000;

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) index: Arc<Index>,
    pub(crate) bundles: Arc<Bundles>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

#[tonic::async_trait]
impl AuditService for Service {
    type StreamEventsStream = Pin<Box<dyn Stream<Item = Result<v1::StreamEventsResponse, Status>> + Send>>;

    async fn stream_events(
        &self,
        request: Request<v1::StreamEventsRequest>,
    ) -> Result<Response<Self::StreamEventsStream>, Status> {
        let v1::StreamEventsRequest { after_sequence, filter, follow, newest_only } = request.into_inner();
        let filter = Filter::from_wire(filter.unwrap_or_default())?;
        self.audit.settle().await;
        let read = self.audit.read_after(after_sequence, follow);
        let lines = if newest_only { read.newest_of(filter) } else { read.all_of(filter) };
        let response = |line: Arc<Line>| v1::StreamEventsResponse { event: Some(to_wire(&line)) };
        let events = lines.map_ok(response).map_err(Status::from);
        if !follow {
            return Ok(Response::new(whole_or_stopped(events, &self.stop)));
        }
        let stop = self.stop.clone();
        Ok(Response::new(Box::pin(events.take_until(stop.cancelled_owned()))))
    }

    async fn query_events(
        &self,
        request: Request<v1::QueryEventsRequest>,
    ) -> Result<Response<v1::QueryEventsResponse>, Status> {
        let request = request.into_inner();
        let order = request.order();
        let filter = request.filter.unwrap_or_default();
        let bound = Bound::to(&[&(order as i32).to_be_bytes()[..], &filter.encode_to_vec()].concat());
        let (size, start) =
            portion::page(request.page_size, MOST_EVENTS, &request.page_token, |token| bound.parse(token))?;
        let newest_first = order != Order::OldestFirst;
        let named = [&filter.run_id, &filter.call_id, &filter.approval_id].map(String::clone);
        let query = Query { filter: Filter::from_wire(filter)?, newest_first, size, start };
        self.audit.settle().await;
        let head_sequence = self.index.head();
        let page = self.index.query(query).await?;
        if start.is_none() && page.is_empty() {
            self.check_home(named).await?;
        }
        portion::answer(v1::QueryEventsResponse {
            events: page.lines.iter().map(to_wire).collect(),
            next_page_token: page.next.map(|next| bound.token(next)).unwrap_or_default(),
            indexed_through: page.through,
            head_sequence,
        })
    }

    type RebuildIndexStream = Pin<Box<dyn Stream<Item = Result<v1::RebuildIndexResponse, Status>> + Send>>;

    async fn rebuild_index(
        &self,
        _request: Request<v1::RebuildIndexRequest>,
    ) -> Result<Response<Self::RebuildIndexStream>, Status> {
        let index = self.index.clone();
        let (states, made) = (index.states(), index.made());
        index.rebuild();
        let progress = stream::unfold(Some((index, states)), move |watching| async move {
            let (index, mut states) = watching?;
            states.changed().await.ok()?;
            let state = *states.borrow_and_update();
            let head_sequence = index.head();
            let answer = |indexed_through| Ok(v1::RebuildIndexResponse { indexed_through, head_sequence });
            match state {
                IndexState::Ready(through) if index.made() > made => Some((answer(through), None)),
                IndexState::Building(through) | IndexState::Ready(through) => {
                    Some((answer(through), Some((index, states))))
                }
                IndexState::Failed => {
                    let refusal = Refusal::internal("making the audit log's index", &"it failed");
                    Some((Err(refusal.into()), None))
                }
            }
        });
        Ok(Response::new(whole_or_stopped(progress, &self.stop)))
    }

    async fn verify_log(
        &self,
        _request: Request<v1::VerifyLogRequest>,
    ) -> Result<Response<v1::VerifyLogResponse>, Status> {
        self.audit.settle().await;
        let Some(head) = self.audit.head() else {
            let unvouched = audit::UNVOUCHED.to_owned();
            return Ok(Response::new(v1::VerifyLogResponse {
                intact: true,
                unvouched,
                ..Default::default()
            }));
        };
        let directory = self.audit.directory().to_owned();
        let _held = self.audit.hold_segments().await;
        let verified =
            tokio::task::spawn_blocking(move || audit::verify_up_to(&directory, head, &mut |_| {})).await;
        let report = verified
            .map_err(|error| Refusal::internal("verifying the audit log", &error))?
            .map_err(|error| Refusal::internal("verifying the audit log", &error))?;
        let damage = match &report.integrity {
            Integrity::Intact => String::new(),
            Integrity::Broken(broken) => broken.to_string(),
        };
        Ok(Response::new(v1::VerifyLogResponse {
            intact: report.is_intact(),
            unvouched: report.unvouched().unwrap_or_default().to_owned(),
            valid_records: report.records,
            last_sequence: report.head.map_or(0, |head| head.sequence),
            head_hash: report.head.map(|head| head.hash.to_string()).unwrap_or_default(),
            damage,
            checkpoints: report.checkpoints,
            covered_records: report.covered,
            removed_records: report.removed,
            verifier_keys: report.keys,
        }))
    }

    type CreateBundleStream = Pin<Box<dyn Stream<Item = Result<v1::CreateBundleResponse, Status>> + Send>>;

    async fn create_bundle(
        &self,
        request: Request<v1::CreateBundleRequest>,
    ) -> Result<Response<Self::CreateBundleStream>, Status> {
        let principal = principal(&request)?;
        let wanted = Wanted::from_wire(request.get_ref())?;
        let (events, receiver) = bundles::Events::new();
        let bundles = self.bundles.clone();
        // The task ends soon after the client has left.
        self.tasks.spawn(async move {
            if let Err(refusal) = bundles.create(&principal, wanted, events.clone()).await {
                events.fail(refusal).await;
            }
        });
        Ok(Response::new(whole_or_stopped(ReceiverStream::new(receiver), &self.stop)))
    }

    async fn get_checkpoint(
        &self,
        _request: Request<v1::GetCheckpointRequest>,
    ) -> Result<Response<v1::GetCheckpointResponse>, Status> {
        let checkpoint = self.audit.checkpoint().await.map_err(Refusal::from)?;
        Ok(Response::new(v1::GetCheckpointResponse { checkpoint: Some(signed(checkpoint)) }))
    }

    async fn rotate_key(
        &self,
        _request: Request<v1::RotateKeyRequest>,
    ) -> Result<Response<v1::RotateKeyResponse>, Status> {
        let checkpoint = self.audit.rotate().await.map_err(Refusal::from)?;
        Ok(Response::new(v1::RotateKeyResponse { checkpoint: Some(signed(checkpoint)) }))
    }
}

impl Service {
    /// Refuses a search that has found nothing by the id of a run, a call or an approval of another node, whose log has the records.
    ///
    /// This log has records of such an id if the daemon had another number before. Then the rest of the filter has found nothing.
    async fn check_home(&self, [run_id, call_id, approval_id]: [String; 3]) -> Result<(), Refusal> {
        let by_run = v1::EventFilter { run_id: run_id.clone(), ..Default::default() };
        let by_call = v1::EventFilter { call_id: call_id.clone(), ..Default::default() };
        let by_approval = v1::EventFilter { approval_id: approval_id.clone(), ..Default::default() };
        for (id, filter) in [(run_id, by_run), (call_id, by_call), (approval_id, by_approval)] {
            let absent = Refusal::absent("record", id, "there is no such record");
            if !absent.is_of_another_node() {
                continue;
            }
            let query =
                Query { filter: Filter::from_wire(filter)?, newest_first: true, size: 1, start: None };
            if self.index.query(query).await?.is_empty() {
                return Err(absent);
            }
        }
        Ok(())
    }
}

fn signed((checkpoint, key): (Checkpoint, String)) -> v1::Checkpoint {
    let Checkpoint { size, root, note, .. } = checkpoint;
    v1::Checkpoint { size, root: root.to_string(), note, verifier_key: key }
}

/// Converts a record that others read as well, without a copy of its input and details, which its line has.
fn to_wire(line: &Line) -> v1::AuditEvent {
    let Record { sequence, time, previous, hash, event, .. } = &line.record;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    v1::AuditEvent {
        sequence: *sequence,
        time: Some(time.to_wire()),
        kind: event.kind.as_str().to_owned(),
        run_id: text(&event.run_id),
        call_id: text(&event.call_id),
        principal: text(&event.principal),
        agent_id: text(&event.agent_id),
        operation: text(&event.operation),
        record_json: line.text.clone(),
        previous_hash: previous.to_string(),
        hash: hash.to_string(),
    }
}
