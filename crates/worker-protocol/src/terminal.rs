//! Terminal sizes, signals and input limits that both ends share.

use wire::worker::v1;

/// Most bytes in one Input frame.
pub const MAX_INPUT: usize = 16 * 1024;
/// Most bytes of input that the worker has not taken yet.
pub const MAX_UNTAKEN: usize = 64 * 1024;
/// Largest number of rows, and of columns.
const MAX_SIDE: u32 = 10_000;

/// A terminal's size in characters, 1 to 10,000 in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    rows: u16,
    columns: u16,
}

/// A signal that may be sent to a terminal's foreground process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TerminalSignal {
    Hup = 1,
    /// SIGINT, as Ctrl-C sends it.
    Int = 2,
    /// SIGQUIT, as Ctrl-\ sends it.
    Quit = 3,
    Kill = 9,
    Term = 15,
    Cont = 18,
    /// SIGTSTP, as Ctrl-Z sends it.
    Tstp = 20,
    /// SIGWINCH: the size has changed.
    Winch = 28,
}

impl TerminalSize {
    /// Makes a size. `None` if a side is 0 or more than 10,000.
    pub fn new(rows: u32, columns: u32) -> Option<Self> {
        let side = |side: u32| (1..=MAX_SIDE).contains(&side).then(|| u16::try_from(side).ok()).flatten();
        Some(Self { rows: side(rows)?, columns: side(columns)? })
    }

    pub fn rows(self) -> u16 {
        self.rows
    }

    pub fn columns(self) -> u16 {
        self.columns
    }
}

impl From<TerminalSize> for v1::TerminalSize {
    fn from(size: TerminalSize) -> Self {
        Self { rows: size.rows.into(), columns: size.columns.into() }
    }
}

impl TerminalSignal {
    const ALL: [Self; 8] =
        [Self::Hup, Self::Int, Self::Quit, Self::Kill, Self::Term, Self::Cont, Self::Tstp, Self::Winch];

    /// Returns its number on Linux.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the signal with this number, if it may be sent.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_bounds() {
        for (rows, columns) in [(0, 80), (24, 0), (10_001, 80), (24, u32::MAX)] {
            assert_eq!(TerminalSize::new(rows, columns), None, "{rows}x{columns}");
        }
        let size = TerminalSize::new(1, 10_000).unwrap();
        assert_eq!((size.rows(), size.columns()), (1, 10_000));
        assert_eq!(v1::TerminalSize::from(size), v1::TerminalSize { rows: 1, columns: 10_000 });
    }

    #[test]
    fn only_listed_signals_are_accepted() {
        let sent: Vec<_> =
            (0..70).filter_map(TerminalSignal::from_number).map(TerminalSignal::number).collect();
        assert_eq!(sent, [1, 2, 3, 9, 15, 18, 20, 28]);
    }
}
