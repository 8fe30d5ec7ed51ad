//! Reads secrets from the output of commands.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use egress_rules::SecretName;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::error::Why;
use crate::secret::{Buffer, Secret};

/// Where programs that the command starts are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Time between a failed attempt and the next one.
const RETRY: Duration = Duration::from_secs(5);
/// Time in which a killed process has to be gone.
const GONE: Duration = Duration::from_secs(5);

/// A command whose output is a secret.
pub(crate) struct Command {
    name: SecretName,
    argv: Vec<String>,
    /// Time after which its processes are killed.
    timeout: Duration,
    /// Time for which its output counts.
    refresh: Duration,
    /// Held while the command runs, so that there is one at a time.
    known: Mutex<Known>,
}

/// Results of earlier attempts.
#[derive(Default)]
struct Known {
    /// The last value, and the end of the command that printed it. All who waited for a slow command use it.
    last: Option<(Instant, Arc<Secret>)>,
    /// The last failure, if no value came after it.
    failed: Option<(Instant, Why)>,
}

impl Known {
    /// Returns the last value if it is younger than this.
    fn younger(&self, age: Duration) -> Option<Arc<Secret>> {
        self.last.as_ref().filter(|(read, _)| read.elapsed() < age).map(|(_, secret)| Arc::clone(secret))
    }
}

impl Command {
    pub(crate) fn new(name: SecretName, argv: Vec<String>, timeout: Duration, refresh: Duration) -> Self {
        Self { name, argv, timeout, refresh, known: Mutex::default() }
    }

    /// Returns the value. Runs the command if the last value is too old.
    ///
    /// The command goes on if the caller stops waiting.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Arc<Secret>, Why> {
        if let Ok(known) = self.known.try_lock()
            && let Some(secret) = known.younger(self.refresh)
        {
            return Ok(secret);
        }
        let own = Arc::clone(self);
        tokio::spawn(async move { own.current().await }).await.unwrap_or(Err(Why::Interrupted))
    }

    async fn current(&self) -> Result<Arc<Secret>, Why> {
        let mut known = self.known.lock().await;
        if let Some(secret) = known.younger(self.refresh) {
            return Ok(secret);
        }
        let recent = known.failed.filter(|(when, _)| when.elapsed() < RETRY);
        let why = if let Some((_, why)) = recent {
            why
        } else {
            match run(&self.argv, self.timeout).await {
                Ok(secret) => {
                    let secret = Arc::new(secret);
                    *known = Known { last: Some((Instant::now(), Arc::clone(&secret))), failed: None };
                    return Ok(secret);
                }
                Err(why) => {
                    tracing::warn!(secret = %self.name, "the secret was not refreshed: {why}");
                    known.failed = Some((Instant::now(), why));
                    why
                }
            }
        };
        let last = known.younger(self.refresh.saturating_mul(2));
        if last.is_none() {
            known.last = None;
        }
        last.ok_or(why)
    }
}

/// A process whose group is killed when this is dropped, unless it has ended.
struct Running(Child);

impl Running {
    /// Kills the process group. Its number cannot belong to another one, because the process was not waited for yet.
    fn kill(&self) {
        let pid = self.0.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command, and returns its output.
async fn run(argv: &[String], longest: Duration) -> Result<Secret, Why> {
    let (program, arguments) = argv.split_first().ok_or(Why::Unknown)?;
    let started = tokio::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It may contain the value.
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut running = Running(started.map_err(|error| Why::Start(error.kind()))?);
    let result = timeout(longest, output(&mut running.0)).await.unwrap_or(Err(Why::Timeout));
    if result.is_err() {
        running.kill();
        let _ = timeout(GONE, running.0.wait()).await;
    }
    result
}

/// Reads the output of a process to its end, and waits for the process.
async fn output(child: &mut Child) -> Result<Secret, Why> {
    let mut stdout = child.stdout.take().ok_or(Why::Interrupted)?;
    let mut buffer = Buffer::new();
    while !buffer.is_full() {
        match stdout.read(buffer.space()).await.map_err(|_| Why::Interrupted)? {
            0 => break,
            count => buffer.add(count),
        }
    }
    if buffer.is_full() {
        return Err(Why::TooLong);
    }
    let status = child.wait().await.map_err(|_| Why::Interrupted)?;
    if !status.success() {
        return Err(status.code().map_or(Why::Killed, Why::Exit));
    }
    buffer.secret()
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
