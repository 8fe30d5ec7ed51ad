//! How the daemon keeps its memory. [Decision 31](../../decisions/0031-what-an-idle-daemon-has-in-memory.md) has the
//! measurements.

mod sys;

pub(crate) use sys::Wiping;

use std::cell::Cell;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runs::Runs;
use rustix::process::DumpableBehavior;
use tokio_util::sync::CancellationToken;

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

/// Lets no core dump be made of the daemon's memory, which has the secrets of its runs.
pub(crate) fn no_core_dumps() {
    if let Err(error) = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("cofferd: a crash may leave a core dump with secrets in it: {error}");
    }
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
    eprintln!(
        "cofferd: cannot restart itself with its memory settings and will use more memory than needed: {error}"
    );
}

/// Time from the end of a run until its memory is given back: others end with it, and threads that blocked are over.
const SETTLED: Duration = Duration::from_secs(3);

/// Number of times that memory was to be given back.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The last of them in which this thread took part.
    static TOOK_PART: Cell<u64> = const { Cell::new(0) };
}

/// Gives memory back after runs have ended, until the daemon stops. A daemon whose runs do not end is never woken.
pub(crate) async fn give_back(runs: Arc<Runs>, workers: usize, stop: CancellationToken) {
    loop {
        for next in [true, false] {
            let waited = async { if next { runs.gone().await } else { tokio::time::sleep(SETTLED).await } };
            tokio::select! {
                () = stop.cancelled() => return,
                () = waited => {}
            }
        }
        ROUNDS.fetch_add(1, Ordering::Relaxed);
        // Each thread has pages that it alone gives back. One that waits is woken by a task.
        for _ in 0..workers {
            tokio::spawn(async { before_waiting() });
        }
        let of_store = runs.store.with(|_| {
            before_waiting();
            Ok::<_, store::StoreError>(())
        });
        let _ = of_store.await;
    }
}

/// Gives back what this thread has freed, if that is to be done. Threads of the runtime call it before they wait.
pub(crate) fn before_waiting() {
    let round = ROUNDS.load(Ordering::Relaxed);
    if TOOK_PART.replace(round) != round {
        sys::collect();
    }
}
