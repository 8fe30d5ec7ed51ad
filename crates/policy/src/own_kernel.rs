//! Runtimes that give a container a separate kernel, and the settings that they do not support.

use crate::Verdict;
use crate::model::{Background, ContainerPaths, Profile};
use document::At;
use jail::RootMode;

/// gVisor. Engines register it under names that begin with `runsc`.
const GVISOR: &str = "runsc";

/// Returns true if a container of this runtime has a separate kernel.
pub fn has_own_kernel(runtime: &str) -> bool {
    runtime.starts_with(GVISOR)
}

/// Reports settings of a profile that its runtime does not support. `at` is the runtime.
pub(super) fn check(at: &At<'_>, profile: &Profile) {
    let Some(runtime) = profile.runtime.as_deref().filter(|runtime| has_own_kernel(runtime)) else { return };
    // A session is a process that outlives its call.
    for operation in ["process", "session"] {
        if profile.operation(operation).is_some_and(|(_, verdict)| verdict != Verdict::Deny) {
            at.problem(format!(
                "with {runtime} no process can stay after its call, because the daemon cannot reach it \
                 again: deny operations.{operation}"
            ));
        }
    }
    if profile.exec.background == Background::Keep {
        at.problem(format!(
            "with {runtime} no background process of a command can stay, because the daemon cannot reach \
             it: leave exec.background out"
        ));
    }
    if profile.root == RootMode::WritableLayer {
        at.problem(format!("with {runtime} the root cannot be a writable layer: set root to read-only"));
    }
    if profile.root_in_user_namespace {
        at.problem(format!("with {runtime} users cannot be mapped: leave root_in_user_namespace out"));
    }
    if profile.container_paths == ContainerPaths::Allow {
        at.problem(format!(
            "with {runtime} no path outside of the mounts can be confined: set container_paths to deny"
        ));
    }
    if profile.approvals.freeze {
        at.problem(format!(
            "with {runtime} the run cannot be frozen while a reviewer is asked: set approvals.freeze to false"
        ));
    }
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    fn problems(profile: &str) -> Vec<String> {
        let policy = format!("{{profiles: {{p: {{{profile}}}}}, roles: {{r: {{allow: \"*\"}}}}}}");
        let loaded = Policy::from_files([("p.yaml", policy)]);
        loaded.err().map_or_else(Vec::new, |problems| problems.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn profiles_that_gvisor_cannot_run_are_refused_at_load() {
        let freezes = "p.yaml:1: profiles.p.runtime: with runsc the run cannot be frozen while a reviewer is asked: set approvals.freeze to false";
        let stays = "p.yaml:1: profiles.p.runtime: with runsc no process can stay after its call, because the daemon cannot reach it again: deny operations.process";
        let fits = "runtime: runsc, approvals: {freeze: false}";
        assert_eq!(problems("runtime: runsc, operations: {exec: allow}"), [freezes]);
        assert_eq!(problems("runtime: runsc, operations: {process: ask}"), [stays, freezes]);
        assert_eq!(problems(&format!("{fits}, operations: {{process: allow}}")), [stays]);
        let sessions = stays.replace("operations.process", "operations.session");
        assert_eq!(problems(&format!("{fits}, operations: {{session: allow}}")), [&*sessions]);
        assert_eq!(
            problems(&format!("{fits}, operations: {{process: ask, session: ask}}")),
            [stays, &sessions]
        );
        let fitting = "operations: {process: deny, session: deny, exec: ask}";
        assert_eq!(problems(&format!("{fits}, {fitting}")), [] as [&str; 0]);
        let root = format!(
            "{fits}, operations: {{exec: allow}}, root: writable-layer, exec: {{deny_list: off, default: allow}}"
        );
        let layer = "p.yaml:1: profiles.p.runtime: with runsc the root cannot be a writable layer: set root to read-only";
        assert_eq!(problems(&root), [layer]);
        let mapped = "p.yaml:1: profiles.p.runtime: with runsc users cannot be mapped: leave root_in_user_namespace out";
        assert_eq!(problems(&format!("{root}, root_in_user_namespace: true")), [layer, mapped]);
        let paths = "p.yaml:1: profiles.p.runtime: with runsc no path outside of the mounts can be confined: set container_paths to deny";
        assert_eq!(problems(&format!("{fits}, container_paths: allow, operations: {{}}")), [paths]);
        let keeps = "p.yaml:1: profiles.p.runtime: with runsc no background process of a command can stay, because the daemon cannot reach it: leave exec.background out";
        assert_eq!(problems(&format!("{fits}, operations: {{}}, exec: {{background: keep}}")), [keeps]);
        assert!(problems(&format!("{fits}, operations: {{}}, exec: {{background: end}}")).is_empty());
        let other = "runtime: runsc-kvm, operations: {}";
        assert_eq!(problems(other), [freezes.replace("with runsc", "with runsc-kvm")]);
        for runtime in ["runtime: runc, ", "runtime: crun, ", ""] {
            assert_eq!(
                problems(&format!("{runtime}operations: {{process: ask}}, approvals: {{freeze: false}}")),
                [] as [&str; 0]
            );
        }
    }
}
