//! The local terminal in raw mode, and back again on every way out.

use std::io;
use std::sync::Once;

use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use wire::v1::TerminalSize;

use crate::failure::Failure;

/// How the terminal was. Here and not in a value, so that a panic of any thread finds it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// Raw mode; ends when dropped.
#[derive(Debug)]
pub(super) struct Raw(());

/// Makes sure that there is a terminal.
pub(super) fn needed() -> Result<(), Failure> {
    if isatty(io::stdin()) && isatty(io::stdout()) {
        return Ok(());
    }
    Err(Failure::usage("`coffer run shell` needs a terminal on standard input and output")
        .with_hint("for scripts there are `coffer call shell` and `coffer call exec`"))
}

/// The terminal's size now; `None` when it does not know.
pub(super) fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    let (rows, columns) = (u32::from(size.ws_row), u32::from(size.ws_col));
    let known = (1..=10_000).contains(&rows) && (1..=10_000).contains(&columns);
    known.then_some(TerminalSize { rows, columns })
}

impl Raw {
    /// Gives every key to the reader as it is.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // First, so that what it says can be read.
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
        // A terminal that is gone needs no mode.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}
