//! `coffer policy explain egress`: the decision about a connection out of a run. The same code decides in the daemon.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use egress_rules::{Decision, Destination, Narrowed, PathPattern, Rules, Scheme, SecretName, Verdict};
use policy::{Policy, Problems};
use serde::Serialize;
use wire::v1::GetPolicyRequest;

use super::check;
use crate::client::{Context, quick};
use crate::failure::{Ended, Failure};
use crate::output::{Output, Style};

/// Explain what the policy would decide about a connection out of a run, by which rule. No connection is made, and no name is
/// resolved.
///
/// Without a port, all open ports are listed. Rules that narrowed a run are not known here.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer policy explain egress files.example.org:443 --profile review --policy policy.yaml"
)]
pub(crate) struct ExplainEgress {
    /// The host, as a program in the run names it: a name or an address.
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// The profile of the run. Default: all profiles.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// A policy file or a directory of them, for which no daemon is needed. Default: the policy in force in the daemon.
    #[arg(long, value_name = "FILE|DIR")]
    policy: Option<PathBuf>,
}

/// Decision of one profile.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Explained {
    profile: String,
    host: String,
    /// The strictest decision of the named port, or the least strict of all.
    decision: Decision,
    rule: String,
    because: String,
    /// Effect for a program in the run.
    effect: &'static str,
    /// Result of the check of an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// Ports that are open, or wait for a reviewer; at most the named one.
    open: Vec<Open>,
    /// All rules of the profile in words, as an agent gets them.
    words: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Open {
    port: u16,
    decision: Decision,
    scheme: Scheme,
    /// Methods that a request may have; `None` is every method.
    #[serde(skip_serializing_if = "Option::is_none")]
    methods: Option<BTreeSet<String>>,
    /// Demands on requests, and changes to them, in words. Secrets have their names alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requests: Vec<String>,
    rule: String,
}

impl ExplainEgress {
    pub(super) async fn run(self, context: &Context) -> Ended {
        let (host, port) = parsed(&self.host)?;
        let policy = match &self.policy {
            Some(path) => check::load(path)?.map_err(|problems| unusable(&problems))?,
            None => in_force(context).await?,
        };
        let explained = self.explain(&policy, &host, port)?;
        context.ui.answer(explained, |explained, page| render(&explained, page))
    }

    fn explain(
        &self,
        policy: &Policy,
        host: &Destination,
        port: Option<u16>,
    ) -> Result<Vec<Explained>, Failure> {
        let names: Vec<&str> = match &self.profile {
            Some(name) => vec![name],
            None => policy.profile_names().collect(),
        };
        let explained = |name: &str| {
            let profile = policy.profile(name).ok_or_else(|| {
                let known: Vec<&str> = policy.profile_names().collect();
                Failure::usage(format!("no profile is named `{name}`; there are: {}", known.join(", ")))
            })?;
            Ok(explain(name, &profile.egress, host, port))
        };
        names.into_iter().map(explained).collect()
    }
}

/// Parses a host with or without a port. An IPv6 address without brackets has no port.
fn parsed(text: &str) -> Result<(Destination, Option<u16>), Failure> {
    let bad = |error: &dyn std::fmt::Display| Failure::usage(format!("`{text}` is no destination: {error}"));
    let is_bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
    if is_bare_v6 || text.ends_with(']') || !text.contains(':') {
        return Destination::parse(text).map(|host| (host, None)).map_err(|error| bad(&error));
    }
    let (host, port) = Destination::parse_with_port(text).map_err(|error| bad(&error))?;
    Ok((host, Some(port)))
}

async fn in_force(context: &Context) -> Result<Policy, Failure> {
    let client = context.connect().await?;
    let policy = client.policy().get_policy(quick(GetPolicyRequest {})).await?.into_inner();
    Policy::from_files([("the daemon's policy", policy.yaml)]).map_err(|problems| unusable(&problems))
}

fn unusable(problems: &Problems) -> Failure {
    let problems: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
    Failure::failed(format!("the policy cannot be used: {}", problems.join("; ")))
}

fn explain(profile: &str, rules: &Rules, host: &Destination, port: Option<u16>) -> Explained {
    let ports = port.map_or_else(|| rules.ports_of(host), |port| [port].into());
    let open: Vec<Open> = ports.into_iter().filter_map(|port| open(port, rules.decide(host, port))).collect();
    let guard = match host {
        Destination::Address(address) => Some(rules.check(*address, None)),
        Destination::Name(_) => None,
    };
    let verdict = match open.iter().min_by_key(|open| open.decision) {
        Some(open) => rules.decide(host, open.port),
        None => rules.decide(host, port.unwrap_or(443)),
    };
    let is_refused_address = matches!(guard, Some(Err(_)));
    let because = if rules.is_nothing() && !is_refused_address {
        "The profile has no egress: no rule opens anything.".to_owned()
    } else if open.is_empty() && port.is_none() && !is_refused_address {
        "No port of this host is open.".to_owned()
    } else {
        verdict.words
    };
    Explained {
        profile: profile.to_owned(),
        host: host.to_string(),
        decision: verdict.decision,
        rule: verdict.rule,
        because,
        effect: effect(rules, host, verdict.decision),
        address: guard.map(|guard| match guard {
            Ok(()) => "passes the check of addresses".to_owned(),
            Err(range) => format!("is {range}"),
        }),
        open,
        words: Narrowed::new(rules.clone()).words(),
    }
}

fn open(port: u16, verdict: Verdict) -> Option<Open> {
    let requests = requests(&verdict);
    let Verdict { decision, scheme, methods, rule, .. } = verdict;
    (decision != Decision::Deny).then_some(Open { port, decision, scheme, methods, requests, rule })
}

/// Returns what a verdict says about requests, but for their methods.
fn requests(verdict: &Verdict) -> Vec<String> {
    let opening = &verdict.opening;
    let mut all = Vec::new();
    if verdict.opens_tls() {
        all.push("TLS is opened; programs see a certificate of the run's own authority".to_owned());
    }
    for paths in &opening.paths {
        let paths: Vec<&str> = paths.iter().map(PathPattern::as_str).collect();
        all.push(format!("the path is one of {}", paths.join(" ")));
    }
    for injection in &opening.inject {
        let secrets: BTreeSet<&SecretName> = injection.secrets().collect();
        let secrets: Vec<&str> = secrets.into_iter().map(SecretName::as_str).collect();
        all.push(format!("the header {} is set with the secret {}", injection.header(), secrets.join(", ")));
    }
    all.extend(opening.upstream.iter().map(|upstream| format!("it goes to {upstream}")));
    all.extend(opening.is_metered.then(|| "its tokens are counted".to_owned()));
    all
}

fn effect(rules: &Rules, host: &Destination, decision: Decision) -> &'static str {
    match (host, decision) {
        (_, Decision::Allow) => "the connection goes out",
        (_, Decision::Ask) => "the connection waits for a reviewer",
        (Destination::Name(name), Decision::Deny) if rules.resolves(name).is_none() => {
            "the name does not exist in the run"
        }
        (_, Decision::Deny) => "the connection is reset",
    }
}

fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    }
}

fn scheme(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Https => "https",
        Scheme::Http => "http",
        Scheme::Tcp => "tcp",
        Scheme::Git => "git",
    }
}

fn render(all: &[Explained], page: &mut Output) {
    for explained in all {
        let style = match explained.decision {
            Decision::Allow => Style::Green,
            Decision::Ask => Style::Yellow,
            Decision::Deny => Style::Red,
        };
        if !page.as_str().is_empty() {
            page.own("\n");
        }
        page.styled(style, word(explained.decision)).own(" ").word(&explained.host).end_line();
        page.facts(&[
            ("profile", explained.profile.clone()),
            ("rule", explained.rule.clone()),
            ("because", explained.because.clone()),
            ("effect", explained.effect.to_owned()),
            ("address", explained.address.clone().unwrap_or_default()),
            ("rules", explained.words.clone()),
        ]);
        if explained.open.is_empty() {
            continue;
        }
        let rows = explained.open.iter().map(|open| {
            let methods = open.methods.iter().flatten().cloned().collect::<Vec<_>>().join(" ");
            vec![
                open.port.to_string(),
                word(open.decision).to_owned(),
                scheme(open.scheme).to_owned(),
                if methods.is_empty() { "all".to_owned() } else { methods },
                open.rule.clone(),
            ]
        });
        page.own("\n").table(&["PORT", "SAYS", "SCHEME", "METHODS", "RULE"], rows);
        let requests = explained.open.iter().flat_map(|open| {
            open.requests.iter().map(move |request| vec![open.port.to_string(), request.clone()])
        });
        let requests: Vec<Vec<String>> = requests.collect();
        if !requests.is_empty() {
            page.own("\n").table(&["PORT", "EACH REQUEST"], requests);
        }
    }
}

#[cfg(test)]
#[path = "explain_egress_tests.rs"]
mod tests;
