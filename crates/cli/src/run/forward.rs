//! `coffer run forward`: a local port that leads to a TCP server in a run.
//!
//! ```text
//!  program ─► 127.0.0.1:LOCAL ─► coffer ─► one stream for each connection ─► cofferd ─► 127.0.0.1:PORT in the run
//! ```

use std::io::Read as _;
use std::net::Ipv4Addr;
use std::str::FromStr;

use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use wire::v1::forward_closed::Reason;
use wire::v1::forward_port_request::Event as Said;
use wire::v1::forward_port_response::Event;
use wire::v1::{ForwardPortRequest, ForwardPortResponse, ForwardStart};

use super::RunRef;
use crate::client::{Client, Context};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ui::Ui;

/// Bytes that are read from a local program at once. The daemon takes 64 KiB in a message.
const PIECE: usize = 32 * 1024;
/// Messages to the daemon that can wait.
const WAITING: usize = 4;

/// Connect a local port to a TCP server in a run.
///
/// `coffer` listens on 127.0.0.1 and nothing else, until Ctrl-C or the end of the run. The server has to listen on the run's
/// loopback or on all addresses. Every program and user of this host can use the port meanwhile. The profile of the run has to say
/// `forward: allow`, and each connection is on record.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run forward 3f2a9c01 8000")]
pub(crate) struct Forward {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Port in the run, and the local one. Default: the same; 0: any that is free; `-`: one connection of standard input and output.
    #[arg(value_name = "PORT[:LOCAL]")]
    ports: Ports,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ports {
    /// Port in the run, not 0.
    remote: u16,
    local: Local,
}

/// Local end of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Local {
    /// Port that programs connect to.
    Port(u16),
    /// Standard input and output, for one connection.
    Standard,
}

/// Part that is over after a connection that has not failed.
enum Over {
    Connection,
    /// No other connection is possible. The failure says why, as far as the daemon says it.
    Run(Failure),
}

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (remote, local) = text.split_once(':').unwrap_or((text, text));
        let local = if local == "-" { Ok(Local::Standard) } else { local.parse().map(Local::Port) };
        match (remote.parse(), local) {
            (Ok(remote), Ok(local)) if remote > 0 => Ok(Self { remote, local }),
            _ => {
                Err("must be a port from 1 to 65535, and perhaps `:` and a local port or `-`, such as 8000:0")
            }
        }
    }
}

impl Forward {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let start = |port: u16| ForwardStart { run_id: run_id.clone(), port: port.into() };
        let (remote, local) = match self.ports {
            Ports { remote, local: Local::Port(local) } => (remote, local),
            Ports { remote, local: Local::Standard } => {
                return match standard(&client, start(remote)).await? {
                    Over::Run(failure) => Err(failure),
                    Over::Connection => Ok(Exit::Ok),
                };
            }
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.map_err(|error| {
            Failure::failed(format!("cannot listen on 127.0.0.1:{local}: {error}"))
                .with_hint(format!("choose another local port, such as {remote}:0"))
        })?;
        let address = listener.local_addr()?;
        let mut page = context.ui.page();
        page.word(&format!("http://{address}")).end_line();
        context.ui.show(&page)?;
        context.ui.note(&format!("leads to port {remote} of run {run_id}; Ctrl-C ends it"));

        let mut ends = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
        let mut connections = JoinSet::new();
        loop {
            let [interrupt, terminate] = &mut ends;
            tokio::select! {
                accepted = listener.accept() => {
                    let (local, _) = accepted?;
                    connections.spawn(forward(client.clone(), start(remote), local));
                }
                Some(ended) = connections.join_next() => {
                    if let Ok(Err(failure)) = ended {
                        tell(context.ui, &failure);
                    } else if let Ok(Ok(Over::Run(failure))) = ended {
                        return Err(failure);
                    }
                }
                _ = interrupt.recv() => return Ok(Exit::Ok),
                _ = terminate.recv() => return Ok(Exit::Ok),
            }
        }
    }
}

/// Reports a connection that failed. The next one may succeed.
fn tell(ui: Ui, failure: &Failure) {
    ui.note(&format!("a connection was refused or lost: {}", failure.on_one_line()));
}

/// Serves one connection of a local program.
async fn forward(client: Client, start: ForwardStart, local: TcpStream) -> Result<Over, Failure> {
    let _ = local.set_nodelay(true);
    let (say, mut answers) = open(&client, start).await?;
    let (from, to) = local.into_split();
    let sending = tokio::spawn(send(from, say));
    let ended = receive(&mut answers, to, false).await;
    sending.abort();
    ended
}

/// Serves the connection of standard input and output.
async fn standard(client: &Client, start: ForwardStart) -> Result<Over, Failure> {
    let (say, mut answers) = open(client, start).await?;
    // A read of standard input cannot be cancelled, so a thread does it, which ends with the program.
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        while let Ok(count) = std::io::stdin().read(&mut piece)
            && let Some(data) = piece.get(..count).filter(|data| !data.is_empty())
            && say.blocking_send(ForwardPortRequest { event: Some(Said::Data(data.to_vec())) }).is_ok()
        {
        }
    });
    receive(&mut answers, tokio::io::stdout(), true).await
}

/// Opens a connection to the server in the run.
async fn open(
    client: &Client,
    start: ForwardStart,
) -> Result<(Sender<ForwardPortRequest>, Streaming<ForwardPortResponse>), Failure> {
    let (say, said) = mpsc::channel(WAITING);
    // The empty channel has capacity for the first message.
    let _ = say.try_send(ForwardPortRequest { event: Some(Said::Start(start)) });
    let answers = client.forward().forward_port(ReceiverStream::new(said)).await?.into_inner();
    Ok((say, answers))
}

/// Sends the bytes of a local program, until it has finished or has gone.
async fn send(mut from: OwnedReadHalf, say: Sender<ForwardPortRequest>) {
    let mut piece = vec![0; PIECE];
    while let Ok(count) = from.read(&mut piece).await
        && let Some(data) = piece.get(..count).filter(|data| !data.is_empty())
    {
        if say.send(ForwardPortRequest { event: Some(Said::Data(data.to_vec())) }).await.is_err() {
            return;
        }
    }
}

/// Passes the server's bytes to a local program, until the daemon reports the end of the connection.
///
/// With `ends_first`, it also ends when the server has sent its last byte, because standard output cannot be closed alone.
async fn receive(
    answers: &mut Streaming<ForwardPortResponse>,
    mut to: impl AsyncWrite + Unpin,
    ends_first: bool,
) -> Result<Over, Failure> {
    loop {
        let event = answers.message().await?.and_then(|response| response.event);
        match event {
            Some(Event::Opened(_)) => {}
            // A program that has gone ends the connection with its stream.
            Some(Event::Data(data)) => {
                if to.write_all(&data).await.is_err() || to.flush().await.is_err() {
                    return Ok(Over::Connection);
                }
            }
            Some(Event::Finished(_)) if ends_first => return Ok(Over::Connection),
            Some(Event::Finished(_)) => drop(to.shutdown().await),
            Some(Event::Closed(closed)) if closed.reason() == Reason::RunEnded => {
                // Daemons of earlier releases send no status after it.
                let status = answers.message().await.err();
                let unknown = || Failure::failed("the run has ended");
                return Ok(Over::Run(status.map_or_else(unknown, Failure::from)));
            }
            Some(Event::Closed(closed)) => return ended(closed.reason()),
            None => return Err(Failure::unreachable("the connection to the daemon broke")),
        }
    }
}

fn ended(reason: Reason) -> Result<Over, Failure> {
    let why = match reason {
        Reason::Finished | Reason::Disconnected | Reason::Unspecified => return Ok(Over::Connection),
        Reason::RunEnded => "the run has ended",
        Reason::Reset => "the server in the run closed it early",
        Reason::RunPaused => "the run was paused",
        Reason::NotAllowed => "the policy no longer allows it",
        Reason::Stopping => "the daemon is stopping",
    };
    Err(Failure::failed(why))
}

#[cfg(test)]
mod tests {
    use wire::v1::forward_closed::Reason;

    use super::{Local, Over, Ports, ended};

    #[test]
    fn a_local_port_is_the_same_or_chosen() {
        let ports = |text: &str| text.parse::<Ports>().ok().map(|ports| (ports.remote, ports.local));
        assert_eq!(ports("8000"), Some((8000, Local::Port(8000))));
        assert_eq!(ports("8000:9000"), Some((8000, Local::Port(9000))));
        assert_eq!(ports("65535:0"), Some((65_535, Local::Port(0))));
        assert_eq!(ports("22:-"), Some((22, Local::Standard)));
        for bad in [
            "",
            "0",
            "-",
            "0:-",
            "0:80",
            "65536",
            "8000:",
            ":8000",
            "8000:x",
            "8000:1:2",
            "-1",
            "127.0.0.1:80",
        ] {
            assert_eq!(ports(bad), None, "{bad}");
        }
    }

    #[test]
    fn ends_that_a_user_has_to_know_are_failures() {
        for quiet in [Reason::Finished, Reason::Disconnected] {
            assert!(matches!(ended(quiet), Ok(Over::Connection)), "{quiet:?}");
        }
        for told in [Reason::Reset, Reason::RunEnded, Reason::RunPaused, Reason::NotAllowed, Reason::Stopping]
        {
            assert!(ended(told).is_err(), "{told:?}");
        }
    }
}
