//! Command lines of options and operands, as `getopt_long` reads them.

use super::{Tally, Weight, sed};

/// Options and operands of a program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) options: &'static [Options],
    pub(super) operands: Operands,
}

/// Options that take the same kind of value and have the same effect.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) takes: Takes,
    pub(super) does: Does,
    /// One character for each option.
    pub(super) short: &'static str,
    /// Names separated by spaces, without dashes.
    pub(super) long: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// A value, attached or in the next word.
    Value,
    /// A value that can only be attached.
    Attached,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// No effect that matters.
    Nothing,
    /// Its value is a file that is read.
    Reads,
    /// Its value replaces the first operand: a pattern, a script.
    First,
    Unknown,
    Writes,
    Runs,
}

/// Meaning of the words that are not options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operands {
    /// Files that the program reads.
    Files,
    /// Like `Files`, but words such as `-5` are numbers, and so are words such as `+5` if `plus` is set.
    FilesAndCounts { plus: bool },
    /// A text, unless an option has given it, then files that are read. The field says what the text is.
    TextThenFiles(Code),
    /// Text that names no files.
    Texts,
    /// A file that is read, then a file that is written.
    FileThenOutput,
    /// Files that are written.
    Outputs,
    /// Any words: the program always writes.
    Writes,
    /// Operands of `tar`: the first may be a cluster of options without its dash. No use of `tar` is known to be
    /// harmless.
    Archive,
}

/// Kind of the text of [`Operands::TextThenFiles`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// A pattern, which is not code.
    None,
    /// A script of `sed`.
    Sed,
    /// A program of `awk`.
    Awk,
}

/// Reads the words of a command line and notes their effects.
pub(super) fn read<'a>(program: &Program, name: &'a str, args: &'a [String], tally: &mut Tally<'a>) {
    let mut reader = Reader { program, operands: Vec::new(), texts: Vec::new(), tally };
    reader.words(args);
    let Reader { operands, mut texts, tally, .. } = reader;
    let mut files = &operands[..];
    match program.operands {
        Operands::Files | Operands::FilesAndCounts { .. } => {}
        Operands::Texts => files = &[],
        Operands::TextThenFiles(code) => {
            if texts.is_empty()
                && let Some((first, rest)) = operands.split_first()
            {
                texts.push(first);
                files = rest;
            }
            match code {
                Code::None => {}
                Code::Sed => sed::read(&texts, tally),
                Code::Awk => texts.iter().for_each(|code| awk(code, tally)),
            }
        }
        Operands::FileThenOutput => operands.iter().skip(1).for_each(|file| tally.note(Weight::Writes, file)),
        Operands::Outputs => operands.iter().for_each(|file| tally.note(Weight::Writes, file)),
        Operands::Writes => tally.note(Weight::Writes, operands.first().copied().unwrap_or(name)),
        Operands::Archive => {
            tally.note(Weight::Unknown, name);
            if let Some(word) = args.first().filter(|word| !word.starts_with('-')) {
                let letters = word.chars().filter_map(|letter| program.short(letter));
                letters.for_each(|row| tally.note(row.does.weight().unwrap_or(Weight::Unknown), word));
            }
        }
    }
    for file in files {
        tally.reads(file);
    }
}

/// Notes the effects of `awk` code. None of it is known to be harmless.
///
/// `awk` can name files and run programs in more ways than this looks for.
fn awk<'a>(code: &'a str, tally: &mut Tally<'a>) {
    tally.note(Weight::Unknown, code);
    if code.contains('>') {
        tally.note(Weight::Writes, code);
    }
    if code.contains("system") || code.contains('|') {
        tally.note(Weight::Runs, code);
    }
}

impl Program {
    /// Returns true if none of its options and operands makes it write or run anything.
    pub(super) fn is_harmless(&self) -> bool {
        let reads = matches!(
            self.operands,
            Operands::Files
                | Operands::FilesAndCounts { .. }
                | Operands::TextThenFiles(Code::None)
                | Operands::Texts
        );
        reads && self.options.iter().all(|row| !matches!(row.does, Does::Writes | Does::Runs))
    }

    fn short(&self, letter: char) -> Option<&'static Options> {
        self.options.iter().find(|row| row.short.contains(letter))
    }

    /// Returns the options that a name means: an exact match, or else all with that prefix.
    fn long(&self, name: &str) -> Vec<&'static Options> {
        let named = |is: &dyn Fn(&str) -> bool| -> Vec<&'static Options> {
            self.options.iter().filter(|row| row.long.split_ascii_whitespace().any(is)).collect()
        };
        let exactly = named(&|long| long == name);
        if exactly.is_empty() { named(&|long| long.starts_with(name)) } else { exactly }
    }
}

impl Does {
    fn weight(self) -> Option<Weight> {
        match self {
            Self::Nothing | Self::Reads | Self::First => None,
            Self::Unknown => Some(Weight::Unknown),
            Self::Writes => Some(Weight::Writes),
            Self::Runs => Some(Weight::Runs),
        }
    }
}

struct Reader<'t, 'a> {
    program: &'t Program,
    operands: Vec<&'a str>,
    /// Values of options that replace the first operand.
    texts: Vec<&'a str>,
    tally: &'t mut Tally<'a>,
}

impl<'a> Reader<'_, 'a> {
    fn words(&mut self, args: &'a [String]) {
        let mut rest = args.iter().map(String::as_str);
        while let Some(word) = rest.next() {
            // Not every program reads options after an operand, so the word may also be a file.
            let late = !self.operands.is_empty();
            if word == "--" {
                self.operands.extend(rest);
                return;
            }
            let value = if let Some(long) = word.strip_prefix("--") {
                self.long(word, long, &mut rest)
            } else if self.is_count(word) {
                None
            } else if let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.is_empty()) {
                self.cluster(word, cluster, &mut rest)
            } else {
                self.operand(word);
                continue;
            };
            if late {
                self.tally.paths.extend([Some(word), value].into_iter().flatten());
            }
        }
    }

    fn operand(&mut self, word: &'a str) {
        // `sort +1`, `tail +5f`: obsolete options of some programs.
        if word.starts_with('+')
            && !matches!(self.program.operands, Operands::Texts | Operands::TextThenFiles(_))
        {
            self.tally.note(Weight::Unknown, word);
        }
        self.operands.push(word);
    }

    fn is_count(&self, word: &str) -> bool {
        let Operands::FilesAndCounts { plus } = self.program.operands else { return false };
        let count = word.strip_prefix('-').or_else(|| word.strip_prefix('+').filter(|_| plus));
        count.is_some_and(|count| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// Reads one long option, perhaps abbreviated. Returns the word that it takes.
    fn long(
        &mut self,
        word: &'a str,
        long: &'a str,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Option<&'a str> {
        let (name, attached) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let meant = self.program.long(name);
        let [row] = meant[..] else {
            // None or several match: the program fails, or has the worst of their effects.
            for row in &meant {
                self.does(row, word, attached);
            }
            self.tally.note(Weight::Unknown, word);
            return None;
        };
        let value = match (row.takes, attached) {
            (Takes::Nothing, Some(_)) => {
                self.tally.note(Weight::Unknown, word);
                None
            }
            (Takes::Value, None) => rest.next(),
            _ => None,
        };
        self.does(row, word, attached.or(value));
        value
    }

    /// Reads short options in one word. Returns the word that the last one takes.
    fn cluster(
        &mut self,
        word: &'a str,
        cluster: &'a str,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Option<&'a str> {
        for (at, option) in cluster.char_indices() {
            let Some(row) = self.program.short(option) else {
                self.tally.note(Weight::Unknown, word);
                continue;
            };
            let attached = Some(&cluster[at + option.len_utf8()..]).filter(|value| !value.is_empty());
            match row.takes {
                Takes::Nothing => self.does(row, word, None),
                Takes::Attached => {
                    self.does(row, word, attached);
                    return None;
                }
                Takes::Value => {
                    let value = if attached.is_none() { rest.next() } else { None };
                    self.does(row, word, attached.or(value));
                    return value;
                }
            }
        }
        None
    }

    fn does(&mut self, row: &Options, word: &'a str, value: Option<&'a str>) {
        if row.takes == Takes::Value && value.is_none() {
            // The program fails because the value is missing.
            self.tally.note(Weight::Unknown, word);
        }
        match row.does {
            Does::Reads => value.into_iter().for_each(|path| self.tally.reads(path)),
            Does::First => self.texts.extend(value),
            does => does.weight().into_iter().for_each(|weight| self.tally.note(weight, word)),
        }
    }
}
