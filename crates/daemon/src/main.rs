#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod app;
mod args;
mod cgroup_view;
mod check;
mod config;
mod images;
mod mcp;
mod memory;
mod policy;
mod programs;
mod recovery;
mod rpc;
mod startup;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

/// A fifth of a short call's time went into the C library's allocator: what one thread makes another one frees.
#[global_allocator]
static ALLOCATOR: memory::Wiping = memory::Wiping;

/// After everything was flushed, for threads that still block.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// Until a thread that blocked ends. Each has memory of its own, and no call waits for one to be made.
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

/// Half of the processors. Calls hardly compute here; the agents and their commands do, beside it. A second thread on two
/// processors costs a third of the calls a second, since the two of them keep waking each other.
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
    // What the daemon makes is its own, unless its mode is set on purpose.
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
    let ended = runtime.block_on(app::run(config, file, workers(), prepared));
    // Work that still blocks on a disk or an engine is not waited for.
    runtime.shutdown_timeout(STRAGGLERS);
    ended
}
