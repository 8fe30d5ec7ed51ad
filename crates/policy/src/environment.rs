//! Environment variables that a call wants to set.

use std::collections::BTreeMap;

use jail::{Mount, SandboxPath};

use crate::{ExecPolicy, Verdict};
use text::excerpt;

/// Returns a message about the first variable that the profile does not let a call set, if there is one.
pub fn not_allowed(policy: &ExecPolicy, cwd: &SandboxPath, env: &BTreeMap<String, String>) -> Option<String> {
    let any = policy.env.iter().any(|name| name == "*");
    let set = |(name, value): &(&String, &String)| {
        any || policy.env.contains(name) || is_path_within(policy, cwd, name, value)
    };
    let (name, _) = env.iter().find(|variable| !set(variable))?;
    let how = if policy.env_paths.contains(name) {
        "only be set to paths within the workspace, such as /workspace/src, under this profile"
    } else {
        "not be set under this profile"
    };
    Some(format!("the environment variable `{}` may {how}", excerpt(name)))
}

impl ExecPolicy {
    /// Returns the reason why no run may have one of these variables, which all its commands would inherit.
    ///
    /// Either a call may not set it, or it turns commands into others than the rules were written for. A relative path
    /// is rejected, because it means another place in each call.
    pub fn refuses_for_a_run(&self, env: &BTreeMap<String, String>) -> Option<String> {
        // `@state` is outside the workspace, so a relative path counts as outside too.
        let Ok(elsewhere) = SandboxPath::parse("@state") else { return Some("no place".to_owned()) };
        if let Some(why) = not_allowed(self, &elsewhere, env) {
            return Some(why);
        }
        if self.default == Verdict::Allow {
            return None;
        }
        let (name, _) = env
            .iter()
            .find(|(name, value)| redirects(name) && !is_path_within(self, &elsewhere, name, value))?;
        Some(format!(
            "the environment variable `{}` can change which program a command runs, so a run of this \
             profile cannot have it: set it in the calls that need it, where a reviewer is asked",
            excerpt(name)
        ))
    }
}

/// Returns true if the environment turns a command into another one than an `allow` rule was written for.
pub fn redirected(policy: &ExecPolicy, cwd: &SandboxPath, env: &BTreeMap<String, String>) -> bool {
    env.iter().any(|(name, value)| redirects(name) && !is_path_within(policy, cwd, name, value))
}

/// Returns true if the variable holds paths and each of them is in the workspace, judged by its name.
///
/// A command in the workspace would load files from there anyway. An empty path is the working directory.
fn is_path_within(policy: &ExecPolicy, cwd: &SandboxPath, name: &str, value: &str) -> bool {
    let within = |path: &str| {
        let place = if path.starts_with('/') {
            SandboxPath::parse(path)
        } else {
            SandboxPath::parse(&format!("{}/{path}", cwd.container_path()))
        };
        place.is_ok_and(|place| place.mount() == Mount::Project)
    };
    policy.env_paths.iter().any(|of_paths| of_paths == name) && value.split(':').all(within)
}

/// Returns true if a variable can turn a program into another one by changing which files are found, loaded or run first.
///
/// An `allow` rule is not written for a command that sets such a variable.
pub fn redirects(name: &str) -> bool {
    // Variables by which programs are found, that shells and interpreters read first, or where toolchains find their
    // settings: a `HOME` may hold a `.cargo/config.toml` with another linker.
    const NAMES: [&str; 53] = [
        "PATH",
        "HOME",
        "ENV",
        "BASH_ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "IFS",
        "PS4",
        "PROMPT_COMMAND",
        "CDPATH",
        "SHELL",
        "ZDOTDIR",
        "FPATH",
        "INPUTRC",
        "XDG_CONFIG_HOME",
        "XDG_CONFIG_DIRS",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONINSPECT",
        "PYTEST_ADDOPTS",
        "PYTEST_PLUGINS",
        "PERL5OPT",
        "PERL5LIB",
        "PERL5DB",
        "PERLLIB",
        "RUBYOPT",
        "RUBYLIB",
        "NODE_OPTIONS",
        "NODE_PATH",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "_JAVA_OPTIONS",
        "CLASSPATH",
        "MAVEN_OPTS",
        "GRADLE_OPTS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "GOFLAGS",
        "GOENV",
        "GOROOT",
        "MAKEFLAGS",
        "MAKEFILES",
        "LUA_INIT",
        "LESSOPEN",
        "EDITOR",
        "VISUAL",
        "PAGER",
    ];
    const PREFIXES: [&str; 12] = [
        "LD_",
        "DYLD_",
        "GIT_",
        "BASH_FUNC_",
        "MALLOC_",
        "GLIBC_",
        "GCONV_",
        "CARGO_BUILD_",
        "CARGO_TARGET_",
        "CARGO_ALIAS_",
        "NPM_CONFIG_",
        "npm_config_",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
