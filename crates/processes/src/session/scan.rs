//! Finds the marks in the output of a session's terminal, and keeps the output between them.
//!
//! ```text
//!  IDLE ─ command given ─► GIVEN ─ first mark ─► RUNNING ─ second mark ─► IDLE
//! ```
//!
//! Trust boundary: every byte is hostile. The limit of the kept output and the length of one mark bound the memory.

use memchr::memchr_iter;

use super::lines::Mark;
use super::shown::Shown;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
/// Most digits of an exit code.
const CODE: usize = 3;

pub(super) struct Scan {
    phase: Phase,
    /// Bytes that may be the beginning of a mark.
    held: Vec<u8>,
    /// Offset of the first of them in the stream.
    at: u64,
    pub(super) shown: Shown,
    /// Exit code of the last command, if it is over, its code is known, and no caller has it yet.
    code: Option<i32>,
}

enum Phase {
    /// The output belongs to no command: prompts, and the output of jobs.
    Idle,
    /// The output does not belong to the command yet.
    Given { begin: Mark, end: Mark },
    Running {
        end: Mark,
        /// The exit code is that of the command.
        is_known: bool,
    },
}

/// The result of searching a mark in some bytes.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Mark {
        start: usize,
        end: usize,
        code: i32,
    },
    /// A mark may begin here; its end is still to come.
    Partly(usize),
    Nothing,
}

impl Found {
    fn is_before(&self, place: usize) -> bool {
        matches!(self, Self::Mark { start, .. } if *start < place)
    }
}

impl Scan {
    /// Returns the scan of a shell whose state is unknown. It can still be asked for `end`.
    pub(super) fn new(end: Mark, at: u64) -> Self {
        let phase = Phase::Running { end, is_known: false };
        Self { phase, held: Vec::new(), at, shown: Shown::default(), code: None }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Returns true if the running command was given here, or no command runs.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self.phase, Phase::Running { is_known: false, .. })
    }

    /// Returns the mark that ends the running command.
    pub(super) fn end(&self) -> Option<&Mark> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Given { end, .. } | Phase::Running { end, .. } => Some(end),
        }
    }

    /// Prepares for a command, and keeps at most `limit` bytes of its output. Drops earlier output.
    pub(super) fn give(&mut self, begin: Mark, end: Mark, limit: usize) {
        self.phase = Phase::Given { begin, end };
        self.code = None;
        self.shown = Shown::new(limit);
    }

    /// Returns the exit code of the command that is over, once.
    pub(super) fn take_code(&mut self) -> Option<i32> {
        self.code.take()
    }

    /// Scans further output of the terminal.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        while self.step() {}
    }

    /// Makes one step. Returns true if the held bytes may have more marks.
    fn step(&mut self) -> bool {
        match &self.phase {
            Phase::Idle => {
                self.skip(self.held.len());
                false
            }
            Phase::Given { begin, end } => match (find(begin, &self.held), find(end, &self.held)) {
                (Found::Mark { end: after, .. }, last) if !last.is_before(after) => {
                    self.phase = Phase::Running { end: end.clone(), is_known: true };
                    self.skip(after);
                    true
                }
                // The first mark is lost if the line is broken off early enough.
                (_, Found::Mark { end, code, .. }) => self.ended(end, Some(code)),
                (one, other) => {
                    let from = |found| if let Found::Partly(from) = found { from } else { self.held.len() };
                    self.skip(from(one).min(from(other)));
                    false
                }
            },
            Phase::Running { end, is_known } => match find(end, &self.held) {
                Found::Mark { start, end, code } => {
                    let code = Some(code).filter(|_| *is_known);
                    self.shown.push(&self.held[..start], self.at);
                    self.ended(end, code)
                }
                Found::Partly(from) => self.show(from),
                Found::Nothing => self.show(self.held.len()),
            },
        }
    }

    fn show(&mut self, count: usize) -> bool {
        self.shown.push(&self.held[..count], self.at);
        self.skip(count);
        false
    }

    fn ended(&mut self, count: usize, code: Option<i32>) -> bool {
        self.skip(count);
        self.phase = Phase::Idle;
        self.code = code;
        true
    }

    fn skip(&mut self, count: usize) {
        self.held.drain(..count);
        self.at += count as u64;
    }
}

fn find(mark: &Mark, bytes: &[u8]) -> Found {
    let beginning = mark.beginning();
    for start in memchr_iter(ESCAPE, bytes) {
        let here = &bytes[start..];
        let Some(code) = here.strip_prefix(beginning.as_slice()) else {
            if beginning.starts_with(here) {
                return Found::Partly(start);
            }
            continue;
        };
        let digits = code.iter().take_while(|byte| byte.is_ascii_digit()).count();
        match code.get(digits) {
            Some(&BELL) if (1..=CODE).contains(&digits) => {
                let code = code[..digits].iter().fold(0, |code, digit| code * 10 + i32::from(digit - b'0'));
                return Found::Mark { start, end: start + beginning.len() + digits + 1, code };
            }
            None if digits <= CODE => return Found::Partly(start),
            _ => {}
        }
    }
    Found::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 1_000;

    fn scan() -> (Scan, Mark, Mark) {
        let (begin, end) = (Mark::new(), Mark::new());
        let mut scan = Scan::new(Mark::new(), AT);
        scan.give(begin.clone(), end.clone(), 100);
        (scan, begin, end)
    }

    fn mark(mark: &Mark, code: &str) -> Vec<u8> {
        [mark.beginning(), code.as_bytes().to_vec(), vec![BELL]].concat()
    }

    #[test]
    fn output_is_the_text_between_the_marks_however_it_is_split() {
        let whole = |begin: &Mark, end: &Mark| {
            let forged = mark(&Mark::new(), "0");
            [
                b"> ",
                &mark(begin, "0")[..],
                b"one\x1b]12;\x1b[0m",
                &forged,
                b"two",
                &mark(end, "17"),
                b"> ",
                &mark(end, "0"),
            ]
            .concat()
        };
        for size in [1, 2, 7, 43, 1_000] {
            let (mut scan, begin, end) = scan();
            let all = whole(&begin, &end);
            all.chunks(size).for_each(|piece| scan.feed(piece));
            assert!(scan.is_idle());
            assert_eq!(scan.take_code(), Some(17), "pieces of {size}");
            assert_eq!(scan.take_code(), None);
            let shown = scan.shown.take(false);
            assert_eq!(shown.offset, AT + 2 + 44);
            assert!(shown.text.starts_with("one\u{1b}]12;") && shown.text.ends_with("\u{7}two"), "{shown:?}");
            assert_eq!(scan.held.len(), 0);
        }
    }

    #[test]
    fn lookalike_marks_are_output() {
        let (mut scan, begin, end) = scan();
        scan.feed(&mark(&begin, "0"));
        for code in ["", "1234", "x", "-1"] {
            scan.feed(&mark(&end, code));
        }
        scan.feed(&mark(&begin, "0"));
        assert!(!scan.is_idle());
        // Nothing is held back for longer than a mark is.
        scan.feed(&[ESCAPE; 1_000]);
        assert!(scan.held.len() <= 1);
        scan.feed(&mark(&end, "0"));
        assert_eq!(scan.take_code(), Some(0));
    }

    #[test]
    fn a_line_that_breaks_off_ends_with_the_same_mark() {
        let (mut scan, _, end) = scan();
        scan.feed(b"error\n");
        scan.feed(&mark(&end, "2"));
        assert_eq!(
            (scan.is_idle(), scan.take_code(), scan.shown.take(false).text),
            (true, Some(2), String::new())
        );
    }

    #[test]
    fn a_shell_in_an_unknown_state_is_asked_for_its_mark() {
        let end = Mark::new();
        let mut scan = Scan::new(end.clone(), AT);
        scan.feed(b"before");
        assert!(!scan.is_idle());
        scan.feed(&mark(&end, "0"));
        assert_eq!((scan.is_idle(), scan.take_code()), (true, None), "its code is that of nothing");
        assert_eq!(scan.shown.take(false).text, "before");
    }
}
