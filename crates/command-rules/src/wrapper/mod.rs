//! Programs that run the program in their arguments, and the way in which each finds it.

pub(crate) mod options;

use operations::{deny, is_wrapper};

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
        name if deny::is_multi_call(name) => Kind::MultiCall,
        // Only the name of it is known: the command can be anywhere.
        name if is_wrapper(name) => Kind::Anywhere { reads: false },
        name if SHELLS.iter().any(|shell| is_version(name, shell)) => Kind::Shell,
        _ => return None,
    })
}

/// Returns true for a shell's name, also with a suffix: `bash-static`, `zsh-5.9`, `ksh93`.
fn is_version(name: &str, shell: &str) -> bool {
    name.strip_prefix(shell)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_run_others_with_any_arguments_are_wrappers() {
        for name in [
            "env",
            "genv",
            "gnuenv",
            "nice",
            "nohup",
            "spawn",
            "timeout",
            "gtimeout",
            "stdbuf",
            "setsid",
            "ionice",
            "time",
            "xargs",
            "gxargs",
            "command",
            "exec",
            "builtin",
            "eval",
            "parallel",
            "sem",
            "at",
            "batch",
            "strace",
            "busybox-1.36",
            "ld-linux-x86-64.so.2",
        ] {
            assert!(is_wrapper(name) && kind(name).is_some(), "{name}");
        }
        for name in ["find", "fd", "sort", "tar", "hash", "echo", "trap", "alias", ".", "bash", "sh"] {
            assert!(!is_wrapper(name) && kind(name).is_some(), "{name}");
        }
        for name in ["make", "cargo", "ls"] {
            assert!(!is_wrapper(name) && kind(name).is_none(), "{name}");
        }
    }
}
