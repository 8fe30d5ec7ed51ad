//! The options of a wrapper, and the place where the command line after them begins.

/// The options of a wrapper. After an option that is not listed, every argument may begin a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Short options without a value. The text after one in `attached` is its value.
    pub(crate) flags: &'static str,
    /// Short options whose optional value can only be attached.
    pub(crate) attached: &'static str,
    /// Short options with a value.
    pub(crate) valued: &'static str,
    /// Long options without a value.
    pub(crate) long_flags: &'static [&'static str],
    /// Long options with a value, in the next argument or after `=`.
    pub(crate) long_valued: &'static [&'static str],
    /// Number of operands before the command.
    pub(crate) operands: usize,
}

pub(crate) const NONE: Options =
    Options { flags: "", attached: "", valued: "", long_flags: &[], long_valued: &[], operands: 0 };
pub(crate) const NICE: Options =
    Options { flags: "0123456789", valued: "n", long_valued: &["adjustment"], ..NONE };
pub(crate) const TIMEOUT: Options = Options {
    flags: "vfp",
    valued: "ks",
    long_flags: &["foreground", "preserve-status", "verbose"],
    long_valued: &["kill-after", "signal"],
    operands: 1,
    ..NONE
};
pub(crate) const STDBUF: Options =
    Options { valued: "ioe", long_valued: &["input", "output", "error"], ..NONE };
pub(crate) const SETSID: Options = Options { flags: "cfw", long_flags: &["ctty", "fork", "wait"], ..NONE };
pub(crate) const IONICE: Options = Options {
    flags: "t",
    valued: "cn",
    long_flags: &["ignore"],
    long_valued: &["class", "classdata"],
    ..NONE
};
pub(crate) const TIME: Options = Options {
    flags: "apvqV",
    valued: "fo",
    long_flags: &["append", "portability", "verbose", "quiet"],
    long_valued: &["format", "output"],
    ..NONE
};
pub(crate) const XARGS: Options = Options {
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
pub(crate) const COMMAND: Options = Options { flags: "pcl", valued: "a", ..NONE };
pub(crate) const ENV: Options = Options {
    flags: "i0v",
    valued: "uCa",
    long_flags: &["ignore-environment", "null", "debug", "list-signal-handling"],
    long_valued: &["unset", "chdir", "argv0"],
    ..NONE
};

/// Returns the places where a command line can begin, counted from the program, so that the first argument is at 1.
///
/// `skip` is true for words before it that are neither options nor operands.
pub(crate) fn offsets(options: &Options, args: &[String], skip: impl Fn(&str) -> bool) -> Vec<usize> {
    let anywhere = |from: usize| (from + 1..=args.len()).collect();
    let mut operands = options.operands;
    let mut index = 0;
    while let Some(arg) = args.get(index) {
        let step = if arg == "--" {
            let behind = args[index + 1..].iter().take_while(|arg| skip(arg)).count();
            return vec![index + 2 + behind + operands];
        } else if let Some(long) = arg.strip_prefix("--") {
            if long.contains('=') || options.long_flags.contains(&long) {
                1
            } else if options.long_valued.contains(&long) {
                2
            } else {
                return anywhere(index + 1);
            }
        } else if let Some(short) = arg.strip_prefix('-') {
            match short_step(options, short) {
                Some(step) => step,
                None => return anywhere(index + 1),
            }
        } else if skip(arg) {
            1
        } else if operands > 0 {
            operands -= 1;
            1
        } else {
            return vec![index + 1];
        };
        index += step;
    }
    Vec::new()
}

/// Returns the number of arguments that a cluster of short options takes. `None` if an option in it is unknown.
fn short_step(options: &Options, cluster: &str) -> Option<usize> {
    for (position, option) in cluster.char_indices() {
        if options.attached.contains(option) {
            return Some(1);
        }
        if options.valued.contains(option) {
            let attached = position + option.len_utf8() < cluster.len();
            return Some(if attached { 1 } else { 2 });
        }
        if !options.flags.contains(option) {
            return None;
        }
    }
    Some(1)
}
