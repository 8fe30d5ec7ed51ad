//! Workspaces that a run without a deny list may use: those that can be thrown away. An operator's own directory needs the configuration's
//! permission.

use operations::Reason;
use policy::Profile;
use refusal::Refusal;
use run_record::Workspace;

/// Setting for `bind` workspaces under profiles whose deny list is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HarnessOnBind {
    #[default]
    Deny,
    Allow,
}

impl HarnessOnBind {
    /// Returns the name that the configuration uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }

    /// Refuses a run on a `bind` workspace under a profile whose deny list is off.
    pub fn check(self, workspace: &Workspace, profile: &Profile) -> Result<(), Refusal> {
        let is_bind = matches!(workspace, Workspace::Bind { .. });
        if profile.exec.deny_list.is_on() || !is_bind || self == Self::Allow {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::PermissionDenied,
            "workspace.bind: the profile has its deny list off, so it works on managed, clone and overlay workspaces only; \
             `harness_on_bind: allow` in the daemon's configuration permits bind",
        ))
    }
}

#[cfg(test)]
mod tests {
    use policy::Policy;

    use super::*;

    #[test]
    fn only_a_bind_workspace_without_a_deny_list_needs_the_configuration() {
        let policy = Policy::builtin().unwrap();
        let bind = Workspace::Bind { path: "/srv/a".into() };
        let overlay = Workspace::Overlay { path: "/srv/a".into() };
        for name in policy.profile_names() {
            let profile = policy.profile(name).unwrap();
            let refused = |on_bind: HarnessOnBind, workspace| on_bind.check(workspace, profile).is_err();
            assert_eq!(refused(HarnessOnBind::Deny, &bind), name == "harness", "{name}");
            assert!(!refused(HarnessOnBind::Allow, &bind), "{name}");
            assert!(!refused(HarnessOnBind::Deny, &overlay), "{name}");
            assert!(!refused(HarnessOnBind::Deny, &Workspace::Managed), "{name}");
        }
    }
}
