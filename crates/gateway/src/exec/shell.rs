//! The simple commands in a shell script, as far as they can be seen without running it.
//!
//! This finds what is written plainly, quoted or escaped; it does not expand variables, aliases or globs. It is used
//! to refuse, never to allow: a script is `ask` at best, so that what it misses is still for a reviewer to see.

/// The command lines in `script`: those between operators, in substitutions and groups, without redirections,
/// keywords and leading assignments.
pub(super) fn commands(script: &str) -> Vec<Vec<String>> {
    let mut lexer = Lexer { chars: script.chars().peekable(), ..Lexer::default() };
    lexer.run();
    lexer.commands
}

/// What an opening bracket or quote goes back to when it closes.
#[derive(Debug)]
enum Nest {
    /// `( … )`: nothing.
    Group,
    /// `$( … )` or backticks: the command of which its output is a part.
    Substitution { backticks: bool, in_quotes: bool, words: Vec<String>, word: String, target: bool },
}

struct Lexer<'s> {
    chars: std::iter::Peekable<std::str::Chars<'s>>,
    commands: Vec<Vec<String>>,
    words: Vec<String>,
    word: Option<String>,
    /// The next word is the target of a redirection.
    target: bool,
    nests: Vec<Nest>,
}

impl Default for Lexer<'_> {
    fn default() -> Self {
        Self {
            chars: "".chars().peekable(),
            commands: Vec::new(),
            words: Vec::new(),
            word: None,
            target: false,
            nests: Vec::new(),
        }
    }
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(c) = self.chars.next() {
            match c {
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '\\' => self.escaped(),
                '`' => self.backtick(false),
                '$' if self.chars.next_if_eq(&'(').is_some() => self.substitute(false, false),
                '$' if matches!(self.chars.peek(), Some('\'' | '"')) => {}
                '(' => {
                    self.end_command();
                    self.nests.push(Nest::Group);
                }
                ')' => self.close(),
                ';' | '&' | '|' | '\n' => self.end_command(),
                '<' | '>' => self.redirection(),
                '#' if self.word.is_none() => while self.chars.next_if(|c| *c != '\n').is_some() {},
                c if c.is_whitespace() => self.end_word(),
                c => self.push(c),
            }
        }
        self.end_command();
        while let Some(nest) = self.nests.pop() {
            self.resume(nest);
            self.end_command();
        }
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.target) {
            return;
        }
        if matches!(word.as_str(), "{" | "}") {
            self.end_command();
        } else {
            self.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.target = false;
        let words = std::mem::take(&mut self.words);
        // An expansion may give nothing, so that the next word takes its place: both readings are looked at.
        let vanishes = |word: &String| word.is_empty() || word.starts_with('$');
        if words.iter().any(vanishes) {
            self.keep(words.iter().filter(|word| !vanishes(word)).cloned().collect());
        }
        self.keep(words);
    }

    fn keep(&mut self, mut words: Vec<String>) {
        let Some(first) = words.iter().position(|word| !is_prelude(word)) else { return };
        if !matches!(words[first].as_str(), "for" | "case" | "select") {
            words.drain(..first);
            self.commands.push(words);
        }
    }

    fn single_quoted(&mut self) {
        self.word.get_or_insert_default();
        while let Some(c) = self.chars.next_if(|c| *c != '\'') {
            self.push(c);
        }
        self.chars.next();
    }

    /// Until the closing quote, or until a substitution begins, whose end comes back here.
    fn double_quoted(&mut self) {
        self.word.get_or_insert_default();
        while let Some(c) = self.chars.next() {
            match c {
                '"' => return,
                '\\' => self.escaped(),
                '$' if self.chars.next_if_eq(&'(').is_some() => return self.substitute(false, true),
                '`' => return self.backtick(true),
                c => self.push(c),
            }
        }
    }

    fn escaped(&mut self) {
        // A line that ends in a backslash goes on in the next.
        if let Some(c) = self.chars.next().filter(|c| *c != '\n') {
            self.push(c);
        }
    }

    fn substitute(&mut self, backticks: bool, in_quotes: bool) {
        let words = std::mem::take(&mut self.words);
        let word = self.word.take().unwrap_or_default();
        let target = std::mem::take(&mut self.target);
        self.nests.push(Nest::Substitution { backticks, in_quotes, words, word, target });
    }

    fn close(&mut self) {
        self.end_command();
        let closes = |nest: &mut Nest| !matches!(nest, Nest::Substitution { backticks: true, .. });
        if let Some(nest) = self.nests.pop_if(closes) {
            self.resume(nest);
        }
    }

    fn backtick(&mut self, in_quotes: bool) {
        let closes = |nest: &mut Nest| matches!(nest, Nest::Substitution { backticks: true, .. });
        match self.nests.pop_if(closes) {
            Some(nest) => {
                self.end_command();
                self.resume(nest);
            }
            None => self.substitute(true, in_quotes),
        }
    }

    /// Goes on with the command around what has just ended. What a substitution gives is not known: nothing.
    fn resume(&mut self, nest: Nest) {
        let Nest::Substitution { backticks: _, in_quotes, words, word, target } = nest else { return };
        (self.words, self.word, self.target) = (words, Some(word), target);
        if in_quotes {
            self.double_quoted();
        }
    }

    fn redirection(&mut self) {
        // The number before it is a descriptor.
        if self.word.as_ref().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        while self.chars.next_if(|c| matches!(c, '<' | '>' | '&' | '|')).is_some() {}
        // `<(command)` is a substitution, not a file.
        self.target = self.chars.peek() != Some(&'(');
    }
}

/// Words before a command that are not the command: keywords and assignments.
fn is_prelude(word: &str) -> bool {
    matches!(word, "if" | "then" | "else" | "elif" | "while" | "until" | "do" | "!" | "coproc")
        || word.split_once('=').is_some_and(|(name, _)| {
            let name = name.trim_end_matches('+');
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn programs(script: &str) -> Vec<String> {
        commands(script).into_iter().map(|command| command[0].clone()).collect()
    }

    #[test]
    fn finds_every_command() {
        for (script, expected) in [
            ("rm -rf x", &["rm"][..]),
            ("cd a && make; ls|wc -l &", &["cd", "make", "ls", "wc"]),
            ("r\"\"m x; \\rm y; 'r'm z", &["rm", "rm", "rm"]),
            ("A=1 B=2 rm x", &["rm"]),
            ("if true; then rm x; fi", &["true", "rm", "fi"]),
            ("echo $(rm x) `rm y` \"a $(rm \"z\") b `rm w` c\" d", &["echo", "rm", "rm", "rm", "rm"]),
            (">out 2>&1 rm x", &["rm"]),
            ("cat <in >out; (rm x)", &["cat", "rm"]),
            ("diff <(rm x) y", &["diff", "rm", "y"]),
            ("echo \"$(true)\" rm", &["true", "echo"]),
            ("A=$(date) rm x", &["date", "rm"]),
            ("f() { rm x; }; function g { rm y; }", &["rm", "rm"]),
            ("case x in a) rm y;; esac", &["rm"]),
            ("echo $(rm x", &["rm", "echo"]),
            ("echo rm # rm\nrm", &["echo", "rm"]),
            ("{ rm x; }", &["rm"]),
            ("for i in a b; do rm $i; done", &["rm", "rm", "done"]),
            ("a\\\nb", &["ab"]),
            ("grep rm file", &["grep"]),
            ("", &[]),
            ("A=1", &[]),
        ] {
            let found = programs(script);
            for program in expected {
                assert!(found.iter().any(|found| found == program), "{script:?}: {program} not in {found:?}");
            }
            let removals = expected.iter().filter(|program| **program == "rm").count();
            assert_eq!(
                found.iter().filter(|program| *program == "rm").count(),
                removals,
                "{script:?}: {found:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(script in "[a-z '\"`$()<>&|;#\\\\\n=]{0,60}") {
            for command in commands(&script) {
                prop_assert!(!command.is_empty());
            }
        }
    }
}
