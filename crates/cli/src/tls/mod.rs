//! `coffer tls`: certificates for the daemon's TCP listener and its clients. Needs no daemon.

mod client;
mod init;
mod rotate;

crate::verbs::verbs! {
    Init(init::Init),
    Client(client::Client),
    Rotate(rotate::Rotate),
}
