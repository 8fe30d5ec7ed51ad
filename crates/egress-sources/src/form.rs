//! The form of rules in a policy.

use std::collections::BTreeSet;
use std::fmt;

use egress_rules::{Rule, Scheme};
use text::one_line;

/// Returns the methods of requests that only read.
pub(super) fn methods_of_readers() -> BTreeSet<String> {
    ["GET".to_owned(), "HEAD".to_owned()].into()
}

/// Writes a rule that is not a refusal as one line of YAML, after `before`.
pub(super) fn write_rule(f: &mut fmt::Formatter<'_>, before: &str, rule: &Rule) -> fmt::Result {
    let Rule { host, ports, scheme, methods, .. } = rule;
    let ports: Vec<String> = ports.iter().flatten().map(u16::to_string).collect();
    write!(f, "{before}{{ host: \"{host}\", ports: [{}], ", ports.join(", "))?;
    f.write_str(match scheme {
        Scheme::Https => "",
        Scheme::Http => "scheme: http, ",
        Scheme::Tcp => "scheme: tcp, ",
        Scheme::Git => "scheme: git, ",
    })?;
    if let Some(methods) = methods {
        let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
        write!(f, "methods: [{}], ", methods.join(", "))?;
    }
    f.write_str("decision: allow }\n")
}

/// Writes a comment on a line of its own.
pub(super) fn comment(f: &mut fmt::Formatter<'_>, indent: usize, text: &str) -> fmt::Result {
    writeln!(f, "{:indent$}# {}", "", one_line(text))
}
