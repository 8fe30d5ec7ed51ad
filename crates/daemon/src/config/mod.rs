//! Configuration: YAML → a validated [`Config`]. Only that travels.
//!
//! Every problem is reported at once, with its line, its key and what was probably meant. A missing security setting means
//! the strict value.

mod access;
mod alerts;
mod audit;
mod changed;
mod endpoint;
mod mcp;
mod oidc;
mod parse;
mod pool;
mod read;
mod tcp;
mod values;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use audit_service::Settings;
use document::{Problem, list};
use gateway::limits::concurrency::Whole;
use host_launch::WeakerForm;
use identity::{Certified, Roles};
use runs::{HarnessOnBind, OnStop, PoolEntry, RunBounds, Thresholds};
use serde_json::{Value, json};
use store::OutcomeBounds;
use terminals::Limits;

use crate::images::ImageBounds;

pub(crate) use alerts::Webhook;
pub(crate) use changed::tell_what_waits;
pub(crate) use mcp::Http;
pub(crate) use parse::load;
pub(crate) use pool::check as check_pool;
pub(crate) use tcp::{DEFAULT_LIFETIME, DEFAULT_STREAMS, Tcp};

/// What is in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Path of the Unix socket.
    pub(crate) socket: PathBuf,
    /// Its mode.
    pub(crate) socket_mode: u32,
    /// Its group; `None`: the daemon's own.
    pub(crate) socket_group: Option<u32>,
    /// The listener for clients elsewhere; `None`: there is none.
    pub(crate) tcp: Option<Tcp>,
    /// Everything that the daemon keeps.
    pub(crate) state_dir: PathBuf,
    /// Workspaces must lie beneath one of these.
    pub(crate) workspace_roots: Vec<PathBuf>,
    /// Directory of the policy; `None`: the built-in one.
    pub(crate) policy_dir: Option<PathBuf>,
    /// Whether runs whose profile has no deny list may be on `bind` workspaces.
    pub(crate) harness_on_bind: HarnessOnBind,
    /// Where the container engine listens.
    pub(crate) engine: containers::Endpoint,
    /// Refuse to start on an engine with known escapes.
    pub(crate) strict_engine: bool,
    /// The static busybox of which the default image is made. It may be absent.
    pub(crate) busybox: PathBuf,
    /// What the import and the build of an image may take.
    pub(crate) images: ImageBounds,
    /// The form of the host lane's jail that does where the kernel lets this daemon have no whole one.
    pub(crate) accepted_jail: Option<WeakerForm>,
    /// Until an approval expires; `None`: as the profile says.
    pub(crate) approval_timeout: Option<Duration>,
    /// The principal that made a call may approve it.
    pub(crate) allow_self_approval: bool,
    /// Who is told of alerts.
    pub(crate) webhooks: Vec<Webhook>,
    /// API roles of other uids than root's and the daemon's own.
    pub(crate) access: Vec<(u32, Roles)>,
    /// API roles of those whom client certificates name.
    pub(crate) certified: Vec<Certified>,
    /// Issuers whose tokens count.
    pub(crate) oidc: Vec<::oidc::Issuer>,
    /// Runs that live at the same time, and how old each may become.
    pub(crate) runs: RunBounds,
    /// Calls of all runs at the same time, and those that wait.
    pub(crate) calls: Whole,
    /// Connections at the same time.
    pub(crate) max_connections: usize,
    /// What becomes of runs when the daemon stops in good order.
    pub(crate) on_stop: OnStop,
    /// What waits for runs.
    pub(crate) pool: Vec<PoolEntry>,
    /// What commands wrote is kept up to so many bytes in all.
    pub(crate) spool_max_total: u64,
    /// Bytes that this leaves free of its file system.
    pub(crate) spool_min_free: u64,
    /// How much is kept of calls that are over.
    pub(crate) outcomes: OutcomeBounds,
    /// How much of its disk the daemon wants free.
    pub(crate) disk: Thresholds,
    /// What an operator's session at a terminal may have.
    pub(crate) sessions: Limits,
    /// The MCP endpoint over HTTP; `None`: there is none.
    pub(crate) mcp: Option<Http>,
    /// How the audit log is kept.
    pub(crate) audit: audit::Audit,
    /// Filter of the log.
    pub(crate) log_level: String,
    /// The log is JSON Lines instead of text.
    pub(crate) log_json: bool,
}

impl Config {
    /// The webhooks of alerts, with their secrets read.
    pub(crate) fn open_webhooks(&self) -> anyhow::Result<Vec<anomaly::Webhook>> {
        let webhooks = self.webhooks.iter().map(Webhook::open).collect::<Result<_, _>>();
        webhooks.map_err(|error| anyhow::anyhow!("alerts.webhooks: {error}"))
    }

    /// How the audit log is written and signed. Its key is beside it and not in it, so that a copy of the log is no copy of
    /// the key.
    pub(crate) fn audit_settings(&self) -> Settings {
        let key = self.state_dir.join("keys/audit.key");
        Settings { limits: self.audit.limits, signing: Some((key, self.audit.checkpoint_records)) }
    }
}

/// Everything that is wrong with a configuration; never empty.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, "the configuration", &self.0)
    }
}

/// `--print-config`: what is in force, as a configuration again. There are no secrets in it so far.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_yaml::to_string(&self.shown()).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl Config {
    /// Returns what is in force, in the form of the file.
    fn shown(&self) -> Value {
        let uids = self.access.iter().map(|(uid, roles)| json!({ "uid": uid, "roles": roles.names() }));
        let certified = self.certified.iter().map(|certified| {
            let mut shown = json!({ "certificate": certified.subject, "roles": certified.roles.names() });
            if let Some((uid, gid)) = certified.user {
                shown["files"] = json!({ "uid": uid, "gid": gid });
            }
            shown
        });
        let access: Vec<_> = uids.chain(certified).collect();
        let mut shown = json!({
            "listen": { "unix": { "path": self.socket, "mode": format!("{:04o}", self.socket_mode) } },
            "state_dir": self.state_dir,
            "workspace_roots": self.workspace_roots,
            "harness_on_bind": self.harness_on_bind.name(),
            "docker": { "endpoint": self.engine.to_string(), "strict_engine": self.strict_engine },
            "default_image": { "busybox": self.busybox },
            "images": {
                "max_size": values::show_size(self.images.max_bytes),
                "timeout": seconds(self.images.timeout),
            },
            "approvals": { "allow_self_approval": self.allow_self_approval },
            "access": access,
            "limits": {
                "runs": self.runs.living,
                "calls": self.calls.running,
                "calls_waiting": self.calls.waiting,
                "connections": self.max_connections,
            },
            "runs": { "on_stop": self.on_stop.name() },
            "pool": pool::shown(&self.pool),
            "spool": {
                "max_total": values::show_size(self.spool_max_total),
                "min_free": values::show_size(self.spool_min_free),
            },
            "outcomes": {
                "max_total": values::show_size(self.outcomes.max_total),
                "max_age": seconds(self.outcomes.max_age),
                "request_ids": seconds(self.outcomes.request_ids),
            },
            "disk": {
                "warn_free": values::show_size(self.disk.warn_free),
                "min_free": values::show_size(self.disk.min_free),
            },
            "sessions": {
                "max_length": seconds(self.sessions.max_length),
                "idle_timeout": seconds(self.sessions.idle_timeout),
                "max_recording": values::show_size(self.sessions.max_recording),
                "per_run": self.sessions.per_run,
            },
            "audit": self.audit.shown(),
            "log": { "level": self.log_level, "format": if self.log_json { "json" } else { "text" } },
        });
        if let Some(group) = self.socket_group {
            shown["listen"]["unix"]["group"] = json!(group);
        }
        if let Some(tcp) = &self.tcp {
            shown["listen"]["tcp"] = tcp.shown();
        }
        if let Some(ttl) = self.runs.max_ttl {
            shown["runs"]["max_ttl"] = json!(seconds(ttl));
        }
        // Absent, these mean the whole jail, the built-in policy and the profile's own timeout.
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
        if !self.oidc.is_empty() {
            shown["oidc"] = self.oidc.iter().map(oidc::shown).collect();
        }
        if !self.webhooks.is_empty() {
            shown["alerts"] =
                json!({ "webhooks": self.webhooks.iter().map(Webhook::shown).collect::<Vec<_>>() });
        }
        shown
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
