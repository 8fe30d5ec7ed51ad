//! Tests the services that every gRPC client expects: health, and reflection in both versions.

use harness::{Daemon, requests, v1};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const SERVICES: [&str; 10] = [
    "cofferdam.v1.AlertService",
    "cofferdam.v1.ApprovalService",
    "cofferdam.v1.AuditService",
    "cofferdam.v1.ConsoleService",
    "cofferdam.v1.HostService",
    "cofferdam.v1.LimitService",
    "cofferdam.v1.PermissionService",
    "cofferdam.v1.PolicyService",
    "cofferdam.v1.RunService",
    "cofferdam.v1.ToolService",
];

#[tokio::test(flavor = "multi_thread")]
async fn health_is_served_for_the_daemon_and_each_service() {
    let daemon = Daemon::start().await;
    let mut health = HealthClient::new(daemon.connect().await.channel);
    for service in SERVICES.into_iter().chain([""]) {
        let request = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
    let unknown = HealthCheckRequest { service: "no.such.Service".to_owned() };
    assert_eq!(health.check(unknown).await.unwrap_err().code(), tonic::Code::NotFound);
}

/// The two versions differ in nothing but their package.
macro_rules! listed {
    ($version:ident, $channel:expr) => {{
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let ask = tonic_reflection::pb::$version::ServerReflectionRequest {
            message_request: Some(MessageRequest::ListServices(String::new())),
            ..Default::default()
        };
        let mut client = ServerReflectionClient::new($channel);
        let mut answers = client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
        match answers.message().await.unwrap().unwrap().message_response {
            Some(MessageResponse::ListServicesResponse(list)) => {
                list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
            }
            other => panic!("not a list: {other:?}"),
        }
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_is_served_in_both_versions() {
    let daemon = Daemon::start().await;
    let channel = daemon.connect().await.channel;
    are_all_there(&listed!(v1, channel.clone()));
    are_all_there(&listed!(v1alpha, channel));
}

fn are_all_there(names: &[String]) {
    for service in SERVICES.into_iter().chain(["grpc.health.v1.Health"]) {
        assert!(names.iter().any(|name| name == service), "{service} is not in {names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_offered_in_every_vendors_form_and_denied_ones_left_out() {
    use v1::list_tools_request::Format;
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut names = async |role: &str, dialect: &str, format: Format| {
        let request = v1::CreateRunRequest { role: role.to_owned(), ..requests::managed("review") };
        let mut run = daemon.run_on(request).await;
        let request = v1::ListToolsRequest {
            run_id: run.id().to_owned(),
            dialect: dialect.to_owned(),
            format: format.into(),
        };
        let json = clients.tools.list_tools(request).await.unwrap().into_inner().tools_json;
        run.stop().await;
        let tools: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        let name = |tool: &serde_json::Value| match format {
            Format::Unspecified | Format::Openai => tool["function"]["name"].clone(),
            Format::Anthropic | Format::Mcp => tool["name"].clone(),
        };
        let schema = |tool: &serde_json::Value| match format {
            Format::Unspecified | Format::Openai => tool["function"]["parameters"].clone(),
            Format::Anthropic => tool["input_schema"].clone(),
            Format::Mcp => tool["inputSchema"].clone(),
        };
        assert!(tools.iter().all(|tool| schema(tool)["type"] == "object"), "{json}");
        tools.iter().map(|tool| name(tool).as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let native = names("director", "", Format::Unspecified).await;
    for tool in ["read_file", "list_files", "grep", "bash_command", "edit_file", "git_operation"] {
        assert!(native.iter().any(|name| name == tool), "{tool} is not in {native:?}");
    }
    assert_eq!(names("director", "native", Format::Mcp).await, native);
    let fs = names("director", "fs", Format::Anthropic).await;
    assert!(fs.iter().any(|name| name.ends_with("read")), "{fs:?}");
    assert_eq!(names("director", "exec", Format::Openai).await, ["exec"]);
    assert_eq!(names("", "gateway", Format::Mcp).await.len(), 6, "what asks is offered");
    let looking = ["read_file", "list_directory", "search_code", "run_command"];
    assert_eq!(names("worker", "gateway", Format::Mcp).await, looking, "what a role lacks is not");
    // The profile has no shell.
    assert_eq!(names("director", "forge", Format::Openai).await, ["write", "read", "edit", "grep", "glob"]);
    assert_eq!(
        names("director", "editor", Format::Anthropic).await,
        ["view", "create", "str_replace", "insert"]
    );
}
