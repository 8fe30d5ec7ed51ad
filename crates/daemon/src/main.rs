#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod app;
mod args;
mod cgroup_view;
mod check;
mod config;
mod console;
mod images;
mod mcp;
mod memory;
mod metrics;
mod notices;
mod policy;
mod programs;
mod recovery;
mod rpc;
mod startup;
mod trash;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

/// The allocator. With the C library's, a fifth of a short call's time went into memory that one thread allocates and
/// another frees.
#[global_allocator]
static ALLOCATOR: memory::Wiping = memory::Wiping;

/// Time that blocked threads have to end after everything was flushed.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// Idle time after which a thread for blocking work ends. An idle thread holds memory, and no call waits for a new one.
const IDLE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    match run(&args::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cofferd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of threads that execute tasks: half of the processors.
///
/// Calls hardly compute in the daemon. The agents and their commands do, on the same processors. A second thread on two
/// processors costs a third of the calls per second, since the two threads keep waking each other.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1))
}

fn run(args: &args::Args) -> anyhow::Result<()> {
    memory::small_pages();
    let file = args.config();
    let config = config::load(&file)?;
    if args.check_config {
        return check::check(&file, &config);
    }
    if args.print_config {
        print!("{config}");
        return Ok(());
    }
    // Files that the daemon creates are private, unless it sets their mode.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    memory::allocator_options(|| startup::place_ahead(&config.state_dir));
    memory::no_core_dumps();
    startup::log(&config);
    let prepared = startup::prepare(&config.state_dir)?;
    startup::open_files();
    cgroup_view::share();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_keep_alive(IDLE)
        .on_thread_park(memory::before_waiting)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(app::run(config, &file, workers(), prepared));
    // Threads that still block on a disk or an engine are given up after a short time.
    runtime.shutdown_timeout(STRAGGLERS);
    ended
}
