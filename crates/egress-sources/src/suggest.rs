//! Rules for the servers that were found, and their form in a policy.

use std::fmt;

use egress_rules::{Destination, HostName, HostPattern, Rule, Rules, Scheme, Settings};
use serde::Serialize;

use crate::form::{comment, methods_of_readers, write_rule};
use crate::found::Setting;
use crate::host::Host;
use crate::remote::{Protocol, Remote};
use crate::tools;

/// Suggested rules, and everything that is not in them.
#[derive(Debug, Serialize)]
pub struct Suggestions {
    pub rules: Vec<Suggested>,
    /// Tools without a setting that names a host.
    pub not_configured: Vec<&'static str>,
    /// Settings for which there is no rule.
    pub not_used: Vec<String>,
}

/// One rule, and the settings that name its server.
#[derive(Debug, Serialize)]
pub struct Suggested {
    #[serde(flatten)]
    pub rule: Rule,
    /// Settings that name the server.
    pub from: Vec<String>,
    /// True if git reads from the server over HTTP, for which it needs POST.
    #[serde(skip)]
    is_git_over_http: bool,
}

/// Makes one rule for each server. A rule that a policy would refuse is a note instead.
pub fn suggest(host: &Host) -> Suggestions {
    let found = tools::read(host);
    let mut suggestions =
        Suggestions { rules: Vec::new(), not_configured: found.without, not_used: found.notes };
    let mut settings = Settings::default();
    for Setting { tool, origin, remote } in found.settings {
        let from = format!("{tool}: {origin}");
        let Some(rule) = rule(&remote) else { continue };
        let is_git_over_http = tool == "git" && remote.protocol == Protocol::Http;
        if let Some(known) = suggestions.rules.iter_mut().find(|known| known.rule == rule) {
            known.is_git_over_http |= is_git_over_http;
            if !known.from.contains(&from) {
                known.from.push(from);
            }
            continue;
        }
        settings.rules.push(rule.clone());
        match Rules::new(settings.clone()) {
            Ok(_) => suggestions.rules.push(Suggested { rule, from: vec![from], is_git_over_http }),
            Err(faults) => {
                settings.rules.pop();
                let problems: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
                let server = format!("{}:{}", remote.host, remote.port);
                suggestions.not_used.push(format!("{from}: {server}: {}", problems.join("; ")));
            }
        }
    }
    suggestions
}

fn rule(remote: &Remote) -> Option<Rule> {
    let host = match &remote.host {
        Destination::Name(name) => HostPattern::Name(name.clone()),
        Destination::Address(address) => HostPattern::parse(&address.to_string()).ok()?,
    };
    let (scheme, methods) = match remote.protocol {
        Protocol::Https => (Scheme::Https, None),
        Protocol::Http => (Scheme::Http, Some(methods_of_readers())),
        Protocol::Tcp => (Scheme::Tcp, None),
    };
    Some(Rule::allowing(host, [remote.port].into(), scheme, methods))
}

const GIT_OVER_HTTP: &str = "git also needs POST to fetch over HTTP; POST would open pushes as well";
const LAST: [&str; 2] = [
    "Redirects: a registry may serve files from another host, which no configuration names; `coffer run connections` shows \
     refused names.",
    "Private addresses: a name that resolves to one also needs `networks`.",
];

/// The `egress` section of a profile, indented for it.
impl fmt::Display for Suggestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        comment(
            f,
            4,
            "Servers that the tools of this host are configured to use. Read each rule before a profile gets it.",
        )?;
        let rules = if self.rules.is_empty() { "rules: []" } else { "rules:" };
        writeln!(f, "    egress:\n      {rules}")?;
        for suggested in &self.rules {
            suggested.fmt(f)?;
        }
        for tool in &self.not_configured {
            let advice = "not configured; if runs need it, add a rule that names its registry or server";
            comment(f, 4, &format!("{tool}: {advice}"))?;
        }
        for note in &self.not_used {
            comment(f, 4, &format!("no rule: {note}"))?;
        }
        LAST.iter().try_for_each(|line| comment(f, 4, line))
    }
}

impl fmt::Display for Suggested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for from in &self.from {
            comment(f, 8, from)?;
        }
        if self.is_git_over_http {
            comment(f, 8, GIT_OVER_HTTP)?;
        }
        if let Some(name) = self.name_of_git_over_ssh() {
            let setting = format!("git config --global url.\"https://{name}/\".insteadOf git@{name}:");
            comment(
                f,
                8,
                &format!("over HTTPS, a rule with `scheme: git` names repositories and refs: {setting}"),
            )?;
        }
        write_rule(f, "        - ", &self.rule)
    }
}

impl Suggested {
    /// Returns the name of a server that git speaks SSH with, whose rule shows nothing of what git does.
    fn name_of_git_over_ssh(&self) -> Option<&HostName> {
        let is_of_git = self.from.iter().any(|from| from.starts_with("git: "));
        match &self.rule.host {
            HostPattern::Name(name) if is_of_git && self.rule.scheme == Scheme::Tcp => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "suggest_tests.rs"]
mod tests;
