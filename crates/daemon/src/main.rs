#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod agent_check;
mod app;
mod args;
mod cgroup_view;
mod check;
mod config;
mod console;
mod hand_over;
mod mcp;
mod memory;
mod metrics;
mod notices;
mod policy;
mod programs;
mod recovery;
mod reload;
mod rpc;
mod startup;
mod traces;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use take_over::StopSignals;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::Ended;
use crate::hand_over::Beginning;

/// The allocator. With the C library's, a fifth of a short call's time went into memory that one thread allocates and
/// another frees.
#[global_allocator]
static ALLOCATOR: process_memory::Wiping = process_memory::Wiping;

/// Time that blocked threads have to end after everything was flushed.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// Idle time after which a thread for blocking work ends. An idle thread holds memory, and no call waits for a new one.
const IDLE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    match run(&args::Args::parse()) {
        Ok(code) => code,
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

/// Begins to note SIGHUP, which would end the process otherwise. Notes requests to stop, too, if they were held back until now.
///
/// This is done before the configuration is read, so that no change of it is missed: the daemon reloads after its start.
fn signals(were_stops_held: bool) -> anyhow::Result<(Signal, Option<StopSignals>)> {
    // The handlers are the process's, and outlive this runtime. A thread would be in the way of joining namespaces.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let hangups = signal(SignalKind::hangup())?;
    Ok((hangups, were_stops_held.then(StopSignals::with_held_back).transpose()?))
}

fn run(args: &args::Args) -> anyhow::Result<ExitCode> {
    process_memory::small_pages();
    if args.guard {
        return Ok(take_over::guard());
    }
    if args.versions {
        hand_over::print_versions();
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.config();
    let (hangups, stops) = signals(args.resume)?;
    let config = match &args.kept {
        // Where nothing could be kept, the file counts.
        Some(kept) => config::load(kept).or_else(|_| config::load(&file))?,
        None => config::load(&file)?,
    };
    if args.check_config {
        check::check(&file, &config)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.print_config {
        print!("{config}");
        return Ok(ExitCode::SUCCESS);
    }
    if args.upgrade {
        return hand_over::upgrade(&config);
    }
    if args.check_upgrade {
        return hand_over::check(&file, &config);
    }
    // Files that the daemon creates are private, unless it sets their mode.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    process_memory::allocator_options(|| startup::place_ahead(&config.state_dir));
    process_memory::no_core_dumps();
    // Before the first id is made.
    if let Some(id) = config.node.id {
        id.make_own();
    }
    let log = daemon_log::start(config.log_level.clone(), config.log_format);
    let mut beginning = Beginning::of(args, &config)?;
    let kept = hand_over::kept_config(&config.state_dir);
    match serve((config, &file), (log, hangups, stops), &mut beginning) {
        Ok(Ended::Stopped) => Ok(ExitCode::SUCCESS),
        // Every thread is replaced by this, so that nothing of this daemon writes beside its successor.
        Ok(Ended::HandsOver(heir, stops)) => {
            let config = std::path::absolute(&file)?;
            let files = (config.as_path(), kept.as_path());
            Err(heir.hand(&beginning.listeners, files, stops).into())
        }
        Err(error) => {
            beginning.fails(&error);
            Err(error)
        }
    }
}

fn serve(
    (config, file): (config::Config, &Path),
    (log, hangups, stops): (Arc<daemon_log::Log>, Signal, Option<StopSignals>),
    beginning: &mut Beginning,
) -> anyhow::Result<Ended> {
    let prepared = startup::prepare(&config.state_dir, beginning.patience)?;
    startup::open_files();
    cgroup_view::share();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_keep_alive(IDLE)
        .on_thread_park(process_memory::before_waiting)
        .enable_all()
        .build()?;
    // After `share`, because the service manager gets a thread.
    let process = app::Process { log, manager: Arc::default(), hangups, stops };
    let ended = runtime.block_on(app::run((config, file), workers(), prepared, process, beginning));
    if ended.is_err() {
        // The end of its tasks would unmount the directories of runs that were reattached. The next daemon needs them.
        std::mem::forget(runtime);
        return ended;
    }
    // Threads that still block on a disk or an engine are given up after a short time.
    runtime.shutdown_timeout(STRAGGLERS);
    ended
}
