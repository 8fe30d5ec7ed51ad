//! The section `paths` of a profile: rules for files, which are read and checked against their own examples.

use document::At;
use jail::{Access, SandboxPath};
use operations::deny::base_name;
use operations::{Effect, Operation, PathPattern, PathRule, PathRules, RuledAccess, RuledPaths};
use serde::Serialize;

use crate::Verdict;

/// Most rules of one profile.
const MAX_RULES: usize = 64;
/// Most patterns in all rules of one profile. Each call compiles them anew.
const MAX_PATTERNS: usize = 128;
/// Most examples of one list.
const MAX_EXAMPLES: usize = 64;

/// A rule for paths. It only makes calls stricter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfilePathRule {
    #[serde(flatten)]
    pub paths: RuledPaths,
    /// `ask` or `deny`.
    pub decision: Verdict,
    /// Reason for reviewers and agents.
    pub justification: String,
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    #[serde(rename = "not_match", skip_serializing_if = "Vec::is_empty")]
    pub not_matches: Vec<String>,
}

/// Returns the rules that a lane enforces for a call. `consented` are paths that a reviewer consents to.
pub fn for_lane(rules: &[ProfilePathRule], consented: Vec<SandboxPath>) -> PathRules {
    let for_lane =
        |rule: &ProfilePathRule| PathRule { paths: rule.paths.clone(), asks: rule.decision == Verdict::Ask };
    PathRules { rules: rules.iter().map(for_lane).collect(), consented }
}

/// Returns the strictest rule on a path that the call names, its number, and that path. `reads` are the paths that a
/// command of the read-only rule reads.
///
/// If a directory is listed, searched, compared or packed, the lane leaves out the paths beneath it that a rule covers.
/// For `find` no lane does that, so a rule that may cover a path beneath the directory applies to the whole call.
pub fn judge<'p>(
    rules: &'p [ProfilePathRule],
    operation: &Operation,
    reads: &[SandboxPath],
) -> Option<(usize, &'p ProfilePathRule, String)> {
    if rules.is_empty() {
        return None;
    }
    let named = named(operation, reads);
    let accesses = accesses(operation);
    let walks = operation.command().is_some_and(|exec| base_name(&exec.command) == "find");
    let covers = |rule: &ProfilePathRule, path: &SandboxPath| {
        accesses.iter().any(|access| {
            rule.paths.cover(path, *access) || walks && rule.paths.may_cover_beneath(path, *access)
        })
    };
    let found = rules.iter().enumerate().filter_map(|(number, rule)| {
        let path = named.iter().find(|path| covers(rule, path))?;
        Some((number, rule, path.excerpt()))
    });
    // Among equally strict rules the first decides.
    found.reduce(|best, next| if next.1.decision > best.1.decision { next } else { best })
}

/// Returns the paths that a call names.
pub fn named(operation: &Operation, reads: &[SandboxPath]) -> Vec<SandboxPath> {
    let own = if operation.effect() == Effect::Runs { Vec::new() } else { operation.paths() };
    own.into_iter().chain(reads).chain(operation.input_file()).cloned().collect()
}

/// Returns the kinds of access that a call has to the paths that it names.
fn accesses(operation: &Operation) -> &'static [Access] {
    match operation.effect() {
        _ if operation.shows_changed() => &[Access::Read, Access::Write],
        Effect::Writes | Effect::Deletes | Effect::Commits => &[Access::Write],
        Effect::Looks | Effect::Reads | Effect::Runs | Effect::Keeps | Effect::Foreign => &[Access::Read],
    }
}

/// Reads the section. `outside` says that calls may name the container's own files.
pub(super) fn rules(at: &At<'_>, outside: bool) -> Vec<ProfilePathRule> {
    let items = at.items();
    if items.len() > MAX_RULES {
        at.problem(format!("must have at most {MAX_RULES} rules"));
    }
    let mut numbered: Vec<(usize, ProfilePathRule)> = Vec::new();
    for (number, item) in items.iter().take(MAX_RULES).enumerate() {
        let Some(rule) = rule(item, outside) else { continue };
        if let Some((same, other)) = numbered.iter().find(|(_, other)| other.paths == rule.paths) {
            let what = if other.decision == rule.decision { "repeats" } else { "contradicts" };
            item.problem_hint(format!("{what} paths[{same}]"), Some("keep one".to_owned()));
        }
        numbered.push((number, rule));
    }
    let rules: Vec<ProfilePathRule> = numbered.into_iter().map(|(_, rule)| rule).collect();
    if rules.iter().map(|rule| rule.paths.path.len() + rule.paths.except.len()).sum::<usize>() > MAX_PATTERNS
    {
        at.problem(format!("must have at most {MAX_PATTERNS} patterns in all rules"));
    }
    rules
}

fn rule(at: &At<'_>, outside: bool) -> Option<ProfilePathRule> {
    let fields = at.fields(&["path", "except", "access", "decision", "justification", "match", "not_match"]);
    let path_at = fields.required("path");
    let path = path_at.and_then(|at| patterns(at, outside));
    let except = fields.get("except").map_or(Some(Vec::new()), |at| patterns(at, outside));
    let kinds = [("any", RuledAccess::Any), ("read", RuledAccess::Read), ("write", RuledAccess::Write)];
    let access = fields.get("access").map_or(Some(RuledAccess::Any), |at| at.one_of(&kinds));
    let decisions = [("allow", Verdict::Allow), ("ask", Verdict::Ask), ("deny", Verdict::Deny)];
    let decision = fields.required("decision").and_then(|at| {
        let decision = at.one_of(&decisions)?;
        if decision == Verdict::Allow {
            at.problem_hint(
                "a rule for paths makes calls stricter and allows nothing",
                Some("write `ask` or `deny`, and name the exceptions in `except`".to_owned()),
            );
        }
        Some(decision)
    });
    let justification = fields.required("justification").and_then(At::text);
    let examples = |key| fields.get(key).map_or_else(Vec::new, examples);
    let (matches, not_matches) = (examples("match"), examples("not_match"));

    let paths = RuledPaths { path: path?, except: except?, access: access? };
    let covers = |path: &SandboxPath| {
        [Access::Read, Access::Write].into_iter().any(|access| paths.cover(path, access))
    };
    for (example, path) in matches.iter().filter(|(_, path)| !covers(path)) {
        example.problem(format!("`{path}` is not matched by this rule"));
    }
    for (example, path) in not_matches.iter().filter(|(_, path)| covers(path)) {
        example.problem(format!("`{path}` is matched by this rule"));
    }
    let texts = |examples: Vec<(At<'_>, SandboxPath)>| {
        examples.into_iter().map(|(_, path)| path.to_string()).collect()
    };
    Some(ProfilePathRule {
        decision: decision?,
        justification: justification?.to_owned(),
        matches: texts(matches),
        not_matches: texts(not_matches),
        paths,
    })
}

/// Reads one pattern, or a list. `None` if one of them is wrong.
fn patterns(at: &At<'_>, outside: bool) -> Option<Vec<PathPattern>> {
    let items = if at.is_list() { at.items() } else { vec![at.clone()] };
    if items.is_empty() || items.len() > MAX_PATTERNS {
        at.problem(format!("must have 1 to {MAX_PATTERNS} patterns"));
        return None;
    }
    let read = |item: &At<'_>| {
        let pattern = match PathPattern::parse(item.text()?) {
            Ok(pattern) => pattern,
            Err(bad) => {
                item.problem(bad.to_string());
                return None;
            }
        };
        if pattern.as_str().starts_with('/') && !outside {
            item.problem_hint(
                "is one of the container's own files, which no call can name under this profile",
                Some("set `container_paths: allow`, or leave it out".to_owned()),
            );
        }
        Some(pattern)
    };
    // All are read first, so that all problems are reported.
    let read: Vec<Option<PathPattern>> = items.iter().map(read).collect();
    read.into_iter().collect()
}

fn examples<'t>(at: &At<'t>) -> Vec<(At<'t>, SandboxPath)> {
    let items = at.items();
    if items.len() > MAX_EXAMPLES {
        at.problem(format!("must have at most {MAX_EXAMPLES} examples"));
    }
    let items = items.into_iter().take(MAX_EXAMPLES);
    items
        .filter_map(|item| {
            let path = SandboxPath::parse_anywhere(item.text()?);
            path.map_err(|refusal| item.problem(refusal.to_string())).ok().map(|path| (item, path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::{Policy, Problems};

    fn load(rules: &str) -> Result<Policy, Vec<String>> {
        let yaml = format!(
            "roles: {{worker: {{allow: '*'}}}}\nprofiles:\n  p:\n    operations: {{read: allow}}\n    paths:{rules}\n"
        );
        Policy::from_files([("p.yaml", yaml)])
            .map_err(|Problems(problems)| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_problem_of_the_section_has_its_line() {
        let problems = load(
            "
      - { path: ../x, decision: allow, justification: x }
      - { path: [], decision: deny }
      - { path: /etc/**, acess: read, decision: deny, justification: x }
      - { path: a/**, access: both, decision: forbid, justification: x }
      - { path: b/**, decision: deny, justification: x, match: [c/d], not_match: [b/c, ../e] }
      - { path: b/**, decision: ask, justification: x }",
        )
        .unwrap_err();
        let all = problems.join("\n");
        for part in [
            "paths[0].path: must not have empty parts, `.` or `..`",
            "paths[0].decision: a rule for paths makes calls stricter and allows nothing",
            "paths[1]: `justification` is missing",
            "paths[2].path: is one of the container's own files",
            "paths[2].acess: unknown key",
            "paths[3].access: unknown value `both`",
            "paths[3].decision: unknown value `forbid`",
            "paths[4].match[0]: `@project/c/d` is not matched by this rule",
            "paths[4].not_match[0]: `@project/b/c` is matched by this rule",
            "paths[4].not_match[1]: ",
            "paths[5]: contradicts paths[4]",
            "paths[1].path: must have 1 to 128 patterns",
        ] {
            assert!(all.contains(part), "{part} is not in\n{all}");
        }
    }
}
