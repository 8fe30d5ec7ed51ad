//! Recognises scripts that are plain words: every word is known before they run.
//!
//! Such words are quoted or not. They are joined by `&&`, `||`, `;`, `|` and line breaks, and may have redirections to
//! and from files and between the standard streams.
//!
//! This is a second reader besides the lexer, and a strict one. The lexer searches for commands in every reading of a
//! text. This reader stops at the first character or name that may mean more than itself, and returns it.

/// Words with a special meaning to shells: keywords, and builtins that run or evaluate their arguments, set variables,
/// or change how the rest is read. The words after them do not show everything that happens.
const NAMES: &str = ". alias autoload bind builtin caller case command compgen complete compopt coproc declare \
     disown do done elif else enable esac eval exec export fc fi for function getopts hash \
     history if in jobs let local mapfile print printf read readarray readonly return select set \
     shopt source test then time trap typeset unalias unset until vared wait whence while \
     zmodload";

/// Returns the character, operator or builtin that keeps a script from being plain words. `None` if it is plain.
pub(crate) fn not_plain(script: &str) -> Option<String> {
    let mut reader = Reader { rest: script, words: 0 };
    while !reader.rest.is_empty() {
        if let Err(found) = reader.step() {
            return Some(found);
        }
    }
    None
}

struct Reader<'s> {
    rest: &'s str,
    /// Number of words that the command has so far.
    words: usize,
}

impl Reader<'_> {
    /// Reads white space, an operator, a redirection or a word.
    fn step(&mut self) -> Result<(), String> {
        for operator in ["&&", "||", "|", ";", "\n"] {
            if let Some(rest) = self.rest.strip_prefix(operator) {
                self.rest = rest;
                self.words = 0;
                // `;;`, `|&`
                let more = rest.chars().next().filter(|c| matches!(c, '&' | '|' | ';') && operator != "\n");
                return more.map_or(Ok(()), |more| Err(format!("{operator}{more}")));
            }
        }
        if let Some(rest) = self.rest.strip_prefix([' ', '\t']) {
            self.rest = rest;
            return Ok(());
        }
        let descriptor = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if descriptor.starts_with(['<', '>']) {
            self.rest = descriptor;
            return self.redirection();
        }
        let word = self.word()?;
        if self.words == 0 && (word.contains('=') || NAMES.split(' ').any(|name| name == word)) {
            return Err(word);
        }
        self.words += 1;
        Ok(())
    }

    fn redirection(&mut self) -> Result<(), String> {
        let streams = self.rest.strip_prefix(">&");
        let files = || [">>", ">", "<"].into_iter().find_map(|operator| self.rest.strip_prefix(operator));
        let rest = streams.or_else(files).unwrap_or_default();
        let operator = &self.rest[..self.rest.len() - rest.len()];
        self.rest = rest.trim_start_matches([' ', '\t']);
        let target = self.word()?;
        if target.is_empty() || streams.is_some() && !["1", "2"].contains(&target.as_str()) {
            return Err(operator.to_owned());
        }
        Ok(())
    }

    /// Reads a word, and returns it without its quotes.
    fn word(&mut self) -> Result<String, String> {
        let mut word = String::new();
        let whole = self.rest;
        loop {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+@%=".contains(c);
            let length = self.rest.find(|c: char| !plain(c)).unwrap_or(self.rest.len());
            word.push_str(&self.rest[..length]);
            self.rest = &self.rest[length..];
            match self.rest.chars().next() {
                Some(quote @ ('\'' | '"')) => word.push_str(self.quoted(quote)?),
                None => return Ok(word),
                Some(' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>') if self.rest.len() < whole.len() => {
                    return Ok(word);
                }
                Some(other) => return Err(other.to_string()),
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<&str, String> {
        let (text, rest) = self.rest[1..].split_once(quote).ok_or_else(|| quote.to_string())?;
        let expands = text.chars().find(|c| quote == '"' && matches!(c, '$' | '`' | '\\'));
        self.rest = rest;
        expands.map_or(Ok(text), |c| Err(c.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_are_plain() {
        for script in [
            "",
            "ls",
            "make test",
            "make && make test || echo 'no; $(luck)'",
            "grep -n \"a b\" x.txt | sort -u | wc -l",
            "cd a; ls\nmake 2>&1 >out.txt 2>>err.txt <in.txt\n",
            "ln -s /bin/rm zq; ./zq -f v",
            "echo a=b if for",
            "make CC=clang -j8 'two words'\"and more\"",
            "cat < 'in put' > out",
            "echo 2 >x; echo a2>x",
        ] {
            assert_eq!(not_plain(script), None, "{script:?}");
        }
    }

    #[test]
    fn first_word_with_shell_meaning_is_named() {
        for (script, expected) in [
            ("echo $X", "$"),
            ("echo \"$X\"", "$"),
            ("echo \"a`b`\"", "`"),
            ("echo a\\ b", "\\"),
            ("ls *.txt", "*"),
            ("ls a?", "?"),
            ("ls [a]", "["),
            ("ls ~", "~"),
            ("{rm,x}", "{"),
            ("(ls)", "("),
            ("ls # x", "#"),
            ("! ls", "!"),
            ("A=1 ls", "A=1"),
            ("ls & ls", "&"),
            ("ls |& wc", "|&"),
            ("ls ;; ls", ";;"),
            ("cat <<E\nE\n", "<"),
            ("cat <<<x", "<"),
            ("cat <(ls)", "("),
            ("ls >|x", "|"),
            ("ls <>x", ">"),
            ("ls >&3", ">&"),
            ("ls >&x", ">&"),
            ("ls >", ">"),
            ("ls &>x", "&"),
            ("echo 'a", "'"),
            ("echo \"a", "\""),
            ("eval ls", "eval"),
            ("ls; let 'x=a[$(rm -f v)]'", "let"),
            ("if ls", "if"),
            ("'if' ls", "if"),
            ("printf -v c %s rm", "printf"),
            ("é", "é"),
            ("ls\u{a0}x", "\u{a0}"),
            ("ls\rx", "\r"),
        ] {
            assert_eq!(not_plain(script).as_deref(), Some(expected), "{script:?}");
        }
    }

    #[test]
    fn checking_a_script_takes_linear_time() {
        for piece in ["a ", "'a'", "\"", "1", "12>", "a\n", "<", "'"] {
            effort::assert_linear(
                200_000,
                |bytes| piece.repeat(bytes / piece.len()),
                |script| not_plain(script),
            );
        }
    }
}
