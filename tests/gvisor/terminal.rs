//! An operator at a terminal.

use std::time::Duration;

use harness::v1::open_terminal_request::Event as Said;
use harness::v1::open_terminal_response::Event as Shown;
use harness::v1::{OpenTerminalRequest, TerminalStart, terminal_closed::Reason};
use tokio_stream::wrappers::ReceiverStream;
use wire::v1::terminal_service_client::TerminalServiceClient;

use crate::{IDLE, enter, processes};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn v1_an_operator_has_a_terminal_and_nothing_of_it_is_left() {
    let (_daemon, mut inside) = enter().await;
    let (say, said) = tokio::sync::mpsc::channel(8);
    let request = |event| OpenTerminalRequest { event: Some(event) };
    let start = TerminalStart { run_id: inside.run.id().to_owned(), ..Default::default() };
    say.send(request(Said::Start(start))).await.unwrap();
    let mut client = TerminalServiceClient::new(inside.run.clients.channel.clone());
    let mut shown = client.open_terminal(ReceiverStream::new(said)).await.unwrap().into_inner();
    let keys = "(setsid sleep 1000 &) ; tty; echo $((6 * 7))\nexit 7\n";
    say.send(request(Said::Input(keys.into()))).await.unwrap();
    let mut screen = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, async {
        loop {
            match shown.message().await.unwrap().and_then(|response| response.event) {
                Some(Shown::Opened(_)) => {}
                Some(Shown::Output(bytes)) => screen.extend(bytes),
                Some(Shown::Closed(closed)) => return closed,
                other => panic!("{other:?}"),
            }
        }
    });
    let closed = closed.await.expect("the session is not over");
    let screen = String::from_utf8_lossy(&screen);
    assert_eq!((closed.reason(), closed.exit_code), (Reason::Exited, Some(7)), "{screen}");
    assert!(screen.contains("/dev/pts/") && screen.contains("\n42"), "{screen}");
    assert_eq!(processes(&mut inside).await, IDLE);
}
