//! The expressions with which `find` still only looks.

/// Tests, actions and operators without an operand. Not `-delete`, `-exec…`, `-ok…`, `-fprint…`, `-fls`.
const PLAIN: [&str; 26] = [
    "-empty",
    "-print",
    "-print0",
    "-ls",
    "-prune",
    "-quit",
    "-depth",
    "-d",
    "-xdev",
    "-mount",
    "-daystart",
    "-readable",
    "-writable",
    "-executable",
    "-true",
    "-false",
    "-nouser",
    "-nogroup",
    "-not",
    "!",
    "-a",
    "-and",
    "-o",
    "-or",
    "(",
    ")",
];
/// With one operand, which is text or a number.
const WITH_TEXT: [&str; 27] = [
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-iwholename",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-xtype",
    "-maxdepth",
    "-mindepth",
    "-size",
    "-mtime",
    "-mmin",
    "-atime",
    "-amin",
    "-ctime",
    "-cmin",
    "-perm",
    "-user",
    "-group",
    "-links",
    "-inum",
    "-lname",
    "-printf",
];
/// With one operand, which is a file.
const WITH_PATH: [&str; 4] = ["-newer", "-anewer", "-cnewer", "-samefile"];

/// The paths among the arguments of `find`; `None` when the expression is not known to be harmless. `-L` and `-H` are
/// not: they follow links out of the mounts.
pub(super) fn paths(args: &[String]) -> Option<Vec<&str>> {
    let mut paths = Vec::new();
    let mut args = args.iter().map(String::as_str).skip_while(|arg| *arg == "-P").peekable();
    while let Some(path) = args.next_if(|arg| !arg.starts_with('-') && !matches!(*arg, "!" | "(" | ")" | ","))
    {
        paths.push(path);
    }
    while let Some(arg) = args.next() {
        if WITH_TEXT.contains(&arg) {
            args.next()?;
        } else if WITH_PATH.contains(&arg) {
            paths.push(args.next()?);
        } else {
            PLAIN.contains(&arg).then_some(())?;
        }
    }
    Some(paths)
}
