//! Access to the daemon: the options that name it, and the messages if it cannot be reached.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use cofferdam_client::{ConnectError, Tls, Unreachable};

use crate::failure::Failure;

/// Files that authenticate the daemon and its client, for https.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// For https: a directory with ca.pem, cert.pem and key.pem, as `coffer tls init` makes one for each client.
    /// Default: COFFERDAM_TLS.
    #[arg(long = "tls", global = true, id = "tls_directory", value_name = "DIR", help_heading = "Global options", conflicts_with_all = ["tls_ca", "tls_cert", "tls_key"])]
    directory: Option<PathBuf>,
    /// For https: the authority that must have signed the daemon's certificate. Default: one that this host trusts.
    #[arg(long = "ca", global = true, id = "tls_ca", value_name = "FILE", help_heading = "Global options")]
    ca: Option<PathBuf>,
    /// For https: the client's certificate.
    #[arg(
        long = "cert",
        global = true,
        id = "tls_cert",
        value_name = "FILE",
        requires = "tls_key",
        help_heading = "Global options"
    )]
    cert: Option<PathBuf>,
    /// For https: the key of the client's certificate.
    #[arg(
        long = "cert-key",
        global = true,
        id = "tls_key",
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Global options"
    )]
    key: Option<PathBuf>,
}

impl Files {
    /// Returns the files that the command line names, or else those in the directory that `variable` names.
    pub(crate) fn or(self, variable: Option<String>) -> Tls {
        let directory = match self.directory {
            None if self == Self::default() => variable.map(PathBuf::from),
            directory => directory,
        };
        match directory {
            Some(directory) => Tls::directory(&directory),
            None => Tls { ca: self.ca, pair: self.cert.zip(self.key) },
        }
    }
}

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
    use cofferdam_client::{Connect, Endpoint};

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn command_line_overrides_environment_variable() {
        let variable = || Some("/from/variable".to_owned());
        let named = Files { ca: Some("/ca".into()), ..Files::default() };
        assert_eq!(named.or(variable()), Tls { ca: Some("/ca".into()), pair: None });
        let directory = Files { directory: Some("/named".into()), ..Files::default() };
        assert_eq!(directory.or(variable()).ca, Some("/named/ca.pem".into()));
        assert_eq!(Files::default().or(variable()).ca, Some("/from/variable/ca.pem".into()));
        assert_eq!(Files::default().or(None), Tls::default());
    }

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
