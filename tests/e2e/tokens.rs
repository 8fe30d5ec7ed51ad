//! API tokens: made, used by TLS and by the socket, limited, ended.

use std::time::Duration;

use harness::{
    Bearer, Certificates, Clients, Daemon, RunHandle, Setup, as_user, binary, calls, process, reason, record,
    requests, v1,
};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;
use wire::v1::token_service_client::TokenServiceClient;

fn token(name: &str, roles: &[&str]) -> v1::Token {
    let roles = roles.iter().map(ToString::to_string).collect();
    v1::Token { name: name.to_owned(), roles, ..Default::default() }
}

async fn daemon(certificates: &Certificates, keys: &str) -> Daemon {
    let tcp = certificates.listen(&format!("tokens: {{}}, {keys}"));
    Daemon::start_with(Setup { tcp, ..Default::default() }).await
}

/// Exit code, standard output, standard error.
async fn coffer(
    daemon: &Daemon,
    certificates: &Certificates,
    token: &str,
    line: &[&str],
) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(binary("coffer"));
    command.env("COFFERDAM_ENDPOINT", daemon.url("https")).env("COFFERDAM_TOKEN", token);
    command.arg("--ca").arg(certificates.authority()).args(line).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output.expect("coffer does not end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn coffer_makes_uses_lists_and_revokes_one() {
    let certificates = Certificates::make(&["op"]);
    let tcp = certificates.listen("tokens: {}");
    let config = "access: [{ certificate: op, roles: [operator, orchestrator] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { tcp, config, ..Default::default() }).await;
    let operator = async |line: &[&str]| {
        let mut command = tokio::process::Command::new(binary("coffer"));
        command
            .env("COFFERDAM_ENDPOINT", daemon.url("https"))
            .env("COFFERDAM_TLS", certificates.client("op"));
        let output = command.args(line).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let made = [
        "token",
        "create",
        "ci",
        "--role",
        "orchestrator",
        "--profile",
        "open",
        "--from",
        "127.0.0.1",
        "--for",
        "2h",
    ];
    let secret = operator(&made).await.trim().to_owned();
    assert!(secret.starts_with("cfa_"), "{secret}");
    let ci = async |line: &[&str]| coffer(&daemon, &certificates, &secret, line).await;
    let run = ["--output", "json", "run", "create", "--profile", "open", "--agent", "a", "--managed"];
    let (code, out, err) = ci(&run).await;
    assert_eq!(code, 0, "{err}");
    let run: serde_json::Value = serde_json::from_str(&out).unwrap();
    let id = run["run"]["runId"].as_str().or(run["runId"].as_str()).unwrap();
    let (code, out, err) = ci(&["call", "exec", id, "--", "echo", "from afar"]).await;
    assert_eq!((code, out.as_str()), (0, "from afar\n"), "{err}");
    let (code, _, err) = ci(&["token", "list"]).await;
    assert!(code == 3 && err.contains("limited to runs or profiles"), "{code} {err}");
    let (code, _, err) = ci(&["run", "create", "--profile", "build", "--agent", "a", "--managed"]).await;
    assert!(code == 3 && err.contains("limited to runs or to other profiles"), "{code} {err}");

    let listed = operator(&["token", "list"]).await;
    for word in ["ci", "orchestrator", "profiles open; from 127.0.0.1/32", "cert:op"] {
        assert!(listed.contains(word), "{word}: {listed}");
    }
    assert!(!listed.contains(&secret[45..]), "{listed}");
    let record_of = operator(&["--output", "json", "token", "list"]).await;
    let listed: serde_json::Value = serde_json::from_str(&record_of).unwrap();
    let token_id = listed[0]["tokenId"].as_str().unwrap();
    assert_eq!(operator(&["token", "revoke", &token_id[28..]]).await.trim(), token_id);
    let (code, _, err) = ci(&["run", "list"]).await;
    assert!(code == 3 && err.contains("was revoked"), "{code} {err}");
    assert!(operator(&["token", "list"]).await.is_empty());
    assert!(operator(&["token", "list", "--all"]).await.contains("revoked 2"));

    // Each change is on record, and so are the attempts.
    let mut own = daemon.connect().await;
    for kind in ["token_created", "token_revoked"] {
        let events = own.events("", kind).await;
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!(
            (event.principal.as_str(), &record(event)["details"]["id"]),
            ("cert:op", &token_id.into())
        );
        assert_eq!(record(event)["details"]["name"], "ci");
        assert_eq!(record(event)["details"]["roles"], serde_json::json!(["orchestrator"]));
    }
    let attempts = own.events_when("", "escalation_attempt", |events| events.len() == 2).await;
    let attempts: Vec<_> = attempts.iter().map(|event| record(event)["details"]["attempt"].clone()).collect();
    assert_eq!(attempts, ["method_with_api_token", "revoked_token"]);
    let created = own.events("", "run_created").await;
    assert_eq!(created[0].principal, "token:ci");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_limited_to_its_scope_and_to_the_roles_of_its_maker() {
    let certificates = Certificates::make(&[]);
    let tcp = certificates.listen("tokens: { max_lifetime: 1d }");
    let config = "access: [{ uid: 12345, roles: [operator] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { tcp, config, ..Default::default() }).await;
    daemon.expose();
    let workspace = daemon.workspace("w", &[("a.txt", "here\n")]);
    let mut open = daemon.run("open", &workspace).await;
    let mut build = daemon.run_on(requests::managed("build")).await;
    let channel = certificates.connect(&daemon, None).await.unwrap();
    let mut remote = Clients::on(channel);
    let read = |run: &str| v1::CallRequest {
        run_id: run.to_owned(),
        request: Some(calls::list(".").into()),
        ..Default::default()
    };
    let of_open = open.call(calls::read("a.txt")).await.unwrap().call_id;
    let of_build = build.call(calls::list(".")).await.unwrap().call_id;
    let narrow = [
        v1::Token { profiles: vec!["open".into()], ..token("p", &["operator", "approver"]) },
        v1::Token { run_ids: vec![open.id().to_owned()], ..token("r", &["operator", "approver"]) },
    ];
    for narrow in narrow {
        let (_, secret) = daemon.token(narrow, None).await;
        let bearer = Bearer::new(&secret);
        let listed = remote.runs.list_runs(bearer.shows(v1::ListRunsRequest::default())).await.unwrap();
        let listed: Vec<_> = listed.into_inner().runs.into_iter().map(|run| run.run_id).collect();
        assert_eq!(listed, [open.id()]);
        remote.tools.call(bearer.shows(read(open.id()))).await.unwrap();
        let refused = remote.tools.call(bearer.shows(read(build.id()))).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        let get = |call_id: &str| v1::GetCallRequest { call_id: call_id.to_owned(), ..Default::default() };
        remote.tools.get_call(bearer.shows(get(&of_open))).await.unwrap();
        let refused = remote.tools.get_call(bearer.shows(get(&of_build))).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        for stop in [
            remote
                .runs
                .stop_run(bearer.shows(v1::StopRunRequest { run_id: build.id().to_owned() }))
                .await
                .err(),
            remote.runs.create_run(bearer.shows(requests::managed("build"))).await.err(),
        ] {
            assert!(matches!(stop.unwrap().code(), Code::NotFound | Code::PermissionDenied));
        }
    }

    let mut tokens = TokenServiceClient::new(daemon.connect().await.channel);
    let mut refused = async |token: v1::Token, seconds: i64| {
        let lifetime = Some(prost_types::Duration { seconds, nanos: 0 });
        let request = v1::CreateTokenRequest { token: Some(token), lifetime };
        tokens.create_token(request).await.unwrap_err().message().to_owned()
    };
    let auditor = || token("a", &["auditor"]);
    for (bad, seconds, says) in [
        (auditor(), 90_000, "lifetime: "),
        (auditor(), 0, "lifetime: "),
        (token("", &["auditor"]), 60, "token.name: "),
        (token("a b", &["auditor"]), 60, "token.name: "),
        (token("a", &[]), 60, "token.roles: "),
        (token("a", &["king"]), 60, "token.roles: "),
        (v1::Token { profiles: vec!["nope".into()], ..auditor() }, 60, "token.profiles: "),
        (v1::Token { run_ids: vec!["nope".into()], ..auditor() }, 60, "no such run"),
        (v1::Token { source_networks: vec!["nope".into()], ..auditor() }, 60, "token.source_networks: "),
        (v1::Token { source_networks: vec!["10.0.0.0/8".into(); 65], ..auditor() }, 60, "more than 64"),
    ] {
        let said = refused(bad, seconds).await;
        assert!(said.contains(says), "{says}: {said}");
    }
    let given = as_user(12_345, &daemon.socket(), async |clients| {
        let mut tokens = TokenServiceClient::new(clients.channel);
        let ask = |roles: &[&str]| v1::CreateTokenRequest { token: Some(token("a", roles)), lifetime: None };
        tokens.create_token(ask(&["operator"])).await.unwrap();
        tokens.create_token(ask(&["operator", "approver"])).await.unwrap_err()
    })
    .await;
    assert_eq!(reason(&given), "PERMISSION_DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_token_that_opened_it_and_survives_no_restart() {
    let certificates = Certificates::make(&[]);
    let mut daemon = daemon(&certificates, "").await;
    let follow = async |secret: &str| {
        let channel = certificates.connect(&daemon, None).await.unwrap();
        let request = v1::StreamEventsRequest { follow: true, ..Default::default() };
        let stream = Clients::on(channel).audit.stream_events(Bearer::new(secret).shows(request)).await;
        let mut stream = stream.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
        stream
    };
    let (lasting, lasting_secret) = daemon.token(token("a", &["auditor"]), None).await;
    let long = follow(&lasting_secret).await;
    let (_, short_secret) = daemon.token(token("b", &["auditor"]), Some(Duration::from_secs(5))).await;
    let short = follow(&short_secret).await;
    let ended = tokio::time::timeout(Duration::from_secs(30), end_of(short)).await.unwrap();
    assert_eq!(reason(&ended), "PERMISSION_DENIED");
    let mut tokens = TokenServiceClient::new(daemon.connect().await.channel);
    let waiting = tokio::spawn(end_of(long));
    let token_id = lasting.token_id;
    for _ in 0..2 {
        tokens.revoke_token(v1::RevokeTokenRequest { token_id: token_id.clone() }).await.unwrap();
    }
    let ended = tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
    assert_eq!(reason(&ended), "PERMISSION_DENIED");
    assert!(ended.message().contains("has expired or was revoked"), "{ended}");

    let (_, kept) = daemon.token(token("c", &["auditor"]), None).await;
    daemon.stop().await;
    daemon.launch().await;
    let channel = certificates.connect(&daemon, None).await.unwrap();
    let mut remote = Clients::on(channel);
    let verify = || v1::VerifyLogRequest {};
    remote.audit.verify_log(Bearer::new(&kept).shows(verify())).await.unwrap();
    for (secret, says) in [(&lasting_secret, "was revoked"), (&short_secret, "has expired")] {
        let refused = remote.audit.verify_log(Bearer::new(secret).shows(verify())).await.unwrap_err();
        assert!(refused.message().contains(says), "{refused}");
    }
}

/// By the Unix socket and by TCP, for each kind of request that waits or streams. The next token goes on.
#[tokio::test(flavor = "multi_thread")]
async fn r3_replacing_a_run_token_ends_its_streams() {
    let certificates = Certificates::make(&[]);
    let daemon = daemon(&certificates, "").await;
    let request = v1::CreateRunRequest { issue_token: true, ..requests::managed("harness") };
    let mut local = daemon.connect().await;
    let created = local.runs.create_run(request).await.unwrap().into_inner();
    let mut run = RunHandle { run: Box::new(created.run.unwrap()), clients: local.clone() };
    let run_id = run.id().to_owned();
    let process_id = run.start(process::command(&["sleep", "600"])).await.process_id;
    let wait =
        v1::WaitProcessRequest { run_id: run_id.clone(), process_id: process_id.clone(), timeout: None };
    let attach =
        v1::AttachProcessRequest { run_id: run_id.clone(), process_id, follow: true, ..Default::default() };
    let call = v1::CallRequest {
        run_id: run_id.clone(),
        request: Some(calls::exec(&["sleep", "600"]).into()),
        ..Default::default()
    };
    let upload = v1::UploadFileRequest {
        piece: Some(v1::upload_file_request::Piece::Begin(v1::BeginUpload {
            size_bytes: Some(1 << 20),
            ..run.begin("f")
        })),
    };
    let mut token = created.token;
    let remote = Clients::on(certificates.connect(&daemon, None).await.unwrap());
    for clients in [local.clone(), remote] {
        let shown = Bearer::new(&token);
        let mut open = JoinSet::new();
        let (mut c, request) = (clients.clone(), shown.shows(wait.clone()));
        open.spawn(async move { ("WaitProcess", c.processes.wait_process(request).await.unwrap_err()) });
        let (mut c, request) = (clients.clone(), shown.shows(call.clone()));
        open.spawn(async move { ("Call", c.tools.call(request).await.unwrap_err()) });
        let endless = tokio_stream::once(upload.clone()).chain(tokio_stream::pending());
        let (mut c, request) = (clients.clone(), shown.shows(endless));
        open.spawn(async move { ("UploadFile", c.files.upload_file(request).await.unwrap_err()) });
        let mut c = clients.clone();
        let attached = c.processes.attach_process(shown.shows(attach.clone())).await.unwrap().into_inner();
        open.spawn(async move { ("AttachProcess", end_of(attached).await) });
        let mut streamed = c.tools.call_stream(shown.shows(call.clone())).await.unwrap().into_inner();
        let accepted = streamed.message().await.unwrap().unwrap().event.unwrap();
        let v1::call_stream_response::Event::Accepted(accepted) = accepted else { panic!("{accepted:?}") };
        open.spawn(async move { ("CallStream", end_of(streamed).await) });

        // They all wait, beside a call that ends.
        let read = v1::CallRequest { request: Some(calls::list(".").into()), ..call.clone() };
        c.tools.call(shown.shows(read)).await.unwrap();
        assert!(open.try_join_next().is_none());
        let issue = v1::IssueRunTokenRequest { run_id: run_id.clone() };
        token = local.runs.issue_run_token(issue).await.unwrap().into_inner().token;
        let ends = async {
            while let Some(ended) = open.join_next().await {
                let (name, ended) = ended.unwrap();
                assert_eq!(reason(&ended), "PERMISSION_DENIED", "{name}: {ended}");
                assert!(ended.message().contains("has expired or was revoked"), "{name}: {ended}");
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ends).await.expect("a request outlives its token");
        let soon = Some(wire::duration(Duration::from_secs(1)));
        let again = v1::WaitProcessRequest { timeout: soon, ..wait.clone() };
        let waited = c.processes.wait_process(Bearer::new(&token).shows(again)).await.unwrap().into_inner();
        assert_eq!(waited.process.unwrap().state(), v1::process::State::Running);
        // Calls go on, as they do when a client leaves.
        let get = v1::GetCallRequest { call_id: accepted.call_id, ..Default::default() };
        let call = c.tools.get_call(Bearer::new(&token).shows(get)).await.unwrap().into_inner().call.unwrap();
        assert_eq!(call.status(), v1::call_response::Status::Running);
    }
}

/// A call under way is not known to its client any longer: the request is refused as the stream is.
#[tokio::test(flavor = "multi_thread")]
async fn r3_a_request_that_waits_ends_with_the_api_token_that_opened_it() {
    let certificates = Certificates::make(&[]);
    let daemon = daemon(&certificates, "").await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let process_id = run.start(process::command(&["sleep", "600"])).await.process_id;
    let (held, secret) = daemon.token(token("o", &["operator"]), None).await;
    let wait = v1::WaitProcessRequest { run_id: run.id().to_owned(), process_id, timeout: None };
    let mut remote = Clients::on(certificates.connect(&daemon, None).await.unwrap());
    let request = Bearer::new(&secret).shows(wait);
    let waiting = tokio::spawn(async move { remote.processes.wait_process(request).await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished());
    let mut tokens = TokenServiceClient::new(daemon.connect().await.channel);
    tokens.revoke_token(v1::RevokeTokenRequest { token_id: held.token_id }).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("it outlives its token");
    assert_eq!(reason(&ended.unwrap().unwrap_err()), "PERMISSION_DENIED");
}

/// The status that a stream ends with.
async fn end_of<T>(mut stream: tonic::Streaming<T>) -> tonic::Status {
    loop {
        if let Err(status) = stream.next().await.expect("it ended in good order") {
            return status;
        }
    }
}

/// The same principal on two connections; another one is not held up.
#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_requests_of_a_principal_are_bounded() {
    let certificates = Certificates::make(&[]);
    let daemon = daemon(&certificates, "streams_per_principal: 3").await;
    let (_, secret) = daemon.token(token("a", &["auditor"]), None).await;
    let (_, other) = daemon.token(token("b", &["auditor"]), None).await;
    let mut streams = Vec::new();
    let watch = async |secret: &str| {
        let channel = certificates.connect(&daemon, None).await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let path = PathAndQuery::from_static("/cofferdam.v1.RunService/WatchRuns");
        let codec = tonic_prost::ProstCodec::<v1::WatchRunsRequest, v1::WatchRunsResponse>::default();
        client.server_streaming(Bearer::new(secret).shows(v1::WatchRunsRequest::default()), path, codec).await
    };
    for _ in 0..3 {
        streams.push(watch(&secret).await.unwrap());
    }
    let refused = watch(&secret).await.unwrap_err();
    assert_eq!(reason(&refused), "OVERLOADED");
    watch(&other).await.unwrap();
    streams.pop();
    // The daemon hears of the end on its own connection.
    let again = async {
        while watch(&secret).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("no place came back");
}
