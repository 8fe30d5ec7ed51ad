//! The daemon that is measured, and runs in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::v1::operation::Kind as Operation;
use harness::v1::run_service_client::RunServiceClient;
use harness::v1::tool_service_client::ToolServiceClient;
use harness::v1::{CallRequest, CallResponse, CreateRunRequest, DeleteRunRequest, Run, StopRunRequest};
use harness::{Daemon, Setup, binary, requests};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::stage::FILE_BYTES;

/// The profile of all runs here: nothing asks and nothing is limited.
pub(crate) const PROFILE: &str = "open";
/// The profile whose runs have a writable root.
const WRITABLE: &str = "harness";
/// How often is looked whether the pool is filled, and how long at most.
const LOOK: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(600);
/// Its file in the workspace of every run.
pub(crate) const FILE: &str = "file";

/// A daemon, and a client of it.
pub(crate) struct Ours {
    pub(crate) daemon: Daemon,
    pub(crate) client: Client,
}

/// A connection of its own.
#[derive(Clone)]
pub(crate) struct Client {
    /// Of every run.
    image: String,
    profile: &'static str,
    env: BTreeMap<String, String>,
    runs: RunServiceClient<Channel>,
    pub(crate) tools: ToolServiceClient<Channel>,
}

impl Ours {
    /// Starts one whose runs are made when they are asked for.
    pub(crate) async fn cold(image: &str) -> Self {
        Self::start(image, String::new()).await
    }

    /// Starts one that keeps so many containers ready.
    pub(crate) async fn warm(image: &str, ready: usize) -> Self {
        Self::start(image, pool(PROFILE, image, ready)).await
    }

    /// Starts one that keeps so many containers with a writable root ready, for runs that bring a variable.
    pub(crate) async fn writable(image: &str, ready: usize) -> Self {
        let config = format!("harness_on_bind: allow\n{}", pool(WRITABLE, image, ready));
        let mut ours = Self::start(image, config).await;
        ours.client.profile = WRITABLE;
        ours.client.env = [("BENCH".to_owned(), "1".to_owned())].into();
        ours
    }

    async fn start(image: &str, config: String) -> Self {
        let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
        let client = Client::connect(&daemon, image).await;
        Self { daemon, client }
    }

    /// A workspace with a file of 4 KiB, an ordinary user's as most are.
    pub(crate) fn workspace(&self, name: &str) -> PathBuf {
        let line = format!("{:63}\n", "a line of a file that an agent reads");
        self.daemon.workspace(name, &[(FILE, &line.repeat(FILE_BYTES / line.len()))])
    }
}

impl Client {
    /// It lives on the thread that asks.
    pub(crate) async fn connect(daemon: &Daemon, image: &str) -> Self {
        let endpoint = Endpoint::try_from(format!("unix:{}", daemon.socket().display())).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let (runs, tools) = (RunServiceClient::new(channel.clone()), ToolServiceClient::new(channel));
        Self { image: image.to_owned(), profile: PROFILE, env: BTreeMap::new(), runs, tools }
    }

    /// A run on a workspace, READY.
    pub(crate) async fn create(&self, workspace: &Path) -> Result<Run, Status> {
        let (image, env) = (self.image.clone(), self.env.clone());
        let request = CreateRunRequest { image, env, ..requests::bind(self.profile, workspace) };
        Ok(self.runs.clone().create_run(request).await?.into_inner().run.unwrap())
    }

    /// A call in a run, which must be answered.
    pub(crate) async fn call(&self, run: &Run, operation: Operation) -> CallResponse {
        self.tools.clone().call(call(run, operation)).await.unwrap().into_inner()
    }

    pub(crate) async fn stop(&self, run: &Run) {
        self.runs.clone().stop_run(StopRunRequest { run_id: run.run_id.clone() }).await.unwrap();
    }

    pub(crate) async fn delete(&self, run: &Run) {
        let request = DeleteRunRequest { run_id: run.run_id.clone(), delete_workspace: false };
        self.runs.clone().delete_run(request).await.unwrap();
    }
}

pub(crate) fn call(run: &Run, operation: Operation) -> CallRequest {
    CallRequest { run_id: run.run_id.clone(), request: Some(operation.into()), ..Default::default() }
}

/// How a daemon is told to keep so many containers ready for the runs here.
fn pool(profile: &str, image: &str, ready: usize) -> String {
    format!("pool: [{{ profile: {profile}, image: \"{image}\", min: {ready}, max: {ready} }}]\n")
}

/// Whether this daemon can keep containers ready.
pub(crate) fn has_pool(image: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().display();
    let file = directory.path().join("cofferd.yaml");
    fs::write(&file, format!("state_dir: {place}/state\nworkspace_roots: []\n{}", pool(PROFILE, image, 1)))
        .unwrap();
    let mut check = Command::new(binary("cofferd"));
    check.arg("--config").arg(&file).arg("--check-config").stdin(Stdio::null());
    check.output().unwrap().status.success()
}

/// Waits until so many containers are there, the last of which may be about to be ready. They are made one after the other.
pub(crate) async fn filled(ours: &Ours, ready: usize) {
    let fills = async {
        // Nothing tells but the engine.
        while ours.daemon.containers().len() < ready {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, fills).await.expect("the pool is not filled");
}
