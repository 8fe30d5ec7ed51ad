//! Connections in traces: each is a child of the command that made it.

use harness::server::Server;
use harness::{calls, requests, until, v1};

use super::{daemon_with, rules};
use crate::traces::Receiver;

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_a_child_of_the_command_that_made_it() {
    let (receiver, config) = Receiver::grpc("").await;
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = daemon_with(&config, &rules(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let script = format!("wget -qO- http://files.example.org:{}/a?b", http.port);
    let response = run.call(calls::shell(&script)).await.unwrap();
    let Some(v1::result::Kind::Shell(ran)) = response.kind() else { panic!("{response:?}") };
    assert_eq!(ran.exit_code, Some(0), "{ran:?}");
    let connections = || {
        let spans = receiver.spans();
        spans.into_iter().filter(|span| span.name == "connection").collect::<Vec<_>>()
    };
    until("no span of the connection arrives", async || !connections().is_empty()).await;
    let (call, _) = receiver.call(&response.call_id).await;
    let [connection] = &connections()[..] else { panic!("{:#?}", connections()) };
    assert_eq!((&connection.trace_id, &connection.parent_span_id), (&call.trace_id, &call.span_id));
    assert!(!format!("{connection:?}").contains("example"), "{connection:?}");

    // The run's own span, and the trace that has the run's id.
    let id = run.id().replace('-', "");
    run.stop().await;
    let of_run = || receiver.spans().into_iter().find(|span| span.name == "run");
    until("no span of the run arrives", async || of_run().is_some()).await;
    assert_eq!(
        of_run().unwrap().trace_id.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat(),
        id
    );
}
