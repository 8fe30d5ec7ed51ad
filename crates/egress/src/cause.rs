//! The ends of connections, on record and for people.

use wire::worker::v1::connection_ended::Cause;

/// Reason of an opened connection whose TLS failed on the program's side.
const UNTRUSTED: &str = "the program does not trust the run's authority, or its TLS failed. The authority is in the file that \
    $SSL_CERT_FILE names, for programs that read it as Go's do. Others have their own setting: Node NODE_EXTRA_CA_CERTS, git \
    `-c http.sslCAInfo=$SSL_CERT_FILE`, a JVM with a store of its own `-Djavax.net.ssl.trustStore=/.cofferdam/cacerts.p12`, \
    Chromium a directory /etc/chromium in the image (Chrome: /etc/opt/chrome), Firefox an import into its NSS store. A program that pins a certificate cannot be used with this rule";

/// Returns the name of an end on record.
pub(crate) fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Unspecified => "unknown",
        Cause::Closed => "closed",
        Cause::Reset => "reset",
        Cause::Ended => "ended",
        Cause::WrongScheme => "wrong_scheme",
        Cause::WrongServerName => "wrong_server_name",
        Cause::WrongHost => "wrong_host",
        Cause::WrongMethod => "wrong_method",
        Cause::Malformed => "malformed",
        Cause::Slow => "slow",
        Cause::Unreachable => "unreachable",
        Cause::Idle => "idle",
        Cause::Bytes => "max_bytes",
        Cause::Proxy => "upstream_proxy",
        Cause::WrongPath => "wrong_path",
        Cause::Unverified => "unverified",
        Cause::Tls => "tls",
        Cause::Placeholder => "placeholder",
        Cause::RequestRefused => "request_refused",
        Cause::NotGit => "not_git",
    }
}

/// Returns the reason of an end for people, if it is a refusal of what the program sent.
pub(crate) fn refusal(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::WrongScheme => "what it sent is not of the rule's scheme",
        Cause::WrongServerName => "the TLS server name is missing, or not the name that was connected to",
        Cause::WrongHost => "a request's host is not the name that was connected to",
        Cause::WrongMethod => "the rule does not have the request's method",
        Cause::Malformed => "a request is malformed, ambiguous or too large",
        Cause::Slow => "it sent nothing in time",
        Cause::Bytes => "the run has used its bytes (max_bytes)",
        Cause::Proxy => "the daemon's upstream proxy did not connect to the server",
        Cause::WrongPath => {
            "the rule does not have the path of a request, or servers could read the path in different ways"
        }
        Cause::Unverified => "the server's certificate is not valid for its name",
        Cause::Tls => UNTRUSTED,
        Cause::NotGit => {
            "a request is none of those of git that a rule can allow, or a push has a form that is not taken"
        }
        // The last two were refused, and put on record, before the connection ended.
        Cause::Closed
        | Cause::Reset
        | Cause::Ended
        | Cause::Unreachable
        | Cause::Idle
        | Cause::Unspecified
        | Cause::Placeholder
        | Cause::RequestRefused => return None,
    })
}
