//! The SSH server in a run.

use std::time::Duration;

use tokio::time::timeout;
use wire::v1::attach_process_response::Event;
use wire::v1::process::State;
use wire::v1::{AttachProcessRequest, ListProcessesRequest, ProcessRequest, StartProcessRequest};

use super::client::{Identity, Server};
use crate::clean::{Shape, clean};
use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ui::Ui;

const SCRIPT: &str = include_str!("server.sh");
/// Beginning of the tag, before the key's end and the port.
const TAG: &str = "coffer-ssh";
/// First line of the script's output, before the user and the host key.
const GREETING: &str = "coffer-ssh ";
/// Text in the server's log when it accepts connections.
const LISTENING: &str = "Server listening on";
/// Time that a server has to listen.
const START: Duration = Duration::from_secs(30);
/// Most bytes of a server's output that are read, and most that a failure shows.
const OUTPUT: usize = 64 * 1024;
/// Ports of servers: the first, and their number.
const PORTS: (u16, u16) = (22_000, 10_000);

/// Returns the server that accepts this identity. Starts it if there is none.
pub(super) async fn ensure(
    ui: Ui,
    client: &Client,
    run_id: &str,
    identity: &Identity,
) -> Result<Server, Failure> {
    let request = ListProcessesRequest { run_id: run_id.to_owned(), tag: String::new() };
    let listed = client.processes().list_processes(quick(request)).await?.into_inner().processes;
    let tag = format!("{TAG}.{}.", identity.name());
    let found = listed.into_iter().filter(|process| process.state() == State::Running).find_map(|process| {
        let port = process.request?.tag.strip_prefix(&tag)?.parse().ok()?;
        Some((process.process_id, port))
    });
    let (process_id, port) = match found {
        Some(found) => found,
        None => start(ui, client, run_id, identity).await?,
    };
    let listening = timeout(START, listening(client, run_id, &process_id)).await;
    let output = listening.map_err(|_| Failure::failed("the SSH server of the run did not start"))??;
    greeting(&output, port).ok_or_else(|| Failure::failed("the SSH server of the run sent no greeting"))
}

/// Starts a server. Returns the id of its process and its port.
async fn start(ui: Ui, client: &Client, run_id: &str, identity: &Identity) -> Result<(String, u16), Failure> {
    let port = PORTS.0 + identity.number() % PORTS.1;
    let process = ProcessRequest {
        script: format!("key='{}'\nport={port}\n{SCRIPT}", identity.public_key()),
        tag: format!("{TAG}.{}.{port}", identity.name()),
        ..Default::default()
    };
    let request =
        StartProcessRequest { run_id: run_id.to_owned(), process: Some(process), ..Default::default() };
    let started = client.processes().start_process(request).await?.into_inner();
    let Some(process) = started.process else {
        let message = format!("the SSH server awaits approval {}", started.approval_id);
        return Err(Failure::failed(message).with_hint("when it is approved, repeat this command"));
    };
    ui.note("started an SSH server in the run; `coffer process list` shows it");
    Ok((process.process_id, port))
}

/// Waits until a server listens. Returns its standard output.
async fn listening(client: &Client, run_id: &str, process_id: &str) -> Result<String, Failure> {
    let request = AttachProcessRequest {
        run_id: run_id.to_owned(),
        process_id: process_id.to_owned(),
        follow: true,
        ..Default::default()
    };
    let mut events = client.processes().attach_process(request).await?.into_inner();
    let (mut output, mut log) = (Vec::new(), Vec::new());
    while let Some(response) = events.message().await? {
        let Some(Event::Output(piece)) = response.event else { continue };
        let is_log = piece.stream() == wire::v1::ProcessStream::Stderr;
        if is_log { &mut log } else { &mut output }.extend_from_slice(&piece.data);
        if String::from_utf8_lossy(&log).contains(LISTENING) {
            return Ok(String::from_utf8_lossy(&output).into_owned());
        }
        if output.len() + log.len() > OUTPUT {
            break;
        }
    }
    let log = String::from_utf8_lossy(&log);
    let why = log.lines().last().unwrap_or("it has ended");
    Err(Failure::failed(format!("the run has no SSH server: {}", clean(why, Shape::Line))))
}

/// Reads the greeting of a server. The program that sent it may be hostile.
fn greeting(output: &str, port: u16) -> Option<Server> {
    let line = output.lines().find_map(|line| line.strip_prefix(GREETING))?;
    let (user, host_key) = line.split_once(' ')?;
    let (kind, key) = host_key.split_once(' ')?;
    let is_plain = |text: &str, extra: &[u8]| {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || extra.contains(byte);
        (1..=100).contains(&text.len()) && text.as_bytes().iter().all(is_plain)
    };
    let is_valid =
        is_plain(user, b"_-.") && !user.starts_with('-') && kind == "ssh-ed25519" && is_plain(key, b"+/=");
    is_valid.then(|| Server { port, user: user.to_owned(), host_key: host_key.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::{Server, greeting};

    #[test]
    fn a_greeting_is_read_and_nothing_else() {
        let read = greeting("coffer-ssh coder ssh-ed25519 AAAAC3Nz+/=\n", 22_001).unwrap();
        let expected =
            Server { port: 22_001, user: "coder".into(), host_key: "ssh-ed25519 AAAAC3Nz+/=".into() };
        assert_eq!(read, expected);
        for hostile in [
            "",
            "coder ssh-ed25519 AAAA",
            "coffer-ssh coder",
            "coffer-ssh coder ssh-rsa AAAA",
            "coffer-ssh -oProxyCommand=id ssh-ed25519 AAAA",
            "coffer-ssh a\tb ssh-ed25519 AAAA",
            "coffer-ssh a ssh-ed25519 AAAA ProxyCommand",
            "coffer-ssh  ssh-ed25519 AAAA",
            &format!("coffer-ssh a ssh-ed25519 {}", "A".repeat(101)),
        ] {
            assert_eq!(greeting(hostile, 1), None, "{hostile}");
        }
    }
}
