//! Splits a text as a shell does: quotes, operators, groups, substitutions, `case`, here-documents.

mod brackets;
mod quotes;

use std::iter::Peekable;
use std::mem::take;
use std::str::Chars;

use super::Mode;
use super::heredoc::Heredoc;
use super::word::Word;

/// Most here-documents without an end for which the text is searched. Each search scans the rest of the text. An honest
/// script has none.
const MAX_ENDLESS: usize = 16;

/// Result of lexing one text.
#[derive(Debug, Default)]
pub(super) struct Lexed {
    /// The words of each command, keywords and assignments included.
    pub(super) commands: Vec<Vec<Word>>,
    /// Here-documents and here-strings.
    pub(super) inputs: Vec<String>,
    /// Targets of redirections.
    pub(super) files: Vec<String>,
    /// Texts that have to be lexed in turn.
    pub(super) inner: Vec<(String, Mode)>,
    /// Number of here-documents that have no end.
    endless: usize,
}

impl Lexed {
    /// Returns true if so many here-documents had no end that a part of the text was not read.
    pub(super) fn is_cut(&self) -> bool {
        self.endless > MAX_ENDLESS
    }
}

/// The command that is being read.
#[derive(Debug, Default)]
struct Frame {
    words: Vec<Word>,
    word: Option<Word>,
    /// Meaning of the next word, if it is not a word of the command.
    target: Option<Target>,
    /// The command has a redirection.
    redirected: bool,
    /// Number of open `case`s.
    cases: usize,
    /// Set while a pattern of the innermost `case` is read. Counts the brackets that are open in it.
    pattern: Option<usize>,
}

/// The target of a redirection.
#[derive(Debug, Clone, Copy)]
enum Target {
    File,
    HereString,
    Heredoc { strip: bool },
}

/// State that is restored when a bracket closes.
#[derive(Debug)]
struct Nest {
    outer: Frame,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `( … )`: a separate command.
    Group,
    /// `$( … )`: its output is a part of the word around it.
    Substitution(Around),
    /// `name=( … )`: values, not commands.
    Array,
}

/// The context of a substitution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    Command,
    Quotes,
    /// A text that is read as if in double quotes.
    Text,
}

pub(super) struct Lexer<'s> {
    chars: Peekable<Chars<'s>>,
    now: Frame,
    nests: Vec<Nest>,
    /// For each open bracket, true if it belongs to `((` or `$((`, where `<<` shifts.
    arithmetic: Vec<bool>,
    heredocs: Vec<Heredoc>,
    found: Lexed,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        Self {
            chars: text.chars().peekable(),
            now: Frame::default(),
            nests: Vec::new(),
            arithmetic: Vec::new(),
            heredocs: Vec::new(),
            found: Lexed::default(),
        }
    }

    pub(super) fn run(mut self, mode: Mode) -> Lexed {
        if mode == Mode::Text {
            self.quoted(Around::Text);
        }
        self.commands();
        // Brackets that were never closed count as closed here.
        while let Some(nest) = self.nests.pop() {
            self.end_command();
            self.now = nest.outer;
        }
        if mode == Mode::Commands {
            self.end_command();
        }
        self.found
    }

    /// Reads commands to the end of the text.
    fn commands(&mut self) {
        while let Some(c) = self.chars.next() {
            match c {
                '\'' => self.single_quoted(),
                '"' => self.quoted(Around::Quotes),
                '\\' => self.escaped(),
                '`' => self.backticks(false),
                '$' => self.dollar(),
                '(' => self.open(),
                ')' => self.close(),
                ';' | '&' | '|' | '<' | '>' => self.operator(c),
                '\n' => self.end_line(),
                '#' if self.now.word.is_none() => while self.chars.next_if(|c| *c != '\n').is_some() {},
                c if c.is_whitespace() => self.end_word(),
                c => self.word().text.push(c),
            }
        }
    }

    fn operator(&mut self, c: char) {
        self.no_array();
        match c {
            ';' => self.semicolon(),
            '<' | '>' => self.redirection(c),
            _ => self.end_command(),
        }
    }

    /// Returns the word that is being read, and begins one if there is none.
    fn word(&mut self) -> &mut Word {
        self.now.word.get_or_insert_default()
    }

    fn end_word(&mut self) {
        let Some(word) = self.now.word.take() else { return };
        match self.now.target.take() {
            Some(Target::File) => self.found.files.push(word.text),
            Some(Target::HereString) => self.found.inputs.push(word.text),
            Some(Target::Heredoc { strip }) => self.heredocs.push(Heredoc::until(word, strip)),
            None => self.end_plain_word(word),
        }
    }

    fn end_plain_word(&mut self, word: Word) {
        if self.now.pattern.is_some() {
            if word.is("esac") {
                self.end_case();
            }
        } else if word.is("{") || word.is("}") {
            self.end_command();
        } else if word.is("in") && self.names_a_case() {
            self.now.words.clear();
            self.now.cases += 1;
            self.now.pattern = Some(0);
        } else if word.is("esac") && self.now.words.is_empty() && self.now.cases > 0 {
            self.end_case();
        } else {
            self.now.words.push(word);
        }
    }

    /// Returns true if the words so far are `case` and its subject. After an assignment or a redirection `case` is not a
    /// keyword.
    fn names_a_case(&self) -> bool {
        if self.now.redirected {
            return false;
        }
        let mut words = self.now.words.iter().skip_while(|word| word.is_keyword() && !word.quoted);
        words.next().is_some_and(|word| word.is("case")) && words.next().is_some() && words.next().is_none()
    }

    fn end_case(&mut self) {
        self.now.cases = self.now.cases.saturating_sub(1);
        self.now.pattern = None;
    }

    fn end_command(&mut self) {
        self.end_word();
        self.now.target = None;
        self.now.redirected = false;
        if self.nests.last().is_some_and(|nest| nest.kind == Kind::Array) {
            return;
        }
        let words = take(&mut self.now.words);
        if !words.is_empty() && self.now.pattern.is_none() {
            self.found.commands.push(words);
        }
    }

    fn end_line(&mut self) {
        self.end_command();
        for heredoc in take(&mut self.heredocs) {
            if self.found.is_cut() {
                return;
            }
            let Some(body) = heredoc.read(&mut self.chars) else {
                self.found.endless += 1;
                continue;
            };
            if heredoc.expands {
                self.found.inner.push((body.clone(), Mode::Text));
            }
            self.found.inputs.push(body);
        }
    }

    /// Reads a semicolon. `;;`, `;&` and `;;&` begin the next pattern.
    fn semicolon(&mut self) {
        self.end_command();
        let arm = self.chars.next_if(|c| matches!(c, ';' | '&')).is_some();
        if arm && self.now.cases > 0 {
            self.chars.next_if_eq(&'&');
            self.now.pattern = Some(0);
        }
    }

    fn redirection(&mut self, first: char) {
        let before = self.now.word.as_ref().map_or("", |word| word.text.as_str());
        // A number before the operator is a descriptor.
        if before.bytes().all(|byte| byte.is_ascii_digit()) {
            self.now.word = None;
        }
        self.end_word();
        if self.chars.next_if_eq(&'(').is_some() {
            // `<(command)` is a word of the command around it.
            return self.nest(Kind::Substitution(Around::Command));
        }
        self.now.redirected = true;
        let mut operator = String::from(first);
        while let Some(c) = self.chars.next_if(|c| matches!(c, '<' | '>' | '&' | '|')) {
            operator.push(c);
        }
        self.now.target = Some(match operator.as_str() {
            "<<<" => Target::HereString,
            "<<" if !self.arithmetic.contains(&true) => {
                Target::Heredoc { strip: self.chars.next_if_eq(&'-').is_some() }
            }
            _ => Target::File,
        });
    }
}
