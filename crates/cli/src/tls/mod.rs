//! `coffer tls`: certificates for the daemon's TCP listener and its clients. Needs no daemon.
//!
//! ```text
//!  DIR/ca/       cert.pem key.pem           who signs: keep the key away from the daemon's host
//!  DIR/server/   cert.pem key.pem ca.pem hosts
//!  DIR/clients/NAME/  cert.pem key.pem ca.pem
//! ```

mod authority;
mod client;
mod directory;
mod init;
mod rotate;

crate::verbs::verbs! {
    Init(init::Init),
    Client(client::Client),
    Rotate(rotate::Rotate),
}

/// Parses the name of a client, which the daemon reads from its certificate.
fn client_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !text.is_empty() && text.len() <= 64 && text.chars().all(plain) && !text.starts_with('.') {
        return Ok(text.to_owned());
    }
    Err("must be 1 to 64 characters of [A-Za-z0-9._-], and not begin with a dot".to_owned())
}
