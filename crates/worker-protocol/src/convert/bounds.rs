//! Bounds of a call, daemon → worker. The sender is trusted in this direction.

use jail::SandboxPath;
use operations::deny::DenyList;
use operations::{Bounds, Held, PathPattern, PathRule, PathRules, RuledAccess, RuledPaths};
use wire::worker::v1;

/// Converts the bounds for the worker.
pub fn bounds_to_wire(bounds: &Bounds) -> v1::Bounds {
    v1::Bounds {
        max_read_bytes: bounds.max_read_bytes,
        max_write_bytes: bounds.max_write_bytes,
        max_edit_bytes: bounds.max_edit_bytes,
        max_transfer_bytes: bounds.max_transfer_bytes,
        max_output_bytes: bounds.max_output_bytes,
        hide_git_config: bounds.hide_git_config,
        author_name: bounds.author_name.clone(),
        author_email: bounds.author_email.clone(),
        max_spool_bytes: bounds.max_spool_bytes,
        deny_list_off: !bounds.deny_list.is_on(),
        denied_programs: bounds.denied_programs.clone(),
        keep_background: bounds.keep_background,
        reads: bounds.reads.iter().map(ToString::to_string).collect(),
        path_rules: bounds.path_rules.rules.iter().map(rule_to_wire).collect(),
        consented: bounds.path_rules.consented.iter().map(ToString::to_string).collect(),
        held_to: bounds.held_to.clone().map(|Held { digest, since }| v1::Held { digest, since_ns: since }),
    }
}

/// Parses the bounds in the worker. A frame without bounds gets the strict defaults.
pub fn bounds_from_wire(bounds: Option<v1::Bounds>) -> Bounds {
    let Some(bounds) = bounds else { return Bounds::default() };
    let consented = bounds.consented.iter().filter_map(|path| SandboxPath::parse_anywhere(path).ok());
    Bounds {
        max_read_bytes: bounds.max_read_bytes,
        max_write_bytes: bounds.max_write_bytes,
        max_edit_bytes: bounds.max_edit_bytes,
        max_transfer_bytes: bounds.max_transfer_bytes,
        max_output_bytes: bounds.max_output_bytes,
        max_spool_bytes: bounds.max_spool_bytes,
        hide_git_config: bounds.hide_git_config,
        deny_list: if bounds.deny_list_off { DenyList::Off } else { DenyList::On },
        denied_programs: bounds.denied_programs,
        keep_background: bounds.keep_background,
        author_name: bounds.author_name,
        author_email: bounds.author_email,
        // A path that the daemon has written always parses.
        reads: bounds.reads.iter().filter_map(|path| SandboxPath::parse(path).ok()).collect(),
        path_rules: PathRules {
            rules: bounds.path_rules.iter().map(rule_from_wire).collect(),
            consented: consented.collect(),
        },
        held_to: bounds.held_to.map(|v1::Held { digest, since_ns }| Held { digest, since: since_ns }),
    }
}

fn rule_to_wire(PathRule { paths, asks }: &PathRule) -> v1::PathRule {
    let texts = |patterns: &[PathPattern]| patterns.iter().map(ToString::to_string).collect();
    v1::PathRule {
        path: texts(&paths.path),
        except: texts(&paths.except),
        not_reads: paths.access == RuledAccess::Write,
        not_writes: paths.access == RuledAccess::Read,
        asks: *asks,
    }
}

/// Patterns that together match every path of a run's mounts. No pattern matches all of the container's own files.
const EVERYWHERE: [&str; 3] = ["@project/**", "@pkg/**", "@state/**"];

fn rule_from_wire(rule: &v1::PathRule) -> PathRule {
    // A pattern that a newer daemon has written may not parse here: the rule then holds for every path of the mounts, and has one exception less.
    let parse = |text: &str| PathPattern::parse(text).ok();
    let path: Option<Vec<_>> = rule.path.iter().map(|text| parse(text)).collect();
    let path = path.unwrap_or_else(|| EVERYWHERE.into_iter().filter_map(parse).collect());
    let except = rule.except.iter().filter_map(|text| parse(text)).collect();
    let access = match (rule.not_reads, rule.not_writes) {
        (true, _) => RuledAccess::Write,
        (false, true) => RuledAccess::Read,
        (false, false) => RuledAccess::Any,
    };
    let paths = RuledPaths { path, except, access };
    PathRule { paths, asks: rule.asks }
}
