//! Commands that are what they look like.

use ops::Exec;

use super::environment::redirects;
use super::see_through::{Seen, argv};

/// The words of a command that runs no other program which its arguments name, deletes nothing that it finds, and sets no
/// variable that makes its program into another. Nothing for any other.
pub(crate) fn plain_argv(exec: &Exec) -> Option<Vec<String>> {
    let seen = Seen::of_command(exec).ok()?;
    let argv = argv(exec);
    let plain = seen.is_plain_to(argv.len()) && !exec.env.keys().any(|name| redirects(name));
    plain.then_some(argv)
}
