//! Puts the local terminal into raw mode, and restores it at every kind of end.

use std::io;
use std::sync::Once;

use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use wire::v1::TerminalSize;

use crate::failure::Failure;

/// Mode of the terminal before. It is global, so that a panic of any thread can restore it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// Raw mode, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Raw(());

/// Fails if standard input or output is not a terminal.
pub(super) fn needed() -> Result<(), Failure> {
    if isatty(io::stdin()) && isatty(io::stdout()) {
        return Ok(());
    }
    Err(Failure::usage("`coffer run shell` needs a terminal on standard input and output")
        .with_hint("for scripts there are `coffer call shell` and `coffer call exec`"))
}

/// Returns the terminal's present size, or `None` if the terminal does not report it.
pub(super) fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    let (rows, columns) = (u32::from(size.ws_row), u32::from(size.ws_col));
    let known = (1..=10_000).contains(&rows) && (1..=10_000).contains(&columns);
    known.then_some(TerminalSize { rows, columns })
}

impl Raw {
    /// Enters raw mode, in which every key reaches the reader unchanged.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // Restores the terminal first, so that the panic's message can be read.
                restore();
                next(panic);
            }));
        });
        *BEFORE.lock() = Some(before);
        let guard = Self(());
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = BEFORE.lock().take() {
        // A terminal that is gone has no mode to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}
