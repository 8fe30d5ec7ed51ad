//! How the daemon keeps its memory. [Decision 31](../../decisions/0031-what-an-idle-daemon-has-in-memory.md) has the
//! measurements.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// mimalloc reads these when the program is loaded, and from the environment alone. An operator's own values stay.
const ALLOCATOR: [(&str, &str); 2] = [
    // KiB. Its default is a gigabyte, of whose description 2 MiB are in memory from the start.
    ("MIMALLOC_ARENA_RESERVE", "65536"),
    // Milliseconds until freed memory goes back. It goes when something else is freed after that: with the default of a
    // second all that the start has freed stays, because an idle daemon frees nothing.
    ("MIMALLOC_PURGE_DELAY", "10"),
];

/// Has memory in small pages, here and in workers: of a huge one all is resident when a byte is used, which more than
/// doubled the daemon's memory. An old kernel that cannot do without is no error.
pub(crate) fn small_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Gives the allocator its options, unless it has them. They take this program from its beginning: it goes on as the same
/// process with the same arguments, after `before`. Without them it does the same in more memory.
#[expect(clippy::disallowed_methods, reason = "this very program, in this very process")]
pub(crate) fn allocator_options(before: impl FnOnce()) {
    let missing = ALLOCATOR.iter().filter(|(name, _)| std::env::var_os(name).is_none());
    let (Ok(program), Some(_)) = (std::env::current_exe(), missing.clone().next()) else { return };
    before();
    let mut arguments = std::env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    let error = again.args(arguments).envs(missing.copied()).exec();
    eprintln!("cofferd: goes on in more memory than it needs, since it cannot start itself anew: {error}");
}
