//! Environment variables that a call wants to set.

use std::collections::BTreeMap;

/// The first variable that the profile does not let a call set.
pub(super) fn not_allowed<'e>(env: &'e BTreeMap<String, String>, allowed: &[String]) -> Option<&'e str> {
    let any = allowed.iter().any(|name| name == "*");
    env.keys().map(String::as_str).find(|name| !any && !allowed.iter().any(|allowed| allowed == name))
}

/// Whether a variable can make a program into another one, by what is found, loaded or run first. A command that sets
/// such a variable is not the command that an `allow` rule was written for.
pub(super) fn redirects(name: &str) -> bool {
    // What programs are found by, what shells and interpreters load first, and where toolchains find their settings:
    // a `HOME` may hold a `.cargo/config.toml` with another linker.
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
