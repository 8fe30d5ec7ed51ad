#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only this workspace calls it, and no comment repeats a name

mod anomalies;
mod caller;
mod caps;
mod companions;
mod consent;
mod egress_notes;
pub mod environment;
mod holding;
mod image_names;
mod in_force;
mod lineage;
mod load;
mod model;
mod names;
mod own_kernel;
mod own_risk;
pub mod paths;
mod prefix;
mod problems;
mod quota;
mod read;
mod read_anomalies;
mod read_approvals;
mod read_budget;
mod read_companions;
mod read_egress;
mod read_exec;
mod read_git;
mod read_images;
mod read_limits;
mod read_mcp;
mod read_placeholders;
mod read_requests;
mod read_tenants;
mod role;
mod rules;
mod team;
mod verdict;
mod words;
mod words_alone;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use operations::McpTool;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tenants::Tenants;

pub use anomalies::{Anomalies, AnomalyAction, AnomalyRule, AnomalySetting, Severity};
pub use caller::{Caller, RunScope};
pub use caps::Caps;
pub use companions::{Check, Companion, CompanionRules, NoCompanions, Readiness};
pub use consent::{Form, Level};
pub use document::Problem;
pub use holding::{EXEC_READ_ONLY, Grant};
pub use in_force::InForce;
pub use model::{Author, CallBounds, ContainerLimits, ContainerPaths, ExecPolicy, Forward, Profile};
pub use names::{covers, is_of_tools, speaking};
pub use own_kernel::has_own_kernel;
pub use own_risk::default_risk;
pub use prefix::Prefix;
pub use problems::Problems;
pub use quota::{Limit, Quota, RateLimits, Span};
pub use read_approvals::{ApprovalPolicy, DecisionTime, Levels, PasskeyFrom, Reminder, Terms};
pub use read_mcp::{HttpTarget, McpHttp, McpServer, McpStdio, McpTransport};
pub use role::Role;
pub use rules::{ExecRule, ExecRules};
pub use team::Team;
pub use verdict::{Risk, Verdict};
pub use words::Words;

use team::Members;

/// Profiles and roles that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    content: Content,
    members: Members,
    tenants: Arc<Tenants>,
    digest: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Content {
    profiles: BTreeMap<String, Profile>,
    roles: BTreeMap<String, Role>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    teams: BTreeMap<String, Team>,
    #[serde(skip_serializing_if = "Tenants::is_empty")]
    tenants: Tenants,
    #[serde(skip_serializing_if = "RiskPolicy::is_empty")]
    risk: RiskPolicy,
    anomalies: Anomalies,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    mcp_servers: BTreeMap<String, McpServer>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    aliases: BTreeMap<String, String>,
}

/// The operator's rules on risk, for all profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct RiskPolicy {
    /// Operations whose risk a profile may lower.
    lowerable: Vec<String>,
}

impl RiskPolicy {
    fn is_empty(&self) -> bool {
        self.lowerable.is_empty()
    }
}

impl Policy {
    fn new(content: Content) -> Result<Self, serde_json::Error> {
        // Maps are sorted and fields have a fixed order, so that equal policies have equal bytes.
        let canonical = serde_json::to_vec(&content)?;
        let digest = Sha256::new().chain_update(b"cofferdam policy 1\0").chain_update(&canonical).finalize();
        let members = Members::of(&content.teams);
        let tenants = Arc::new(content.tenants.clone());
        Ok(Self { content, members, tenants, digest: hex::encode(digest) })
    }

    /// Returns the profile of this name.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.content.profiles.get(name)
    }

    /// Returns the role of this name.
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.content.roles.get(name)
    }

    /// Returns the settings of the anomaly rules.
    pub fn anomalies(&self) -> &Anomalies {
        &self.content.anomalies
    }

    /// Returns the names of the profiles, sorted.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        self.content.profiles.keys().map(String::as_str)
    }

    /// Returns the names of the profiles whose deny list is off, sorted.
    pub fn without_deny_list(&self) -> impl Iterator<Item = &str> {
        let off = self.content.profiles.iter().filter(|(_, profile)| !profile.exec.deny_list.is_on());
        off.map(|(name, _)| name.as_str())
    }

    /// Returns the names of the profiles under which files outside the mounts may be named, sorted.
    pub fn with_container_paths(&self) -> impl Iterator<Item = &str> {
        let profiles = self.content.profiles.iter();
        let open = profiles.filter(|(_, profile)| profile.container_paths == ContainerPaths::Allow);
        open.map(|(name, _)| name.as_str())
    }

    /// Returns the names of the roles, sorted.
    pub fn role_names(&self) -> impl Iterator<Item = &str> {
        self.content.roles.keys().map(String::as_str)
    }

    /// Returns the team of this name.
    pub fn team(&self, name: &str) -> Option<&Team> {
        self.content.teams.get(name)
    }

    /// Returns the names of the teams, sorted.
    pub fn team_names(&self) -> impl Iterator<Item = &str> {
        self.content.teams.keys().map(String::as_str)
    }

    /// Returns the teams that an agent is in, with their names. A team may appear twice.
    pub fn teams_of<'p>(&'p self, agent_id: &'p str) -> impl Iterator<Item = (&'p str, &'p Team)> {
        self.members.teams_of(agent_id).filter_map(|name| Some((name, self.content.teams.get(name)?)))
    }

    /// Checks that consent can be signed where a profile requires that. Without passkeys, its calls could only be denied.
    pub fn check_passkeys(&self, are_taken: bool) -> Result<(), String> {
        let problem = |(name, profile): (&String, &Profile)| {
            (profile.approvals.passkey != PasskeyFrom::Never && !are_taken).then(|| {
                format!(
                    "profiles.{name}.approvals.passkey: needs a console with a name, in which reviewers register passkeys: set `console` \
                     in the configuration, and as `console.origin` no address"
                )
            })
        };
        let problems: Vec<String> = self.content.profiles.iter().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Returns the tenants, and the principals of each.
    pub fn tenants(&self) -> &Arc<Tenants> {
        &self.tenants
    }

    /// Returns the upstream MCP server of this name.
    pub fn mcp_server(&self, name: &str) -> Option<&McpServer> {
        self.content.mcp_servers.get(name)
    }

    /// Returns the upstream MCP servers, by name.
    pub fn mcp_servers(&self) -> impl Iterator<Item = (&str, &McpServer)> {
        self.content.mcp_servers.iter().map(|(name, server)| (name.as_str(), server))
    }

    /// Returns the tool with this alias.
    pub fn alias(&self, name: &str) -> Option<McpTool> {
        self.content.aliases.get(name).and_then(|tool| McpTool::parse(tool))
    }

    /// Returns the alias of a tool.
    pub fn alias_of(&self, tool: &McpTool) -> Option<&str> {
        let named = self.content.aliases.iter().find(|(_, named)| *named == tool.canonical());
        named.map(|(alias, _)| alias.as_str())
    }

    /// Returns the SHA-256 over the canonical form, lower-case hex. Comments, order and layout of the files do not
    /// matter.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the canonical form. Its SHA-256, after the text `cofferdam policy 1` and a zero byte, is the digest.
    pub fn canonical(&self) -> Result<String, PolicyNotShown> {
        serde_json::to_string(&self.content).map_err(|error| PolicyNotShown(error.to_string()))
    }

    /// Returns the whole policy as one file, with every default. If it is loaded again, it has the same digest.
    pub fn to_yaml(&self) -> Result<String, PolicyNotShown> {
        serde_yaml::to_string(&self.content).map_err(|error| PolicyNotShown(error.to_string()))
    }
}

/// The policy could not be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("the policy cannot be shown: {0}")]
pub struct PolicyNotShown(String);
