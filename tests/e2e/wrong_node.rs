//! Two daemons of a fleet: each answers for its own ids, and refuses what is for the other with that node's number.

use harness::v1::{self, CreateRunRequest, GetRunRequest};
use harness::{Bearer, Daemon, Setup, binary, calls, reason, requests};
use node_id::{NODE_METADATA, NodeId};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// An id of a daemon without a node.
const PLAIN: &str = "0198a1b2-0000-7000-8000-00000000aaaa";

fn node(number: u16) -> NodeId {
    NodeId::try_from(number).unwrap()
}

async fn start(number: u16) -> Daemon {
    let config = format!("node: {{ id: {number} }}\n");
    Daemon::start_with(Setup { config, ..Setup::default() }).await
}

/// A request that names a node.
fn to<T>(message: T, node: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(NODE_METADATA, node.parse().unwrap());
    request
}

fn get(run_id: &str) -> GetRunRequest {
    GetRunRequest { run_id: run_id.to_owned() }
}

/// The node that answers, as the metadata of its answer says.
fn answers(metadata: &MetadataMap) -> Option<&str> {
    let mut named = metadata.get_all(NODE_METADATA).iter();
    let node = named.next().map(|node| node.to_str().unwrap());
    assert!(named.next().is_none(), "{metadata:?}");
    node
}

/// Checks a refusal by `here`, a node or none, of what is for the node `asked`.
fn is_for(refused: &Status, asked: &str, here: Option<&str>) {
    assert_eq!((refused.code(), reason(refused).as_str()), (Code::FailedPrecondition, "WRONG_NODE"));
    let details = refused.get_error_details();
    let facts = &details.error_info().unwrap().metadata;
    assert_eq!(facts.get("asked").map(String::as_str), Some(asked), "{refused:?}");
    assert_eq!(facts.get("node").map(String::as_str), here, "{refused:?}");
    assert_eq!(answers(refused.metadata()), here);
    assert!(refused.message().contains(&format!("for node {asked}")), "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_another_node_is_refused_before_anything_is_done() {
    let (one, two) = (start(1).await, start(2).await);
    let mut run = one.run_on(requests::managed("review")).await;
    let id = run.id().to_owned();
    assert_eq!(NodeId::of_text(&id), Some(node(1)));
    let mut other = two.connect().await;

    let found = run.clients.runs.get_run(to(get(&id), "1")).await.unwrap();
    assert_eq!(answers(found.metadata()), Some("1"));
    is_for(&other.runs.get_run(to(get(&id), "1")).await.unwrap_err(), "1", Some("2"));
    is_for(&run.clients.runs.get_run(to(get(&id), "2")).await.unwrap_err(), "2", Some("1"));

    // Also of what it could do: the header counts.
    let request = CreateRunRequest { request_id: "r1".to_owned(), ..requests::managed("review") };
    is_for(&other.runs.create_run(to(request, "1")).await.unwrap_err(), "1", Some("2"));
    let listed = other.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap();
    assert_eq!(answers(listed.metadata()), Some("2"));
    assert!(listed.into_inner().runs.is_empty());
    assert!(other.events("", "run_created").await.is_empty());
    // Streams as well.
    let watch = v1::WatchRunsRequest { run_id: id.clone() };
    is_for(&other.runs.watch_runs(to(watch, "1")).await.unwrap_err(), "1", Some("2"));

    for malformed in ["", "0", "01", "65536", "1,1", "one", "-1"] {
        let refused = run.clients.runs.get_run(to(get(&id), malformed)).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "INVALID_ARGUMENT"));
        let details = refused.get_error_details();
        assert_eq!(details.error_info().unwrap().metadata["field"], NODE_METADATA, "{malformed:?}");
    }
    let mut twice = to(get(&id), "1");
    twice.metadata_mut().append(NODE_METADATA, "1".parse().unwrap());
    assert_eq!(run.clients.runs.get_run(twice).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(run.call(calls::list(".")).await.unwrap().status(), v1::call_response::Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_of_another_node_is_refused_with_its_node() {
    let (one, two) = (start(1).await, start(2).await);
    let mut run = one.run_on(requests::managed("open")).await;
    let (id, call_id) = (run.id().to_owned(), run.call(calls::write("a", "b")).await.unwrap().call_id);
    assert_eq!(NodeId::of_text(&call_id), Some(node(1)));
    let mut other = two.connect().await;
    is_for(&other.runs.get_run(get(&id)).await.unwrap_err(), "1", Some("2"));
    let stop = v1::StopRunRequest { run_id: id.clone() };
    is_for(&other.runs.stop_run(stop).await.unwrap_err(), "1", Some("2"));
    let request = Some(calls::list(".").into());
    let call = v1::CallRequest { run_id: id.clone(), request, ..Default::default() };
    is_for(&other.tools.call(call).await.unwrap_err(), "1", Some("2"));
    let get_call = v1::GetCallRequest { call_id: call_id.clone(), ..Default::default() };
    is_for(&other.tools.get_call(get_call).await.unwrap_err(), "1", Some("2"));
    let elsewhere = || node(1).new_id().to_string();
    let approval = v1::GetApprovalRequest { approval_id: elsewhere() };
    is_for(&other.approvals.get_approval(approval).await.unwrap_err(), "1", Some("2"));
    let decide = v1::DecideApprovalRequest {
        approval_id: elsewhere(),
        decision: v1::decide_approval_request::Decision::Deny.into(),
        ..Default::default()
    };
    is_for(&other.approvals.decide_approval(decide).await.unwrap_err(), "1", Some("2"));
    let base = v1::GetBaseRequest { base_id: elsewhere() };
    is_for(&other.bases.get_base(base).await.unwrap_err(), "1", Some("2"));
    let checkpoint = v1::GetRunCheckpointRequest { checkpoint_id: elsewhere() };
    is_for(&other.checkpoints.get_run_checkpoint(checkpoint).await.unwrap_err(), "1", Some("2"));
    let alert = v1::GetAlertRequest { alert_id: elsewhere() };
    is_for(&other.alerts.get_alert(alert).await.unwrap_err(), "1", Some("2"));
    // Nothing found would look like nothing to find.
    let run_id = id.clone();
    let approvals = v1::ListApprovalsRequest { run_id, ..Default::default() };
    is_for(&other.approvals.list_approvals(approvals).await.unwrap_err(), "1", Some("2"));
    let watch = v1::WatchApprovalsRequest { run_id: id.clone() };
    is_for(&other.approvals.watch_approvals(watch).await.map(drop).unwrap_err(), "1", Some("2"));
    let consents = v1::ListConsentsRequest { run_id: id.clone() };
    is_for(&other.approvals.list_consents(consents).await.unwrap_err(), "1", Some("2"));
    let alerts = v1::ListAlertsRequest { run_id: id.clone(), ..Default::default() };
    is_for(&other.alerts.list_alerts(alerts).await.unwrap_err(), "1", Some("2"));
    let checkpoints = v1::ListCheckpointsRequest { run_id: id.clone(), ..Default::default() };
    is_for(&other.checkpoints.list_checkpoints(checkpoints).await.unwrap_err(), "1", Some("2"));
    let filter = Some(v1::EventFilter { call_id: call_id.clone(), ..Default::default() });
    let events = v1::QueryEventsRequest { filter, ..Default::default() };
    is_for(&other.audit.query_events(events).await.unwrap_err(), "1", Some("2"));
    let on_base = requests::base("open", &elsewhere());
    is_for(&two.run_with(on_base).await.map(drop).unwrap_err(), "1", Some("2"));

    // Ids that another node cannot have made are unknown, as before.
    for unknown in [node(2).new_id().to_string(), PLAIN.to_owned(), "no id".to_owned()] {
        let refused = other.runs.get_run(get(&unknown)).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "NOT_FOUND"), "{unknown}");
        assert_eq!(answers(refused.metadata()), Some("2"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_new_number_answers_for_what_it_has() {
    let mut daemon = start(1).await;
    let (id, call_id) = {
        let mut run = daemon.run_on(requests::managed("open")).await;
        (run.id().to_owned(), run.call(calls::write("a", "b")).await.unwrap().call_id)
    };
    daemon.stop().await;
    // As after the restore of a backup on a host with another number.
    let config = std::fs::read_to_string(daemon.config_path()).unwrap();
    std::fs::write(daemon.config_path(), config.replace("node: { id: 1 }", "node: { id: 2 }")).unwrap();
    daemon.launch().await;

    let mut clients = daemon.connect().await;
    let approvals = v1::ListApprovalsRequest { run_id: id.clone(), ..Default::default() };
    let listed = clients.approvals.list_approvals(approvals).await.unwrap();
    assert_eq!(answers(listed.metadata()), Some("2"));
    assert!(listed.into_inner().approvals.is_empty());
    let search = |run_id: &str, call_id: &str| {
        let filter = v1::EventFilter {
            run_id: run_id.to_owned(),
            call_id: call_id.to_owned(),
            kinds: vec!["console_session".to_owned()],
            ..Default::default()
        };
        v1::QueryEventsRequest { filter: Some(filter), ..Default::default() }
    };
    for (run_id, call_id) in [(id.as_str(), ""), ("", call_id.as_str()), (id.as_str(), call_id.as_str())] {
        let found = clients.audit.query_events(search(run_id, call_id)).await.unwrap().into_inner();
        assert!(found.events.is_empty(), "{found:?}");
    }
    // This id was never here.
    let elsewhere = node(1).new_id().to_string();
    for (run_id, call_id) in
        [(elsewhere.as_str(), ""), ("", elsewhere.as_str()), (id.as_str(), elsewhere.as_str())]
    {
        let refused = clients.audit.query_events(search(run_id, call_id)).await.unwrap_err();
        is_for(&refused, "1", Some("2"));
    }
    let approvals = v1::ListApprovalsRequest { run_id: elsewhere, ..Default::default() };
    is_for(&clients.approvals.list_approvals(approvals).await.unwrap_err(), "1", Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chosen_id_may_not_be_another_nodes() {
    let two = start(2).await;
    let mut clients = two.connect().await;
    let chosen = |run_id: &str| CreateRunRequest {
        request_id: run_id.to_owned(),
        run_id: run_id.to_owned(),
        ..requests::managed("review")
    };
    let elsewhere = node(1).new_id().to_string();
    is_for(&clients.runs.create_run(chosen(&elsewhere)).await.unwrap_err(), "1", Some("2"));
    assert!(clients.events("", "run_created").await.is_empty());
    for id in [node_id::new_id().to_string(), node(2).new_id().to_string()] {
        let made = clients.runs.create_run(chosen(&id)).await.unwrap();
        // So a client learns where a run is whose id does not say it.
        assert_eq!(answers(made.metadata()), Some("2"));
        assert_eq!(made.into_inner().run.unwrap().run_id, id);
        assert_eq!(
            clients.runs.get_run(to(get(&id), "2")).await.unwrap().into_inner().run.unwrap().run_id,
            id
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_made_before_the_node_had_an_id_are_found() {
    let mut daemon = Daemon::start().await;
    let before = daemon.run_on(requests::managed("review")).await.id().to_owned();
    assert_eq!(NodeId::of_text(&before), None);
    let mut clients = daemon.connect().await;
    let answer = clients.runs.get_run(get(&before)).await.unwrap();
    assert_eq!(answers(answer.metadata()), None);
    is_for(&clients.runs.get_run(to(get(&before), "1")).await.unwrap_err(), "1", None);

    daemon.stop().await;
    let config = std::fs::read_to_string(daemon.config_path()).unwrap();
    std::fs::write(daemon.config_path(), format!("{config}\nnode: {{ id: 1 }}\n")).unwrap();
    daemon.launch().await;
    let after = daemon.run_on(requests::managed("review")).await.id().to_owned();
    assert_eq!(NodeId::of_text(&after), Some(node(1)));
    let mut clients = daemon.connect().await;
    for id in [&before, &after] {
        assert_eq!(clients.runs.get_run(get(id)).await.unwrap().into_inner().run.unwrap().run_id, *id);
        assert!(clients.runs.get_run(to(get(id), "1")).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_at_the_wrong_node_is_no_attempt_to_get_in() {
    let (one, two) = (start(1).await, start(2).await);
    let mut clients = one.connect().await;
    let request = CreateRunRequest { issue_token: true, ..requests::managed("harness") };
    let made = clients.runs.create_run(request).await.unwrap().into_inner();
    let (id, token) = (made.run.unwrap().run_id, made.token);
    let list = || v1::ListToolsRequest { run_id: id.clone(), ..Default::default() };
    let shown = Bearer::new(&token);
    let mut other = two.connect().await;
    let mut request = shown.shows(list());
    request.metadata_mut().insert(NODE_METADATA, "1".parse().unwrap());
    is_for(&other.tools.list_tools(request).await.unwrap_err(), "1", Some("2"));
    assert!(other.events("", "escalation_attempt").await.is_empty());
    // Without the node, the token is one that this daemon does not know.
    let refused = other.tools.list_tools(shown.shows(list())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let recorded = other.events_when("", "escalation_attempt", |events| !events.is_empty()).await;
    assert_eq!(recorded.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_sends_the_node_of_each_id() {
    let (one, two) = (start(1).await, start(2).await);
    let id = one.run_on(requests::managed("review")).await.id().to_owned();
    let coffer = async |daemon: &Daemon, line: &[&str]| {
        let mut command = tokio::process::Command::new(binary("coffer"));
        command.env_remove("COFFERDAM_RUN").env_remove("COFFERDAM_TOKEN");
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
        let output = command.args(line).stdin(std::process::Stdio::null()).output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, shown, refused) = coffer(&one, &["run", "show", &id]).await;
    assert!(code == Some(0) && shown.contains(&id), "{shown}{refused}");
    let (code, _, refused) = coffer(&two, &["run", "show", &id]).await;
    assert!(code == Some(1) && refused.contains("(WRONG_NODE)") && refused.contains("node 1"), "{refused}");
    // A daemon that is no node looks at no id when it refuses the header.
    let plain = Daemon::start().await;
    let (code, _, refused) = coffer(&plain, &["exec", &id, "--", "true"]).await;
    assert!(code != Some(0) && refused.contains("without a node id"), "{code:?} {refused}");
}
