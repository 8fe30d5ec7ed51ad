//! The flags with which `cat`, `head`, `tail` and `wc` still only read, and the paths among their arguments.

/// What a command understands.
struct Grammar {
    /// Short flags without a value.
    short: &'static str,
    /// Short flags with a count.
    counted: &'static str,
    /// Long flags without a value.
    long: &'static [&'static str],
    /// Long flags with a count after `=`.
    long_counted: &'static [&'static str],
    /// `-5`, and for `tail` `+5`, as a count.
    bare_count: &'static str,
}

fn grammar(program: &str) -> Option<Grammar> {
    let ends = Grammar {
        short: "qvz",
        counted: "nc",
        long: &["quiet", "silent", "verbose", "zero-terminated"],
        long_counted: &["lines", "bytes"],
        bare_count: "-",
    };
    Some(match program {
        "cat" => Grammar {
            short: "AbeEnstTuv",
            counted: "",
            long: &[
                "show-all",
                "number-nonblank",
                "show-ends",
                "number",
                "squeeze-blank",
                "show-tabs",
                "show-nonprinting",
            ],
            long_counted: &[],
            bare_count: "",
        },
        "head" => ends,
        // Not `-f`, `-F`, `--follow`, `--retry`, `--pid`: these wait for ever or watch processes.
        "tail" => Grammar { bare_count: "-+", ..ends },
        // Not `--files0-from`, which names files by content.
        "wc" => Grammar {
            short: "lwcmL",
            counted: "",
            long: &["lines", "words", "bytes", "chars", "max-line-length"],
            long_counted: &[],
            bare_count: "",
        },
        _ => return None,
    })
}

/// The paths among the arguments of `program`; `None` when it is not one of the four or a flag is not known to be
/// harmless.
pub(super) fn paths<'a>(program: &str, args: &'a [String]) -> Option<Vec<&'a str>> {
    let grammar = grammar(program)?;
    let mut paths = Vec::new();
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        if arg == "--" {
            paths.extend(rest);
            break;
        }
        if let Some(long) = arg.strip_prefix("--") {
            let harmless = match long.split_once('=') {
                Some((name, value)) => grammar.long_counted.contains(&name) && is_count(value),
                None => grammar.long.contains(&long),
            };
            harmless.then_some(())?;
        } else if let Some(sign) = arg.chars().next().filter(|sign| grammar.bare_count.contains(*sign))
            && is_count(&arg[sign.len_utf8()..])
        {
            // Only `tail +5`: elsewhere `+5` is a file.
        } else if let Some(cluster) = arg.strip_prefix('-').filter(|cluster| !cluster.is_empty()) {
            let counted = cluster.find(|flag| grammar.counted.contains(flag));
            let (flags, count) =
                counted.map_or((cluster, None), |at| (&cluster[..at], Some(&cluster[at + 1..])));
            flags.chars().all(|flag| grammar.short.contains(flag)).then_some(())?;
            match count {
                Some("") => is_count(rest.next()?).then_some(())?,
                Some(count) => is_count(count).then_some(())?,
                None => {}
            }
        } else if arg != "-" {
            paths.push(arg);
        }
    }
    Some(paths)
}

/// `10`, `+10`, `-10`, `10K`, `10MiB`.
fn is_count(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    (1..=18).contains(&digits)
        && matches!(
            &unsigned[digits..],
            "" | "b" | "c" | "k" | "K" | "M" | "G" | "kB" | "KB" | "MB" | "GB" | "KiB" | "MiB" | "GiB"
        )
}
