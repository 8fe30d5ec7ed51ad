//! Programs that run the program in their arguments, and how each of them finds it.

/// How a program names the one that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Options, operands, then a command line.
    Options(&'static Options),
    /// Like [`Self::Options`], with `NAME=value` and `-S 'command line'`.
    Env,
    /// `sh -c 'script'`.
    Shell,
    /// `eval 'script'`.
    Eval,
    /// `find … -exec command ;`.
    Find,
    /// The command can be anywhere in the arguments, or in the text of one.
    Anywhere,
}

/// The options of a wrapper. One that is not listed makes every argument after it a possible command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Short ones without a value. What follows one that is in `attached` belongs to it.
    pub(super) flags: &'static str,
    /// Short ones whose optional value can only be attached.
    pub(super) attached: &'static str,
    /// Short ones with a value.
    pub(super) valued: &'static str,
    /// Long ones without a value.
    pub(super) long_flags: &'static [&'static str],
    /// Long ones with a value, in the next argument unless it follows `=`.
    pub(super) long_valued: &'static [&'static str],
    /// Operands before the command.
    pub(super) operands: usize,
}

const NONE: Options =
    Options { flags: "", attached: "", valued: "", long_flags: &[], long_valued: &[], operands: 0 };

const NICE: Options = Options { flags: "0123456789", valued: "n", long_valued: &["adjustment"], ..NONE };
const TIMEOUT: Options = Options {
    flags: "vfp",
    valued: "ks",
    long_flags: &["foreground", "preserve-status", "verbose"],
    long_valued: &["kill-after", "signal"],
    operands: 1,
    ..NONE
};
const STDBUF: Options = Options { valued: "ioe", long_valued: &["input", "output", "error"], ..NONE };
const SETSID: Options = Options { flags: "cfw", long_flags: &["ctty", "fork", "wait"], ..NONE };
const IONICE: Options = Options {
    flags: "t",
    valued: "cn",
    long_flags: &["ignore"],
    long_valued: &["class", "classdata"],
    ..NONE
};
const TIME: Options = Options {
    flags: "apvqV",
    valued: "fo",
    long_flags: &["append", "portability", "verbose", "quiet"],
    long_valued: &["format", "output"],
    ..NONE
};
const XARGS: Options = Options {
    flags: "0prtxo",
    attached: "eil",
    valued: "aEILnPsd",
    long_flags: &["null", "interactive", "no-run-if-empty", "verbose", "exit", "open-tty"],
    long_valued: &[
        "arg-file",
        "delimiter",
        "max-lines",
        "max-args",
        "max-procs",
        "max-chars",
        "process-slot-var",
    ],
    operands: 0,
};
const COMMAND: Options = Options { flags: "pvVcl", valued: "a", ..NONE };
pub(super) const ENV: Options = Options {
    flags: "i0v",
    valued: "uCa",
    long_flags: &["ignore-environment", "null", "debug", "list-signal-handling"],
    long_valued: &["unset", "chdir", "argv0"],
    ..NONE
};

/// Programs of which only the name matters: what they run can be anywhere.
const ANYWHERE: [&str; 44] = [
    "catchsegv",
    "cgexec",
    "chpst",
    "chrt",
    "chronic",
    "daemonize",
    "dbus-run-session",
    "dumb-init",
    "entr",
    "expect",
    "fakechroot",
    "fakeroot",
    "firejail",
    "flock",
    "gdb",
    "gosu",
    "i386",
    "linux32",
    "linux64",
    "ltrace",
    "numactl",
    "parallel",
    "perf",
    "prlimit",
    "proot",
    "rlwrap",
    "runcon",
    "script",
    "setarch",
    "setpriv",
    "sg",
    "softlimit",
    "ssh-agent",
    "start-stop-daemon",
    "strace",
    "su-exec",
    "systemd-run",
    "taskset",
    "tini",
    "unbuffer",
    "valgrind",
    "watch",
    "x86_64",
    "xvfb-run",
];

/// How the program with this lower-case base name runs others; `None` if it is not known to.
pub(super) fn kind(base_name: &str) -> Option<Kind> {
    Some(match base_name {
        "env" => Kind::Env,
        "nice" => Kind::Options(&NICE),
        "nohup" | "busybox" | "busybox.static" | "toybox" | "coffer-box" => Kind::Options(&NONE),
        "timeout" | "gtimeout" => Kind::Options(&TIMEOUT),
        "stdbuf" => Kind::Options(&STDBUF),
        "setsid" => Kind::Options(&SETSID),
        "ionice" => Kind::Options(&IONICE),
        "time" => Kind::Options(&TIME),
        "xargs" => Kind::Options(&XARGS),
        "command" | "exec" | "builtin" => Kind::Options(&COMMAND),
        "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" | "fish" | "csh" | "tcsh" | "rbash" => {
            Kind::Shell
        }
        "eval" => Kind::Eval,
        "find" => Kind::Find,
        name if ANYWHERE.contains(&name) => Kind::Anywhere,
        // The dynamic linker runs whatever it is given.
        name if name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("ld.so") => {
            Kind::Anywhere
        }
        _ => return None,
    })
}
