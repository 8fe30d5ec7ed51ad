//! Tests that recordings are played to operators, without what was typed.

use harness::v1::read_recording_response::Event;
use harness::v1::{ReadRecordingRequest, ReadRecordingResponse, terminal_closed::Reason};
use harness::{Clients, Daemon, Setup, as_user, reason};
use serde_json::json;
use tonic::Status;
use wire::v1::terminal_service_client::TerminalServiceClient;

use super::{Seat, recorded, run};

async fn play(clients: &Clients, run: &str, session: &str) -> Result<Vec<ReadRecordingResponse>, Status> {
    let request = ReadRecordingRequest { run_id: run.to_owned(), session_id: session.to_owned() };
    let mut client = TerminalServiceClient::new(clients.channel.clone());
    let mut recording = client.read_recording(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(event) = recording.message().await? {
        events.push(event);
    }
    Ok(events)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_played_to_operators_on_record_and_without_the_input() {
    let config = "access: [{ uid: 12345, roles: [orchestrator, approver, auditor] }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    daemon.expose();
    let run = run(&daemon).await;
    let mut seat = Seat::at(&run).await;
    seat.types("stty -echo; echo no-\"\"echo\r").await;
    seat.sees("no-echo").await;
    seat.types("read -r secret; echo length ${#secret}\r").await;
    seat.types("swordfish-of-the-operator\r").await;
    seat.sees("length 25").await;

    // While it is open it ends at the present.
    let open = play(&run.clients, run.id(), &seat.session).await.unwrap();
    assert!(
        matches!(open[0].event, Some(Event::Size(size)) if (size.rows, size.columns) == (24, 80)),
        "{open:?}"
    );
    seat.types("exit\r").await;
    assert_eq!(seat.closed().await.0, Reason::Exited);

    let played = play(&run.clients, run.id(), &seat.session).await.unwrap();
    assert!(played.is_sorted_by_key(|event| event.at_us));
    let output: String = played
        .iter()
        .filter_map(|event| match &event.event {
            Some(Event::Output(text)) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(output, String::from_utf8_lossy(&seat.screen));
    assert!(!output.contains("swordfish"), "the input is in it: {output:?}");
    let record = recorded(&run, &seat.session, "recording_read").await;
    assert_eq!((&record["principal"], &record["run_id"]), (&json!("uid:0"), &json!(run.id())));

    let none = play(&run.clients, run.id(), run.id()).await.unwrap_err();
    assert_eq!(reason(&none), "NOT_FOUND");
    let (id, session) = (run.id().to_owned(), seat.session.clone());
    let read = async move |clients: Clients| play(&clients, &id, &session).await.err();
    let refused = as_user(12_345, &daemon.socket(), read).await.expect("an orchestrator got a recording");
    assert_eq!(reason(&refused), "PERMISSION_DENIED");
}
