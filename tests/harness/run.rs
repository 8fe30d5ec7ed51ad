//! A run, and calls in it.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tonic::Status;
use wire::v1::call_request::Request;
use wire::v1::exec_result::EndedBy;
use wire::v1::{self, CallRequest, CallResponse, call_response};

use crate::client::Clients;
use crate::daemon::Daemon;

/// Longer than any call here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// For what comes after an answer: records that nobody waits for, and the index of the log.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// A run that is READY.
#[derive(Clone)]
pub struct RunHandle {
    /// As `CreateRun` answered.
    pub run: Box<v1::Run>,
    /// A connection of its own.
    pub clients: Clients,
}

/// The run as the next daemon has it, after this one was killed.
pub async fn outlives(daemon: &mut Daemon, run: RunHandle) -> RunHandle {
    daemon.relaunch().await;
    RunHandle { clients: daemon.connect().await, ..run }
}

/// Waits for an approval of the run that no reviewer has decided.
pub async fn pending(run: &mut RunHandle) -> v1::Approval {
    let id = run.id().to_owned();
    let pending = run.clients.pending_approval(&id);
    tokio::time::timeout(PATIENCE, pending).await.expect("no reviewer is asked")
}

/// Runs a script that must succeed, and returns what it printed.
pub async fn script(run: &mut RunHandle, script: &str) -> String {
    let result = run.ran(calls::shell(script)).await;
    assert_eq!(result.exit_code, Some(0), "{script}: {}{}", result.stdout, result.stderr);
    result.stdout
}

impl Daemon {
    /// Makes a base of a directory; its id.
    pub async fn base(&self, directory: &Path) -> String {
        let path = directory.display().to_string();
        let source = v1::base_source::Source::Directory(v1::DirectorySource { path });
        let source = Some(v1::BaseSource { source: Some(source) });
        let request = v1::CreateBaseRequest { source, ..v1::CreateBaseRequest::default() };
        let made = self.connect().await.bases.create_base(request).await.unwrap();
        made.into_inner().base.unwrap().base_id
    }

    /// Makes a run on an existing directory.
    pub async fn run(&self, profile: &str, workspace: &Path) -> RunHandle {
        self.run_on(requests::bind(profile, workspace)).await
    }

    /// Makes a run as asked, which must succeed.
    pub async fn run_on(&self, request: v1::CreateRunRequest) -> RunHandle {
        self.run_with(request).await.unwrap_or_else(|status| panic!("{status}\n{}", self.log()))
    }

    /// Makes a run as asked.
    pub async fn run_with(&self, request: v1::CreateRunRequest) -> Result<RunHandle, Status> {
        let mut clients = self.connect().await;
        let run = clients.runs.create_run(request).await?.into_inner().run.unwrap();
        assert_eq!(run.state(), v1::run::State::Ready);
        Ok(RunHandle { run: Box::new(run), clients })
    }
}

impl Clients {
    /// Events as [`Self::events`], once `are` holds for them or it is too late.
    pub async fn events_when(
        &mut self,
        run: &str,
        kind: &str,
        are: impl Fn(&[v1::AuditEvent]) -> bool,
    ) -> Vec<v1::AuditEvent> {
        let until = Instant::now() + AFTERWARDS;
        loop {
            let events = self.events(run, kind).await;
            if are(&events) || Instant::now() > until {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A page from the index, once that has all that is in the log.
    pub async fn indexed(&mut self, request: &v1::QueryEventsRequest) -> v1::QueryEventsResponse {
        let indexed = async {
            loop {
                let page = self.audit.query_events(request.clone()).await.unwrap().into_inner();
                if page.indexed_through >= page.head_sequence {
                    return page;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(AFTERWARDS, indexed).await.expect("the index stays behind")
    }
}

impl RunHandle {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.run.run_id
    }

    /// Makes a call; a refusal is an error.
    pub async fn call(&mut self, operation: impl Into<Request>) -> Result<CallResponse, Status> {
        self.call_with(CallRequest { request: Some(operation.into()), ..Default::default() }).await
    }

    /// Makes a call as asked, in this run.
    pub async fn call_with(&mut self, request: CallRequest) -> Result<CallResponse, Status> {
        let request = CallRequest { run_id: self.run.run_id.clone(), ..request };
        Ok(self.clients.tools.call(request).await?.into_inner())
    }

    /// Makes a call that must succeed.
    pub async fn ok(&mut self, operation: impl Into<Request>) -> v1::result::Kind {
        let response = self.call(operation).await.unwrap();
        assert_eq!(response.status(), call_response::Status::Succeeded, "{:?}", response.error);
        response.into_kind().unwrap()
    }

    /// Makes a call whose tool must fail; its failure.
    pub async fn fails(&mut self, operation: impl Into<Request>) -> v1::ToolFailure {
        let response = self.call(operation).await.unwrap();
        assert_eq!(response.status(), call_response::Status::Failed, "{:?}", response.result);
        response.error.unwrap()
    }

    /// Makes a call that needs consent, and does not wait for it.
    pub async fn asks(&mut self, operation: impl Into<Request>) -> CallResponse {
        let response = self.call(operation).await.unwrap();
        assert_eq!(response.status(), call_response::Status::PendingApproval, "{response:?}");
        response
    }

    /// Makes a call that needs consent and waits, on a connection of its own, until it is over.
    pub fn waits(&self, operation: impl Into<Request>) -> JoinHandle<Result<CallResponse, Status>> {
        let mut run = self.clone();
        let request =
            CallRequest { request: Some(operation.into()), wait_for_approval: true, ..Default::default() };
        tokio::spawn(async move { run.call_with(request).await })
    }

    /// Makes a call that needs consent, and consents: what the reviewer saw, and the answer.
    pub async fn consented(&mut self, operation: impl Into<Request>) -> (v1::Approval, CallResponse) {
        let waiting = self.waits(operation);
        let id = self.id().to_owned();
        let approval = self.clients.pending_approval(&id).await;
        self.clients.approve(&approval.approval_id).await.unwrap();
        (approval, waiting.await.unwrap().unwrap())
    }

    /// Begins a command that takes a minute, and returns when it runs. `ended` appears in the workspace unless
    /// something ends the command before.
    pub async fn works(&self, workspace: &Path) -> JoinHandle<Result<CallResponse, Status>> {
        let working = self.waits(calls::exec(&["sh", "-c", "echo > begun; sleep 60; echo > ended"]));
        let begins = async {
            // A command has no other way to tell.
            while !workspace.join("begun").exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, begins).await.expect("the command does not begin");
        working
    }

    /// A call as it is now.
    pub async fn get(&mut self, call_id: &str) -> CallResponse {
        let request = v1::GetCallRequest { call_id: call_id.to_owned(), ..Default::default() };
        self.clients.tools.get_call(request).await.unwrap().into_inner().call.unwrap()
    }

    /// What a call that was made without waiting has come to.
    pub async fn outcome(&mut self, call_id: &str) -> CallResponse {
        use call_response::Status::{PendingApproval, Running};
        let over = async {
            loop {
                let call = self.get(call_id).await;
                if ![PendingApproval, Running].contains(&call.status()) {
                    return call;
                }
                // GetCall is what clients have; there is no event behind the moment at which it answers.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, over).await.expect("the call is not over")
    }

    /// Runs a command that the policy allows.
    pub async fn exec(&mut self, argv: &[&str]) -> v1::ExecResult {
        self.ran(calls::exec(argv)).await
    }

    /// What a command or a script came to, which may have been ended when its time was over.
    pub async fn ran(&mut self, operation: impl Into<Request>) -> v1::ExecResult {
        let call = self.call(operation).await.unwrap();
        let reason = call.error.as_ref().map(|error| error.reason.as_str());
        let (status, result) = (call.status(), call.kind().cloned());
        let Some(v1::result::Kind::Exec(result) | v1::result::Kind::Shell(result)) = result else {
            panic!("no command: {call:?}")
        };
        let cut_short = result.timed_out || result.ended_by() != EndedBy::Unspecified;
        let expected =
            if cut_short { call_response::Status::Failed } else { call_response::Status::Succeeded };
        assert_eq!((status, reason.is_some()), (expected, cut_short), "{call:?}");
        assert_eq!(reason == Some("TIMED_OUT"), result.timed_out, "{call:?}");
        result
    }

    /// The run as it is now.
    pub async fn show(&mut self) -> v1::Run {
        let request = v1::GetRunRequest { run_id: self.run.run_id.clone() };
        self.clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap()
    }

    /// Waits until the run has ended by itself.
    pub async fn ended(&mut self) -> v1::Run {
        let request = v1::WatchRunsRequest { run_id: self.run.run_id.clone() };
        let mut changes = self.clients.runs.watch_runs(request).await.unwrap().into_inner();
        let ended = async {
            loop {
                let run = changes.message().await.unwrap().expect("the watch ended").run.unwrap();
                if [v1::run::State::Stopped, v1::run::State::Failed].contains(&run.state()) {
                    return run;
                }
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the run does not end")
    }

    /// What its overlay has changed.
    pub async fn diff(&mut self) -> v1::DiffRunResponse {
        let request = v1::DiffRunRequest { run_id: self.run.run_id.clone(), ..Default::default() };
        self.clients.runs.diff_run(request).await.unwrap().into_inner()
    }

    /// Applies what its overlay has changed.
    pub async fn accept(&mut self, force: bool) -> Result<v1::AcceptRunResponse, Status> {
        let request = v1::AcceptRunRequest { run_id: self.run.run_id.clone(), force };
        self.clients.runs.accept_run(request).await.map(tonic::Response::into_inner)
    }

    /// Deletes what its overlay has changed.
    pub async fn discard(&mut self) -> Result<v1::Run, Status> {
        let request = v1::DiscardRunRequest { run_id: self.run.run_id.clone() };
        self.clients.runs.discard_run(request).await.map(|done| done.into_inner().run.unwrap())
    }

    /// Deletes the run with its workspace; it must have ended.
    pub async fn delete(&mut self) {
        let request = v1::DeleteRunRequest { run_id: self.run.run_id.clone(), delete_workspace: true };
        self.clients.runs.delete_run(request).await.unwrap();
    }

    /// Stops the run.
    pub async fn stop(&mut self) -> v1::Run {
        let request = v1::StopRunRequest { run_id: self.run.run_id.clone() };
        self.clients.runs.stop_run(request).await.unwrap().into_inner().run.unwrap()
    }
}

/// Requests for runs, in short.
pub mod requests {
    use std::path::Path;

    use wire::v1::{self, CreateRunRequest, workspace::Source};

    /// On an existing directory.
    pub fn bind(profile: &str, path: &Path) -> CreateRunRequest {
        on(profile, Source::Bind(v1::BindWorkspace { path: path.display().to_string() }))
    }

    /// On an empty directory that the daemon makes.
    pub fn managed(profile: &str) -> CreateRunRequest {
        on(profile, Source::Managed(v1::ManagedWorkspace::default()))
    }

    /// On a clone of a repository.
    pub fn clone(profile: &str, repository: &Path) -> CreateRunRequest {
        let repository = repository.display().to_string();
        on(profile, Source::Clone(v1::CloneWorkspace { repository, ..v1::CloneWorkspace::default() }))
    }

    /// On a clone of a repository on a server.
    pub fn clone_of_url(profile: &str, url: &str, revision: &str, depth: u32) -> CreateRunRequest {
        let (url, revision) = (url.to_owned(), revision.to_owned());
        on(
            profile,
            Source::Clone(v1::CloneWorkspace { url, revision, depth, ..v1::CloneWorkspace::default() }),
        )
    }

    /// Copy-on-write over an existing directory.
    pub fn overlay(profile: &str, path: &Path) -> CreateRunRequest {
        on(profile, Source::Overlay(v1::OverlayWorkspace { path: path.display().to_string() }))
    }

    /// On a base.
    pub fn base(profile: &str, base_id: &str) -> CreateRunRequest {
        on(profile, Source::Base(v1::BaseWorkspace { base_id: base_id.to_owned() }))
    }

    /// With the files of a checkpoint.
    pub fn checkpoint(profile: &str, checkpoint_id: &str) -> CreateRunRequest {
        on(profile, Source::Checkpoint(v1::CheckpointWorkspace { checkpoint_id: checkpoint_id.to_owned() }))
    }

    /// On what an earlier run has left.
    pub fn kept(profile: &str, workspace_id: &str) -> CreateRunRequest {
        on(profile, Source::Managed(v1::ManagedWorkspace { workspace_id: workspace_id.to_owned() }))
    }

    fn on(profile: &str, source: Source) -> CreateRunRequest {
        CreateRunRequest {
            profile: profile.to_owned(),
            agent_id: "tester".to_owned(),
            role: "director".to_owned(),
            workspace: Some(v1::Workspace { source: Some(source) }),
            ..Default::default()
        }
    }
}

/// Operations, in short.
pub mod calls {
    use wire::v1::{self, operation::Kind as Operation};

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
        Operation::Grep(v1::GrepRequest {
            path: path.to_owned(),
            pattern: pattern.to_owned(),
            ..Default::default()
        })
    }

    /// `exec`
    pub fn exec(argv: &[&str]) -> Operation {
        let mut words = argv.iter().map(ToString::to_string);
        let command = words.next().unwrap_or_default();
        Operation::Exec(v1::ExecRequest { command, args: words.collect(), ..Default::default() })
    }

    /// `shell`
    pub fn shell(script: &str) -> Operation {
        Operation::Shell(v1::ShellRequest { script: script.to_owned(), ..Default::default() })
    }

    /// `write`
    pub fn write(path: &str, content: &str) -> Operation {
        Operation::Write(v1::WriteRequest {
            path: path.to_owned(),
            content: content.to_owned(),
            ..Default::default()
        })
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

    /// `patch` by an envelope
    pub fn patch(envelope: &str) -> Operation {
        let change = v1::patch_request::Change::Envelope(envelope.to_owned());
        Operation::Patch(v1::PatchRequest { change: Some(change) })
    }

    /// `delete`
    pub fn delete(path: &str) -> Operation {
        Operation::Delete(v1::DeleteRequest { path: path.to_owned(), ..Default::default() })
    }

    /// `git`
    pub fn git(command: v1::git_request::Command) -> Operation {
        Operation::Git(v1::GitRequest { command: Some(command) })
    }

    /// `git diff`
    pub fn git_diff(flags: &[&str]) -> Operation {
        let flags = flags.iter().map(ToString::to_string).collect();
        git(v1::git_request::Command::Diff(v1::GitDiff { flags, paths: Vec::new() }))
    }

    /// `git log`
    pub fn git_log(revision: &str) -> Operation {
        let log = v1::GitLog { revision: revision.to_owned(), ..Default::default() };
        git(v1::git_request::Command::Log(log))
    }

    /// `git show`
    pub fn git_show(revision: &str) -> Operation {
        let show = v1::GitShow { revision: revision.to_owned(), ..Default::default() };
        git(v1::git_request::Command::Show(show))
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
