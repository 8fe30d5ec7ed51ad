//! The two streams: data on standard output, and talk on standard error.

use std::io::{self, Write};
use std::time::Duration;

use clap::ValueEnum;
use console::Term;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_yaml::Value;
use tonic::{Response, Status};

use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::{Look, Output, Style};
use text::clean::escape_json;
use text::outlet::Outlet;

const TICK: Duration = Duration::from_millis(100);

/// Format of printed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    // Variants have no doc comments, because clap would print them with every command.
    Table,
    Json,
    Yaml,
    Name,
}

/// The user's terminal, or the files or pipes that replace it.
#[derive(Clone, Copy, Debug)]
pub struct Ui {
    format: Format,
    stdout: Look,
    stderr: Look,
}

#[allow(clippy::unused_self)] // printing needs no state, but goes through the `Ui` so that callers that print are easy to find
impl Ui {
    /// Examines both streams and `NO_COLOR`.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            stdout: look(&Term::stdout(), console::colors_enabled()),
            stderr: look(&Term::stderr(), console::colors_enabled_stderr()),
        }
    }

    /// Returns true if data is printed with its structure, as JSON or YAML.
    pub fn is_structured(self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }

    /// Returns true if only data is printed, for programs.
    pub fn is_data_only(self) -> bool {
        self.format != Format::Table
    }

    /// Returns true if data is printed as JSON.
    pub fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Returns an empty page for data.
    pub fn page(self) -> Output {
        Output::new(self.stdout)
    }

    /// Returns an empty page for talk.
    pub fn talk(self) -> Output {
        Output::new(self.stderr)
    }

    /// Returns the outlets for a command's standard output and standard error.
    pub fn outlets(self) -> [Outlet; 2] {
        [
            Outlet::new(Box::new(io::stdout()), self.stdout.terminal),
            Outlet::new(Box::new(io::stderr()), self.stderr.terminal),
        ]
    }

    /// Returns true if both streams are terminals, and so perhaps the same one.
    pub fn is_terminal(self) -> bool {
        self.stdout.terminal && self.stderr.terminal
    }

    pub fn show(self, page: &Output) -> io::Result<()> {
        write_all(&mut io::stdout().lock(), page.as_str())
    }

    /// Prints talk. An error is ignored, because there is no other place to report it.
    pub fn say(self, page: &Output) {
        let _ = write_all(&mut io::stderr().lock(), page.as_str());
    }

    /// Ends a line on standard error that a command began.
    pub fn end_line(self) {
        let _ = write_all(&mut io::stderr().lock(), "\n");
    }

    /// Prints a line of talk. A line feed in it, such as one of a daemon's message, begins no other line.
    pub fn note(self, text: &str) {
        self.say(&self.noted(text));
    }

    fn noted(self, text: &str) -> Output {
        let mut page = self.talk();
        page.word(text).end_line();
        page
    }

    /// Prints an answer: as JSON for programs, or with `render` for people.
    pub fn answer<T: Serialize>(self, answer: T, render: impl FnOnce(T, &mut Output)) -> Ended {
        self.answer_and_talk(answer, |answer, page, _| render(answer, page))
    }

    /// Prints an answer like [`Ui::answer`]. `render` may add talk for people.
    pub fn answer_and_talk<T: Serialize>(
        self,
        answer: T,
        render: impl FnOnce(T, &mut Output, &mut Output),
    ) -> Ended {
        if self.format != Format::Table {
            self.document(&answer)?;
            return Ok(Exit::Ok);
        }
        let (mut data, mut talk) = (self.page(), self.talk());
        render(answer, &mut data, &mut talk);
        self.show(&data)?;
        self.say(&talk);
        Ok(Exit::Ok)
    }

    /// Prints one of several answers: as a line of JSON, or with `render`.
    pub fn answer_line<T: Serialize>(
        self,
        answer: &T,
        render: impl FnOnce(&T, &mut Output),
    ) -> Result<(), Failure> {
        if self.format != Format::Table {
            return self.line(answer);
        }
        let mut page = self.page();
        render(answer, &mut page);
        Ok(self.show(&page)?)
    }

    /// Prints one of several answers like [`Ui::answer_line`], with the name of its node for people. In JSON its ids name the node.
    pub fn answer_line_of<T: Serialize>(
        self,
        node: &str,
        answer: &T,
        render: impl FnOnce(&T, &mut Output),
    ) -> Result<(), Failure> {
        self.answer_line(answer, |answer, page| {
            page.own("node ").word(node).own(" ");
            render(answer, page);
        })
    }

    /// Prints the only document of a command: JSON in a form that people can read as well, YAML, or the ids in it.
    pub fn document(self, value: &impl Serialize) -> Result<(), Failure> {
        if matches!(self.format, Format::Table | Format::Json) {
            let text = serde_json::to_string_pretty(value)?;
            return Ok(write_line(&escape_json(&text))?);
        }
        self.yaml_or_names(value, "")
    }

    /// Prints one of several documents: JSON on one line, YAML after a line of dashes, or the ids in it.
    pub fn line(self, value: &impl Serialize) -> Result<(), Failure> {
        if matches!(self.format, Format::Table | Format::Json) {
            let text = serde_json::to_string(value)?;
            return Ok(write_line(&escape_json(&text))?);
        }
        self.yaml_or_names(value, "---\n")
    }

    fn yaml_or_names(self, value: &impl Serialize, mark: &'static str) -> Result<(), Failure> {
        let mut page = self.page();
        if self.format == Format::Name {
            for id in names(&serde_yaml::to_value(value)?) {
                page.word(id).end_line();
            }
        } else {
            page.own(mark).raw(&serde_yaml::to_string(value)?).end_line();
        }
        Ok(self.show(&page)?)
    }

    /// Prints why a command failed.
    pub fn fail(self, failure: &Failure) {
        if let (Format::Json, Ok(text)) = (self.format, serde_json::to_string(failure)) {
            let _ = write_all(&mut io::stderr().lock(), &format!("{}\n", escape_json(&text)));
            return;
        }
        let mut page = self.talk();
        if let (Format::Yaml, Ok(text)) = (self.format, serde_yaml::to_string(failure)) {
            page.block(&text);
            return self.say(&page);
        }
        page.styled(Style::Red, "error:").own(" ").block(&failure.to_string()).end_line();
        self.say(&page);
    }

    /// Shows the progress in bytes, only on a terminal.
    pub fn bytes_bar(self) -> Bar {
        self.bar("{wide_bar} {bytes}/{total_bytes}")
    }

    /// Shows the progress as a number of items, only on a terminal.
    pub fn count_bar(self) -> Bar {
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
    pub async fn wait<T>(
        self,
        what: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        let _spinner = self.spinner(what);
        Ok(answer.await?.into_inner())
    }

    /// Shows a spinner until the returned value is dropped, only on a terminal.
    pub fn spinner(self, what: &'static str) -> Spinner {
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
pub struct Bar(ProgressBar);

impl Bar {
    pub fn at(&self, done: u64, total: u64) {
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
pub struct Spinner(ProgressBar);

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Returns the ids of the objects in an answer.
///
/// The API's messages begin with the id of their object, or with the only object or list that they have.
fn names(answer: &Value) -> Vec<&str> {
    match answer {
        Value::String(name) => vec![name.as_str()],
        Value::Sequence(items) => items.iter().flat_map(names).collect(),
        Value::Mapping(members) => {
            let is_id =
                |name: &Value| name.as_str().is_some_and(|name| name == "reference" || name.ends_with("Id"));
            let id = members.iter().find(|(name, value)| is_id(name) && value.is_string());
            let within = || members.iter().find(|(_, value)| value.is_mapping() || value.is_sequence());
            let first = || members.iter().find(|(_, value)| value.is_string());
            id.or_else(within).or_else(first).map(|(_, value)| names(value)).unwrap_or_default()
        }
        _ => Vec::new(),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_the_ids_of_the_objects() {
        let named = |answer: serde_json::Value| {
            let answer = serde_yaml::to_value(answer).unwrap();
            names(&answer).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(named(json!({"runs": [{"runId": "a", "state": "READY"}, {"runId": "b"}]})), ["a", "b"]);
        assert_eq!(named(json!({"run": {"runId": "a", "limits": {"pids": 3}}})), ["a"]);
        assert_eq!(named(json!({"done": "deleted", "workspaceId": "w"})), ["w"]);
        assert_eq!(named(json!([{"tokenId": "t", "roles": ["auditor"]}])), ["t"]);
        assert_eq!(named(json!({"entries": [{"name": "1-7-0", "path": "a"}]})), ["1-7-0"]);
        assert_eq!(named(json!({})), Vec::<String>::new());
    }

    #[test]
    fn a_note_is_one_line() {
        let forged = "warning: node 3: down\nnode 7: intact\x1b[2J\r";
        let noted = Ui::new(Format::Table).noted(forged);
        assert_eq!(noted.as_str(), "warning: node 3: down␊node 7: intact␛[2J␍\n");
    }

    #[test]
    fn an_image_is_named_by_its_reference() {
        let images = wire::v1::ListImagesResponse {
            images: vec![wire::v1::Image {
                reference: "tools:1".into(),
                image_id: "sha256:00".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        assert_eq!(names(&serde_yaml::to_value(images).unwrap()), ["tools:1"]);
    }
}
