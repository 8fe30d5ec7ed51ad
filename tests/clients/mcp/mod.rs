//! MCP: clients that others have written, against a real daemon and a real container.

mod approvals;
mod calls;
mod conformance;
mod crowds;
mod http;
mod instructions;
mod python;
mod repair;
mod stdio;
mod traced;

use std::path::Path;

use harness::{Daemon, RunHandle, requests, v1};

pub(crate) use self::python::{Client, text};

/// A run with a token of its own.
async fn run_with_token(daemon: &Daemon, profile: &str, workspace: &Path) -> (RunHandle, String) {
    let request = v1::CreateRunRequest { issue_token: true, ..requests::bind(profile, workspace) };
    let mut clients = daemon.connect().await;
    let created = clients.runs.create_run(request).await.unwrap().into_inner();
    (RunHandle { run: Box::new(created.run.unwrap()), clients }, created.token)
}
