//! Commands that do only what their program does.

use operations::Exec;

use super::environment::redirects;
use super::see_through::{Seen, argv};

/// Returns the words of a plain command, or `None` for any other.
///
/// A plain command runs no other program that its arguments name, deletes no files that it finds, and sets no variable
/// that turns its program into another one.
pub(crate) fn plain_argv(exec: &Exec) -> Option<Vec<String>> {
    let seen = Seen::of_command(exec).ok()?;
    let argv = argv(exec);
    let plain = seen.is_plain_to(argv.len()) && !exec.env.keys().any(|name| redirects(name));
    plain.then_some(argv)
}
