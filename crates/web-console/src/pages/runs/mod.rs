//! The pages of runs.

mod actions;
mod changes;
mod connections;
mod files;
mod head;
mod lineage;
mod list;
mod look;
mod output;
mod show;

use axum::Router;
use axum::extract::{Path, State as Extracted};
use axum::response::Response;
use axum::routing::get;
use futures_util::StreamExt as _;
use wire::v1::attach_process_response::Event;
use wire::v1::watch_connections_response::Update;
use wire::v1::{
    AttachProcessRequest, DiffRunRequest, GetEgressRequest, GetRateLimitsRequest, GetRunRequest,
    ListProcessesRequest, ListRunsRequest, ListSessionsRequest, WatchConnectionsRequest, WatchRunsRequest,
};

use super::elements::Part;
use super::request::{Query, id, is_maker, part_of};
use crate::State;
use crate::api::quick;
use crate::error::Problem;
use crate::events;
use crate::layout::{csrf, live_page, page};
use crate::viewer::Viewer;

pub(super) use head::head;

/// Runs among which the tree of forks is looked for: the newest.
const FAMILY: u32 = 500;
/// Connections and refused hosts that are read. The daemon keeps fewer.
const CONNECTIONS: usize = 4_096;
/// Bytes of a diff that are asked for when all of it is wanted.
const WHOLE_DIFF: u32 = 1024 * 1024;
/// Words of the pages in the navigation.
const TITLE: &str = "Runs";

pub(super) fn routes() -> Router<State> {
    Router::new()
        .route("/runs", get(listed))
        .route("/runs/{run}", get(shown))
        .route("/events/runs", get(any_change))
        .route("/events/runs/{run}", get(changes_of))
        .route("/runs/{run}/changes", get(changed))
        .route("/runs/{run}/connections", get(connected))
        .route("/runs/{run}/processes/{process}", get(written))
        .merge(actions::routes())
        .merge(look::routes())
}

async fn listed(viewer: Viewer, Query(query): Query) -> Result<Response, Problem> {
    let filter = list::Filter::of(&query);
    let request = ListRunsRequest {
        page_size: list::PAGE,
        page_token: filter.page.clone(),
        state: filter.state().into(),
        ..Default::default()
    };
    let answer = viewer.services.runs().list_runs(quick(request)).await?.into_inner();
    Ok(live_page(
        TITLE,
        &viewer,
        "/events/runs",
        list::render(&answer.runs, &filter, &answer.next_page_token),
    ))
}

async fn shown(viewer: Viewer, Path(run): Path<String>) -> Result<Response, Problem> {
    let run_id = id(run)?;
    let (services, run) = (&viewer.services, || run_id.clone());
    let found = services.runs().get_run(quick(GetRunRequest { run_id: run() })).await?.into_inner().run;
    let found = found.ok_or_else(Problem::not_found)?;
    let (mut runs, mut processes, mut sessions, mut limits) =
        (services.runs(), services.processes(), services.sessions(), services.limits());
    let (family, processes, sessions, limits) = tokio::join!(
        runs.list_runs(quick(ListRunsRequest { page_size: FAMILY, ..Default::default() })),
        processes.list_processes(quick(ListProcessesRequest { run_id: run(), ..Default::default() })),
        sessions.list_sessions(quick(ListSessionsRequest { run_id: run(), ..Default::default() })),
        limits.get_rate_limits(quick(GetRateLimitsRequest { run_id: run(), ..Default::default() })),
    );
    let found = show::Shown {
        run: found,
        family: part_of(family).map(|found| found.runs).unwrap_or_default(),
        processes: part_of(processes).map(|found| found.processes),
        sessions: part_of(sessions).map(|found| found.sessions),
        limits: part_of(limits),
    };
    let hidden = is_maker(&viewer).then(|| csrf(&viewer));
    let events = format!("/events/runs/{run_id}");
    Ok(live_page(TITLE, &viewer, &events, show::render(&found, hidden.as_ref())))
}

async fn any_change(state: Extracted<State>, viewer: Viewer) -> Result<Response, Problem> {
    watch(state, viewer, String::new()).await
}

async fn changes_of(
    state: Extracted<State>,
    viewer: Viewer,
    Path(run): Path<String>,
) -> Result<Response, Problem> {
    watch(state, viewer, id(run)?).await
}

/// Tells a page when a run has changed, or any run.
async fn watch(
    Extracted(state): Extracted<State>,
    viewer: Viewer,
    run_id: String,
) -> Result<Response, Problem> {
    let changes = viewer.services.runs().watch_runs(WatchRunsRequest { run_id }).await?.into_inner();
    let changes = changes.take_while(|change| std::future::ready(change.is_ok())).map(drop);
    events::answer(&state, &viewer, Box::pin(changes))
}

async fn changed(viewer: Viewer, Path(run): Path<String>, Query(query): Query) -> Result<Response, Problem> {
    let run_id = id(run)?;
    let is_all = !query.get("all").is_empty();
    let request =
        DiffRunRequest { run_id: run_id.clone(), max_diff_bytes: if is_all { WHOLE_DIFF } else { 0 } };
    let answer = part_of(viewer.services.runs().diff_run(quick(request)).await);
    Ok(page(TITLE, Some(&viewer), changes::render(&run_id, &answer, is_all)))
}

async fn connected(viewer: Viewer, Path(run): Path<String>) -> Result<Response, Problem> {
    let run_id = id(run)?;
    let services = &viewer.services;
    let egress = services.egress().get_egress(quick(GetEgressRequest { run_id: run_id.clone() })).await;
    let egress = part_of(egress).map(|found| found.egress.unwrap_or_default());
    let connections = connections_of(&viewer, &run_id).await;
    Ok(page(TITLE, Some(&viewer), connections::render(&run_id, &egress, &connections)))
}

async fn connections_of(viewer: &Viewer, run: &str) -> Part<connections::Connections> {
    let request = WatchConnectionsRequest { run_id: run.to_owned(), follow: false };
    let mut updates = part_of(viewer.services.egress().watch_connections(quick(request)).await)?;
    let mut found = connections::Connections::default();
    for _ in 0..CONNECTIONS {
        match updates
            .message()
            .await
            .map_err(|status| status.message().to_owned())?
            .and_then(|next| next.update)
        {
            Some(Update::Connection(connection)) => found.connections.push(connection),
            Some(Update::Refused(refused)) => found.refused.push(refused),
            None => break,
        }
    }
    Ok(found)
}

async fn written(viewer: Viewer, Path((run, process)): Path<(String, String)>) -> Result<Response, Problem> {
    let (run_id, process_id) = (id(run)?, id(process)?);
    let output = output_of(&viewer, &run_id, &process_id).await;
    Ok(page(TITLE, Some(&viewer), output::render(&run_id, &output)))
}

/// Reads the end of what a process has written.
async fn output_of(viewer: &Viewer, run: &str, process: &str) -> Part<output::Output> {
    let mut processes = viewer.services.processes();
    let all = ListProcessesRequest { run_id: run.to_owned(), ..Default::default() };
    let all = part_of(processes.list_processes(quick(all)).await)?.processes;
    let found = all.into_iter().find(|one| one.process_id == process);
    let found = found.ok_or_else(|| "The run has no process of this id.".to_owned())?;
    let from = |bytes: u64| bytes.saturating_sub(output::BYTES as u64);
    let request = AttachProcessRequest {
        run_id: run.to_owned(),
        process_id: process.to_owned(),
        stdout_offset: from(found.stdout_bytes),
        stderr_offset: from(found.stderr_bytes),
        follow: false,
    };
    let mut output = output::Output { process: found, ..Default::default() };
    output.stdout.skip(request.stdout_offset);
    output.stderr.skip(request.stderr_offset);
    let mut events = part_of(processes.attach_process(quick(request)).await)?;
    while let Some(message) = events.message().await.map_err(|status| status.message().to_owned())? {
        match message.event {
            Some(Event::Output(piece)) => output.tail(piece.stream()).push(&piece.data),
            Some(Event::Gap(gap)) => output.tail(gap.stream()).skip(gap.bytes),
            Some(Event::Process(process)) => output.process = process,
            None => {}
        }
    }
    Ok(output)
}
