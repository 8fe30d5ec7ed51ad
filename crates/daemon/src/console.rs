//! Serves the web console, in front of the daemon's own services.
//!
//! The console is a client like any other. Each of its requests shows the credential of its session to the guard of the API, so it
//! can do only what that credential opens.

use std::path::Path;
use std::sync::Arc;

use admission::ShareLimits;
use anyhow::Context as _;
use audit::{Event, Kind};
use audit_service::AuditLog;
use consent_proof::RelyingParty;
use listener::{Browsers, Certificates, GuardLayer, Peer, Subject, Tokens};
use oidc_sign_in::SignIns;
use refusal::Refusal;
use take_over::Listeners;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::http::Extensions;
use tonic::service::Routes;
use web_console::{Access, Certificate, Doors, Handshake, Identity, Origin, Recorded, Stream, redirect_uri};

use crate::config::ConsoleListen;
use crate::{notices, rpc};

/// Most requests and streams of one principal, and of one address, at the same time.
const LIMITS: ShareLimits = ShareLimits { per_principal: 64, per_address: 192 };

/// A console that is bound and not yet served.
pub(crate) struct Bound {
    listener: TcpListener,
    is_remote: bool,
    issuers: Option<SignIns>,
    pub(crate) doors: Arc<Doors>,
}

/// Binds the console's address, if the configuration has one.
pub(crate) async fn bind(
    listen: Option<&ConsoleListen>,
    state_dir: &Path,
    listeners: &Listeners,
) -> anyhow::Result<Option<Bound>> {
    let Some(listen) = listen else { return Ok(None) };
    let address = listen.address;
    let listener = listeners.tcp("console", address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address} for the console"))?;
    let bound = listener.local_addr()?;
    let origin = listen.origin.clone().unwrap_or_else(|| Origin::of_loopback(bound));
    tracing::info!(%origin, address = %bound, "the console is served");
    let issuers = SignIns::open(&listen.sign_in, redirect_uri(&origin)).map_err(anyhow::Error::msg)?;
    let doors = Doors::open(origin, state_dir).context("cannot open the console's sessions in state_dir")?;
    Ok(Some(Bound { listener, is_remote: listen.is_remote(), issuers, doors: Arc::new(doors) }))
}

/// Returns the relying party of passkeys: the console, if it is reached by a name.
pub(crate) fn relying_party(doors: &Doors) -> Option<RelyingParty> {
    let origin = doors.origin();
    Some(RelyingParty { id: origin.passkey_domain()?, origin: origin.to_string() })
}

/// Starts the console. It serves until the daemon stops.
pub(crate) fn start(
    bound: Option<Bound>,
    (routes, guard): (&Routes, &GuardLayer),
    (certificates, audit, tokens): (Option<Arc<Certificates>>, Arc<AuditLog>, Arc<Tokens>),
    (tasks, stop): (&TaskTracker, &CancellationToken),
) {
    let Some(Bound { listener, is_remote, issuers, doors }) = bound else { return };
    let browsers = Browsers::new(certificates.clone(), LIMITS);
    let api = web_console::api(rpc::guarded(routes.clone(), guard));
    let present = move |identity: &Identity, from| {
        let mut shown = Extensions::new();
        shown.insert(match identity {
            Identity::User { uid, gid } => Peer::Local { uid: *uid, gid: *gid },
            Identity::Token(_) => browsers.peer(from, None),
            Identity::Certificate(certificate) => {
                browsers.peer(from, certificate.shown.get::<Subject>().cloned())
            }
        });
        shown
    };
    let record = move |principal: &str, details| -> Recorded {
        let (audit, event) =
            (audit.clone(), Event::new(Kind::ConsoleSession).principal(principal).details(details));
        Box::pin(
            async move { audit.record(event).await.map(drop).map_err(|error| Refusal::from(error).into()) },
        )
    };
    let mut access =
        Access::new(api, present, record).issuers(issuers).linked(move |principal, run, made_at| {
            let tokens = tokens.clone();
            Box::pin(async move { notices::identify(&tokens, &principal, &run, made_at).await })
        });
    if let Some(certificates) = certificates.filter(|_| is_remote) {
        access = access.tls(move |stream| -> Handshake {
            let certificates = certificates.clone();
            Box::pin(async move {
                let (stream, subject) = certificates.accept_browser(stream).await?;
                let certificate = subject.map(|subject| {
                    let (name, mut shown) = (subject.name.clone(), Extensions::new());
                    shown.insert(subject);
                    Certificate { name, shown }
                });
                Ok((Box::new(stream) as Box<dyn Stream>, certificate))
            })
        });
    }
    tasks.spawn(web_console::serve(listener, access, doors, stop.clone()));
}
