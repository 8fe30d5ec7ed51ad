//! `session`: a command for a shell that keeps running, or input for the program that runs in it.

use std::time::Duration;

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::SessionRequest;

use super::check::text;
use super::exec::{milliseconds, timeout};
use super::record::preview;
use super::shell::MAX_SCRIPT;
use super::{Answer, Class, Delivery, Describe, Effect, Lane, Part, Request, Shell, Sketch};
use crate::{CommandLimits, Malformed, SessionResult};

pub(super) const CLASS: Class = Class { name: "session", lane: Lane::Container, effect: Effect::Runs };

const MAX_ID: usize = 64;
const MAX_PATTERNS: usize = 16;
const MAX_PATTERN: usize = 1_024;

/// Give a session a command or input, or wait for its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Not empty. The daemon checks that the session exists.
    pub session_id: String,
    pub input: SessionInput,
    /// Regular expressions as the caller wrote them: at most 16, each of 1 to 1,024 bytes.
    pub expect: Vec<String>,
    /// Time until the call is answered. More than zero, at most [`CommandLimits::LONGEST_TIMEOUT`].
    pub timeout: Duration,
}

/// Input of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionInput {
    /// Shell code without NUL, not blank, at most 64 KiB.
    Command(String),
    /// Text to type, not empty, at most 64 KiB.
    Typed(String),
    Nothing,
}

impl Session {
    /// Returns the session's command as a separate script, if it has one. The shell's working directory at that time is unknown.
    pub fn script(&self) -> Option<Shell> {
        let SessionInput::Command(script) = &self.input else { return None };
        Some(Shell { timeout: self.timeout, ..Shell::new(script) })
    }

    /// Refuses too many patterns, and patterns that are too long.
    pub fn check_patterns(field: &str, patterns: &[String]) -> Result<(), Malformed> {
        if patterns.len() > MAX_PATTERNS {
            return Err(Malformed::new(field, format!("has more than {MAX_PATTERNS} patterns")));
        }
        patterns.iter().try_for_each(|pattern| text(field, pattern, 1, MAX_PATTERN))
    }
}

impl Request for Session {
    type Message = SessionRequest;

    fn parse(message: SessionRequest, limits: CommandLimits) -> Result<Self, Malformed> {
        let SessionRequest { session_id, command, input, expect, timeout_ms } = message;
        text("session.session_id", &session_id, 1, MAX_ID)?;
        let input = match (command.is_empty(), input.is_empty()) {
            (false, true) => {
                text("session.command", &command, 1, MAX_SCRIPT)?;
                if command.trim().is_empty() {
                    return Err(Malformed::new("session.command", "is blank"));
                }
                SessionInput::Command(command)
            }
            (true, false) if input.len() <= MAX_SCRIPT => SessionInput::Typed(input),
            (true, false) => {
                return Err(Malformed::new("session.input", format!("is longer than {MAX_SCRIPT} bytes")));
            }
            (true, true) => SessionInput::Nothing,
            (false, false) => {
                return Err(Malformed::new("session.command", "set at most one of command and input"));
            }
        };
        Self::check_patterns("session.expect", &expect)?;
        Ok(Self { session_id, input, expect, timeout: timeout("session.timeout_ms", timeout_ms, limits)? })
    }

    fn message(&self) -> SessionRequest {
        let (command, input) = match &self.input {
            SessionInput::Command(command) => (command.clone(), String::new()),
            SessionInput::Typed(input) => (String::new(), input.clone()),
            SessionInput::Nothing => Default::default(),
        };
        SessionRequest {
            session_id: self.session_id.clone(),
            command,
            input,
            expect: self.expect.clone(),
            timeout_ms: Some(milliseconds(self.timeout)),
        }
    }

    fn sketch(message: &SessionRequest) -> Sketch {
        let SessionRequest { session_id, command, .. } = message;
        (CLASS.name, json!({ "session_id": session_id, "command": command }))
    }
}

impl Describe for Session {
    fn class(&self) -> Class {
        CLASS
    }

    fn delivery(&self) -> Delivery {
        Delivery::Session
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        Vec::new()
    }

    fn command_timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn timeout_mut(&mut self) -> Option<&mut Duration> {
        Some(&mut self.timeout)
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let given = match &self.input {
            SessionInput::Command(command) => Some(Part::Text("command", command.as_bytes())),
            SessionInput::Typed(input) => Some(Part::Text("input", input.as_bytes())),
            SessionInput::Nothing => None,
        };
        let mut lines = vec![
            format!("session: {}", self.session_id),
            "cwd: the shell's, as earlier commands of the session left it; the same holds for its \
             variables, PATH, functions and aliases, which are not shown"
                .to_owned(),
        ];
        lines.push(format!("timeout: {} s", self.timeout.as_secs_f64()));
        given.into_iter().chain(lines.into_iter().map(Part::Line)).collect()
    }
}

impl Answer for SessionResult {
    fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    fn facts(&self) -> Value {
        json!({
            "state": self.state().as_str_name(), "matched": self.matched,
            "output_bytes": self.output_bytes, "output": preview(&self.output),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> SessionRequest {
        SessionRequest { session_id: "s".to_owned(), ..Default::default() }
    }

    #[test]
    fn at_most_one_input_is_given() {
        let given = |request: SessionRequest| {
            Session::parse(request, CommandLimits::USUAL).map(|session| session.input)
        };
        let command = "cd x\nmake".to_owned();
        assert_eq!(
            given(SessionRequest { command: command.clone(), ..request() }),
            Ok(SessionInput::Command(command.clone()))
        );
        let typed = SessionRequest { input: "\u{4}".to_owned(), ..request() };
        assert_eq!(given(typed), Ok(SessionInput::Typed("\u{4}".to_owned())));
        assert_eq!(given(request()), Ok(SessionInput::Nothing));
        let field = |request| given(request).unwrap_err().field;
        let both = SessionRequest { command, input: "x".to_owned(), ..request() };
        assert_eq!(field(both), "session.command");
        assert_eq!(field(SessionRequest { command: " \n".to_owned(), ..request() }), "session.command");
        assert_eq!(field(SessionRequest { command: "a\0".to_owned(), ..request() }), "session.command");
        assert_eq!(field(SessionRequest::default()), "session.session_id");
        let long = "x".repeat(MAX_SCRIPT + 1);
        assert_eq!(field(SessionRequest { input: long, ..request() }), "session.input");
    }

    #[test]
    fn patterns_are_few_and_short() {
        let of = |expect: Vec<String>| {
            Session::parse(SessionRequest { expect, ..request() }, CommandLimits::USUAL)
        };
        assert!(of(vec!["x".repeat(MAX_PATTERN); MAX_PATTERNS]).is_ok());
        assert!(of(vec!["x".to_owned(); MAX_PATTERNS + 1]).is_err());
        assert!(of(vec![String::new()]).is_err() && of(vec!["x".repeat(MAX_PATTERN + 1)]).is_err());
    }

    #[test]
    fn the_canonical_message_is_parsed_to_the_same() {
        let whole = SessionRequest {
            command: "ls".to_owned(),
            expect: vec![">>> ".to_owned()],
            timeout_ms: Some(7),
            ..request()
        };
        let session = Session::parse(whole.clone(), CommandLimits::USUAL).unwrap();
        assert_eq!(session.message(), whole);
    }
}
