//! Prefixes of command lines.

use std::borrow::Cow;

use jail::SandboxPath;
use operations::deny::base_name;
use serde::ser::{Serialize, SerializeSeq, Serializer};

/// Directories whose programs can be named without a path.
const SYSTEM_DIRECTORIES: [&str; 4] = ["/bin/", "/usr/bin/", "/usr/local/bin/", "/usr/local/cargo/bin/"];

/// The first words of a command line: the permitted words for each position. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(Vec<Vec<String>>);

impl Prefix {
    /// Makes a prefix. `None` if there is no position or one without words.
    pub(super) fn new(positions: Vec<Vec<String>>) -> Option<Self> {
        (!positions.is_empty() && positions.iter().all(|words| !words.is_empty())).then_some(Self(positions))
    }

    /// Returns true if this matches every command line that `other` matches, in any spelling of the program.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.0.len() <= other.0.len()
            && self.0.iter().zip(&other.0).enumerate().all(|(position, (these, those))| {
                those.iter().all(|that| {
                    these.iter().any(|this| {
                        if position == 0 { base_name(this) == base_name(that) } else { this == that }
                    })
                })
            })
    }

    /// Returns the number of positions.
    pub fn words(&self) -> usize {
        self.0.len()
    }

    /// Returns the programs that it begins with.
    pub fn programs(&self) -> &[String] {
        self.0.first().map_or(&[], Vec::as_slice)
    }

    /// Returns the permitted words of each position.
    pub(super) fn positions(&self) -> &[Vec<String>] {
        &self.0
    }

    /// Returns true if `argv` begins with this prefix *exactly*, as `allow` requires.
    ///
    /// A bare program name also matches that name in a system directory, and nowhere else: `./cargo` is not `cargo`. A
    /// relative path is one in the workspace.
    pub fn matches_exactly<S: AsRef<str>>(&self, argv: &[S]) -> bool {
        self.matches(argv, is_exactly)
    }

    /// Returns true if `argv` begins with this prefix in any spelling of the program, as `ask` and `deny` require.
    pub fn matches_loosely<S: AsRef<str>>(&self, argv: &[S]) -> bool {
        self.matches(argv, is_loosely)
    }

    fn matches<S: AsRef<str>>(&self, argv: &[S], same_program: impl Fn(&str, &str) -> bool) -> bool {
        argv.split_first().is_some_and(|(program, args)| {
            begins(self.0.iter().map(Vec::as_slice), program.as_ref(), args, same_program)
        })
    }
}

pub(super) fn is_exactly(word: &str, program: &str) -> bool {
    word == program
        || word.contains('/') && in_workspace(word) == in_workspace(program)
        || program.starts_with('/')
            && SYSTEM_DIRECTORIES.iter().any(|directory| program.strip_prefix(directory) == Some(word))
}

/// Returns the whole path of a program that a rule names by a path in the workspace, such as `./gradlew`.
fn in_workspace(program: &str) -> Cow<'_, str> {
    if !program.contains('/') || program.starts_with('/') {
        return Cow::Borrowed(program);
    }
    let place = SandboxPath::parse(program).map(|place| place.container_path());
    place.map_or(Cow::Borrowed(program), Cow::Owned)
}

pub(super) fn is_loosely(word: &str, program: &str) -> bool {
    word == program || base_name(word) == base_name(program)
}

/// Returns true if a command line begins with one of the words of each position. There is at least one position.
pub(super) fn begins<'w, S: AsRef<str>>(
    mut positions: impl ExactSizeIterator<Item = &'w [String]>,
    program: &str,
    args: &[S],
    same_program: impl Fn(&str, &str) -> bool,
) -> bool {
    let Some(programs) = positions.next().filter(|_| positions.len() <= args.len()) else { return false };
    // The program is compared last, because that takes the longest.
    positions.zip(args).all(|(words, argument)| words.iter().any(|word| word == argument.as_ref()))
        && programs.iter().any(|word| same_program(word, program))
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self.0.iter().map(|words| words.join("|")).collect();
        f.write_str(&words.join(" "))
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for words in &self.0 {
            match &words[..] {
                [word] => list.serialize_element(word)?,
                several => list.serialize_element(several)?,
            }
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(positions: &[&[&str]]) -> Prefix {
        Prefix::new(positions.iter().map(|words| words.iter().map(ToString::to_string).collect()).collect())
            .unwrap()
    }

    #[test]
    fn allow_is_exact_and_deny_is_not() {
        let cargo = prefix(&[&["cargo"], &["test", "check"]]);
        for (argv, exactly, loosely) in [
            (&["cargo", "test", "--all"][..], true, true),
            (&["/usr/bin/cargo", "check"], true, true),
            (&["/workspace/cargo", "test"], false, true),
            (&["/usr/bin/../../workspace/cargo", "test"], false, true),
            (&["CARGO", "test"], false, true),
            (&["cargo"], false, false),
            (&["cargo", "publish"], false, false),
            (&["cargo", "testing"], false, false),
        ] {
            assert_eq!(cargo.matches_exactly(argv), exactly, "{argv:?}");
            assert_eq!(cargo.matches_loosely(argv), loosely, "{argv:?}");
        }
        assert_eq!(cargo.to_string(), "cargo test|check");
    }

    #[test]
    fn a_relative_path_is_that_file_of_the_workspace() {
        for word in ["./gradlew", "/workspace/gradlew", "@project/gradlew", "sub/../gradlew"] {
            let expected = word != "sub/../gradlew";
            for program in ["./gradlew", "/workspace/gradlew"] {
                assert_eq!(prefix(&[&[word]]).matches_exactly(&[program]), expected, "{word}, {program}");
            }
            for program in ["gradlew", "sub/gradlew", "/workspace/sub/gradlew", "/usr/bin/gradlew"] {
                assert!(!prefix(&[&[word]]).matches_exactly(&[program]), "{word}, {program}");
            }
        }
        assert!(!prefix(&[&["gradlew"]]).matches_exactly(&["./gradlew"]));
    }
}
