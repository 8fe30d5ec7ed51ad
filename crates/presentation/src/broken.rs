//! Connections that the daemon ended because of the client's certificate.
//!
//! With TLS 1.3 the handshake is over for the client before the daemon has seen its certificate. A refusal arrives as an alert with the first
//! answer, or as a connection that is closed.

use std::error::Error;

use cofferdam_client::Connect;
use tonic::Status;

/// Text with which rustls reports an alert. The layers above keep only its text.
const ALERT: &str = "received fatal alert: ";
/// Alert of a server that got no certificate (RFC 8446, section 6.2).
const REQUIRED: &str = "CertificateRequired";
/// Alerts of a server that does not accept a certificate.
const REFUSED: [&str; 7] = [
    "BadCertificate",
    "UnsupportedCertificate",
    "CertificateRevoked",
    "CertificateExpired",
    "CertificateUnknown",
    "UnknownCA",
    "DecryptError",
];
/// Ways to give a certificate.
pub(crate) const GIVE: &str = "COFFERDAM_TLS or --tls names the directory of a client certificate, as `coffer tls init` \
                               and `coffer tls client` make one; --cert and --cert-key name single files";

/// Returns the alert about the client's certificate with which the daemon ended the connection, if there is one.
pub(crate) fn alert(status: &Status) -> Option<String> {
    let mut next = status.source();
    while let Some(error) = next {
        let text = error.to_string();
        let name = text.split_once(ALERT).and_then(|(_, rest)| rest.split_whitespace().next());
        if let Some(name) = name.filter(|name| *name == REQUIRED || REFUSED.contains(name)) {
            return Some(name.to_owned());
        }
        next = error.source();
    }
    None
}

/// Returns the message about a connection that ended with this alert.
pub(crate) fn message(alert: &str) -> String {
    let why = match alert {
        REQUIRED => "it requires a client certificate, and this client shows none".to_owned(),
        _ => format!("it does not accept the client's certificate ({alert})"),
    };
    format!("the daemon closed the connection after the TLS handshake: {why}")
}

/// Returns the hint about a connection that ended without an alert, as a closed socket can hide it.
pub(crate) fn hint(daemon: &Connect) -> &'static str {
    match (daemon.endpoint().is_tls(), &daemon.tls().pair) {
        (false, _) => "",
        (true, None) => {
            "perhaps the daemon closed it after the TLS handshake, because it requires a client certificate: \
             COFFERDAM_TLS or --tls names the directory of one"
        }
        (true, Some(_)) => {
            "perhaps the daemon closed it after the TLS handshake, because the client's certificate is revoked, has \
             expired or is of another authority"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use cofferdam_client::Tls;

    use super::*;
    use crate::exit::Exit;
    use crate::failure::Failure;

    /// Returns the status of a call whose connection ended with this error.
    fn broken(cause: &str) -> Status {
        let mut status = Status::unknown("transport error");
        let cause = io::Error::new(io::ErrorKind::InvalidData, cause.to_owned());
        status.set_source(Arc::new(io::Error::other(cause)));
        status
    }

    #[test]
    fn an_alert_about_the_certificate_becomes_the_message() {
        let failure = Failure::from(broken("received fatal alert: CertificateRequired"));
        assert_eq!(failure.exit(), Exit::Unreachable);
        let text = failure.to_string();
        assert!(
            text.contains("it requires a client certificate") && text.contains("COFFERDAM_TLS"),
            "{text}"
        );
        for name in REFUSED {
            let text = Failure::from(broken(&format!("received fatal alert: {name}"))).to_string();
            assert!(text.contains(&format!("does not accept the client's certificate ({name})")), "{text}");
        }
        for other in ["received fatal alert: InternalError", "received fatal alert: ", "broken pipe"] {
            let text = Failure::from(broken(other)).to_string();
            assert!(text.starts_with("the connection to the daemon broke"), "{other}: {text}");
        }
    }

    #[test]
    fn a_closed_connection_has_a_hint_about_certificates_only_with_tls() {
        let hint = |endpoint: &str, tls| {
            let daemon = Connect::to(endpoint.parse().unwrap()).with_tls(tls);
            Failure::from(broken("connection reset by peer")).over(&daemon).to_string()
        };
        let pair = || Tls { ca: None, pair: Some((Path::new("/c").into(), Path::new("/k").into())) };
        let none = hint("https://localhost:1", Tls::default());
        assert!(none.contains("requires a client certificate") && none.contains("COFFERDAM_TLS"), "{none}");
        let shown = hint("https://localhost:1", pair());
        assert!(shown.contains("is revoked, has expired or is of another authority"), "{shown}");
        for plain in ["http://localhost:1", "unix:/run/cofferdam/cofferd.sock"] {
            let text = hint(plain, pair());
            assert!(!text.contains("certificate"), "{text}");
        }
        let daemon = Connect::to("https://localhost:1".parse().unwrap());
        let answered = Failure::from(Status::permission_denied("no")).over(&daemon).to_string();
        assert!(!answered.contains("certificate"), "the daemon's own answer: {answered}");
    }
}
