//! The configuration file as it is written: every key, nothing judged yet.

use std::path::PathBuf;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    #[serde(default)]
    pub(super) listen: Listen,
    #[serde(default = "state_dir")]
    pub(super) state_dir: PathBuf,
    #[serde(default)]
    pub(super) workspace_roots: Vec<PathBuf>,
    pub(super) policy_dir: Option<PathBuf>,
    #[serde(default)]
    pub(super) docker: Docker,
    #[serde(default)]
    pub(super) default_image: DefaultImage,
    #[serde(default)]
    pub(super) host_lane: HostLane,
    #[serde(default)]
    pub(super) pool: Pool,
    #[serde(default)]
    pub(super) approvals: Approvals,
    #[serde(default)]
    pub(super) alerts: Alerts,
    #[serde(default)]
    pub(super) access: Vec<Access>,
    #[serde(default)]
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) runs: Runs,
    #[serde(default)]
    pub(super) spool: Spool,
    #[serde(default)]
    pub(super) sessions: Sessions,
    #[serde(default)]
    pub(super) mcp: super::mcp::Raw,
    #[serde(default)]
    pub(super) audit: super::audit::Raw,
    #[serde(default)]
    pub(super) log: Log,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listen {
    #[serde(default)]
    pub(super) unix: Unix,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Unix {
    pub(super) path: PathBuf,
    pub(super) mode: String,
}

impl Default for Unix {
    fn default() -> Self {
        Self { path: "/run/cofferdam/cofferd.sock".into(), mode: "0660".to_owned() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Docker {
    pub(super) endpoint: String,
    pub(super) strict_engine: bool,
}

impl Default for Docker {
    fn default() -> Self {
        Self { endpoint: "unix:///var/run/docker.sock".to_owned(), strict_engine: false }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DefaultImage {
    pub(super) busybox: PathBuf,
}

impl Default for DefaultImage {
    fn default() -> Self {
        Self { busybox: "/bin/busybox".into() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HostLane {
    pub(super) accept: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pool {
    pub(super) min: u32,
    pub(super) max: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Approvals {
    pub(super) timeout: Option<String>,
    pub(super) allow_self_approval: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Alerts {
    pub(super) webhooks: Vec<Webhook>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) secret_file: PathBuf,
    #[serde(default = "min_severity")]
    pub(super) min_severity: String,
    #[serde(default = "super::endpoint::timeout")]
    pub(super) timeout: String,
    #[serde(default = "super::endpoint::attempts")]
    pub(super) attempts: u32,
    #[serde(default = "super::endpoint::first_retry")]
    pub(super) first_retry: String,
    #[serde(default)]
    pub(super) allow_http: bool,
}

fn min_severity() -> String {
    "low".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Access {
    pub(super) uid: u32,
    pub(super) roles: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Limits {
    pub(super) runs: u32,
    pub(super) calls: u32,
    pub(super) calls_waiting: u32,
    pub(super) connections: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 256, calls: 512, calls_waiting: 2_048, connections: 256 }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Runs {
    pub(super) on_stop: String,
}

impl Default for Runs {
    fn default() -> Self {
        Self { on_stop: "end".to_owned() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Spool {
    pub(super) max_total: Size,
    pub(super) min_free: Size,
}

/// `4GiB`, or a plain number of bytes.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Size {
    Bytes(u64),
    Text(String),
}

impl Default for Spool {
    fn default() -> Self {
        Self { max_total: Size::Text("4GiB".to_owned()), min_free: Size::Text("256MiB".to_owned()) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Sessions {
    pub(super) max_length: String,
    pub(super) idle_timeout: String,
    pub(super) max_recording: Size,
    pub(super) per_run: u32,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            max_length: "8h".to_owned(),
            idle_timeout: "30m".to_owned(),
            max_recording: Size::Text("64MiB".to_owned()),
            per_run: 4,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Log {
    pub(super) level: String,
    pub(super) format: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: "text".to_owned() }
    }
}

fn state_dir() -> PathBuf {
    "/var/lib/cofferdam".into()
}
