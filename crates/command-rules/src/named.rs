//! The files that a command line or a script names.

use std::collections::BTreeSet;

use jail::{Mount, RelPath, SandboxPath};
use operations::Operation;
use operations::deny::base_name;

use super::see_through::Seen;

/// Most directories that a script may be in when it names a file.
const MAX_DIRECTORIES: usize = 16;
/// Most files that are collected.
const MAX_FILES: usize = 16_384;

/// Returns every path in the mounts that a word of a command line or script may mean.
///
/// A word is an argument, the text after its `=`, its first `@` or its first letter of an option (`-fmakefile`), a word of a
/// script within it, a target of a redirection, or a value of a variable. It is read as it is, and relative to the working directory and to directories that a script changes
/// to. Most of these paths are no files. An operation that runs nothing has none.
///
/// A reviewer's consent is bound to these files, so that a script that is swapped meanwhile does not run. A path that a
/// program assembles is not among them.
pub fn named_files(operation: &Operation) -> BTreeSet<SandboxPath> {
    // A command that is too intricate is refused, so no reviewer is asked about it.
    let seen = Seen::of(operation).unwrap_or_default();
    let project = SandboxPath::new(Mount::Project, RelPath::root());
    let directories = directories(operation.cwd().unwrap_or(&project), &seen);
    let words: BTreeSet<&str> =
        seen.words().flat_map(|word| [Some(word), value_of(word), file_of(word)]).flatten().collect();
    let named = words.into_iter().filter(|word| !word.is_empty() && !word.starts_with('-'));
    named.flat_map(|word| places(&directories, word)).take(MAX_FILES).collect()
}

fn value_of(word: &str) -> Option<&str> {
    word.split_once('=').map(|(_, value)| value)
}

/// Returns the file of `@options`, and the value that is attached to a short option.
fn file_of(word: &str) -> Option<&str> {
    let attached = || {
        let mut letters = word.strip_prefix('-')?.chars();
        letters.next().filter(char::is_ascii_alphabetic).map(|_| letters.as_str())
    };
    word.strip_prefix('@').filter(|_| SandboxPath::parse(word).is_err()).or_else(attached)
}

/// Returns the path of `word` in each of these directories.
fn places(directories: &BTreeSet<SandboxPath>, word: &str) -> Vec<SandboxPath> {
    if word.starts_with(['/', '@']) {
        return SandboxPath::parse(word).into_iter().collect();
    }
    directories
        .iter()
        .filter_map(|directory| SandboxPath::parse(&format!("{directory}/{word}")).ok())
        .collect()
}

/// Returns the working directory and the directories to which `cd` may change.
fn directories(cwd: &SandboxPath, seen: &Seen) -> BTreeSet<SandboxPath> {
    let mut directories = BTreeSet::from([cwd.clone()]);
    for argv in seen.commands() {
        let [program, .., directory] = argv else { continue };
        if !matches!(base_name(program).as_str(), "cd" | "pushd") {
            continue;
        }
        let found = places(&directories, directory);
        let room = MAX_DIRECTORIES.saturating_sub(directories.len());
        directories.extend(found.into_iter().take(room));
    }
    directories
}

#[cfg(test)]
mod tests {
    use operations::Exec;

    use super::*;
    use crate::testing::{exec, path, shell};

    fn of(operation: &Operation) -> Vec<String> {
        named_files(operation).iter().map(ToString::to_string).collect()
    }

    fn in_script(script: &str, expected: &str) -> bool {
        of(&Operation::Shell(shell(script))).iter().any(|path| path == expected)
    }

    #[test]
    fn files_are_found_in_command_lines() {
        assert_eq!(of(&Operation::Exec(exec(&["sh", "a.sh", "-x", ""]))), ["@project/a.sh", "@project/sh"]);
        assert_eq!(
            of(&Operation::Exec(exec(&["/bin/cat", "--file=b", "/state/c", "@pkg/d", "../e", "/etc/f"]))),
            ["@project/b", "@pkg/d", "@state/c"]
        );
        assert!(of(&Operation::Exec(exec(&["gcc", "@flags"]))).contains(&"@project/flags".to_owned()));
        assert!(
            of(&Operation::Exec(exec(&["make", "-fother.mk"]))).contains(&"@project/other.mk".to_owned())
        );
        let inside = Operation::Exec(Exec { cwd: path("src"), ..exec(&["sh", "-c", ". ./a.sh"]) });
        assert!(of(&inside).contains(&"@project/src/a.sh".to_owned()));
        assert_eq!(of(&Operation::Git(operations::Git::Status)), Vec::<String>::new());
        for (command, cwd) in [("./a.sh", "src"), ("../src/a.sh", "lib"), ("@project/src/a.sh", "lib")] {
            let program = Operation::Exec(Exec { cwd: path(cwd), ..exec(&[command]) });
            assert_eq!(of(&program), ["@project/src/a.sh"], "{command} in {cwd}");
        }
    }

    #[test]
    fn files_are_found_in_scripts() {
        for (script, expected) in [
            ("make && ./a.sh", "@project/a.sh"),
            ("sh 'a b.sh'", "@project/a b.sh"),
            ("F=a.sh; sh $F", "@project/a.sh"),
            ("bash < a.sh > b", "@project/a.sh"),
            ("bash < a.sh > b", "@project/b"),
            ("sh -c '. a.sh'", "@project/a.sh"),
            ("cd src && sh a.sh", "@project/src/a.sh"),
            ("cd src; cd deep; sh a.sh", "@project/src/deep/a.sh"),
            ("echo $(cat /workspace/a)", "@project/a"),
            ("cat <<E | sh\nsh a.sh\nE\n", "@project/a.sh"),
        ] {
            assert!(in_script(script, expected), "{script}");
        }
        assert!(!in_script("cat <<E\nsh a.sh\nE\n", "@project/a.sh"));
    }

    #[test]
    fn named_files_are_bounded() {
        let script = (0..500).fold(String::new(), |script, n| script + &format!("cd d{n}\nf{n}\n"));
        assert!(named_files(&Operation::Shell(shell(&script))).len() <= MAX_FILES);
    }
}
