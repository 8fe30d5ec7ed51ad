//! Accesses of a model to a process that it has started, and their results. They are the same for every dialect that supports processes.

use std::fmt::Write as _;
use std::time::Duration;

use wire::v1;
use wire::v1::process::State;

use text::one_line;

/// Longest time that a call waits for a process.
pub const MAX_PROCESS_WAIT: Duration = Duration::from_secs(60);

/// Access of a call to processes that were started before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessAccess {
    /// Reads the output.
    Output {
        process_id: String,
        /// Offsets in standard output and standard error to start from; `None`: the end of both.
        after: Option<[u64; 2]>,
        /// Time to wait for more output, or for the end of the process.
        wait: Duration,
    },
    /// Writes to standard input.
    Input {
        process_id: String,
        text: String,
        /// Closes the input afterwards.
        close: bool,
    },
    /// Ends the process.
    Stop { process_id: String },
    /// Lists the processes.
    List,
}

impl ProcessAccess {
    /// Returns the name for the record.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Output { .. } => "process.output",
            Self::Input { .. } => "process.input",
            Self::Stop { .. } => "process.stop",
            Self::List => "process.list",
        }
    }

    /// Returns the id of the process that is accessed.
    pub fn process_id(&self) -> Option<&str> {
        match self {
            Self::Output { process_id, .. } | Self::Input { process_id, .. } | Self::Stop { process_id } => {
                Some(process_id)
            }
            Self::List => None,
        }
    }
}

/// Part of a stream of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Portion {
    /// Number of bytes before it that are not shown.
    pub skipped: u64,
    /// Text of the part, with replacement characters.
    pub text: String,
    /// Offset after the part.
    pub end: u64,
    /// Number of bytes after it that are already available.
    pub more: u64,
}

/// Result of an access.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessView {
    /// A process, and what it has written to standard output and standard error.
    One(Box<v1::Process>, [Portion; 2]),
    /// The processes of the run.
    All(Vec<v1::Process>),
}

/// Renders a view as plain text.
pub(crate) fn plain(view: &ProcessView) -> String {
    match view {
        ProcessView::One(process, streams) => one(process, streams),
        ProcessView::All(processes) if processes.is_empty() => "(no processes)".to_owned(),
        ProcessView::All(processes) => processes.iter().fold(String::new(), |mut text, process| {
            // Writing to a string cannot fail.
            let left = if process.left_behind > 0 { " (left behind by a command)" } else { "" };
            let _ = writeln!(text, "{} {}{left}: {}", process.process_id, state(process), command(process));
            text
        }),
    }
}

fn one(process: &v1::Process, [stdout, stderr]: &[Portion; 2]) -> String {
    let mut text = String::new();
    for (label, portion) in [("", stdout), ("[stderr]", stderr)] {
        if portion.skipped > 0 {
            line(&mut text, &format!("[{} bytes before this are not shown]", portion.skipped));
        }
        if !portion.text.is_empty() {
            line(&mut text, label);
            text.push_str(&portion.text);
        }
        if portion.more > 0 {
            line(&mut text, &format!("[{} more bytes follow]", portion.more));
        }
    }
    if text.is_empty() {
        text.push_str("(no new output)");
    }
    line(&mut text, &format!("[process {} {}]", process.process_id, state(process)));
    line(&mut text, &format!("[to go on: after \"{}:{}\"]", stdout.end, stderr.end));
    text
}

/// Adds `add` as a separate line.
fn line(text: &mut String, add: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(add);
    if !add.is_empty() {
        text.push('\n');
    }
}

fn state(process: &v1::Process) -> String {
    let by = process.ended_by().word().map_or_else(String::new, |by| format!(" ({by})"));
    match (process.state(), process.exit_code, process.signal) {
        (State::Running | State::Unspecified, ..) => "is running".to_owned(),
        (State::Interrupted, ..) => "was lost, and its remaining processes were ended".to_owned(),
        (State::Ended, _, Some(signal)) => format!("was ended by signal {signal}{by}"),
        (State::Ended, Some(code), None) => format!("has ended with exit code {code}{by}"),
        (State::Ended, None, None) => format!("has ended{by}"),
    }
}

/// Returns the process's command on one line.
fn command(process: &v1::Process) -> String {
    let Some(request) = &process.request else { return String::new() };
    let words = if request.script.is_empty() {
        std::iter::once(&request.command)
            .chain(&request.args)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    } else {
        request.script.clone()
    };
    one_line(&text::excerpt(&words)).into_owned()
}

#[cfg(test)]
mod tests {
    use wire::v1::exec_result::EndedBy;

    use super::*;

    fn process(state: State, exit_code: Option<i32>, signal: Option<i32>, by: EndedBy) -> v1::Process {
        let request = v1::ProcessRequest { script: "serve |\n log".to_owned(), ..Default::default() };
        v1::Process {
            process_id: "p".to_owned(),
            state: state.into(),
            exit_code,
            signal,
            ended_by: by.into(),
            request: Some(request),
            ..Default::default()
        }
    }

    #[test]
    fn output_is_rendered_with_omissions_and_the_next_step() {
        let stdout = Portion { skipped: 7, text: "up".to_owned(), end: 9, more: 3 };
        let stderr = Portion { text: "warn\n".to_owned(), end: 5, ..Portion::default() };
        let running = process(State::Running, None, None, EndedBy::Unspecified);
        assert_eq!(
            plain(&ProcessView::One(Box::new(running.clone()), [stdout, stderr])),
            "[7 bytes before this are not shown]\nup\n[3 more bytes follow]\n[stderr]\nwarn\n[process p is running]\n\
             [to go on: after \"9:5\"]\n"
        );
        let nothing = [Portion { end: 9, ..Portion::default() }, Portion::default()];
        let ended = process(State::Ended, Some(137), Some(9), EndedBy::Killed);
        assert_eq!(
            plain(&ProcessView::One(Box::new(ended), nothing)),
            "(no new output)\n[process p was ended by signal 9 (killed)]\n[to go on: after \"9:0\"]\n"
        );
    }

    #[test]
    fn processes_are_listed_a_line_each() {
        assert_eq!(plain(&ProcessView::All(Vec::new())), "(no processes)");
        let all = vec![
            process(State::Ended, Some(0), None, EndedBy::Unspecified),
            process(State::Interrupted, None, None, EndedBy::Interrupted),
        ];
        assert_eq!(
            plain(&ProcessView::All(all)),
            "p has ended with exit code 0: serve |\\n log\np was lost, and its remaining processes were \
             ended: serve |\\n log\n"
        );
    }
}
