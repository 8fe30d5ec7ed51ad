//! Programs that take code in their arguments or from their input: the ones that agents use most often for it, and the
//! ones that the shipped profiles allow by a rule.
//!
//! This is a table of known programs. No rule should allow an unknown program with any
//! arguments: a profile that asks then asks about it, unless a rule names the program.

use operations::deny::base_name;

use super::shell::is_stream;

/// Way in which a command gets code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// In the argument at this index, counted from 0, or in the one after it.
    Word(usize),
    /// In a script of `sed`, unless [`super::effects`] knows it to be plain.
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
    // Toolchains, and options that make them run a program. A word that begins with `@` names a file of further options.
    row(&["cargo"], "", &["--config"], false),
    row(
        &["gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "ar", "clang-tidy", "clang-format"],
        "",
        &[
            "@*",
            "-wrapper",
            "-fplugin*",
            "-fpass-plugin*",
            "-fmodule-mapper*",
            "-fuse-ld=/*",
            "-fuse-ld=.*",
            "-iplugindir*",
            "-specs*",
            "--specs",
            "-B*",
            "-plugin*",
            "--plugin",
            "-load*",
            "--load",
            "--ld-path",
            "--config",
            "--config-file",
        ],
        false,
    ),
    row(
        &["javac", "kotlinc", "scalac"],
        "",
        &["@*", "-J*", "-processor*", "--processor-*", "-Xplugin*"],
        false,
    ),
    row(&["mypy", "pytest", "tsc"], "", &["@*"], false),
    row(&["ctest"], "", &["-S*", "--script", "--build-and-test", "--test-command"], false),
    row(&["meson"], "", &["--wrapper", "devenv"], false),
    row(
        &["bazel"],
        "",
        &["--run_under", "--workspace_status_command", "--bazelrc", "--host_jvm_args", "--server_javabase"],
        false,
    ),
    row(&["npm", "pnpm", "yarn", "npx"], "c", &["--call", "--script-shell", "--node-options"], false),
    row(&["mvn"], "", &["exec:*", "-Dexec.*"], false),
    row(&["sbt"], "", &["@*", "eval*", "!*", "set*", ";*"], false),
    row(&["stack", "cabal"], "w", &["--exec", "--with-*"], false),
    row(&["dune"], "", &["exec"], false),
    row(&["dotnet", "swift"], "", &["@*", "-X*"], false),
    row(&["zig"], "", &["@*", "--test-cmd*", "--build-runner"], false),
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
        "cmake" => cmake(args).map(Code::Word),
        "git" => git(args).map(Code::Word),
        "go" => go(args).map(Code::Word),
        "rustc" | "rustdoc" => rustc(args).map(Code::Word),
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

/// Finds the modes that run commands and scripts, and what a build passes on to `make`.
fn cmake(args: &[String]) -> Option<usize> {
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let passed_on = || args.get(end + 1..).and_then(make).map(|at| end + 1 + at);
    args.iter().take(end).position(|arg| matches!(arg.as_str(), "-E" | "-P")).or_else(passed_on)
}

/// Finds options that name a program, and options for linkers and C compilers that are not known to be harmless.
fn go(args: &[String]) -> Option<usize> {
    args.iter().enumerate().position(|(at, arg)| {
        let Some(option) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else { return false };
        let next = || (option, args.get(at + 1).map_or("", String::as_str));
        let (name, value) = option.split_once('=').unwrap_or_else(next);
        match name {
            "exec" | "toolexec" | "vettool" | "gccgoflags" => true,
            "ldflags" => !value.split([' ', '\t', '\'', '"']).all(is_plain_linker_flag),
            _ => name.starts_with("extld"),
        }
    })
}

/// Returns true for a flag of Go's linker that names no program, and for any word that is no flag. The first flag may follow
/// a pattern of packages: `all=-s`.
fn is_plain_linker_flag(word: &str) -> bool {
    let flag = if word.starts_with('-') { word } else { word.split_once("=-").map_or("", |(_, flag)| flag) };
    let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
    matches!(name, "" | "s" | "w" | "X" | "buildid" | "linkmode")
}

/// Finds files of options, unstable options, and options of code generation that are not known to be harmless: the others
/// name a linker, or are passed on to it.
fn rustc(args: &[String]) -> Option<usize> {
    const HARMLESS: [&str; 19] = [
        "code-model",
        "codegen-units",
        "debug-assertions",
        "debuginfo",
        "embed-bitcode",
        "extra-filename",
        "force-frame-pointers",
        "incremental",
        "lto",
        "metadata",
        "opt-level",
        "overflow-checks",
        "panic",
        "prefer-dynamic",
        "relocation-model",
        "rpath",
        "strip",
        "target-cpu",
        "target-feature",
    ];
    let mut is_value = false;
    args.iter().position(|arg| {
        let value = if std::mem::take(&mut is_value) {
            Some(arg.as_str())
        } else if let Some(value) = arg.strip_prefix("--codegen") {
            Some(value.trim_start_matches('='))
        } else {
            arg.strip_prefix("-C")
        };
        is_value = value == Some("");
        let name = value.map(|value| value.split('=').next().unwrap_or(value).replace('_', "-"));
        arg.starts_with('@')
            || arg.starts_with("-Z")
            || name.is_some_and(|name| !name.is_empty() && !HARMLESS.contains(&name.as_str()))
    })
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
    let mut makes_repository = false;
    args.iter().position(|arg| {
        if std::mem::take(&mut is_value) {
            return false;
        }
        is_value = is_global
            && matches!(
                arg.as_str(),
                "-C" | "--git-dir"
                    | "--work-tree"
                    | "--namespace"
                    | "--super-prefix"
                    | "--attr-source"
                    | "--list-cmds"
            );
        makes_repository |= is_global && matches!(arg.as_str(), "clone" | "init");
        is_global &= arg.starts_with('-');
        is_global && arg.starts_with("-c")
            || ["-x", "-O"].iter().any(|short| !is_global && arg.starts_with(short))
            || makes_repository
                && (arg.starts_with("-c") || arg.starts_with("-u") || is_word("--template", arg))
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
            (&["git", "--git-dir", ".git", "-c", "alias.x=!rm", "x"], 2),
            (&["git", "--work-tree", "w", "--namespace", "n", "-calias.x=!rm", "x"], 4),
            (&["git", "clone", "-c", "core.hooksPath=h", "a", "b"], 1),
            (&["git", "clone", "-u", "./x", "a", "b"], 1),
            (&["git", "init", "--templ=t"], 1),
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
            (&["go", "build", "-ldflags=-extld=./x"], 1),
            (&["go", "build", "-ldflags", "-s -w -extldflags '-wrapper rm'"], 1),
            (&["go", "build", "--ldflags=all=-extld=./x", "./..."], 1),
            (&["go", "build", "-compiler=gccgo", "-gccgoflags=-wrapper rm"], 2),
            (&["gcc-12", "-wrapper", "rm,-f", "x.c"], 0),
            (&["gcc", "-c", "@options", "x.c"], 1),
            (&["clang++-15", "--config=c.cfg", "x.c"], 0),
            (&["g++", "-fmodule-mapper=|./x", "x.cc"], 0),
            (&["clang-tidy", "--load=./x.so", "x.cc"], 0),
            (&["rustc", "@options"], 0),
            (&["rustc", "x.rs", "--codegen=linker=./x"], 1),
            (&["rustc", "x.rs", "--codegen", "linker=./x"], 2),
            (&["rustc", "-Clinker=./x", "x.rs"], 0),
            (&["rustc", "-C", "link-arg=-wrapper", "x.rs"], 1),
            (&["rustc", "-Cllvm_args=-load=./x.so", "x.rs"], 0),
            (&["rustc", "-Zcodegen-backend=./x.so", "x.rs"], 0),
            (&["javac", "@options"], 0),
            (&["javac", "-processorpath", "p", "X.java"], 0),
            (&["pytest", "@options"], 0),
            (&["sbt", "set x := 1"], 0),
            (&["cmake", "--build", "b", "--", "SHELL=/bin/rm"], 3),
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
    fn ordinary_command_lines_are_not_code() {
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
            "cmake --build build -- -j8 all",
            "cmake -S . -B build -DX=@rpath",
            "go build -ldflags=-s ./...",
            "go test -run X -count=1 ./...",
            "rustc -C opt-level=3 --codegen=lto -Ctarget-cpu=native x.rs",
            "javac -d out src/X.java",
            "git --git-dir .git --work-tree . log -c",
            "git clone a b",
            "npm run lint",
            "ls -la",
            "mix test",
        ] {
            let line: Vec<&str> = line.split(' ').collect();
            assert_eq!(of(&line), None, "{line:?}");
        }
        assert_eq!(of(&["make", "CFLAGS=-O2 -g"]), None);
        assert_eq!(of(&["go", "build", "-ldflags", "-s -w -X 'main.a=b c'", "./x"]), None);
    }
}
