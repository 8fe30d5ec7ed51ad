//! Which of the calls for a place to work in each shipped profile allows: one table, tried whole.

use std::collections::BTreeSet;

use harness::v1::{self, CreateRunRequest};
use harness::{Clients, Daemon, RunHandle, debian, process, reason, requests, session};
use identity::METHODS;
use tonic::{Code, Response, Status};
use v1::decide_approval_request::Decision;

/// `allow`: it goes by itself. `ask`: not without a reviewer. `deny`: it is refused, by its reason for that. `none`: there is none of what
/// it is about, because none can be made. `invalid`: the profile has no such thing to ask for. Importing and building of images is
/// the host's affair: roles open it (`access.rs`), whatever the profile.
const TABLE: &str = "
                                build     harness   open      review    strict
CreateRun: an image             allow     allow     allow     allow     allow
CreateRun: a bind workspace     allow     deny      allow     allow     allow
CreateRun: a lease and a ttl    allow     allow     allow     allow     allow
CreateRun: env CI               allow     allow     allow     allow     deny
CreateRun: env PATH             deny      allow     allow     deny      deny
CreateRun: secret_env TOOL_KEY  deny      allow     allow     deny      deny
CreateRun: writable_paths       invalid   allow     invalid   invalid   invalid
ListImages                      allow     allow     allow     allow     allow
StartProcess                    deny      allow     deny      deny      deny
AttachProcess                   none      allow     none      none      none
WriteStdin                      none      allow     none      none      none
ResizeTerminal                  none      allow     none      none      none
SignalProcess                   none      allow     none      none      none
WaitProcess                     none      allow     none      none      none
ListProcesses                   allow     allow     allow     allow     allow
OpenSession                     deny      allow     deny      deny      deny
RunInSession                    deny      allow     deny      deny      deny
InterruptSession                none      allow     none      none      none
CloseSession                    none      allow     none      none      none
ListSessions                    allow     allow     allow     allow     allow
UploadFile                      allow     allow     allow     ask       ask
UploadFile: to /tmp             deny      allow     deny      deny      deny
UploadArchive                   allow     allow     allow     ask       ask
UploadArchive: to /tmp          deny      allow     deny      deny      deny
DownloadFile                    allow     allow     allow     allow     allow
DownloadFile: of /etc           deny      allow     deny      deny      deny
DownloadArchive                 allow     allow     allow     allow     allow
DownloadArchive: of /etc        deny      allow     deny      deny      deny
GetUpload                       allow     allow     allow     allow     allow
KeepAliveRun                    allow     allow     allow     allow     allow
ExtendRun                       allow     allow     allow     allow     allow
PauseRun                        allow     allow     allow     allow     allow
ResumeRun                       allow     allow     allow     allow     allow
IssueRunToken                   allow     allow     allow     allow     allow
";

const PROFILES: [&str; 5] = ["build", "harness", "open", "review", "strict"];
/// The id of nothing.
const UNKNOWN: &str = "01a2003d-e913-7000-8000-00000000aaaa";
const HOUR: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Answers to calls, each with its name.
type Answers = Vec<(&'static str, &'static str)>;

fn answer<T>(result: Result<T, Status>) -> &'static str {
    match result {
        Ok(_) => "allow",
        Err(status) => match status.code() {
            Code::PermissionDenied => {
                let reasons = ["PERMISSION_DENIED", "COMMAND_NOT_ALLOWED", "SANDBOX_VIOLATION"];
                assert!(reasons.contains(&reason(&status).as_str()), "{status}");
                "deny"
            }
            Code::NotFound => "none",
            Code::InvalidArgument => "invalid",
            _ => panic!("{status}"),
        },
    }
}

/// The answer to a call that may need consent, which is refused: the run goes on.
async fn asked<T>(
    clients: &mut Clients,
    result: Result<Response<T>, Status>,
    approval_id: fn(&T) -> &str,
) -> &'static str {
    let result = result.map(Response::into_inner);
    let Some(approval) = result.as_ref().ok().map(approval_id).filter(|id| !id.is_empty()) else {
        return answer(result);
    };
    clients.decide(approval, Decision::Deny).await.unwrap();
    // A run that was held while its reviewer read goes on in a moment.
    let paused = v1::ListRunsRequest { state: v1::run::State::Paused.into(), ..Default::default() };
    while !clients.runs.list_runs(paused.clone()).await.unwrap().into_inner().runs.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    "ask"
}

fn variable(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// What the profile says when the run is made.
async fn making(daemon: &Daemon, profile: &str) -> Answers {
    let create = async |change: fn(&mut CreateRunRequest)| {
        let mut request = requests::managed(profile);
        change(&mut request);
        let made = daemon.run_with(request).await;
        let answer = answer(made.as_ref().map(|_| ()).map_err(Clone::clone));
        if let Ok(mut run) = made {
            run.stop().await;
        }
        answer
    };
    let bind = requests::bind(profile, &daemon.workspace(profile, &[]));
    let mut clients = daemon.connect().await;
    let bound = clients.runs.create_run(bind).await.map(drop);
    let images = clients.images.list_images(v1::ListImagesRequest::default()).await.unwrap().into_inner();
    let image = images.images.iter().find(|image| image.reference == debian()).unwrap();
    let is_listed = image.profiles.iter().any(|listed| listed == profile);
    vec![
        ("CreateRun: an image", create(|request| request.image = debian()).await),
        ("CreateRun: a bind workspace", answer(bound)),
        (
            "CreateRun: a lease and a ttl",
            create(|request| {
                request.lease = Some(wire::duration(HOUR));
                request.ttl = Some(wire::duration(HOUR));
            })
            .await,
        ),
        ("CreateRun: env CI", create(|request| request.env.extend([variable("CI", "1")])).await),
        ("CreateRun: env PATH", create(|request| request.env.extend([variable("PATH", "/x")])).await),
        (
            "CreateRun: secret_env TOOL_KEY",
            create(|request| request.secret_env.extend([variable("TOOL_KEY", "hunter2")])).await,
        ),
        (
            "CreateRun: writable_paths",
            create(|request| request.writable_paths.push("/logs".to_owned())).await,
        ),
        ("ListImages", if is_listed { "allow" } else { "deny" }),
    ]
}

async fn processes(run: &mut RunHandle) -> Answers {
    let request = v1::ProcessRequest {
        terminal: Some(v1::TerminalSize { columns: 80, rows: 24 }),
        ..process::command(&["cat"])
    };
    let started = run.try_start(request).await;
    let id = match &started {
        Ok(started) => started.process.as_ref().unwrap().process_id.clone(),
        Err(_) => UNKNOWN.to_owned(),
    };
    let (run_id, process_id) = (run.id().to_owned(), id.clone());
    let size = Some(v1::TerminalSize { columns: 90, rows: 30 });
    let resize = v1::ResizeTerminalRequest { run_id: run_id.clone(), process_id: id.clone(), size };
    let wait = v1::WaitProcessRequest {
        run_id: run_id.clone(),
        process_id,
        timeout: Some(wire::duration(HOUR / 3_600)),
    };
    let list = v1::ListProcessesRequest { run_id, ..Default::default() };
    vec![
        ("StartProcess", answer(started)),
        ("AttachProcess", answer(run.attach(&id, 0, false).await)),
        ("WriteStdin", answer(run.feed(&id, 0, b"a\n", false).await)),
        ("ResizeTerminal", answer(run.clients.processes.resize_terminal(resize).await)),
        ("WaitProcess", answer(run.clients.processes.wait_process(wait).await)),
        ("ListProcesses", answer(run.clients.processes.list_processes(list).await)),
        ("SignalProcess", answer(run.send(&id, v1::signal_process_request::Signal::Kill).await)),
    ]
}

async fn sessions(run: &mut RunHandle) -> Answers {
    let opened = run.try_open(v1::OpenSessionRequest::default()).await;
    let id = match &opened {
        Ok(opened) => opened.session.as_ref().unwrap().session_id.clone(),
        Err(_) => UNKNOWN.to_owned(),
    };
    let used = run.try_in_session(session::command(&id, "true")).await;
    let (run_id, session_id) = (run.id().to_owned(), id.clone());
    let interrupt = v1::InterruptSessionRequest { run_id, session_id, ..Default::default() };
    let close = v1::CloseSessionRequest { run_id: run.id().to_owned(), session_id: id };
    let list = v1::ListSessionsRequest { run_id: run.id().to_owned(), ..Default::default() };
    vec![
        ("OpenSession", answer(opened)),
        ("RunInSession", answer(used)),
        ("InterruptSession", answer(run.clients.sessions.interrupt_session(interrupt).await)),
        ("ListSessions", answer(run.clients.sessions.list_sessions(list).await)),
        ("CloseSession", answer(run.clients.sessions.close_session(close).await)),
    ]
}

async fn upload(run: &mut RunHandle, path: &str) -> &'static str {
    use v1::upload_file_request::Piece;
    let begin = v1::BeginUpload { size_bytes: Some(2), ..run.begin(path) };
    let pieces = [Piece::Begin(begin), Piece::Data(b"a\n".to_vec().into())];
    let messages = pieces.map(|piece| v1::UploadFileRequest { piece: Some(piece) });
    let result = run.clients.files.upload_file(tokio_stream::iter(messages)).await;
    asked(&mut run.clients, result, |uploaded| &uploaded.approval_id).await
}

async fn upload_archive(run: &mut RunHandle, path: &str) -> &'static str {
    use v1::upload_archive_request::Piece;
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(2);
    header.set_mode(0o644);
    tar.append_data(&mut header, "a.txt", &b"a\n"[..]).unwrap();
    let pieces = [Piece::Begin(run.begin(path)), Piece::Data(tar.into_inner().unwrap().into())];
    let messages = pieces.map(|piece| v1::UploadArchiveRequest { piece: Some(piece) });
    let result = run.clients.files.upload_archive(tokio_stream::iter(messages)).await;
    asked(&mut run.clients, result, |uploaded| &uploaded.approval_id).await
}

async fn files(run: &mut RunHandle) -> Answers {
    use v1::upload_file_request::Piece;
    // An upload that breaks off, so that there is something to go on with.
    let begin = v1::BeginUpload { upload_id: UNKNOWN.to_owned(), size_bytes: Some(10), ..run.begin("b.txt") };
    let pieces = [Piece::Begin(begin), Piece::Data(b"half".to_vec().into())];
    let messages = pieces.map(|piece| v1::UploadFileRequest { piece: Some(piece) });
    run.clients.files.upload_file(tokio_stream::iter(messages)).await.unwrap_err();
    let get = v1::GetUploadRequest { run_id: run.id().to_owned(), upload_id: UNKNOWN.to_owned() };
    vec![
        ("UploadFile", upload(run, "a.txt").await),
        ("UploadFile: to /tmp", upload(run, "/tmp/a.txt").await),
        ("UploadArchive", upload_archive(run, "tree").await),
        ("UploadArchive: to /tmp", upload_archive(run, "/tmp/tree").await),
        ("DownloadFile", answer(run.download("mine.txt", 0).await)),
        ("DownloadFile: of /etc", answer(run.download("/etc/passwd", 0).await)),
        ("DownloadArchive", answer(run.download_archive(".").await)),
        ("DownloadArchive: of /etc", answer(run.download_archive("/etc").await)),
        ("GetUpload", answer(run.clients.files.get_upload(get).await)),
    ]
}

async fn lives(run: &mut RunHandle) -> Answers {
    let run_id = || run.run.run_id.clone();
    let runs = &mut run.clients.runs;
    let extend = v1::ExtendRunRequest { run_id: run_id(), ttl: Some(wire::duration(2 * HOUR)) };
    let token = v1::IssueRunTokenRequest { run_id: run_id() };
    let resume = v1::ResumeRunRequest { run_id: run_id(), ..Default::default() };
    vec![
        ("KeepAliveRun", answer(runs.keep_alive_run(v1::KeepAliveRunRequest { run_id: run_id() }).await)),
        ("ExtendRun", answer(runs.extend_run(extend).await)),
        ("PauseRun", answer(runs.pause_run(v1::PauseRunRequest { run_id: run_id() }).await)),
        ("ResumeRun", answer(runs.resume_run(resume).await)),
        ("IssueRunToken", answer(runs.issue_run_token(token).await)),
    ]
}

/// All that the table asks of one profile.
async fn column(daemon: &Daemon, profile: &str) -> Answers {
    let mut answers = making(daemon, profile).await;
    let request = CreateRunRequest {
        image: debian(),
        // Its calls are counted for it alone.
        agent_id: profile.to_owned(),
        lease: Some(wire::duration(HOUR)),
        ttl: Some(wire::duration(HOUR)),
        ..requests::managed(profile)
    };
    let mut run = daemon.run_on(request).await;
    let written = run.waits(harness::calls::write("mine.txt", "mine\n"));
    if ["review", "strict"].contains(&profile) {
        let id = run.id().to_owned();
        let approval = run.clients.pending_approval(&id).await;
        run.clients.approve(&approval.approval_id).await.unwrap();
    }
    written.await.unwrap().unwrap();
    answers.extend(processes(&mut run).await);
    answers.extend(sessions(&mut run).await);
    answers.extend(files(&mut run).await);
    answers.extend(lives(&mut run).await);
    run.stop().await;
    answers
}

/// The first words of the table's lines.
fn rows() -> Vec<&'static str> {
    TABLE.trim_start_matches('\n').lines().skip(1).map(|line| line[..32].trim_end()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cell_of_new_methods_and_shipped_profiles_is_as_the_table_says() {
    let daemon = Daemon::start().await;
    let mut columns = Vec::new();
    for profile in PROFILES {
        columns.push(Box::pin(column(&daemon, profile)).await);
    }
    let line = |first: &str, cells: &[&str]| {
        let line = cells.iter().fold(format!("{first:<32}"), |line, cell| format!("{line}{cell:<10}"));
        line.trim_end().to_owned() + "\n"
    };
    let mut found = "\n".to_owned() + &line("", &PROFILES);
    for row in rows() {
        let cell = |column: &Answers| column.iter().find(|(name, _)| *name == row).map_or("?", |cell| cell.1);
        found += &line(row, &columns.iter().map(cell).collect::<Vec<_>>());
    }
    assert!(found == TABLE, "this was found:{found}");
    assert!(columns.iter().all(|column| column.len() == rows().len()));
}

#[test]
fn the_table_has_every_method_of_processes_sessions_and_files() {
    let named: BTreeSet<_> = rows().into_iter().map(|row| row.split(':').next().unwrap()).collect();
    let services = ["ProcessService", "SessionService", "FileService"];
    let methods: Vec<_> = METHODS
        .iter()
        .filter_map(|method| method.path.strip_prefix("/cofferdam.v1.")?.split_once('/'))
        .filter(|(service, _)| services.contains(service))
        .map(|(_, method)| method)
        .collect();
    assert!(methods.len() >= 17, "{methods:?}");
    for method in methods {
        assert!(named.contains(method), "{method} is in no row");
    }
}
