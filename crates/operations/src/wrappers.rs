//! Programs that run the program in their arguments, whatever these are. No `allow` rule may name one.

use crate::deny::{base_name, is_multi_call};

/// Lower-case base names, sorted.
const NAMES: [&str; 92] = [
    "abduco",
    "at",
    "batch",
    "builtin",
    "bwrap",
    "catchsegv",
    "cgexec",
    "chpst",
    "chronic",
    "chrt",
    "command",
    "cpulimit",
    "daemonize",
    "dbus-run-session",
    "dtach",
    "dumb-init",
    "eatmydata",
    "entr",
    "env",
    "envdir",
    "envuidgid",
    "eval",
    "exec",
    "expect",
    "fakechroot",
    "fakeroot",
    "faketime",
    "firejail",
    "flock",
    "gdb",
    "genv",
    "gnuenv",
    "gosu",
    "gtimeout",
    "gxargs",
    "hyperfine",
    "i386",
    "ifne",
    "ionice",
    "linux32",
    "linux64",
    "ltrace",
    "nice",
    "nocache",
    "nohup",
    "numactl",
    "parallel",
    "pee",
    "perf",
    "prlimit",
    "proot",
    "proxychains",
    "proxychains4",
    "rlwrap",
    "runcon",
    "s6-setuidgid",
    "schedtool",
    "screen",
    "script",
    "scriptlive",
    "sem",
    "setarch",
    "setpriv",
    "setsid",
    "setuidgid",
    "sg",
    "softlimit",
    "spawn",
    "ssh-agent",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su-exec",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tini",
    "tmux",
    "torsocks",
    "trickle",
    "tsp",
    "uclampset",
    "unbuffer",
    "valgrind",
    "watch",
    "watchexec",
    "x86_64",
    "xargs",
    "xterm",
    "xvfb-run",
    "zutty",
];

/// Returns true if a program runs other programs that its arguments name.
///
/// Programs that do so only with some arguments are not wrappers.
pub fn is_wrapper(program: &str) -> bool {
    let name = base_name(program);
    NAMES.binary_search(&name.as_str()).is_ok() || is_loader(&name) || is_multi_call(&name)
}

/// Returns true for the dynamic linker, which runs any program that it gets.
fn is_loader(name: &str) -> bool {
    name.starts_with("ld") && name.contains(".so")
        || name.starts_with("ld-musl")
        || name.starts_with("ld-linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_compared_in_any_spelling() {
        assert!(NAMES.is_sorted());
        for program in ["env", "/usr/bin/ENV", "busybox.static", "/lib64/ld-linux-x86-64.so.2", "./xargs"] {
            assert!(is_wrapper(program), "{program}");
        }
        for program in ["find", "bash", "environment", "ldd", "make"] {
            assert!(!is_wrapper(program), "{program}");
        }
    }
}
