#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access;
mod api;
mod approvals;
mod assets;
mod ceremony;
mod codes;
mod connection;
mod doors;
mod error;
mod events;
mod failure;
mod form;
mod guard;
mod issuer;
mod kept;
mod layout;
mod nonce;
mod notice;
mod origin;
mod pages;
mod passkeys;
mod push;
mod readings;
mod serve;
mod session;
mod shown;
mod sign_in;
mod viewer;
mod ways;

pub use access::{Access, Certificate, Handshake, Identity, Recorded, Stream, Token};
pub use api_access::{Api, Broken, api};
pub use doors::{Doors, Link};
pub use issuer::redirect_uri;
pub use origin::Origin;
pub use serve::serve;

use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;

/// The parts that every handler may use.
#[derive(Clone)]
struct State(Arc<Parts>);

struct Parts {
    access: Access,
    doors: Arc<Doors>,
    stop: CancellationToken,
}

/// Returns the routes of all modules. A module with pages adds one line.
fn routes() -> Router<State> {
    Router::new()
        .merge(assets::routes())
        .merge(sign_in::routes())
        .merge(issuer::routes())
        .merge(events::routes())
        .merge(approvals::routes())
        .merge(pages::routes())
        .merge(notice::routes())
        .merge(passkeys::routes())
        .merge(push::routes())
}
