//! Every command that can be seen in a command line: itself, the commands that it wraps, and those that it passes to a
//! shell.

use std::collections::HashSet;
use std::mem::take;

use operations::{Exec, Operation, Process, ProcessProgram, Session, Shell};

use super::by_kind::inner;
use super::effects::may_do_more;
use super::inner::Inner;
use super::script::{self, Script};
use super::unseen::{self, Unseen};

/// Most commands that may be wrapped in the arguments of others. No honest command needs more.
const MAX_WRAPPED: usize = 1_024;
/// Most words in all texts that have to be split.
const MAX_WORDS: usize = 131_072;
/// Most bytes of these texts.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The commands in a command line.
#[derive(Debug, Default)]
pub struct Seen {
    sources: Vec<Vec<String>>,
    commands: Vec<(usize, usize)>,
    /// Words of scripts that belong to no command and may name files.
    files: Vec<String>,
    /// The outermost program may run another one that its arguments name, or delete the files that it finds.
    does_more: bool,
    /// The first thing that cannot be seen through.
    unseen: Option<Unseen>,
}

/// The command is wrapped so deeply or widely that it cannot be judged.
#[derive(Debug, PartialEq, Eq)]
pub struct TooIntricate;

impl Seen {
    /// Reads the program of an operation. One that runs nothing has no commands.
    pub fn of(operation: &Operation) -> Result<Self, TooIntricate> {
        match operation {
            Operation::Exec(exec) => Self::of_command(exec),
            Operation::Shell(shell) => Self::of_script(shell),
            Operation::Process(process) => Self::of_process(process),
            Operation::Session(session) => Self::of_session(session),
            _ => Ok(Self::default()),
        }
    }

    /// Reads a command and its wrappers.
    pub fn of_command(exec: &Exec) -> Result<Self, TooIntricate> {
        see_through(argv(exec), &exec.stdin)
    }

    /// Reads a script as the argument of `sh -c`.
    pub fn of_script(shell: &Shell) -> Result<Self, TooIntricate> {
        see_through(["sh", "-c", &shell.script].map(str::to_owned).to_vec(), &shell.stdin)
    }

    /// Reads the program of a process. Its later input is not seen.
    fn of_process(process: &Process) -> Result<Self, TooIntricate> {
        match &process.program {
            ProcessProgram::Command(exec) => Self::of_command(exec),
            ProcessProgram::Script(shell) => Self::of_script(shell),
            ProcessProgram::Session { .. } => Ok(Self::default()),
        }
    }

    /// Reads the input of a session. Functions and aliases that its shell has by then are not seen.
    fn of_session(session: &Session) -> Result<Self, TooIntricate> {
        session.script().map_or_else(|| Ok(Self::default()), |script| Self::of_script(&script))
    }

    /// Returns every command, the outermost first, and those of a script in their order. None is empty.
    pub fn commands(&self) -> impl Iterator<Item = &[String]> {
        self.commands.iter().map(|&(source, start)| &self.sources[source][start..])
    }

    /// Returns the program of each command.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.commands().filter_map(<[String]>::first).map(String::as_str)
    }

    /// Returns the first part that cannot be seen through.
    pub fn unseen(&self) -> Option<&Unseen> {
        self.unseen.as_ref()
    }

    /// Returns true if the first `words` words tell everything that the command does.
    ///
    /// Its program then runs no other one that its arguments name, deletes no files that it finds, and takes no code,
    /// unless these words say so.
    pub fn is_plain_to(&self, words: usize) -> bool {
        !self.does_more && self.unseen.as_ref().is_none_or(|unseen| unseen.is_named_by(words))
    }

    /// Returns every word of every command line and script.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().flatten().chain(&self.files).map(String::as_str)
    }
}

/// Returns the words of a command line. A program that is named by a path has its whole path.
pub fn argv(exec: &Exec) -> Vec<String> {
    std::iter::once(exec.program().into_owned()).chain(exec.args.iter().cloned()).collect()
}

/// Sees through all wrappers in `argv`. `stdin` is the input of the command.
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
        // Only now is it known if any command runs its input as commands.
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
    /// Places where a command may begin and that are not read yet; `known` has all places ever found.
    open: Vec<(usize, usize)>,
    known: HashSet<(usize, usize)>,
    wrapped: usize,
    words: usize,
    bytes: usize,
    /// Texts that are the input of a command.
    inputs: Vec<String>,
    /// A command runs commands that it reads.
    reads: bool,
}

impl Search {
    fn look(&mut self, source: usize, start: usize) -> Result<(), TooIntricate> {
        let command = &self.seen.sources[source][start..];
        let Inner { wraps, offsets, lines, texts, inputs, reads, opaque } = inner(command);
        if self.seen.commands.is_empty() {
            self.seen.does_more =
                wraps || command.split_first().is_some_and(|(program, args)| may_do_more(program, args));
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

    /// Notes that a command may begin here.
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
        // The last one added is read first.
        commands.into_iter().rev().try_for_each(|line| self.line(line))
    }
}
