//! Connects to a server in a run's network namespace.

use std::io;
use std::os::fd::OwnedFd;

use loopback_dial::DialError;
use operations::Reason;
use refusal::Refusal;
use tokio::net::TcpStream;

/// Connects to `port` of the loopback interface in the namespace of `network`, a pidfd.
pub(super) async fn dial(network: OwnedFd, port: u16) -> Result<TcpStream, Refusal> {
    loopback_dial::dial(network, port).await.map_err(|error| match error {
        DialError::Namespace(error) => Refusal::internal("entering the run's network", &error),
        DialError::Server(error) => absent(port, &error),
    })
}

/// Returns the refusal for a server that does not accept.
fn absent(port: u16, failure: &io::Error) -> Refusal {
    let message = match failure.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "nothing in the run listens on port {port} of 127.0.0.1 or ::1: start the server, or wait until it listens"
        ),
        io::ErrorKind::TimedOut => {
            format!(
                "the server on port {port} of the run accepts no connection: it may be stopped or overloaded"
            )
        }
        _ => format!("port {port} of the run cannot be connected to: {failure}"),
    };
    Refusal::new(Reason::PreconditionFailed, message)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_refusal_says_what_a_port_lacks() {
        for (kind, words) in [
            (ErrorKind::ConnectionRefused, "nothing in the run listens on port 80"),
            (ErrorKind::TimedOut, "accepts no connection"),
            (ErrorKind::HostUnreachable, "cannot be connected to"),
        ] {
            let refusal = absent(80, &kind.into());
            assert_eq!(refusal.reason, Reason::PreconditionFailed);
            assert!(refusal.message.contains(words), "{}", refusal.message);
        }
    }
}
