//! Programs that run the program in their arguments, and the way in which each finds it.

pub(crate) mod options;

use operations::deny;

use options::Options;

/// Way in which a program names the one that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Options, operands, then a command line.
    Options(&'static Options),
    /// The same for a builtin of a shell, perhaps with another name for the program.
    Builtin(&'static Options),
    /// Options, then a command line, to which it adds words from its input.
    Xargs,
    /// The name of an applet, then its arguments.
    MultiCall,
    /// Like [`Self::Options`], with `NAME=value` and `-S 'command line'`.
    Env,
    /// `sh -c 'script'`, or a script that it reads.
    Shell,
    /// `eval 'script'`.
    Eval,
    /// `. file`.
    Source,
    /// `trap 'script' EXIT`.
    Trap,
    /// `alias name='command'`.
    Alias,
    /// `echo 'script'`, perhaps into a shell.
    Print,
    /// `find … -exec command ;`: the command follows one of these options. Without them it runs none.
    Follows(&'static [&'static str]),
    /// The command can be anywhere in the arguments, in the text of one, or in the input.
    Anywhere {
        /// The command comes from the input if the arguments name none.
        reads: bool,
    },
    Reads,
}

const SHELLS: [&str; 17] = [
    "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "lksh", "oksh", "yash", "posh", "osh", "fish", "csh",
    "tcsh", "rbash", "brush",
];

/// Programs for which only the name is checked: the command can be anywhere.
const ANYWHERE: [&str; 70] = [
    "abduco",
    "bwrap",
    "catchsegv",
    "cgexec",
    "chpst",
    "chronic",
    "chrt",
    "cpulimit",
    "daemonize",
    "dbus-run-session",
    "dtach",
    "dumb-init",
    "eatmydata",
    "entr",
    "envdir",
    "envuidgid",
    "expect",
    "faketime",
    "fakechroot",
    "fakeroot",
    "firejail",
    "flock",
    "gdb",
    "gosu",
    "hyperfine",
    "i386",
    "ifne",
    "linux32",
    "linux64",
    "ltrace",
    "nocache",
    "numactl",
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
    "setarch",
    "setpriv",
    "setuidgid",
    "sg",
    "softlimit",
    "ssh-agent",
    "start-stop-daemon",
    "strace",
    "su-exec",
    "systemd-run",
    "taskset",
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
    "xterm",
    "xvfb-run",
    "zutty",
];

/// Returns how the program with this lower-case base name runs others. `None` if it is not known to.
pub(crate) fn kind(base_name: &str) -> Option<Kind> {
    Some(match base_name {
        "env" | "genv" | "gnuenv" => Kind::Env,
        "nice" => Kind::Options(&options::NICE),
        "nohup" | "spawn" => Kind::Options(&options::NONE),
        "timeout" | "gtimeout" => Kind::Options(&options::TIMEOUT),
        "stdbuf" => Kind::Options(&options::STDBUF),
        "setsid" => Kind::Options(&options::SETSID),
        "ionice" => Kind::Options(&options::IONICE),
        "time" => Kind::Options(&options::TIME),
        "xargs" | "gxargs" => Kind::Xargs,
        "command" | "exec" | "builtin" => Kind::Builtin(&options::COMMAND),
        "eval" => Kind::Eval,
        "." | "source" => Kind::Source,
        "trap" => Kind::Trap,
        "alias" => Kind::Alias,
        "echo" | "printf" => Kind::Print,
        "find" | "gfind" => Kind::Follows(&["-exec", "-execdir", "-ok", "-okdir"]),
        "fd" | "fdfind" => Kind::Follows(&["-x", "-X", "--exec", "--exec-batch"]),
        "rg" => Kind::Follows(&["--pre", "--hostname-bin"]),
        "sort" => Kind::Follows(&["--compress-program"]),
        "split" => Kind::Follows(&["--filter"]),
        "rsync" => Kind::Follows(&["-e", "--rsh"]),
        "tar" | "gtar" | "bsdtar" => Kind::Follows(&[
            "-I",
            "-F",
            "--use-compress-program",
            "--to-command",
            "--checkpoint-action",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
        ]),
        "hash" => Kind::Follows(&["-p"]),
        "mapfile" | "readarray" => Kind::Follows(&["-C"]),
        "parallel" | "sem" => Kind::Anywhere { reads: true },
        "at" | "batch" => Kind::Reads,
        name if ANYWHERE.contains(&name) || is_loader(name) => Kind::Anywhere { reads: false },
        name if deny::is_multi_call(name) => Kind::MultiCall,
        name if SHELLS.iter().any(|shell| is_version(name, shell)) => Kind::Shell,
        _ => return None,
    })
}

/// Returns true for the dynamic linker, which runs any program that it gets.
fn is_loader(name: &str) -> bool {
    name.starts_with("ld") && name.contains(".so")
        || name.starts_with("ld-musl")
        || name.starts_with("ld-linux")
}

/// Returns true for a shell's name, also with a suffix: `bash-static`, `zsh-5.9`, `ksh93`.
fn is_version(name: &str, shell: &str) -> bool {
    name.strip_prefix(shell)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// Returns true if a program runs other programs that its arguments name. No `allow` rule may name such a program.
///
/// Programs that do so only with some arguments are not wrappers without these.
pub(crate) fn is_wrapper(program: &str) -> bool {
    kind(&deny::base_name(program)).is_some_and(|kind| {
        !matches!(
            kind,
            Kind::Follows(_) | Kind::Shell | Kind::Source | Kind::Print | Kind::Trap | Kind::Alias
        )
    })
}
