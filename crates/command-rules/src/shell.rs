//! Shells: where a shell that is called finds its script.

use super::inner::{Inner, value_of};

/// Returns the text of a shell's `-c`, or notes that it reads its script.
///
/// Everything after `-c` is read as a script, because the other options determine which word is the text.
pub(super) fn shell(args: &[String]) -> Inner {
    let is_c = |arg: &String| {
        let long = arg.strip_prefix("--").is_some_and(|long| {
            ["command", "commands", "init-command"].contains(&long.split('=').next().unwrap_or(long))
        });
        long || arg.starts_with(['-', '+']) && !arg.starts_with("--") && arg.contains('c')
    };
    if let Some(c) = args.iter().position(is_c) {
        let attached = if args[c].starts_with("--") { value_of(&args[c]) } else { None };
        let texts = args[c + 1..].iter().cloned().chain(attached.map(str::to_owned)).collect();
        return Inner { wraps: true, texts, ..Inner::default() };
    }
    let reads = reads_input(args);
    Inner { wraps: reads, reads, opaque: reads, ..Inner::default() }
}

/// Returns true if a shell with these arguments reads its script from its input.
fn reads_input(args: &[String]) -> bool {
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "--" => return args.next().is_none_or(is_stream),
            "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => drop(args.next()),
            option if option.len() > 1 && option.starts_with(['-', '+']) => {
                if !option.starts_with("--") && option.contains('s') {
                    return true;
                }
            }
            operand => return is_stream(operand),
        }
    }
    true
}

/// Returns true if the operand is a stream rather than a file. The output of a substitution is not known, so it counts as a
/// stream.
pub(super) fn is_stream(operand: &str) -> bool {
    matches!(operand, "" | "-") || operand.starts_with("/dev/") || operand.starts_with("/proc/")
}
