//! Programs that take code in their arguments or from their input: the ones that agents use most often for it, and the
//! ones that the shipped profiles allow by a rule.
//!
//! Like [`super::effects`] this is a table of known programs. No rule should allow an unknown program with any
//! arguments: a profile that asks then asks about it, unless a rule names the program.

use operations::deny::base_name;

use super::shell::is_stream;

/// Way in which a command gets code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// In the argument at this index, counted from 0, or in the one after it.
    Word(usize),
    /// In a script of `sed`, which [`super::effects`] reads.
    Sed,
    /// Always, whatever its arguments are.
    Always,
    /// From the input of the program.
    Input,
}

/// Options of some programs that make an argument code.
struct Row {
    /// Names without a version number at the end.
    programs: &'static [&'static str],
    /// Letters of short options, alone or in a cluster.
    short: &'static str,
    /// Whole words. A word that ends in `*` matches every word with that beginning, and a long option also matches its abbreviations.
    words: &'static [&'static str],
    /// Runs its input as code if no file is named.
    reads: bool,
}

const fn row(
    programs: &'static [&'static str],
    short: &'static str,
    words: &'static [&'static str],
    reads: bool,
) -> Row {
    Row { programs, short, words, reads }
}

const ROWS: [Row; 31] = [
    // Interpreters.
    row(&["python", "pypy", "ipython"], "c", &[], true),
    row(&["perl"], "eEMm", &[], true),
    row(&["ruby", "jruby"], "e", &[], true),
    row(
        &["node", "nodejs", "bun", "deno"],
        "ep",
        &["--eval", "--print", "--import", "--loader", "--experimental-loader", "--input-type", "eval"],
        true,
    ),
    row(&["php"], "rBRE", &[], true),
    row(&["lua", "luajit"], "e", &[], true),
    row(&["r", "rscript", "littler", "octave", "gnuplot"], "e", &["--eval"], true),
    row(&["julia"], "eE", &["--eval", "--print"], true),
    row(&["elixir", "mix"], "e", &["--eval", "--rpc-eval", "eval"], false),
    row(&["erl"], "", &["-eval", "-run", "-s"], false),
    row(&["ghc", "runghc", "ocaml", "racket", "scala", "groovy"], "e", &[], false),
    row(&["guile"], "c", &[], true),
    row(&["sbcl", "emacs"], "", &["--eval", "--execute", "-eval", "-f", "--funcall"], false),
    row(&["tclsh", "wish", "jshell"], "", &[], true),
    row(&["vi", "vim", "nvim", "view", "less", "more"], "c", &["--cmd", "+*"], false),
    row(&["psql", "mysql", "mariadb"], "ce", &["--command", "--execute"], true),
    // Toolchains, and options that make them run a program.
    row(&["cargo"], "", &["--config"], false),
    row(&["rustc"], "", &["linker=*", "-Clinker*", "codegen-backend=*", "-Zcodegen-backend*"], false),
    row(
        &["go"],
        "",
        &["-exec", "-toolexec", "-vettool", "--exec", "--toolexec", "--vettool", "-extld*", "--extld*"],
        false,
    ),
    row(
        &["gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "ar"],
        "",
        &[
            "-wrapper",
            "-fplugin*",
            "-fpass-plugin*",
            "-specs*",
            "--specs",
            "-B*",
            "-plugin*",
            "--plugin",
            "-load*",
        ],
        false,
    ),
    row(&["cmake"], "", &["-E", "-P"], false),
    row(&["ctest"], "", &["-S*", "--script", "--build-and-test", "--test-command"], false),
    row(&["meson"], "", &["--wrapper", "devenv"], false),
    row(&["bazel"], "", &["--run_under", "--workspace_status_command"], false),
    row(&["npm", "pnpm", "yarn", "npx"], "c", &["--call", "--script-shell", "--node-options"], false),
    row(&["mvn"], "", &["exec:*", "-Dexec.*"], false),
    row(&["sbt"], "", &["eval*", "!*"], false),
    row(&["stack"], "", &["--exec"], false),
    row(&["dune"], "", &["exec"], false),
    row(&["zig"], "", &["--test-cmd*"], false),
    row(&["tox"], "x", &["--override"], false),
];

/// Returns the way in which this command gets code, if it is known to get any.
pub(super) fn code(program: &str, args: &[String]) -> Option<Code> {
    let name = base_name(program);
    // `python3.12`, `clang-15`
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    match bare {
        "sed" | "gsed" => Some(Code::Sed),
        "awk" | "gawk" | "mawk" | "nawk" | "m" | "dc" | "ed" | "ex" | "sqlite" | "osascript" => {
            Some(Code::Always)
        }
        "make" | "gmake" | "bmake" | "ninja" => make(args).map(Code::Word),
        "git" => git(args).map(Code::Word),
        _ => ROWS.iter().find(|row| row.programs.contains(&bare)).and_then(|row| row.code(args)),
    }
}

impl Row {
    fn code(&self, args: &[String]) -> Option<Code> {
        if let Some(at) = args.iter().position(|arg| self.is_code(arg)) {
            return Some(Code::Word(at));
        }
        let mut operands = args.iter().filter(|arg| *arg == "-" || !arg.starts_with('-'));
        let named = operands.next().map_or_else(
            // `node --test`, `python3 --version`: no file and no code.
            || args.iter().any(|arg| arg.starts_with("--") || matches!(arg.as_str(), "-V" | "-v" | "-h")),
            |file| !is_stream(file),
        );
        (self.reads && !named).then_some(Code::Input)
    }

    fn is_code(&self, arg: &str) -> bool {
        let cluster = arg.strip_prefix('-').filter(|cluster| !cluster.starts_with('-'));
        cluster.is_some_and(|cluster| cluster.contains(|c| self.short.contains(c)))
            || self.words.iter().any(|word| is_word(word, arg))
    }
}

fn is_word(word: &str, arg: &str) -> bool {
    if let Some(beginning) = word.strip_suffix('*') {
        return arg.starts_with(beginning);
    }
    let name = arg.split_once('=').map_or(arg, |(name, _)| name);
    // Many programs accept abbreviated long options.
    name == word || name.len() > 3 && name.starts_with("--") && word.starts_with(name)
}

/// Finds a makefile that is read from the input, or makefile text: `--eval`, or a variable whose value is more than a
/// word.
fn make(args: &[String]) -> Option<usize> {
    args.iter().position(|arg| {
        let (name, value) =
            arg.split_once('=').map_or((arg.as_str(), None), |(name, value)| (name, Some(value)));
        let file = arg.strip_prefix("-f").or(value.filter(|_| name.starts_with("--"))).unwrap_or(arg);
        !file.is_empty() && is_stream(file)
            || arg.starts_with("-E")
            || is_word("--eval", arg)
            || name == "SHELL"
            || value.is_some_and(|value| !is_plain_value(value))
    })
}

/// Returns true for one plain word, or for several options: `-O2 -g`.
fn is_plain_value(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+,:=@% ".contains(c);
    value.chars().all(plain) && (!value.contains(' ') || value.split(' ').all(|word| word.starts_with('-')))
}

/// Finds settings on the command line, which can hold commands, and options that name a command for git to run.
fn git(args: &[String]) -> Option<usize> {
    const WORDS: [&str; 11] = [
        "--config-env",
        "--exec-path",
        "--exec",
        "--extcmd",
        "--upload-pack",
        "--receive-pack",
        "--open-files-in-pager",
        "--config",
        "bisect",
        "filter-branch",
        "foreach",
    ];
    let mut is_global = true;
    let mut is_value = false;
    args.iter().position(|arg| {
        if std::mem::take(&mut is_value) {
            return false;
        }
        is_value = is_global && arg == "-C";
        is_global &= arg.starts_with('-');
        is_global && arg.starts_with("-c")
            || ["-x", "-O"].iter().any(|short| !is_global && arg.starts_with(short))
            || WORDS.iter().any(|word| is_word(word, arg))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &[&str]) -> Option<Code> {
        let args: Vec<String> = line[1..].iter().map(ToString::to_string).collect();
        code(line[0], &args)
    }

    #[test]
    fn code_is_found_where_it_is_given() {
        for (line, at) in [
            (&["python3", "-c", "print(1)"][..], 0),
            (&["/usr/bin/python3.12", "-I", "-Bc", "x"], 1),
            (&["perl", "-ne", "print"], 0),
            (&["perl", "-MFoo", "x.pl"], 0),
            (&["ruby", "-e", "x"], 0),
            (&["node", "-p", "1"], 0),
            (&["node", "--test", "--eval=x"], 1),
            (&["node", "--import=data:text/javascript,x", "a.js"], 0),
            (&["deno", "eval", "x"], 0),
            (&["php", "-r", "x"], 0),
            (&["git", "-c", "alias.x=!rm", "x"], 0),
            (&["git", "-C", "d", "-calias.x=!rm", "x"], 2),
            (&["git", "--config-env=alias.x=E", "x"], 0),
            (&["git", "rebase", "-x", "rm", "HEAD"], 1),
            (&["git", "submodule", "foreach", "rm"], 1),
            (&["git", "bisect", "run", "rm"], 0),
            (&["make", "-f", "-"], 1),
            (&["make", "-f-"], 0),
            (&["make", "--file=-"], 0),
            (&["make", "--makef=/dev/stdin"], 0),
            (&["make", "-j8", "-f", "/proc/self/fd/0"], 2),
            (&["gmake", "--eval=x: ; rm v"], 0),
            (&["make", "-Ex: ; rm v"], 0),
            (&["make", "CC=sh -c x"], 0),
            (&["make", "X:=$(shell rm v)"], 0),
            (&["make", "SHELL=/bin/rm"], 0),
            (&["ninja", "-f", "/dev/stdin"], 1),
            (&["cargo", "test", "--config", "build.rustc-wrapper='rm'"], 1),
            (&["go", "test", "-exec", "rm"], 1),
            (&["go", "build", "-toolexec=rm"], 1),
            (&["gcc-12", "-wrapper", "rm,-f", "x.c"], 0),
            (&["cmake", "-E", "rm", "v"], 0),
            (&["npm", "test", "--script-shell=/bin/rm"], 1),
            (&["mix", "run", "-e", "x"], 1),
            (&["vim", "+!rm v"], 0),
        ] {
            assert_eq!(of(line), Some(Code::Word(at)), "{line:?}");
        }
        for line in
            [&["python3"][..], &["python3", "-"], &["perl", "/dev/stdin"], &["node", "-"], &["php", "-q"]]
        {
            assert_eq!(of(line), Some(Code::Input), "{line:?}");
        }
        assert_eq!(of(&["awk", "{print}"]), Some(Code::Always));
        assert_eq!(of(&["sed", "s/a/b/"]), Some(Code::Sed));
        assert_eq!(of(&["sqlite3", "a.db", ".shell rm v"]), Some(Code::Always));
    }

    #[test]
    fn what_is_no_code_is_not_taken_for_it() {
        for line in [
            "python3 -m pytest -q",
            "python3 --version",
            "node --test",
            "node server.js",
            "git status",
            "git -C d log -p",
            "git commit -m x",
            "git switch -c x",
            "make",
            "make -j8 -C d test CC=clang PREFIX=/usr",
            "make -f other.mk",
            "cargo test --workspace",
            "go test ./...",
            "gcc -O2 -o a a.c",
            "cmake --build build",
            "npm run lint",
            "ls -la",
            "mix test",
        ] {
            let line: Vec<&str> = line.split(' ').collect();
            assert_eq!(of(&line), None, "{line:?}");
        }
        assert_eq!(of(&["make", "CFLAGS=-O2 -g"]), None);
    }
}
