//! Recognises command lines that are one plain command: words, quoted or not, that a shell would pass on unchanged.

/// Words that only a shell knows as commands: keywords, and builtins without a program of the same name in every image.
const SHELL_ONLY: &str = ". : alias bg bind break builtin caller case cd command compgen complete compopt continue coproc \
    declare dirs disown do done elif else enable esac eval exec exit export fc fg fi for function getopts hash help history \
    if in jobs kill let local logout mapfile popd pushd read readarray readonly return select set shift shopt source suspend then \
    time times trap type typeset ulimit umask unalias unset until wait while";

/// Returns the words of a line that is one plain command, and `None` for any other line.
pub(super) fn of_one_command(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim_matches([' ', '\t', '\n']);
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        let is_first = words.is_empty();
        if is_first
            && (word.is_empty() || word.contains('=') || SHELL_ONLY.split(' ').any(|name| name == word))
        {
            return None;
        }
        words.push(word);
        rest = after.trim_start_matches([' ', '\t']);
    }
    (!words.is_empty()).then_some(words)
}

/// Returns the first word without its quotes, and the text after it.
fn word(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text;
    loop {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+@%=".contains(c);
        let length = rest.find(|c: char| !plain(c)).unwrap_or(rest.len());
        let (letters, after) = rest.split_at(length);
        word.push_str(letters);
        match after.chars().next() {
            None | Some(' ' | '\t') => return Some((word, after)),
            Some(quote @ ('\'' | '"')) => {
                let (quoted, after) = after[1..].split_once(quote)?;
                if quote == '"' && quoted.contains(['$', '`', '\\', '!']) {
                    return None;
                }
                word.push_str(quoted);
                rest = after;
            }
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::of_one_command;

    #[test]
    fn plain_commands_are_split_as_a_shell_would() {
        for (line, words) in [
            ("ls", vec!["ls"]),
            (" cargo test --workspace\n", vec!["cargo", "test", "--workspace"]),
            (
                "git commit -m 'why; $(not) this' \"and that\"",
                vec!["git", "commit", "-m", "why; $(not) this", "and that"],
            ),
            ("./run.sh a=b --x=1,2 ''", vec!["./run.sh", "a=b", "--x=1,2", ""]),
            ("python3 -c 'print(\"a\")'", vec!["python3", "-c", "print(\"a\")"]),
            ("echo a'b'\"c\"", vec!["echo", "abc"]),
            ("'ls'", vec!["ls"]),
            ("grep -n 'é\nx' a", vec!["grep", "-n", "é\nx", "a"]),
        ] {
            assert_eq!(of_one_command(line).unwrap(), words, "{line:?}");
        }
    }

    #[test]
    fn lines_with_shell_syntax_are_scripts() {
        for line in [
            "",
            " ",
            "''",
            "A=1 ls",
            "cd a",
            "kill 7",
            "'cd' a",
            ". x",
            "if a",
            "ls *",
            "ls a?",
            "ls [a]",
            "ls ~",
            "ls {a,b}",
            "echo $A",
            "echo \"$A\"",
            "echo `a`",
            "echo \"`a`\"",
            "echo a\\ b",
            "echo \"a\\n\"",
            "a; b",
            "a && b",
            "a | b",
            "a > b",
            "a 2>&1",
            "a < b",
            "a & ",
            "(a)",
            "! a",
            "a # b",
            "a\nb",
            "a\rb",
            "a 'b",
            "a \"b",
            "é",
            "a\u{a0}b",
            "exit 3",
            "echo \"a!b\"",
        ] {
            assert_eq!(of_one_command(line), None, "{line:?}");
        }
    }

    #[test]
    fn splitting_words_takes_linear_time() {
        for piece in ["a ", "'a'", "\"\"", "1"] {
            effort::assert_linear(
                200_000,
                |bytes| format!("x {}", piece.repeat(bytes / piece.len())),
                |line| of_one_command(line),
            );
        }
    }
}
