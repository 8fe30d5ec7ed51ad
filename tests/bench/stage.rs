//! The stage of every part of the benchmark: a daemon, one run, and the contents of its workspace.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use harness::v1::operation::Kind as Operation;
use harness::v1::tool_service_client::ToolServiceClient;
use harness::v1::{CallRequest, CallResponse, call_response};
use harness::{Daemon, RunHandle, Setup, requests};
use tonic::transport::{Channel, Endpoint};

use crate::args::Args;
use crate::engine::Engine;
use crate::program;
use crate::tree::{self, Tree};

/// Bytes of the file that is read.
pub(crate) const FILE_BYTES: usize = 4096;
/// Entries of the directory that is listed.
pub(crate) const ENTRIES: usize = 200;
/// Where the workspace is inside the container.
pub(crate) const INSIDE: &str = "/workspace";

/// The set-up. It is taken down with the value.
pub(crate) struct Stage {
    pub(crate) daemon: Daemon,
    pub(crate) run: RunHandle,
    pub(crate) engine: Engine,
    /// What is searched, where there is something to search.
    pub(crate) tree: Tree,
}

impl Stage {
    /// Makes the workspace, starts the daemon and the run.
    pub(crate) async fn set(args: &Args) -> Self {
        let ripgrep = ripgrep();
        let daemon = Daemon::start().await;
        let place = daemon.roots().join("bench");
        fs::create_dir(&place).unwrap();
        let line = format!("{:63}\n", "a line of a file that an agent reads");
        fs::write(place.join("file"), line.repeat(FILE_BYTES / line.len())).unwrap();
        fs::create_dir(place.join("many")).unwrap();
        for number in 0..ENTRIES {
            fs::write(place.join(format!("many/{number:03}.txt")), "").unwrap();
        }
        let tree = tree::copy(args.tree.as_deref(), &place.join("tree"));
        install(&ripgrep, &place.join("rg"));
        install(&program::compile("stopwatch", daemon.outside()), &place.join("stopwatch"));
        // Gives it to an ordinary user, as most workspaces are.
        let workspace = daemon.workspace("bench", &[]);
        let run = daemon.run("open", &workspace).await;
        Self { daemon, run, engine: Engine::find(), tree }
    }

    /// A daemon and a run for the host lane, in a workspace that `fill` fills.
    pub(crate) async fn set_with(fill: impl FnOnce(&Path)) -> Self {
        Self::set_up(Setup::default(), fill).await
    }

    /// The same with a daemon that is set up in another way.
    pub(crate) async fn set_up(setup: Setup, fill: impl FnOnce(&Path)) -> Self {
        let daemon = Daemon::start_with(setup).await;
        let place = daemon.roots().join("bench");
        fs::create_dir(&place).unwrap();
        fill(&place);
        let workspace = daemon.workspace("bench", &[]);
        let run = daemon.run("open", &workspace).await;
        Self { daemon, run, engine: Engine::find(), tree: Tree::default() }
    }

    /// A daemon and a run of the profile `harness`, in a workspace of the daemon's own.
    pub(crate) async fn workplace() -> Self {
        let daemon = Daemon::start().await;
        let run = daemon.run_on(requests::managed("harness")).await;
        Self { daemon, run, engine: Engine::find(), tree: Tree::default() }
    }

    /// The workspace on the host.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.daemon.roots().join("bench")
    }

    /// The run's container.
    pub(crate) fn container(&self) -> &str {
        &self.run.run.container_id
    }

    /// A connection of its own, which lives on the thread that asks.
    pub(crate) async fn connect(&self) -> Channel {
        let endpoint = Endpoint::try_from(format!("unix:{}", self.daemon.socket().display())).unwrap();
        endpoint.connect().await.unwrap()
    }

    /// The same, on which as many bytes may come unread.
    pub(crate) async fn connect_with(&self, window: u32) -> Channel {
        let endpoint = Endpoint::try_from(format!("unix:{}", self.daemon.socket().display())).unwrap();
        let endpoint = endpoint.initial_stream_window_size(window).initial_connection_window_size(2 * window);
        endpoint.connect().await.unwrap()
    }

    /// A client of a connection of its own.
    pub(crate) async fn tools(&self) -> ToolServiceClient<Channel> {
        ToolServiceClient::new(self.connect().await).max_decoding_message_size(16 << 20)
    }

    /// A call in this run.
    pub(crate) fn call(&self, operation: Operation) -> CallRequest {
        CallRequest {
            run_id: self.run.id().to_owned(),
            request: Some(operation.into()),
            ..Default::default()
        }
    }

    /// A command by a fresh exec of the engine; what it wrote.
    pub(crate) async fn exec(&self, argv: &[&str]) -> Vec<u8> {
        self.engine.exec(self.container(), argv).await
    }
}

/// What a call came to, which must be well.
pub(crate) fn succeeded(response: CallResponse) -> harness::v1::result::Kind {
    assert_eq!(response.status(), call_response::Status::Succeeded, "{:?}", response.error);
    response.into_kind().unwrap()
}

/// Copies a program, so that every user can run it.
pub(crate) fn install(program: &Path, to: &Path) {
    fs::copy(program, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The static ripgrep that `tests/bench.sh` has built.
fn ripgrep() -> PathBuf {
    let given = std::env::var_os("COFFERDAM_RG").map(PathBuf::from);
    let path =
        given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/ripgrep/bin/rg"));
    assert!(path.exists(), "{} is missing: run tests/bench.sh, which builds it", path.display());
    path
}
