//! Tests callers without a role: only root and the daemon's own user may call methods, unless the operator says otherwise.

use harness::{Clients, Daemon, Setup, as_user, reason, v1};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Every method of the descriptors, those of health and reflection, and one that there is not.
fn methods() -> Vec<String> {
    let described = [wire::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET];
    let mut methods: Vec<String> = described
        .into_iter()
        .flat_map(|bytes| FileDescriptorSet::decode(bytes).unwrap().file)
        .flat_map(|file| {
            file.service
                .iter()
                .flat_map(|service| {
                    let service_name = format!("{}.{}", file.package(), service.name());
                    service.method.iter().map(move |method| format!("/{service_name}/{}", method.name()))
                })
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(methods.len() >= 20, "{methods:?}");
    for version in ["v1", "v1alpha"] {
        methods.push(format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"));
    }
    methods.push("/no.such.Service/Method".to_owned());
    methods
}

/// An empty request; the answer's messages are left unread.
async fn ask(clients: &Clients, method: &str) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(clients.channel.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::try_from(method).unwrap();
    client.server_streaming(tonic::Request::new(()), path, ProstCodec::<(), ()>::default()).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_client_may_call_nothing() {
    let daemon = Daemon::start().await;
    daemon.expose();
    let own = daemon.connect().await;
    let answers = as_user(12_345, &daemon.socket(), async |clients| {
        let mut answers = Vec::new();
        for method in methods() {
            let answer = ask(&clients, &method).await;
            answers.push((method, answer));
        }
        answers
    })
    .await;
    for (method, answer) in answers {
        let refused = answer.expect_err(&method);
        assert_eq!(refused.code(), Code::PermissionDenied, "{method}");
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{method}");
        // The same question by one who may ask shows that it was not refused for another cause.
        let refused = ask(&own, &method).await.err();
        assert_ne!(refused.map(|status| status.code()), Some(Code::PermissionDenied), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_allows_only_its_own_methods() {
    let config = "access: [{ uid: 12345, roles: [auditor] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    daemon.expose();
    as_user(12_345, &daemon.socket(), async |mut clients| {
        assert!(clients.verify().await.intact);
        assert!(!clients.events("", "daemon_started").await.is_empty());
        let refused = clients.tools.call(v1::CallRequest::default()).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED");
        let refused = clients.runs.create_run(v1::CreateRunRequest::default()).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED");
        let refused = clients.approve("0198a1b2-0000-7000-8000-000000000000").await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED");
        let refused = clients.policy.reload_policy(v1::ReloadPolicyRequest {}).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED");
    })
    .await;
}
