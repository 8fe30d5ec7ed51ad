//! Rejects profiles that promise a consent which cannot be bound.

use document::At;

use crate::{Verdict, model::Profile, own_kernel::has_own_kernel};

/// Rejects a profile that asks about processes or sessions and freezes the run for consent. `at` is the profile.
///
/// A process reads files for as long as it runs, and a session's shell continues among the run's other commands.
/// Consent to them covers only words. A rule that asks about a program, even if a process runs it, makes no such
/// promise.
pub(super) fn check(at: &At<'_>, profile: &Profile) {
    // gVisor supports neither, and `own_kernel` rejects such a profile.
    if !profile.approvals.freeze || profile.runtime.as_deref().is_some_and(has_own_kernel) {
        return;
    }
    for operation in ["process", "session"] {
        let asks = match profile.operation(operation) {
            Some((_, Verdict::Ask)) => true,
            // The gateway then asks about commands that it cannot see through, as most of a session's are.
            Some((_, Verdict::Allow)) => profile.exec.default > Verdict::Allow,
            _ => false,
        };
        if asks {
            at.problem(format!(
                "it asks about `{operation}`, but consent would cover only its words: the run is not frozen \
                 meanwhile, and its files can change. Allow or deny operations.{operation}, or set \
                 approvals.freeze: false"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    fn problems(profile: &str) -> usize {
        let policy = format!("{{profiles: {{p: {{{profile}}}}}, roles: {{r: {{allow: \"*\"}}}}}}");
        let loaded = Policy::from_files([("p.yaml", policy)]);
        loaded.err().map_or(0, |problems| {
            assert!(
                problems.0.iter().all(|problem| problem.to_string().contains("only its words")),
                "{problems:?}"
            );
            problems.0.len()
        })
    }

    #[test]
    fn a_profile_that_asks_without_binding_consent_has_to_say_so() {
        let rule = "rules: [{prefix: [git], decision: ask, justification: text}]";
        for (profile, refused) in [
            ("operations: {process: ask, session: ask}", 2),
            ("operations: {process: ask}, approvals: {freeze: true}", 1),
            ("operations: {process: ask}, approvals: {freeze: false}", 0),
            ("operations: {process: allow, session: deny}, exec: {default: ask}", 1),
            ("operations: {process: allow, session: deny}, exec: {default: deny}", 1),
            (&format!("operations: {{session: allow}}, exec: {{default: allow, {rule}}}"), 0),
            ("operations: {process: allow, session: allow}, exec: {default: allow}", 0),
            ("operations: {exec: ask, shell: ask}", 0),
        ] {
            assert_eq!(problems(profile), refused, "{profile}");
        }
    }
}
