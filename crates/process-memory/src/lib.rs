#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod sys;

pub use sys::Wiping;

use std::cell::Cell;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{DumpableBehavior, Resource, Rlimit};

/// Options of mimalloc. It reads them when the program is loaded, and only from the environment. An operator's values
/// stay.
const ALLOCATOR: [(&str, &str); 2] = [
    // KiB. The default is a gigabyte, and 2 MiB that describe it are in memory from the start.
    ("MIMALLOC_ARENA_RESERVE", "65536"),
    // Milliseconds until freed memory goes back to the kernel. It goes back only when something else is freed after
    // that. With the default of a second, all memory that the start has freed stays, because an idle daemon frees
    // nothing.
    ("MIMALLOC_PURGE_DELAY", "10"),
];

/// Disables huge pages, here and in workers. A huge page is resident as a whole once one of its bytes is used, which
/// more than doubled the daemon's memory.
///
/// It is no error if an old kernel cannot disable them.
pub fn small_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Prevents core dumps, because the daemon's memory holds the secrets of its runs.
///
/// The limit is for the programs that the daemon starts, because a new program can be dumped again. The kernel does not apply a limit of 0
/// to dumps that go to a program (core(5)). A limit of 1 byte prevents these as well, and is too small for a file.
pub fn no_core_dumps() {
    let behavior = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let limit = Rlimit { current: Some(1), maximum: Some(1) };
    let limited = rustix::process::setrlimit(Resource::Core, limit);
    if let Err(error) = behavior.and(limited) {
        eprintln!("cofferd: a crash may leave a core dump with secrets in it: {error}");
    }
}

/// Sets the options of the allocator unless they are set, and executes the program again so that they take effect.
///
/// It calls `before` first. The process and its arguments stay the same. If it fails, the daemon goes on and needs more
/// memory.
#[expect(clippy::disallowed_methods, reason = "this very program, in this very process")]
pub fn allocator_options(before: impl FnOnce()) {
    let missing = ALLOCATOR.iter().filter(|(name, _)| std::env::var_os(name).is_none());
    let (Ok(program), Some(_)) = (std::env::current_exe(), missing.clone().next()) else { return };
    before();
    let mut arguments = std::env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    let error = again.args(arguments).envs(missing.copied()).exec();
    eprintln!(
        "cofferd: cannot restart itself with its memory settings and will use more memory than needed: {error}"
    );
}

/// Number of the current round of giving memory back.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Last round in which this thread took part.
    static TOOK_PART: Cell<u64> = const { Cell::new(0) };
}

/// Begins a round: each thread gives memory back when it calls [`before_waiting`].
pub fn begin_round() {
    ROUNDS.fetch_add(1, Ordering::Relaxed);
}

/// Gives back the memory that this thread has freed, once in each round. Threads of the runtime call it before they
/// wait.
pub fn before_waiting() {
    let round = ROUNDS.load(Ordering::Relaxed);
    if TOOK_PART.replace(round) != round {
        sys::collect();
    }
}
