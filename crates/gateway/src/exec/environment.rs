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
    const NAMES: [&str; 26] = [
        "PATH",
        "ENV",
        "BASH_ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "IFS",
        "PS4",
        "PROMPT_COMMAND",
        "CDPATH",
        "SHELL",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "PYTHONPATH",
        "PERL5OPT",
        "PERL5LIB",
        "PERLLIB",
        "RUBYOPT",
        "RUBYLIB",
        "NODE_OPTIONS",
        "NODE_PATH",
        "JAVA_TOOL_OPTIONS",
        "RUSTC_WRAPPER",
        "RUSTC",
        "GCONV_PATH",
        "EDITOR",
        "PAGER",
    ];
    NAMES.contains(&name)
        || ["LD_", "DYLD_", "GIT_", "BASH_FUNC_", "MALLOC_", "GLIBC_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}
