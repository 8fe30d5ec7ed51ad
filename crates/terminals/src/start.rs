//! Parses and checks the messages of an operator's client.

use std::collections::BTreeMap;

use gateway::SessionCommand;
use identity::RunId;
use operations::{CommandLimits, Exec, Malformed};
use refusal::Refusal;
use wire::v1::open_terminal_request::Event as WireEvent;
use wire::v1::{self, terminal_signal::Kind};
use worker_protocol::client::{TerminalSignal, TerminalSize};

/// Maximum size of the input in one message, bytes.
const MAX_INPUT: usize = 16 * 1024;
const DEFAULT_SIZE: (u32, u32) = (24, 80);
const MAX_TERM: usize = 64;
const DEFAULT_TERM: &str = "xterm-256color";

/// First message of a client: the session that it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) run: RunId,
    pub(super) command: SessionCommand,
    pub(super) term: String,
    pub(super) size: TerminalSize,
    /// Pauses the run for the session.
    pub(super) paused: bool,
}

/// Later message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Input(Vec<u8>),
    Resize(TerminalSize),
    Signal(TerminalSignal),
}

impl Start {
    /// Parses the first message of a stream.
    pub(super) fn parse(request: v1::OpenTerminalRequest) -> Result<Self, Refusal> {
        let Some(WireEvent::Start(start)) = request.event else {
            return Err(Refusal::invalid("start", "must be the first message of the stream"));
        };
        let run = RunId::parse(&start.run_id)?;
        let term = term(start.term)?;
        let (rows, columns) = start.size.map_or(DEFAULT_SIZE, |size| (size.rows, size.columns));
        let size = size("start.size", rows, columns)?;
        let command = command(start.command, start.cwd, &term, start.paused)?;
        Ok(Self { run, command, term, size, paused: start.paused })
    }
}

impl Event {
    /// Parses a later message.
    pub(super) fn parse(request: v1::OpenTerminalRequest) -> Result<Self, Refusal> {
        match request.event {
            Some(WireEvent::Input(input)) if input.len() > MAX_INPUT => {
                Err(Refusal::invalid("input", format!("is longer than {MAX_INPUT} bytes: send it in pieces")))
            }
            Some(WireEvent::Input(input)) => Ok(Self::Input(input)),
            Some(WireEvent::Resize(v1::TerminalSize { rows, columns })) => {
                size("resize", rows, columns).map(Self::Resize)
            }
            Some(WireEvent::Signal(signal)) => Ok(Self::Signal(match signal.kind() {
                Kind::Hup => TerminalSignal::Hup,
                Kind::Int => TerminalSignal::Int,
                Kind::Quit => TerminalSignal::Quit,
                Kind::Term => TerminalSignal::Term,
                Kind::Kill => TerminalSignal::Kill,
                Kind::Unspecified => {
                    return Err(Refusal::invalid("signal.kind", "must be one of HUP, INT, QUIT, TERM, KILL"));
                }
            })),
            Some(WireEvent::Start(_)) => Err(Refusal::invalid("start", "may come only once")),
            None => Err(Refusal::invalid("event", "is missing, or unknown to this daemon")),
        }
    }
}

fn term(term: String) -> Result<String, Refusal> {
    if term.is_empty() {
        return Ok(DEFAULT_TERM.to_owned());
    }
    let plain = term.len() <= MAX_TERM
        && term.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte));
    if plain {
        Ok(term)
    } else {
        Err(Refusal::invalid(
            "start.term",
            format!("must be at most {MAX_TERM} characters of [A-Za-z0-9+.-]"),
        ))
    }
}

fn size(field: &'static str, rows: u32, columns: u32) -> Result<TerminalSize, Refusal> {
    TerminalSize::new(rows, columns)
        .ok_or_else(|| Refusal::invalid(field, "rows and columns must be from 1 to 10,000"))
}

/// Returns the command of a session, within the bounds of `exec`. Without words it is the image's login shell.
///
/// If the run is paused for the shell, the shell is protected from the run. Without arguments the guest starts one that
/// reads no startup file and no settings of its line editor, which the run may have written. It saves no history of the
/// input.
fn command(words: Vec<String>, cwd: String, term: &str, paused: bool) -> Result<SessionCommand, Refusal> {
    let login_shell = words.is_empty();
    let env = BTreeMap::from([("TERM".to_owned(), term.to_owned())]);
    let shell: &[&str] = if paused { &["sh"] } else { &["sh", "-l"] };
    let words = if login_shell { shell.iter().map(ToString::to_string).collect() } else { words };
    let mut words = words.into_iter();
    let request = v1::ExecRequest {
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        cwd,
        env,
        ..Default::default()
    };
    let malformed = |malformed: Malformed| {
        let field = if malformed.field == "exec.cwd" { "start.cwd" } else { "start.command" };
        Refusal::from(Malformed { field: field.to_owned(), ..malformed })
    };
    let exec = Exec::parse_within(request, CommandLimits::USUAL).map_err(malformed)?;
    Ok(SessionCommand { exec, login_shell })
}

#[cfg(test)]
mod tests {
    use identity::RunId;
    use operations::Reason;
    use wire::v1::open_terminal_request::Event as Wire;
    use wire::v1::terminal_signal::Kind;
    use wire::v1::{self, OpenTerminalRequest, TerminalStart};
    use worker_protocol::client::{TerminalSignal, TerminalSize};

    use super::{Event, MAX_INPUT, Start};

    fn start(start: TerminalStart) -> OpenTerminalRequest {
        let run_id = if start.run_id.is_empty() { RunId::new().to_string() } else { start.run_id };
        OpenTerminalRequest { event: Some(Wire::Start(TerminalStart { run_id, ..start })) }
    }

    fn refused(request: TerminalStart) -> (Reason, String) {
        let refusal = Start::parse(start(request)).unwrap_err();
        let field = refusal.metadata.into_iter().find(|(name, _)| name == "field");
        (refusal.reason, field.map(|(_, field)| field).unwrap_or_default())
    }

    #[test]
    fn terminal_start_has_defaults() {
        let parsed = Start::parse(start(TerminalStart::default())).unwrap();
        assert!(parsed.command.login_shell && !parsed.paused);
        assert_eq!(
            (parsed.size, parsed.term.as_str()),
            (TerminalSize::new(24, 80).unwrap(), "xterm-256color")
        );
        assert_eq!(parsed.command.exec.env["TERM"], "xterm-256color");
        let alone = Start::parse(start(TerminalStart { paused: true, ..Default::default() })).unwrap();
        assert!(alone.command.login_shell && alone.paused && alone.command.exec.args.is_empty());
        let command = vec!["ls".to_owned(), "-l".to_owned()];
        let parsed = Start::parse(start(TerminalStart { command, ..Default::default() })).unwrap();
        assert!(!parsed.command.login_shell);
        assert_eq!((parsed.command.exec.command.as_str(), parsed.command.exec.args.len()), ("ls", 1));
    }

    #[test]
    fn terminal_start_values_are_bounded() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let bad = |field: &str| (Reason::InvalidArgument, field.to_owned());
        for (rows, columns) in [(0, 80), (24, 0), (10_001, 80), (24, u32::MAX), (65_536 + 24, 80)] {
            let size = Some(v1::TerminalSize { rows, columns });
            assert_eq!(refused(TerminalStart { size, ..Default::default() }), bad("start.size"));
        }
        for term in ["a b", "x;y", "../..", "ä", &"x".repeat(65)] {
            assert_eq!(
                refused(TerminalStart { term: term.to_owned(), ..Default::default() }),
                bad("start.term")
            );
        }
        for command in [words(&[""]), words(&["a\0"]), words(&["a", "b\0"])] {
            assert_eq!(refused(TerminalStart { command, ..Default::default() }), bad("start.command"));
        }
        let many = vec!["x".repeat(1_000); 200];
        assert_eq!(refused(TerminalStart { command: many, ..Default::default() }), bad("start.command"));
        let outside = TerminalStart { cwd: "/etc".to_owned(), ..Default::default() };
        assert_eq!(refused(outside), (Reason::SandboxViolation, "start.cwd".to_owned()));
        let nowhere = TerminalStart { run_id: "x".to_owned(), ..Default::default() };
        assert_eq!(refused(nowhere).0, Reason::NotFound);
        let input = OpenTerminalRequest { event: Some(Wire::Input(vec![])) };
        assert_eq!(Start::parse(input).unwrap_err().reason, Reason::InvalidArgument);
    }

    #[test]
    fn later_messages_are_input_size_or_signal_and_nothing_else() {
        let event = |event| Event::parse(OpenTerminalRequest { event });
        let signal = |kind| event(Some(Wire::Signal(v1::TerminalSignal { kind })));
        assert_eq!(event(Some(Wire::Input(b"x".to_vec()))).unwrap(), Event::Input(b"x".to_vec()));
        assert!(event(Some(Wire::Input(vec![0; MAX_INPUT]))).is_ok());
        assert_eq!(signal(Kind::Hup.into()).unwrap(), Event::Signal(TerminalSignal::Hup));
        let size = v1::TerminalSize { rows: 10_000, columns: 1 };
        let resized = Event::Resize(TerminalSize::new(10_000, 1).unwrap());
        assert_eq!(event(Some(Wire::Resize(size))).unwrap(), resized);
        for bad in [
            event(None),
            event(Some(Wire::Input(vec![0; MAX_INPUT + 1]))),
            event(Some(Wire::Resize(v1::TerminalSize::default()))),
            event(Some(Wire::Start(TerminalStart::default()))),
            signal(0),
            signal(9),
        ] {
            assert_eq!(bad.unwrap_err().reason, Reason::InvalidArgument);
        }
    }
}
