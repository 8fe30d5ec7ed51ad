//! Messages if the daemon cannot be reached.

use std::io;
use std::path::Path;

use cofferdam_client::{ConnectError, Unreachable};

use crate::failure::Failure;

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable(unreachable) => match unreachable.endpoint.socket() {
                Some(socket) => no_socket(socket, unreachable.kind()),
                None => no_host(&unreachable),
            },
            ConnectError::Certificates(_) => Self::usage(error.to_string()).with_hint("see --tls"),
            _ => Self::usage(error.to_string()),
        }
    }
}

fn no_host(unreachable: &Unreachable) -> Failure {
    Failure::unreachable(unreachable.to_string()).with_hint(
        "the daemon listens there only if its configuration has `listen.tcp`; for https, --tls names the certificates",
    )
}

fn no_socket(socket: &Path, kind: Option<io::ErrorKind>) -> Failure {
    if kind == Some(io::ErrorKind::PermissionDenied) {
        return Failure::not_permitted(format!("you may not use the daemon's socket {}", socket.display()))
            .with_hint(doctor::who_may_open(socket))
            .and_hint(
                "become a member (usermod --append --groups GROUP USER, then log in again), or use sudo. \
                 The roles under `access` in the daemon's configuration decide what a user may do",
            );
    }
    let socket = socket.display();
    let (message, hint) = match kind {
        Some(io::ErrorKind::ConnectionRefused) => (
            format!("the socket {socket} exists, but no process listens on it"),
            "the daemon has probably ended; see `systemctl status cofferd`, or start it with `cofferd --config FILE`",
        ),
        Some(io::ErrorKind::NotFound) => (
            format!("there is no daemon: {socket} does not exist"),
            "start it with `systemctl start cofferd` or `cofferd --config FILE`, or name its socket with --endpoint",
        ),
        _ => (
            format!("the daemon at {socket} does not answer"),
            "see `systemctl status cofferd` and the daemon's log",
        ),
    };
    Failure::unreachable(message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use cofferdam_client::{Connect, Endpoint, Tls};

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn each_kind_of_missing_daemon_has_a_separate_hint() {
        let text = |kind| no_socket(Path::new("/s"), kind).to_string();
        assert!(text(Some(io::ErrorKind::NotFound)).contains("/s does not exist"));
        let denied = no_socket(Path::new("/s"), Some(io::ErrorKind::PermissionDenied));
        assert!(
            denied
                .to_string()
                .contains("you may not use the daemon's socket /s\nhint: / is accessible to user root")
        );
        assert_eq!(denied.exit(), Exit::Denied, "a daemon may well be there");
        assert!(
            text(Some(io::ErrorKind::ConnectionRefused))
                .contains("the socket /s exists, but no process listens on it")
        );
        assert!(text(None).contains("does not answer"));
        assert_eq!(no_socket(Path::new("/s"), None).exit(), Exit::Unreachable);
    }

    #[tokio::test]
    async fn unreachable_daemon_and_unreadable_file_are_distinguished() {
        let failed = async |endpoint: &str, tls| {
            let endpoint: Endpoint = endpoint.parse().unwrap();
            Failure::from(Connect::to(endpoint).with_tls(tls).connect().await.unwrap_err())
        };
        let none = failed("unix:/nonexistent/cofferd.sock", Tls::default()).await;
        assert!(none.to_string().contains("does not exist"), "{none}");
        let none = failed("http://127.0.0.1:1", Tls::default()).await;
        assert!(none.to_string().contains("http://127.0.0.1:1 cannot be reached: "), "{none}");
        assert_eq!(none.exit(), Exit::Unreachable);
        let unread = failed("https://localhost:1", Tls::directory(Path::new("/from/variable"))).await;
        assert!(unread.to_string().contains("/from/variable/ca.pem"), "{unread}");
        assert_eq!(unread.exit(), Exit::Usage);
    }
}
