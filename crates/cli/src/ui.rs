//! The two streams: data on standard output, and talk on standard error.

use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use console::Term;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tonic::{Response, Status};

use crate::clean::escape_json;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::outlet::Outlet;
use crate::output::{Look, Output, Style};

const TICK: Duration = Duration::from_millis(100);

/// Format of printed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // Variants have no doc comments, because clap would print them with every command.
    Table,
    Json,
}

/// The user's terminal, or the files or pipes that replace it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    format: Format,
    stdout: Look,
    stderr: Look,
}

#[allow(clippy::unused_self)] // printing needs no state, but goes through the `Ui` so that callers that print are easy to find
impl Ui {
    /// Examines both streams and `NO_COLOR`.
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            stdout: look(&Term::stdout(), console::colors_enabled()),
            stderr: look(&Term::stderr(), console::colors_enabled_stderr()),
        }
    }

    /// Returns true if the data is for programs.
    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Returns an empty page for data.
    pub(crate) fn page(self) -> Output {
        Output::new(self.stdout)
    }

    /// Returns an empty page for talk.
    pub(crate) fn talk(self) -> Output {
        Output::new(self.stderr)
    }

    /// Returns the outlets for a command's standard output and standard error.
    pub(crate) fn outlets(self) -> [Outlet; 2] {
        [
            Outlet::new(Box::new(io::stdout()), self.stdout.terminal),
            Outlet::new(Box::new(io::stderr()), self.stderr.terminal),
        ]
    }

    /// Returns true if both streams are terminals, and so perhaps the same one.
    pub(crate) fn is_terminal(self) -> bool {
        self.stdout.terminal && self.stderr.terminal
    }

    pub(crate) fn show(self, page: &Output) -> io::Result<()> {
        write_all(&mut io::stdout().lock(), page.as_str())
    }

    /// Prints talk. An error is ignored, because there is no other place to report it.
    pub(crate) fn say(self, page: &Output) {
        let _ = write_all(&mut io::stderr().lock(), page.as_str());
    }

    /// Ends a line on standard error that a command began.
    pub(crate) fn end_line(self) {
        let _ = write_all(&mut io::stderr().lock(), "\n");
    }

    /// Prints a line of talk.
    pub(crate) fn note(self, text: &str) {
        let mut page = self.talk();
        page.block(text).end_line();
        self.say(&page);
    }

    /// Prints an answer: as JSON for programs, or with `render` for people.
    pub(crate) fn answer<T: Serialize>(self, answer: T, render: impl FnOnce(T, &mut Output)) -> Ended {
        self.answer_and_talk(answer, |answer, page, _| render(answer, page))
    }

    /// Prints an answer like [`Ui::answer`]. `render` may add talk for people.
    pub(crate) fn answer_and_talk<T: Serialize>(
        self,
        answer: T,
        render: impl FnOnce(T, &mut Output, &mut Output),
    ) -> Ended {
        if self.is_json() {
            self.json(&answer)?;
            return Ok(Exit::Ok);
        }
        let (mut data, mut talk) = (self.page(), self.talk());
        render(answer, &mut data, &mut talk);
        self.show(&data)?;
        self.say(&talk);
        Ok(Exit::Ok)
    }

    /// Prints one of several answers: as a line of JSON, or with `render`.
    pub(crate) fn answer_line<T: Serialize>(
        self,
        answer: &T,
        render: impl FnOnce(&T, &mut Output),
    ) -> Result<(), Failure> {
        if self.is_json() {
            return self.json_line(answer);
        }
        let mut page = self.page();
        render(answer, &mut page);
        Ok(self.show(&page)?)
    }

    /// Prints a JSON document in a form that people can read as well.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)?;
        Ok(write_line(&escape_json(&text))?)
    }

    /// Prints a JSON document on one line.
    pub(crate) fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)?;
        Ok(write_line(&escape_json(&text))?)
    }

    /// Prints why a command failed.
    pub(crate) fn fail(self, failure: &Failure) {
        if let (Format::Json, Ok(text)) = (self.format, serde_json::to_string(failure)) {
            let _ = write_all(&mut io::stderr().lock(), &format!("{}\n", escape_json(&text)));
            return;
        }
        let mut page = self.talk();
        page.styled(Style::Red, "error:").own(" ").block(&failure.to_string()).end_line();
        self.say(&page);
    }

    /// Shows the progress in bytes, only on a terminal.
    pub(crate) fn bytes_bar(self) -> Bar {
        self.bar("{wide_bar} {bytes}/{total_bytes}")
    }

    /// Shows the progress as a number of items, only on a terminal.
    pub(crate) fn count_bar(self) -> Bar {
        self.bar("{wide_bar} {human_pos}/{human_len} {eta:.dim}")
    }

    fn bar(self, template: &str) -> Bar {
        if !self.stderr.terminal {
            return Bar(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Bar(ProgressBar::new(0).with_style(style))
    }

    /// Waits for an answer of the daemon, and shows a spinner meanwhile.
    pub(crate) async fn wait<T>(
        self,
        what: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        let _spinner = self.spinner(what);
        Ok(answer.await?.into_inner())
    }

    /// Shows a spinner until the returned value is dropped, only on a terminal.
    pub(crate) fn spinner(self, what: &'static str) -> Spinner {
        if !self.stderr.terminal {
            return Spinner(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style).with_message(what);
        bar.enable_steady_tick(TICK);
        Spinner(bar)
    }
}

/// Progress bar, which disappears when it is dropped.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn at(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Spinner, which disappears when it is dropped.
pub(crate) struct Spinner(ProgressBar);

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn look(term: &Term, colour: bool) -> Look {
    let terminal = term.is_term();
    Look { terminal, colour: terminal && colour, width: term.size_checked().map(|(_, columns)| columns) }
}

fn write_line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

fn write_all(stream: &mut impl Write, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.flush()
}
