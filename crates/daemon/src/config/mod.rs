//! Turns the YAML configuration into a validated [`Config`], the only form that other modules see.
//!
//! Every problem is reported at once, with its line, its key and the value that was probably meant. A missing security
//! setting means the strict value.

mod access;
mod alerts;
mod audit;
mod changed;
mod console;
mod egress;
mod endpoint;
mod mcp;
mod metrics;
mod model_prices;
mod notices;
mod oidc;
mod parse;
mod pool;
mod read;
mod secret_file;
mod secrets;
mod tcp;
mod traces;
mod values;

use disk_quotas::Thresholds;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::secrets::Source;
use agent_check::Settings as AgentCheck;
use audit_service::Settings;
use bases::BaseBounds;
use checkpoints::CheckpointBounds;
use daemon_log::{Format, Level};
use document::{Problem, list};
use egress_rules::SecretName;
use gateway::limits::concurrency::Whole;
use host_launch::WeakerForm;
use identity::{Certified, Roles};
use images::ImageBounds;
use mirrors::MirrorBounds;
use model_usage::Price;
use node::Settings as NodeSettings;
use runs::{HarnessOnBind, OnStop, PoolEntry, RunBounds};
use serde_json::{Value, json};
use store::OutcomeBounds;
use terminals::Limits;

pub(crate) use self::secrets::check as check_secrets;
pub(crate) use alerts::Webhook;
pub(crate) use changed::Change;
pub(crate) use console::Listen as ConsoleListen;
pub(crate) use mcp::Http;
pub(crate) use metrics::Listen as MetricsListen;
pub(crate) use model_prices::unpriced;
pub(crate) use notices::Notices;
pub(crate) use parse::{load, load_settled};
pub(crate) use pool::check as check_pool;
pub(crate) use tcp::{DEFAULT_LIFETIME, DEFAULT_STREAMS, Tcp};
pub(crate) use traces::Export;

/// Text of a configuration file, which may have a secret in a URL. It is not shown.
#[derive(Clone, Default)]
pub(crate) struct Text(Arc<str>);

impl Text {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The configuration in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// SHA-256 of the file that it was read from, in hex.
    pub(crate) digest: String,
    /// Text of that file.
    pub(crate) text: Text,
    /// Path of the Unix socket.
    pub(crate) socket: PathBuf,
    /// Mode of the Unix socket.
    pub(crate) socket_mode: u32,
    /// Group of the Unix socket; `None` for the daemon's group.
    pub(crate) socket_group: Option<u32>,
    /// Listener for remote clients; `None` if there is none.
    pub(crate) tcp: Option<Tcp>,
    /// Directory of everything that the daemon stores.
    pub(crate) state_dir: PathBuf,
    /// Directories that workspaces must be beneath.
    pub(crate) workspace_roots: Vec<PathBuf>,
    /// Directory of the policy; `None` for the built-in policy.
    pub(crate) policy_dir: Option<PathBuf>,
    /// Permission to use `bind` workspaces for runs whose profile has no deny list.
    pub(crate) harness_on_bind: HarnessOnBind,
    /// Address of the container engine.
    pub(crate) engine: containers::Endpoint,
    /// Refuses to start on an engine with known escapes.
    pub(crate) strict_engine: bool,
    /// Static busybox from which the default image is made. The file may be absent.
    pub(crate) busybox: PathBuf,
    /// Limits for the import and the build of an image.
    pub(crate) images: ImageBounds,
    /// Weaker form of the host lane's jail that is accepted if the kernel allows the daemon no full one.
    pub(crate) accepted_jail: Option<WeakerForm>,
    /// Time until an approval expires; `None` for the profile's timeout.
    pub(crate) approval_timeout: Option<Duration>,
    /// Lets the principal that made a call approve it.
    pub(crate) allow_self_approval: bool,
    /// Webhooks that receive alerts.
    pub(crate) webhooks: Vec<Webhook>,
    /// Notices of approvals, and web push.
    pub(crate) notices: Notices,
    /// API roles of uids other than root and the daemon's uid.
    pub(crate) access: Vec<(u32, Roles)>,
    /// API roles of the subjects that client certificates name.
    pub(crate) certified: Vec<Certified>,
    /// Issuers whose tokens are accepted.
    pub(crate) oidc: Vec<::oidc::Issuer>,
    /// Maximum number of runs that are alive, and the longest life of each.
    pub(crate) runs: RunBounds,
    /// Maximum number of calls of all runs that are executed, and that wait.
    pub(crate) calls: Whole,
    /// Maximum number of open connections.
    pub(crate) max_connections: usize,
    /// Treatment of runs at an orderly stop of the daemon.
    pub(crate) on_stop: OnStop,
    /// Settings of all runs with a way out.
    pub(crate) egress: egress::Egress,
    /// Sources of the secrets that rules put into requests.
    pub(crate) secrets: BTreeMap<SecretName, Source>,
    /// Prices of models by name, or by the beginning of names and `*`.
    pub(crate) model_prices: BTreeMap<String, Price>,
    /// Containers that wait for runs.
    pub(crate) pool: Vec<PoolEntry>,
    /// Maximum size of all stored command output, bytes.
    pub(crate) spool_max_total: u64,
    /// Free space that the spool leaves on its file system, bytes.
    pub(crate) spool_min_free: u64,
    /// Limits for the stored outcomes of finished calls.
    pub(crate) outcomes: OutcomeBounds,
    /// Free space that the daemon wants on its disk.
    pub(crate) disk: Thresholds,
    /// Limits for the bases of all principals.
    pub(crate) bases: BaseBounds,
    /// Limits for the mirrors of repositories that runs are cloned from.
    pub(crate) mirrors: MirrorBounds,
    /// Limits for the checkpoints of all runs.
    pub(crate) checkpoints: CheckpointBounds,
    /// Limits for an operator's terminal session.
    pub(crate) sessions: Limits,
    /// The MCP endpoint over HTTP; `None` if there is none.
    pub(crate) mcp: Option<Http>,
    /// The listener for metrics; `None` if there is none.
    pub(crate) metrics: Option<MetricsListen>,
    /// The receiver of traces; `None` if there is none.
    pub(crate) traces: Option<Export>,
    /// The listener of the web console; `None` if there is none.
    pub(crate) console: Option<ConsoleListen>,
    /// Identity, labels and bounds of the node.
    pub(crate) node: NodeSettings,
    /// The listener for agent checks of HAProxy; `None` if there is none.
    pub(crate) agent_check: Option<AgentCheck>,
    /// Settings of the audit log.
    pub(crate) audit: audit::Audit,
    /// Level of the daemon's log.
    pub(crate) log_level: Level,
    /// Form of the daemon's log.
    pub(crate) log_format: Format,
}

impl Config {
    /// Returns the webhooks of alerts, with their secrets read.
    pub(crate) fn open_webhooks(&self) -> anyhow::Result<Vec<anomaly::Webhook>> {
        let webhooks = self.webhooks.iter().map(Webhook::open).collect::<Result<_, _>>();
        webhooks.map_err(|error| anyhow::anyhow!("alerts.webhooks: {error}"))
    }

    /// Returns true if reviewers can register passkeys.
    pub(crate) fn takes_passkeys(&self) -> bool {
        self.console.as_ref().is_some_and(ConsoleListen::takes_passkeys)
    }

    /// Returns the settings for writing and signing the audit log.
    ///
    /// The key is outside the log's directory, so that a copy of the log contains no copy of the key.
    pub(crate) fn audit_settings(&self) -> Settings {
        let key = self.state_dir.join("keys/audit.key");
        Settings { limits: self.audit.limits, signing: Some((key, self.audit.checkpoint_records)) }
    }
}

/// All problems of a configuration; never empty.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, "the configuration", &self.0)
    }
}

/// Prints the configuration in force as a configuration file, for `--print-config`. It contains no secrets.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_yaml::to_string(&self.shown()).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl Config {
    /// Returns the configuration in force, in the form of the file.
    fn shown(&self) -> Value {
        let mut shown = json!({
            "listen": { "unix": { "path": self.socket, "mode": format!("{:04o}", self.socket_mode) } },
            "state_dir": self.state_dir,
            "workspace_roots": self.workspace_roots,
            "harness_on_bind": self.harness_on_bind.name(),
            "docker": { "endpoint": self.engine.to_string(), "strict_engine": self.strict_engine },
            "default_image": { "busybox": self.busybox },
            "images": {
                "max_size": document::show_size(self.images.max_bytes),
                "timeout": seconds(self.images.timeout),
            },
            "approvals": { "allow_self_approval": self.allow_self_approval },
            "access": self.access_shown(),
            "limits": {
                "runs": self.runs.living,
                "ended_runs": self.runs.ended,
                "calls": self.calls.running,
                "calls_waiting": self.calls.waiting,
                "connections": self.max_connections,
            },
            "runs": { "on_stop": self.on_stop.name() },
            "pool": pool::shown(&self.pool),
            "spool": {
                "max_total": document::show_size(self.spool_max_total),
                "min_free": document::show_size(self.spool_min_free),
            },
            "outcomes": {
                "max_total": document::show_size(self.outcomes.max_total),
                "max_age": seconds(self.outcomes.max_age),
                "request_ids": seconds(self.outcomes.request_ids),
            },
            "disk": {
                "warn_free": document::show_size(self.disk.warn_free),
                "min_free": document::show_size(self.disk.min_free),
            },
            "bases": {
                "max_count": self.bases.max_count,
                "max_per_principal": self.bases.max_per_principal,
                "max_bytes": document::show_size(self.bases.max_bytes),
                "max_age": seconds(self.bases.max_age),
            },
            "mirrors": {
                "max_count": self.mirrors.max_count,
                "max_bytes": document::show_size(self.mirrors.max_bytes),
                "max_age": seconds(self.mirrors.max_age),
            },
            "checkpoints": {
                "max_count": self.checkpoints.max_count,
                "max_per_run": self.checkpoints.max_per_run,
                "max_bytes": document::show_size(self.checkpoints.max_bytes),
                "max_bytes_per_principal": document::show_size(self.checkpoints.max_bytes_per_principal),
                "max_age": seconds(self.checkpoints.max_age),
            },
            "sessions": {
                "max_length": seconds(self.sessions.max_length),
                "idle_timeout": seconds(self.sessions.idle_timeout),
                "max_recording": document::show_size(self.sessions.max_recording),
                "per_run": self.sessions.per_run,
            },
            "audit": self.audit.shown(),
            "log": { "level": self.log_level.as_str(), "format": self.log_format.name() },
        });
        self.show_optional(&mut shown);
        shown
    }

    /// Adds the keys that have no default.
    fn show_optional(&self, shown: &mut Value) {
        if let Some(group) = self.socket_group {
            shown["listen"]["unix"]["group"] = json!(group);
        }
        if let Some(tcp) = &self.tcp {
            shown["listen"]["tcp"] = tcp.shown();
        }
        if let Some(ttl) = self.runs.max_ttl {
            shown["runs"]["max_ttl"] = json!(seconds(ttl));
        }
        if let Some(egress) = egress::shown(&self.egress) {
            shown["egress"] = egress;
        }
        if !self.secrets.is_empty() {
            shown["secrets"] = secrets::shown(&self.secrets);
        }
        if !self.model_prices.is_empty() {
            shown["model_prices"] = model_prices::shown(&self.model_prices);
        }
        // If absent, these mean the full jail, the built-in policy and the profile's timeout.
        if let Some(form) = self.accepted_jail {
            shown["host_lane"] = json!({ "accept": form.name() });
        }
        if let Some(directory) = &self.policy_dir {
            shown["policy_dir"] = json!(directory);
        }
        if let Some(timeout) = self.approval_timeout {
            shown["approvals"]["timeout"] = json!(seconds(timeout));
        }
        if let Some(http) = &self.mcp {
            shown["mcp"] = http.shown();
        }
        if let Some(listen) = &self.metrics {
            shown["metrics"] = listen.shown();
        }
        if let Some(export) = &self.traces {
            shown["traces"] = export.shown();
        }
        self.notices.show(shown);
        if let Some(node) = self.node.shown() {
            shown["node"] = node;
        }
        if let Some(agent_check) = &self.agent_check {
            shown["agent_check"] = agent_check.shown();
        }
        if let Some(listen) = &self.console {
            shown["console"] = listen.shown();
        }
        if !self.oidc.is_empty() {
            shown["oidc"] = self.oidc.iter().map(oidc::shown).collect();
        }
        if !self.webhooks.is_empty() {
            shown["alerts"] =
                json!({ "webhooks": self.webhooks.iter().map(Webhook::shown).collect::<Vec<_>>() });
        }
    }

    fn access_shown(&self) -> Vec<Value> {
        let uids = self.access.iter().map(|(uid, roles)| json!({ "uid": uid, "roles": roles.names() }));
        let certified = self.certified.iter().map(|certified| {
            let mut shown = json!({ "certificate": certified.subject, "roles": certified.roles.names() });
            if let Some((uid, gid)) = certified.user {
                shown["files"] = json!({ "uid": uid, "gid": gid });
            }
            shown
        });
        uids.chain(certified).collect()
    }
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs())
}

#[cfg(test)]
mod testing {
    use super::{Config, Problems, parse};

    pub(super) fn parse(text: &str) -> Result<Config, Problems> {
        parse::parse("cofferd.yaml", text)
    }

    /// The keys of what is wrong.
    pub(super) fn keys(text: &str) -> Vec<String> {
        parse(text).unwrap_err().0.into_iter().map(|problem| problem.key).collect()
    }
}
