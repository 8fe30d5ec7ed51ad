//! Pauses, resumes and stops runs.

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use wire::v1::{PauseRunRequest, ResumeRunRequest, StopRunRequest};

use super::super::request::id;
use super::{TITLE, show};
use crate::State;
use crate::api::quick;
use crate::error::{Problem, redirect};
use crate::form::Checked;
use crate::layout::{csrf, page};
use crate::viewer::Viewer;

pub(super) fn routes() -> Router<State> {
    Router::new()
        .route("/runs/{run}/pause", post(pause))
        .route("/runs/{run}/resume", post(resume))
        .route("/runs/{run}/stop", get(asked).post(stop))
}

async fn pause(Path(run): Path<String>, Checked { viewer, .. }: Checked) -> Result<Response, Problem> {
    let run_id = id(run)?;
    viewer.services.runs().pause_run(quick(PauseRunRequest { run_id: run_id.clone() })).await?;
    Ok(back(&run_id))
}

async fn resume(Path(run): Path<String>, Checked { viewer, .. }: Checked) -> Result<Response, Problem> {
    let run_id = id(run)?;
    let request = ResumeRunRequest { run_id: run_id.clone(), lift_alerts: false };
    viewer.services.runs().resume_run(quick(request)).await?;
    Ok(back(&run_id))
}

/// Asks before the run is stopped.
async fn asked(viewer: Viewer, Path(run): Path<String>) -> Result<Response, Problem> {
    Ok(page(TITLE, Some(&viewer), show::confirm_stop(&id(run)?, &csrf(&viewer))))
}

async fn stop(Path(run): Path<String>, Checked { viewer, .. }: Checked) -> Result<Response, Problem> {
    let run_id = id(run)?;
    viewer.services.runs().stop_run(quick(StopRunRequest { run_id: run_id.clone() })).await?;
    Ok(back(&run_id))
}

fn back(run: &str) -> Response {
    redirect(&format!("/runs/{run}"))
}
