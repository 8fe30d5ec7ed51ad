//! Every command that can be seen in a command line: itself, what it wraps, and what it hands to a shell.

use std::collections::HashSet;
use std::mem::take;

use ops::{Exec, Process, ProcessProgram, Session, Shell};

use super::by_kind::inner;
use super::effects::{Effect, effect};
use super::inner::Inner;
use super::script::{self, Script};
use super::unseen::{self, Unseen};

/// Commands that may be wrapped in others' arguments. More is no honest use.
const MAX_WRAPPED: usize = 1_024;
/// Words, over all texts that had to be taken apart.
const MAX_WORDS: usize = 131_072;
/// Bytes of these texts.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The commands in a command line.
#[derive(Debug, Default)]
pub(super) struct Seen {
    sources: Vec<Vec<String>>,
    commands: Vec<(usize, usize)>,
    /// Words of scripts that are in no command and may name files.
    files: Vec<String>,
    /// The outermost program runs another that its arguments name, or deletes what it finds.
    does_more: bool,
    /// The first thing that cannot be seen through.
    unseen: Option<Unseen>,
}

/// So deeply or widely wrapped that it cannot be judged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooIntricate;

impl Seen {
    /// Of a command and its wrappers.
    pub(super) fn of_command(exec: &Exec) -> Result<Self, TooIntricate> {
        see_through(argv(exec), &exec.stdin)
    }

    /// Of a script, as a shell would be given it.
    pub(super) fn of_script(shell: &Shell) -> Result<Self, TooIntricate> {
        see_through(["sh", "-c", &shell.script].map(str::to_owned).to_vec(), &shell.stdin)
    }

    /// The program of a process. Its later input is not seen here.
    pub(super) fn of_process(process: &Process) -> Result<Self, TooIntricate> {
        match &process.program {
            ProcessProgram::Command(exec) => Self::of_command(exec),
            ProcessProgram::Script(shell) => Self::of_script(shell),
            ProcessProgram::Session { .. } => Ok(Self::default()),
        }
    }

    /// Of what a session is given. Functions and aliases that its shell has by then nobody sees.
    pub(super) fn of_session(session: &Session) -> Result<Self, TooIntricate> {
        session.script().map_or_else(|| Ok(Self::default()), |script| Self::of_script(&script))
    }

    /// Every command, the outermost first, those of a script in their order. None is empty.
    pub(super) fn commands(&self) -> impl Iterator<Item = &[String]> {
        self.commands.iter().map(|&(source, start)| &self.sources[source][start..])
    }

    /// The program of each of them.
    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        self.commands().filter_map(<[String]>::first).map(String::as_str)
    }

    /// What cannot be seen through.
    pub(super) fn unseen(&self) -> Option<&Unseen> {
        self.unseen.as_ref()
    }

    /// Whether the command is what its first `words` words say: its program runs no other that its arguments name, deletes nothing
    /// that it finds, and takes no code, unless these words say so.
    pub(super) fn is_plain_to(&self, words: usize) -> bool {
        !self.does_more && self.unseen.as_ref().is_none_or(|unseen| unseen.is_named_by(words))
    }

    /// Every word of every command line and script.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().flatten().chain(&self.files).map(String::as_str)
    }
}

/// Returns the words of a command line, with the whole path of a program that is named by one.
pub(super) fn argv(exec: &Exec) -> Vec<String> {
    std::iter::once(exec.program().into_owned()).chain(exec.args.iter().cloned()).collect()
}

/// Looks through all wrappers in `argv`. `stdin` is what the command is given to read.
pub(super) fn see_through(argv: Vec<String>, stdin: &[u8]) -> Result<Seen, TooIntricate> {
    let mut search = Search::default();
    search.line(argv)?;
    if !stdin.is_empty() {
        search.inputs.push(String::from_utf8_lossy(stdin).into_owned());
    }
    loop {
        while let Some((source, start)) = search.open.pop() {
            search.look(source, start)?;
        }
        // Only now is it known whether any command takes its input for commands.
        if !search.reads || search.inputs.is_empty() {
            return Ok(search.seen);
        }
        for text in take(&mut search.inputs) {
            search.text(&text)?;
        }
    }
}

#[derive(Default)]
struct Search {
    seen: Seen,
    /// Places where a command may begin, and all that ever were.
    open: Vec<(usize, usize)>,
    known: HashSet<(usize, usize)>,
    wrapped: usize,
    words: usize,
    bytes: usize,
    /// Texts that some command is given to read.
    inputs: Vec<String>,
    /// Some command runs what it reads.
    reads: bool,
}

impl Search {
    fn look(&mut self, source: usize, start: usize) -> Result<(), TooIntricate> {
        let command = &self.seen.sources[source][start..];
        let Inner { wraps, offsets, lines, texts, inputs, reads, opaque } = inner(command);
        if self.seen.commands.is_empty() {
            self.seen.does_more = wraps || command.split_first().is_some_and(does_more);
        }
        if self.seen.unseen.is_none() {
            self.seen.unseen = unseen::in_command(command, opaque);
        }
        self.seen.commands.push((source, start));
        self.reads |= reads;
        self.inputs.extend(inputs);
        for offset in offsets {
            self.begin(source, start + offset)?;
        }
        for line in lines {
            self.line(line)?;
        }
        texts.iter().try_for_each(|text| self.text(text))
    }

    /// A command may begin here.
    fn begin(&mut self, source: usize, start: usize) -> Result<(), TooIntricate> {
        if start >= self.seen.sources[source].len() || !self.known.insert((source, start)) {
            return Ok(());
        }
        self.wrapped += usize::from(start > 0);
        self.open.push((source, start));
        if self.wrapped > MAX_WRAPPED { Err(TooIntricate) } else { Ok(()) }
    }

    fn line(&mut self, line: Vec<String>) -> Result<(), TooIntricate> {
        self.words += line.len();
        if self.words > MAX_WORDS {
            return Err(TooIntricate);
        }
        self.seen.sources.push(line);
        self.begin(self.seen.sources.len() - 1, 0)
    }

    fn text(&mut self, text: &str) -> Result<(), TooIntricate> {
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            return Err(TooIntricate);
        }
        if self.seen.unseen.is_none() {
            self.seen.unseen = unseen::in_script(text);
        }
        let Script { commands, inputs, files, too_deep } = script::parse(text);
        if too_deep {
            return Err(TooIntricate);
        }
        self.inputs.extend(inputs);
        self.seen.files.extend(files);
        // What is put on last is looked at first.
        commands.into_iter().rev().try_for_each(|line| self.line(line))
    }
}

/// Whether the arguments of a program make it run or delete something.
fn does_more((program, args): (&String, &[String])) -> bool {
    matches!(effect(program, args), Effect::Runs(_) | Effect::Deletes(_))
}
