//! The effect of the policy in a description: which calls of a tool wait for a reviewer, and which are refused.

use crate::network::before_example;
use crate::policy::{Consent, Policy};
use crate::tool::Tool;

/// Returns the description of a tool with sentences about the policy.
pub(super) fn told(tool: &Tool, description: &str, policy: &Policy<'_>) -> String {
    let said = [consent(tool, policy), denied_programs(tool, policy)].concat();
    before_example(description, &said)
}

fn consent(tool: &Tool, policy: &Policy<'_>) -> String {
    let parts = tool.operations.iter().filter(|name| **name != "exec.read_only");
    // Where processes are not available, the description does not mention them.
    let parts =
        parts.filter(|name| tool.name == "process" || **name != "process" || (policy.permitted)(name));
    let of = |name: &&str| if (policy.permitted)(name) { (policy.consent)(name) } else { Consent::Refused };
    let parts: Vec<(&str, Consent)> = parts.map(|name| (*name, of(name))).collect();
    let those = |consent: Consent| {
        let names = parts.iter().filter(move |(_, said)| *said == consent);
        names.map(|(name, _)| part(name)).collect::<Vec<_>>()
    };
    let (asked, refused) = (those(Consent::Asked), those(Consent::Refused));
    let mut said = String::new();
    // Rules of the policy may permit some commands.
    let has_rules = parts.iter().any(|(name, _)| *name == "exec");
    if asked.len() == parts.len() && !has_rules {
        said.push_str(" A person has to approve each call first.");
    } else if !asked.is_empty() {
        said = format!(" A person has to approve first: {}.", asked.join("; "));
    }
    if !refused.is_empty() {
        said = format!("{said} Refused here: {}.", refused.join("; "));
    }
    let only_some = parts.iter().any(|(name, consent)| *name == "exec" && *consent != Consent::Free);
    if only_some && (policy.consent)("exec.read_only") == Consent::Free {
        said.push_str(" One plain cat, head, tail, find or wc that only reads runs at once.");
    }
    said
}

/// Returns the words for an operation within its tool.
fn part(operation: &str) -> &str {
    match operation {
        "exec" => "commands that the policy does not name",
        "shell" => "more than one plain command (pipes, redirections, &&, variables, wildcards)",
        "process" => "run_in_background",
        "list" => "listing",
        name => name.rsplit('.').next().unwrap_or(name),
    }
}

fn denied_programs(tool: &Tool, policy: &Policy<'_>) -> String {
    let runs = ["exec", "process"].iter().any(|name| tool.operations.contains(name));
    let builtin = "rm, unlink, shred, dd, sudo, su, mount, chroot, mkfs, adduser, reboot and their like";
    let names = policy.denied.names.iter().map(|name| text::excerpt(name));
    let all: Vec<String> =
        policy.denied.builtin.then(|| builtin.to_owned()).into_iter().chain(names).collect();
    if !runs || all.is_empty() {
        return String::new();
    }
    let instead =
        if policy.denied.builtin && (policy.permitted)("patch") { "; patch can delete files" } else { "" };
    format!(" These programs never run: {}{instead}.", all.join(", "))
}
