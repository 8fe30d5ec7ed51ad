//! A run, and calls in it.

use std::path::Path;

use tonic::Status;
use wire::v1::{self, CallRequest, CallResponse, call_request::Operation, call_response};

use crate::client::Clients;
use crate::daemon::Daemon;

/// A run that is READY.
pub struct RunHandle {
    /// As `CreateRun` answered.
    pub run: v1::Run,
    /// A connection of its own.
    pub clients: Clients,
}

impl Daemon {
    /// Makes a run on an existing directory.
    pub async fn run(&self, profile: &str, workspace: &Path) -> RunHandle {
        let source = v1::workspace::Source::Bind(v1::BindWorkspace { path: workspace.display().to_string() });
        let request = v1::CreateRunRequest {
            profile: profile.to_owned(),
            agent_id: "tester".to_owned(),
            role: "director".to_owned(),
            workspace: Some(v1::Workspace { source: Some(source) }),
            ..Default::default()
        };
        self.run_with(request).await.unwrap_or_else(|status| panic!("{status}\n{}", self.log()))
    }

    /// Makes a run as asked.
    pub async fn run_with(&self, request: v1::CreateRunRequest) -> Result<RunHandle, Status> {
        let mut clients = self.connect().await;
        let run = clients.runs.create_run(request).await?.into_inner().run.unwrap();
        assert_eq!(run.state(), v1::run::State::Ready);
        Ok(RunHandle { run, clients })
    }
}

impl RunHandle {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.run.run_id
    }

    /// Makes a call; a refusal is an error.
    pub async fn call(&mut self, operation: Operation) -> Result<CallResponse, Status> {
        self.call_with(CallRequest { operation: Some(operation), ..Default::default() }).await
    }

    /// Makes a call as asked, in this run.
    pub async fn call_with(&mut self, request: CallRequest) -> Result<CallResponse, Status> {
        let request = CallRequest { run_id: self.run.run_id.clone(), ..request };
        Ok(self.clients.tools.call(request).await?.into_inner())
    }

    /// Makes a call that must succeed.
    pub async fn ok(&mut self, operation: Operation) -> call_response::Result {
        let response = self.call(operation).await.unwrap();
        assert_eq!(response.status(), call_response::Status::Succeeded, "{:?}", response.error);
        response.result.unwrap()
    }

    /// Makes a call whose tool must fail; its failure.
    pub async fn fails(&mut self, operation: Operation) -> v1::ToolFailure {
        let response = self.call(operation).await.unwrap();
        assert_eq!(response.status(), call_response::Status::Failed, "{:?}", response.result);
        response.error.unwrap()
    }

    /// Runs a command that the policy allows.
    pub async fn exec(&mut self, argv: &[&str]) -> v1::ExecResult {
        match self.ok(calls::exec(argv)).await {
            call_response::Result::Exec(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Stops the run.
    pub async fn stop(&mut self) -> v1::Run {
        let request = v1::StopRunRequest { run_id: self.run.run_id.clone() };
        self.clients.runs.stop_run(request).await.unwrap().into_inner().run.unwrap()
    }
}

/// Operations, in short.
pub mod calls {
    use wire::v1::{self, call_request::Operation};

    /// `read`
    pub fn read(path: &str) -> Operation {
        Operation::Read(v1::ReadRequest { path: path.to_owned(), ..Default::default() })
    }

    /// `list`
    pub fn list(path: &str) -> Operation {
        Operation::List(v1::ListRequest { path: path.to_owned(), ..Default::default() })
    }

    /// `grep`, literal
    pub fn grep(path: &str, pattern: &str) -> Operation {
        Operation::Grep(v1::GrepRequest { path: path.to_owned(), pattern: pattern.to_owned(), ..Default::default() })
    }

    /// `exec`
    pub fn exec(argv: &[&str]) -> Operation {
        let mut words = argv.iter().map(ToString::to_string);
        let command = words.next().unwrap_or_default();
        Operation::Exec(v1::ExecRequest { command, args: words.collect(), ..Default::default() })
    }

    /// `write`
    pub fn write(path: &str, content: &str) -> Operation {
        Operation::Write(v1::WriteRequest { path: path.to_owned(), content: content.to_owned(), ..Default::default() })
    }

    /// `edit`, replacing text
    pub fn replace(path: &str, old: &str, new: &str) -> Operation {
        let change = v1::StrReplace { old_str: old.to_owned(), new_str: new.to_owned(), replace_all: false };
        Operation::Edit(v1::EditRequest {
            path: path.to_owned(),
            change: Some(v1::edit_request::Change::StrReplace(change)),
            ..Default::default()
        })
    }

    /// `edit`, creating a file
    pub fn create(path: &str, content: &str) -> Operation {
        Operation::Edit(v1::EditRequest {
            path: path.to_owned(),
            change: Some(v1::edit_request::Change::Create(v1::CreateFile { content: content.to_owned() })),
            ..Default::default()
        })
    }

    /// `git`
    pub fn git(command: v1::git_request::Command) -> Operation {
        Operation::Git(v1::GitRequest { command: Some(command) })
    }

    /// `git add`
    pub fn git_add(paths: &[&str]) -> Operation {
        let paths = paths.iter().map(ToString::to_string).collect();
        git(v1::git_request::Command::Add(v1::GitAdd { paths }))
    }

    /// `git commit`
    pub fn git_commit(message: &str) -> Operation {
        git(v1::git_request::Command::Commit(v1::GitCommit { message: message.to_owned() }))
    }
}
