//! The parts of a daemon that take new values while it runs.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::TokenInForce;
use anomaly::Deliveries;
use calls::limits::Limits;
use calls::{ApprovalSettings, Approvals};
use identity::Access;
use listener::{Certificates, GuardLayer, Replacement};
use oidc::Issuers;
use parking_lot::Mutex;
use secrets::Secrets;
use tokio_util::sync::CancellationToken;
use webhook::{Sender, Tls};

use crate::config::{Config, MetricsListen};

/// Time in which the keys of new issuers are fetched before their tokens count. Those of slower issuers come later.
const FIRST_KEYS: Duration = Duration::from_secs(5);

/// The parts that a reload changes.
pub(crate) struct Targets {
    pub(crate) guard: GuardLayer,
    /// Certificates of the TCP listener, if it has TLS.
    pub(crate) certificates: Option<Arc<Certificates>>,
    /// Token of the listener for metrics, if there is one.
    pub(crate) metrics_token: Option<TokenInForce>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) issuers: IssuerTasks,
}

/// The tasks that keep the keys of the issuers in force fresh.
pub(crate) struct IssuerTasks {
    stop: CancellationToken,
    current: Mutex<CancellationToken>,
}

impl IssuerTasks {
    /// Returns tasks that end with `stop`. `current` ends those of the issuers in force.
    pub(crate) fn new(stop: CancellationToken, current: CancellationToken) -> Self {
        Self { stop, current: Mutex::new(current) }
    }
}

/// New values that were read and checked, and have no effect yet.
pub(crate) struct Prepared {
    webhooks: Vec<anomaly::Webhook>,
    sender: Option<Sender>,
    /// `None` if the issuers stay as they are.
    issuers: Option<(Arc<Issuers>, Option<Tls>)>,
    certificates: Option<Replacement>,
    metrics_token: Option<String>,
}

impl Targets {
    /// Returns the access that a configuration gives.
    pub(crate) fn access(config: &Config) -> Access {
        let own_uid = rustix::process::geteuid().as_raw();
        Access::new(own_uid, config.access.clone(), config.certified.clone())
    }

    /// Returns the settings of approvals that a configuration has.
    pub(crate) fn approval_settings(config: &Config) -> ApprovalSettings {
        let Config { approval_timeout, allow_self_approval, .. } = *config;
        ApprovalSettings { longest: approval_timeout, allow_self_approval }
    }

    /// Reads the files that the next configuration names, and checks them. Returns every problem.
    pub(crate) async fn prepare(&self, current: &Config, next: &Config) -> Result<Prepared, Vec<String>> {
        let mut problems = Vec::new();
        let webhooks = next.open_webhooks().map_err(|error| problems.push(format!("{error:#}")));
        let sender = if next.webhooks.is_empty() { None } else { Some(Sender::new()) };
        let sender = sender.transpose().map_err(|why| problems.push(format!("alerts.webhooks: {why}")));
        // Those that stay keep their keys, also while the issuer does not answer.
        let issuers = if next.oidc == current.oidc {
            Ok(None)
        } else {
            issuers(next, &self.guard.issuers()).await.map(Some)
        };
        let issuers = issuers.map_err(|problem| problems.push(problem));
        let files = next.tcp.as_ref().and_then(|tcp| tcp.tls.clone());
        let certificates =
            self.certificates.as_ref().zip(files).map(|(current, files)| current.prepare(files));
        let certificates = certificates.transpose().map_err(|(key, message)| {
            problems.push(format!(
                "listen.tcp.tls.{key}: {message}; the previous TLS certificates stay in force"
            ));
        });
        let metrics_token = next.metrics.as_ref().map(MetricsListen::token).transpose();
        let metrics_token = metrics_token.map_err(|error| problems.push(format!("{error:#}")));
        match (webhooks, sender, issuers, certificates, metrics_token) {
            (Ok(webhooks), Ok(sender), Ok(issuers), Ok(certificates), Ok(metrics_token)) => Ok(Prepared {
                webhooks,
                sender,
                issuers,
                certificates,
                metrics_token: metrics_token.flatten(),
            }),
            _ => Err(problems),
        }
    }

    /// Puts the values into force.
    pub(crate) fn put(&self, next: &Config, prepared: Prepared) {
        let Prepared { webhooks, sender, issuers, certificates, metrics_token } = prepared;
        self.secrets.replace(next.secrets.clone());
        self.guard.replace_access(Self::access(next));
        if let Some((issuers, tls)) = issuers {
            let stop = self.issuers.stop.child_token();
            if let Some(tls) = tls {
                issuers.keep_fresh(&tls, &stop);
            }
            self.guard.replace_issuers(issuers);
            std::mem::replace(&mut *self.issuers.current.lock(), stop).cancel();
        }
        if let Some((current, replacement)) = self.certificates.as_ref().zip(certificates) {
            current.replace(replacement);
        }
        if let Some(token) = &self.metrics_token {
            token.set(metrics_token.as_deref());
        }
        self.approvals.set(Self::approval_settings(next));
        self.limits.limit_calls(next.calls);
        self.deliveries.replace(webhooks, sender.as_ref());
    }
}

/// Opens the issuers, and fetches the keys of new ones for a limited time, so that no valid token is refused for want of them.
async fn issuers(next: &Config, current: &Issuers) -> Result<(Arc<Issuers>, Option<Tls>), String> {
    if next.oidc.is_empty() {
        return Ok((Arc::default(), None));
    }
    let issuers = Issuers::open_after(next.oidc.clone(), current);
    let issuers = issuers.map_err(|(index, why)| format!("oidc[{index}].jwks: {why}"))?;
    let tls = Tls::new().map_err(|why| format!("oidc: {why}"))?;
    let _ = tokio::time::timeout(FIRST_KEYS, issuers.fetch_missing(&tls)).await;
    Ok((Arc::new(issuers), Some(tls)))
}
