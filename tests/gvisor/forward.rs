//! Ports of a run, which cannot be forwarded from a network of its own kernel.

use harness::reason;
use harness::v1::forward_port_request::Event;
use harness::v1::{ForwardPortRequest, ForwardStart};
use wire::v1::forward_service_client::ForwardServiceClient;

use crate::enter;

#[tokio::test]
async fn v1_forwarding_a_port_is_refused_with_its_reason() {
    let (_daemon, inside) = enter().await;
    let start = ForwardStart { run_id: inside.run.id().to_owned(), port: 8000 };
    let request = tokio_stream::once(ForwardPortRequest { event: Some(Event::Start(start)) });
    let mut client = ForwardServiceClient::new(inside.run.clients.channel.clone());
    let refused = client.forward_port(request).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    assert!(refused.message().contains("gVisor"), "{refused}");
}
